"""Rankers that read no text: what a model must beat.

    random         any order
    popularity     clicks of a candidate in training, in impressions and histories
    co-occurrence  Σ_h C[h, c] / √(n_h n_c) over the news h of a history: C[h, c] users clicked both, n_h clicked h

For co-occurrence a user is a history with the clicks of its impressions. Where histories grow from impression to
impression, only the longest counts, which has the others at its start. News of two folders are the same if their ids
are; one that training does not know scores 0. Labels of the folder that is ranked are never looked at.
"""

from itertools import pairwise
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
    if train.labels is None:
        raise UserError("the training impressions have no labels: popularity and co-occurrence count their clicks")
    if name == "popularity":
        scores = _popularity(train)[candidates]
    else:
        scores = _co_occurrence(train, test, number_of, candidates)
    return np.where(candidates < 0, 0.0, scores)


def _popularity(train: Clicks) -> np.ndarray:
    read = train.histories.take(np.flatnonzero(_longest(train.histories))).values
    clicked = train.candidates.values[train.labels == 1]
    return np.bincount(np.concatenate([read, clicked]), minlength=train.news.num_rows)


def _users(train: Clicks) -> sparse.csr_array:
    """Which news each user clicked: 1 or nothing. Users without a history are left out, nobody knows who is who."""
    rows = np.flatnonzero(_longest(train.histories))
    user_of = np.full(len(train.histories.offsets) - 1, -1)
    user_of[rows] = np.arange(len(rows))
    histories = train.histories.take(rows).last(_HISTORY)
    clicked = train.labels == 1
    users = np.repeat(user_of[train.history_of], train.candidates.lengths)[clicked]
    users = np.concatenate([np.repeat(np.arange(len(rows)), histories.lengths), users])
    news = np.concatenate([histories.values, train.candidates.values[clicked]])
    known = users >= 0
    shape = (len(rows), train.news.num_rows)
    found = sparse.csr_array((np.ones(known.sum(), np.float32), (users[known], news[known])), shape=shape)
    found.data[:] = 1
    return found


def _longest(histories: Ragged) -> np.ndarray:
    """Which histories are not the start of another one; the empty one always is."""
    ends = 4 * histories.offsets
    whole = histories.values.astype(">i4").tobytes()  # big-endian: bytes are ordered as the numbers are
    rows = [whole[start:end] for start, end in pairwise(ends)]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    found = np.zeros(len(rows), dtype=bool)
    for row, following in zip(order, [*order[1:], None], strict=True):
        found[row] = rows[row] and (following is None or not rows[following].startswith(rows[row]))
    return found


def _co_occurrence(train: Clicks, test: Clicks, number_of: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    clicked = _users(train)
    clicked = clicked @ sparse.diags_array(1 / np.sqrt(np.maximum(clicked.sum(axis=0), 1)))
    together = (clicked.T @ clicked).tocsr()
    together -= sparse.diags_array(together.diagonal())  # a news does not speak for itself
    scores = np.zeros(len(candidates))
    histories = test.histories.last(_HISTORY)
    by_history = np.argsort(test.history_of, kind="stable")
    for rows in np.array_split(by_history, -(-len(by_history) // _HISTORIES)):
        own = histories.take(test.history_of[rows])
        news = number_of[own.values]
        known = news >= 0
        places = np.repeat(np.arange(len(rows)), own.lengths)
        shape = (len(rows), train.news.num_rows)
        read = sparse.csr_array((np.ones(known.sum(), np.float32), (places[known], news[known])), shape=shape)
        ranked = Ragged(np.arange(len(candidates)), test.candidates.offsets).take(rows)
        found = (read @ together).toarray()
        scores[ranked.values] = found[np.repeat(np.arange(len(rows)), ranked.lengths), candidates[ranked.values]]
    return scores
