"""Training examples: a click and non-clicks of the same impression, drawn anew every epoch; each title once."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.examples import ClickExamples, Titles, draw_distinct


def made_up(labels: list[list[int]]) -> Clicks:
    """Impressions over 40 news: the candidates of impression i begin with news 10·i; a history of i news."""
    candidates = [np.arange(len(row), dtype=np.int32) + 10 * number for number, row in enumerate(labels)]
    histories = [np.arange(number, dtype=np.int32) + 30 for number in range(len(labels))]
    return Clicks(
        news=pa.table({"id": [f"N{number}" for number in range(40)]}),
        impression_ids=np.arange(len(labels)),
        users=np.arange(len(labels), dtype=np.int32),
        times=np.arange(len(labels), dtype=float),
        histories=Ragged.from_lengths(np.concatenate(histories), np.array([len(row) for row in histories])),
        history_of=np.arange(len(labels), dtype=np.int32),
        candidates=Ragged.from_lengths(np.concatenate(candidates), np.array([len(row) for row in candidates])),
        labels=np.concatenate([np.array(row, dtype=np.int8) for row in labels]),
        quirks={},
    )


def titles() -> Titles:
    """News n has n % 3 + 1 words, all of them n."""
    lengths = np.arange(40) % 3 + 1
    return Titles(np.where(np.arange(3) < lengths[:, None], np.arange(40)[:, None], 0).astype(np.int32), lengths)


def examples(labels, negatives=4, max_history=50, seed=0):
    return ClickExamples(made_up(labels), titles(), negatives=negatives, max_history=max_history, seed=seed)


LABELS = [[0, 1, 0, 0, 0, 0, 0], [1, 0, 1], [1, 1], [0, 0]]


def numbers(batch, name):
    """News numbers: the title of news n is made of the word n."""
    return batch["input_ids"][:, 0][batch[name]].numpy()


def test_an_example_is_a_click_and_other_candidates_of_its_impression():
    data = examples(LABELS)
    assert len(data) == 3  # the third impression has nothing to compare with, the fourth no click
    batch = data.__getitems__([0, 1, 2])
    found, real = numbers(batch, "candidates"), batch["candidate_mask"].numpy().astype(bool)
    assert found[:, 0].tolist() == [1, 10, 12]
    assert batch["labels"].tolist() == [0, 0, 0]
    assert set(found[0, 1:]) <= {0, 2, 3, 4, 5, 6}
    assert len(set(found[0, 1:])) == 4
    assert found[1][real[1]].tolist() == [10, 11]
    assert found[2][real[2]].tolist() == [12, 11]


def test_histories_are_the_last_clicks_oldest_first():
    whole, cut = (examples([[1, 0]] * 3, max_history=limit).__getitems__([0, 1, 2]) for limit in (50, 1))
    assert whole["history_mask"].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert numbers(whole, "history")[2].tolist() == [30, 31]
    assert cut["history_mask"].tolist() == [[0], [1], [1]]
    assert numbers(cut, "history")[1:, 0].tolist() == [30, 31]


def test_each_title_is_there_once_and_padded_to_the_longest():
    batch = examples(LABELS).__getitems__(np.arange(3))
    first = batch["input_ids"][:, 0].tolist()
    assert first == sorted(set(first))
    assert batch["attention_mask"].sum(dim=1).tolist() == [number % 3 + 1 for number in first]


def test_a_batch_of_empty_histories():
    batch = examples([[1, 0]]).__getitems__([0])
    assert batch["history_mask"].tolist() == [[0]]


def test_non_clicks_change_with_epoch_and_seed_and_with_nothing_else():
    data, same, other = examples(LABELS), examples(LABELS), examples(LABELS, seed=1)
    start = data.drawn
    assert np.array_equal(start, same.drawn)
    drawn = []
    for epoch in range(6):
        data.set_epoch(epoch)
        drawn.append(data.drawn[0].tolist())
    assert len({tuple(row) for row in drawn}) > 1
    data.set_epoch(0)
    assert np.array_equal(start, data.drawn)
    draws = []
    for epoch in range(6):
        other.set_epoch(epoch)
        draws.append(other.drawn[0].tolist())
    assert draws != drawn


def test_draws_are_different_numbers_and_all_sets_equally_likely():
    drawn = draw_distinct(np.random.default_rng(0), np.full(20_000, 5), 3)
    sets = Counter(tuple(sorted(row)) for row in drawn.tolist())
    assert len(sets) == 10
    assert all(len(set(one)) == 3 for one in sets)
    assert max(sets.values()) < 1.2 * min(sets.values())
    few = draw_distinct(np.random.default_rng(0), np.array([0, 1, 3]), 3)
    assert few[:2].tolist() == [[-1, -1, -1], [0, -1, -1]]
    assert sorted(few[2]) == [0, 1, 2]


def test_data_without_anything_to_compare_is_refused():
    with pytest.raises(UserError, match="both a click and a non-click"):
        examples([[1, 1], [0]])
