"""Batches hold what they should, in an order that depends on seed and epoch alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastformer.data.batches import (
    EncodedTextsWriter,
    LengthBuckets,
    PadCollator,
    pad_batch,
    token_budget_batches,
)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 3), st.booleans())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_every_text_once_an_epoch(lengths, batch_size, epoch, by_tokens):
    buckets = LengthBuckets(np.array(lengths), batch_size, seed=1, by_tokens=by_tokens)
    buckets.set_epoch(epoch)
    batches = list(buckets)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len(batches) == len(buckets)
    assert all(batches)
    if not by_tokens:
        assert max(map(len, batches)) <= batch_size


@pytest.mark.parametrize("by_tokens", [False, True])
def test_order_depends_on_seed_and_epoch_alone(by_tokens):
    def order(seed, epoch):
        buckets = LengthBuckets(np.arange(1000) % 97, 16, seed, by_tokens)
        buckets.set_epoch(epoch)
        return list(buckets)

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


@pytest.mark.parametrize("by_tokens", [False, True])
def test_batches_hold_similar_lengths(by_tokens):
    lengths = np.random.default_rng(0).integers(1, 1000, 5000)
    batches = [lengths[batch] for batch in LengthBuckets(lengths, 32, seed=0, by_tokens=by_tokens)]
    padded = sum(len(batch) * batch.max() for batch in batches)
    assert padded < 1.1 * lengths.sum()
    # Not sorted over the epoch: short and long batches come mixed.
    means = np.array([batch.mean() for batch in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_tokens_fill_a_batch():
    lengths = np.random.default_rng(0).integers(1, 1000, 5000)
    tokens = [lengths[batch].sum() for batch in LengthBuckets(lengths, 32, seed=0, by_tokens=True)]
    rows = [lengths[batch].sum() for batch in LengthBuckets(lengths, 32, seed=0)]
    assert max(tokens) < 1.2 * np.mean(tokens)
    assert max(rows) > 1.8 * np.mean(rows)


def test_encoded_texts_come_back_from_disk(tmp_path):
    texts = [np.array([3, 4, 5]), np.array([], dtype=int), np.array([70_000])]
    with EncodedTextsWriter(tmp_path / "tokens") as writer:
        for ids in texts:
            writer.add(ids)
        encoded = writer.finish(np.array([1, 0, 1]))
    assert [encoded[i]["input_ids"].tolist() for i in range(3)] == [[3, 4, 5], [], [70_000]]
    assert encoded.lengths.tolist() == [3, 0, 1]
    batch = PadCollator(pad_token_id=9)([encoded[i] for i in range(3)])
    assert batch["input_ids"].tolist() == [[3, 4, 5], [9, 9, 9], [70_000, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert batch["labels"].tolist() == [1, 0, 1]


def test_texts_without_any_token_still_make_a_batch(tmp_path):
    with EncodedTextsWriter(tmp_path / "tokens") as writer:
        writer.add(np.array([], dtype=int))
        encoded = writer.finish(None)
    batch = pad_batch([encoded[0]["input_ids"]], 0)
    assert batch["input_ids"].shape == (1, 1)
    assert not batch["attention_mask"].any()
    assert batch["input_ids"].dtype == torch.int64


@given(st.lists(st.integers(0, 300), max_size=100), st.integers(1, 1000))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_token_budget(lengths, budget):
    lengths = np.array(lengths, dtype=int)
    batches = token_budget_batches(lengths, budget)
    assert sorted(np.concatenate(batches).tolist() if batches else []) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(1, lengths[batch].max()) <= budget
