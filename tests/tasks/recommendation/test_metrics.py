"""Metrics of impressions: against scikit-learn, against numbers worked by hand, and against a plain loop."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

from fastformer.errors import UserError
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics, ranks


def flat(*impressions: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pairs = [pair for impression in impressions for pair in impression]
    scores, labels = (np.array(column) for column in zip(*pairs, strict=True))
    return scores.astype(np.float32), labels.astype(np.int8), np.cumsum([0, *map(len, impressions)])


def test_worked_by_hand():
    scores, labels, offsets = flat([(0.9, 0), (0.8, 1), (0.1, 0), (0.7, 1)], [(1.0, 1), (2.0, 0)])
    found = impression_metrics(scores, labels, offsets)
    assert found["auc"] == pytest.approx((2 / 4 + 0) / 2)  # 2 of 4 pairs right, then 0 of 1
    assert found["mrr"] == pytest.approx(((1 / 2 + 1 / 3) / 2 + 1 / 2) / 2)  # ranks 2 and 3 of two clicks, then 2
    first = (1 / np.log2(3) + 1 / np.log2(4)) / (1 / np.log2(2) + 1 / np.log2(3))
    assert found["ndcg@5"] == found["ndcg@10"] == pytest.approx((first + 1 / np.log2(3)) / 2)
    assert (found["impressions"], found["without_positive"], found["one_class"]) == (2, 0, 0)


def test_only_the_first_five_and_ten_count():
    scores, labels, offsets = flat([(-place, int(place in (6, 11))) for place in range(1, 13)])
    found = impression_metrics(scores, labels, offsets)
    assert found["ndcg@5"] == 0
    assert found["ndcg@10"] == pytest.approx((1 / np.log2(7)) / (1 + 1 / np.log2(3)))


def test_equal_scores_are_half_right_and_ranked_by_place():
    scores, labels, offsets = flat([(1, 0), (1, 1), (1, 0), (0, 0)])
    found = impression_metrics(scores, labels, offsets)
    assert found["auc"] == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert found["mrr"] == 1 / 2
    assert ranks(scores, offsets).tolist() == [1, 2, 3, 4]


def test_one_class_has_no_auc_and_no_click_has_nothing():
    mixed = [(2, 1), (1, 0), (3, 0)]
    alone = impression_metrics(*flat(mixed))
    found = impression_metrics(*flat([(1, 0), (2, 0)], mixed, [(5, 1), (4, 1)], [(7, 0)]))
    assert (found["impressions"], found["without_positive"], found["one_class"]) == (4, 2, 3)
    assert found["auc"] == alone["auc"]
    assert found["mrr"] == pytest.approx((alone["mrr"] + (1 + 1 / 2) / 2) / 2)
    assert found["ndcg@5"] == pytest.approx((alone["ndcg@5"] + 1) / 2)
    with pytest.raises(UserError, match="nothing to rank"):
        impression_metrics(*flat([(1, 0), (2, 0)], [(5, 0)]))


def test_mrr_and_ndcg_do_not_need_an_auc():
    found = impression_metrics(*flat([(1, 0), (2, 0)], [(5, 1), (3, 1)]))
    assert "auc" not in found
    assert (found["mrr"], found["ndcg@5"], found["ndcg@10"]) == ((1 + 1 / 2) / 2, 1.0, 1.0)
    assert (found["without_positive"], found["one_class"]) == (1, 2)


def test_scores_must_be_numbers():
    scores, labels, offsets = flat([(np.nan, 1), (1, 0)])
    with pytest.raises(ValueError, match="finite"):
        impression_metrics(scores, labels, offsets)
    with pytest.raises(ValueError, match="1 scores for 2 candidates"):
        ranks(scores[:1], offsets)


impressions = st.lists(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 1)), min_size=1, max_size=14), min_size=1, max_size=12
)


@settings(deadline=None)
@given(impressions)
def test_as_scikit_learn_and_a_plain_loop_have_it(shown):
    shown.append([(0, 0), (1, 1)])  # one at least with both classes
    scores, labels, offsets = flat(*shown)
    auc, mrr, ndcg = [], [], {5: [], 10: []}
    for impression in shown:
        values, clicked = (np.array(column) for column in zip(*impression, strict=True))
        if clicked.any() and not clicked.all():
            auc.append(roc_auc_score(clicked, values))
        if clicked.any():
            order = sorted(range(len(values)), key=lambda place: -values[place])
            mrr.append(sum(clicked[place] / rank for rank, place in enumerate(order, 1)) / clicked.sum())
            by_place = -np.argsort(order)  # scikit-learn averages over ties: it is given the order instead
            for limit in ndcg:
                # It wants two candidates at least; of one, which is clicked, the value is 1.
                ndcg[limit].append(ndcg_score([clicked], [by_place], k=limit) if len(values) > 1 else 1.0)
    found = impression_metrics(scores, labels, offsets)
    expected = [np.mean(auc), np.mean(mrr), np.mean(ndcg[5]), np.mean(ndcg[10])]
    np.testing.assert_allclose([found[name] for name in METRICS], expected, rtol=1e-9)
    assert found["one_class"] == len(shown) - len(auc)
    assert found["without_positive"] == len(shown) - len(mrr)


@settings(deadline=None)
@given(impressions)
def test_ranks_are_a_permutation_by_score(shown):
    scores, _, offsets = flat(*shown)
    found = ranks(scores, offsets)
    for begin, end in pairwise(offsets):
        order = np.argsort(found[begin:end])
        assert sorted(found[begin:end]) == list(range(1, end - begin + 1))
        assert (np.diff(scores[begin:end][order]) <= 0).all()


def test_large_groups_are_cut(monkeypatch):
    draw = np.random.default_rng(0)
    offsets = np.cumsum(np.concatenate([[0], draw.integers(2, 6, 200)]))
    scores, labels = draw.random(offsets[-1]), (draw.random(offsets[-1]) < 0.4).astype(np.int8)
    whole, order = impression_metrics(scores, labels, offsets), ranks(scores, offsets)
    monkeypatch.setattr("fastformer.tasks.recommendation.metrics._MOST_VALUES", 7)
    assert impression_metrics(scores, labels, offsets) == whole
    assert (ranks(scores, offsets) == order).all()
