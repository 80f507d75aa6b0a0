"""Rankers that read no text: what a model must beat.

    random         any order
    popularity     clicks of a candidate in training, in impressions and histories
    co-occurrence  Σ_h C[h, c] / √(n_h n_c) over the news h of a history: C[h, c] users clicked both, n_h clicked h

A user is a history with the clicks of its impressions. Where histories grow from impression to impression, only the
longest of each user counts, which has the others at its start. News of two folders are the same if their ids are; one
that training does not know scores 0. Labels of the folder that is ranked are never looked at.
"""

from typing import Literal, get_args

import numpy as np
import pyarrow.compute as pc
from scipy import sparse

from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.tasks.recommendation.clicks import Clicks

Floor = Literal["random", "popularity", "co-occurrence"]
FLOORS: tuple[str, ...] = get_args(Floor)
_HISTORY = 50  # the last clicks, as many as the models read
_HISTORIES = 512  # scored at a time: a row of all news each


def floor_scores(name: Floor, train: Clicks, test: Clicks, seed: int = 0) -> np.ndarray:
    """One score a candidate of `test`, flat; `seed` is for `random` only."""
    if name not in FLOORS:
        raise UserError(f"unknown floor {name!r}; choose from {', '.join(FLOORS)}")
    if name == "random":
        return np.random.default_rng(seed).random(len(test.candidates.values))
    number_of = pc.index_in(test.news["id"], value_set=train.news["id"].combine_chunks()).fill_null(-1).to_numpy()
    candidates = number_of[test.candidates.values]
    users = _users(train)
    if name == "popularity":
        scores = np.asarray(users.sum(axis=0), dtype=np.float64).ravel()[candidates]
    else:
        scores = _co_occurrence(users, test, number_of, candidates)
    return np.where(candidates < 0, 0.0, scores)


def _users(train: Clicks) -> sparse.csr_array:
    """How often each user (a row of `train.histories`) clicked each news."""
    if train.labels is None:
        raise UserError("the training impressions have no labels: popularity and co-occurrence count their clicks")
    longest = _longest(train.histories)
    history_rows = np.repeat(np.arange(len(longest)), train.histories.lengths)
    clicked = train.labels == 1
    click_rows = np.repeat(train.history_of, train.candidates.lengths)[clicked]
    rows = np.concatenate([history_rows, click_rows])
    news = np.concatenate([train.histories.values, train.candidates.values[clicked]])
    counted = longest[rows]
    shape = (len(longest), train.news.num_rows)
    return sparse.csr_array((np.ones(counted.sum(), np.float32), (rows[counted], news[counted])), shape=shape)


def _longest(histories: Ragged) -> np.ndarray:
    """Which histories are not the start of another one. The empty one counts: it is of users without a history."""
    ends = 4 * histories.offsets
    whole = histories.values.astype(">i4").tobytes()  # big-endian: bytes are ordered as the numbers are
    rows = [whole[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    found = histories.lengths == 0
    for row, following in zip(order, [*order[1:], None], strict=True):
        found[row] |= following is None or not rows[following].startswith(rows[row])
    return found


def _co_occurrence(users: sparse.csr_array, test: Clicks, number_of: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    # Users without a history are one row together, which says nothing of what one person likes: of all
    # rows, the last clicks of each are enough.
    clicked = sparse.csr_array((np.ones_like(users.data), users.indices, users.indptr), shape=users.shape)
    times = np.asarray(clicked.sum(axis=0)).ravel()
    clicked = clicked @ sparse.diags_array(1 / np.sqrt(np.maximum(times, 1)))
    together = (clicked.T @ clicked).tocsr()
    together.setdiag(0)  # that a news was clicked before says nothing about the others
    scores = np.zeros(len(candidates))
    histories = test.histories.last(_HISTORY)
    by_history = np.argsort(test.history_of, kind="stable")
    for rows in np.array_split(by_history, -(-len(by_history) // _HISTORIES)):
        own = histories.take(test.history_of[rows])
        news = number_of[own.values]
        known = news >= 0
        places = np.repeat(np.arange(len(rows)), own.lengths)
        shape = (len(rows), users.shape[1])
        read = sparse.csr_array((np.ones(known.sum(), np.float32), (places[known], news[known])), shape=shape)
        ranked = Ragged(np.arange(len(candidates)), test.candidates.offsets).take(rows)
        found = (read @ together).toarray()
        scores[ranked.values] = found[np.repeat(np.arange(len(rows)), ranked.lengths), candidates[ranked.values]]
    return scores
