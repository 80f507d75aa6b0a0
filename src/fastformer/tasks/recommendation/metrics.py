"""Ranking metrics of recommendation: AUC, MRR, nDCG@5 and nDCG@10 of each impression, averaged over impressions.

With the candidates of an impression in the order of their scores, best first, from rank 1, and y ∈ {0, 1} a click:

    AUC     share of pairs (clicked, not clicked) in the right order; equal scores count one half, as in scikit-learn
    MRR     Σ y / rank  ÷  Σ y               as MIND's own evaluation has it: the mean over all clicks, not the first
    nDCG@k  Σ_{rank ≤ k} (2^y − 1) / log2(rank + 1)  ÷  the same sum with all clicks ranked first

Equal scores are ranked by place in MRR and nDCG: the candidate that stands first in the file comes first. Impressions
with one class only have no AUC; those without a click have no metric at all. They are left out and counted. If no
impression has an AUC it is missing in the result.

Impressions with equally many candidates make a matrix: the work is a few sorts of matrices, no loop over impressions.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastformer.errors import UserError, diverged

METRICS = {"auc": "AUC", "mrr": "MRR", "ndcg@5": "nDCG@5", "ndcg@10": "nDCG@10"}  # as people write them
_MOST_VALUES = 1 << 22  # of a matrix: larger ones would only miss the processor's cache


def impression_metrics(scores: np.ndarray, labels: np.ndarray, offsets: np.ndarray) -> dict[str, Any]:
    """The averages of METRICS, and how many impressions there are: in all, without a click, of one class only.

    `scores` and `labels` have one value per candidate; `offsets` are those of `Clicks.candidates`.
    """
    count = len(offsets) - 1
    found = metrics_of_each(scores, labels, offsets)
    one_class, without = (int(np.isnan(found[name]).sum()) for name in ("auc", "mrr"))
    if without == count:
        raise UserError("no impression has a click: there is nothing to rank")
    averages = {name: float(np.nanmean(values)) for name, values in found.items() if not np.isnan(values).all()}
    return {**averages, "impressions": count, "without_positive": without, "one_class": one_class}


def metrics_of_each(scores: np.ndarray, labels: np.ndarray, offsets: np.ndarray) -> dict[str, np.ndarray]:
    """METRICS of every impression; nan if it has none."""
    _check(scores, offsets)
    found = {name: np.full(len(offsets) - 1, np.nan) for name in METRICS}
    for rows, places in _matrices(offsets):
        order = np.argsort(-scores[places], axis=1, kind="stable")
        ranked = np.take_along_axis(labels[places], order, axis=1).astype(np.float64)
        clicks = ranked.sum(axis=1)
        with np.errstate(invalid="ignore"):  # 0 / 0 is what an impression without the metric has
            found["auc"][rows] = _auc(np.take_along_axis(scores[places], order, axis=1), ranked)
            found["mrr"][rows] = (ranked / np.arange(1, ranked.shape[1] + 1)).sum(axis=1) / clicks
            for limit in (5, 10):
                found[f"ndcg@{limit}"][rows] = _ndcg(ranked, clicks, limit)
    return found


def ranks(scores: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The rank of every candidate in its impression, from 1 for the best; equal scores by place. Flat, int32."""
    _check(scores, offsets)
    found = np.empty(len(scores), dtype=np.int32)
    for _, places in _matrices(offsets):
        order = np.argsort(-scores[places], axis=1, kind="stable")
        found[np.take_along_axis(places, order, axis=1)] = np.arange(1, places.shape[1] + 1, dtype=np.int32)
    return found


def _auc(scores: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    """From the mean ranks r of equal scores: (Σ_clicks (n + 1 − r) − P (P + 1) / 2) / (P · (n − P)), P clicks of n."""
    count = scores.shape[1]
    places = np.arange(count)
    starts = np.ones(scores.shape, dtype=bool)  # where a run of equal scores starts
    starts[:, 1:] = scores[:, 1:] != scores[:, :-1]
    ends = np.ones(scores.shape, dtype=bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, count)[:, ::-1], axis=1)[:, ::-1]
    rank = (first + last) / 2 + 1
    clicks = ranked.sum(axis=1)
    return ((ranked * (count + 1 - rank)).sum(axis=1) - clicks * (clicks + 1) / 2) / (clicks * (count - clicks))


def _ndcg(ranked: np.ndarray, clicks: np.ndarray, limit: int) -> np.ndarray:
    limit = min(limit, ranked.shape[1])
    discounts = 1 / np.log2(np.arange(limit) + 2)
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(clicks, limit).astype(int)]
    return (2 ** ranked[:, :limit] - 1) @ discounts / ideal


def _matrices(offsets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Impressions with equally many candidates, and where those stand: (impressions), (impressions, candidates)."""
    lengths = np.diff(offsets)
    by_length = np.argsort(lengths, kind="stable")
    for same in np.split(by_length, np.flatnonzero(np.diff(lengths[by_length])) + 1):
        length = lengths[same[0]] if len(same) else 0
        if length:
            for rows in np.array_split(same, -(-len(same) * length // _MOST_VALUES)):
                yield rows, offsets[rows, None] + np.arange(length)


def _check(scores: np.ndarray, offsets: np.ndarray) -> None:
    if len(scores) != offsets[-1]:
        raise ValueError(f"{len(scores)} scores for {offsets[-1]} candidates")
    if not np.isfinite(scores).all():
        raise diverged()
