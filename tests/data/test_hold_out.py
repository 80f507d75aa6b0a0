"""Texts held out of the training data: enough of them, and no class loses all that it has."""

import numpy as np
import pytest

from fastformer.data.hold_out import hold_out


def split(labels: np.ndarray, few: int = 0) -> tuple[np.ndarray, np.ndarray]:
    training, validating = hold_out(len(labels), seed=0, most=5000, groups=labels, few=few)
    assert sorted([*training, *validating]) == list(range(len(labels)))
    return labels[training], labels[validating]


def test_a_tenth_of_every_class():
    _, validating = split(np.repeat([0, 1, 2], [100, 50, 20]))
    assert np.bincount(validating).tolist() == [10, 5, 2]


@pytest.mark.parametrize("size", [2, 4, 5])
def test_a_tenth_of_many_small_classes(size):
    training, validating = split(np.repeat(np.arange(1200), size))
    assert len(validating) == 120 * size
    assert len(np.unique(validating)) == 120 * size  # spread over the classes
    assert len(np.unique(training)) == 1200


def test_the_only_text_of_a_class_is_learned_from():
    training, validating = split(np.array([*range(50), 50, 50, 50, 50]))
    assert validating.tolist() == [50]
    assert len(np.unique(training)) == 51


def test_two_texts():
    training, validating = split(np.array([0, 1]), few=3000)
    assert (len(training), len(validating)) == (1, 1)
