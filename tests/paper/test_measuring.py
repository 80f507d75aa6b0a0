"""What a measurement is made on."""

import numpy as np

from fastformer.data.batches import LengthBuckets
from fastformer.paper.measuring import short_to_long


def padded(lengths, batches):
    """Places per batch, padding included."""
    return np.mean([len(batch) * lengths[batch].max() for batch in batches])


def test_a_measured_step_has_the_batches_of_a_training():
    lengths = (np.random.default_rng(0).lognormal(4, 1, size=20_000).astype(int) + 1).clip(max=512)
    epoch = list(LengthBuckets(lengths, 64, seed=0))
    found = short_to_long(lengths, 64, 20)
    longest = [lengths[batch].max() for batch in found]
    assert len(found) == 20
    assert longest == sorted(longest)
    assert all(batch in epoch for batch in found)
    assert 0.95 < padded(lengths, found) / padded(lengths, epoch) < 1.05


def test_a_short_epoch_is_measured_whole():
    assert len(short_to_long(np.arange(100), 64, 5)) == 2
