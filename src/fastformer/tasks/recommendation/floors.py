"""Rankers that read no text: what a model must beat.

    random         any order
    popularity     n_c, how many users clicked the candidate c in training
    co-occurrence  Σ_h C[h, c] / √(n_h n_c) over the articles h of a history: C[h, c] users clicked both

Both come from one matrix X, 1 if a user clicked an article, in a history or an impression: n = Σ_u X[u], C = Xᵀ X. A
user who clicks an article twice counts once. Articles of two folders are the same if their ids are. An article that the
training folder does not have scores 0. The labels of the folder that is ranked are never looked at.
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
    """One score per candidate of `test`, flat; `seed` is for `random` only."""
    if name not in FLOORS:
        raise UserError(f"unknown floor {name!r}; choose from {', '.join(FLOORS)}")
    if name == "random":
        return np.random.default_rng(seed).random(len(test.candidates.values))
    number_of = pc.index_in(test.news["id"], value_set=train.news["id"].combine_chunks()).fill_null(-1).to_numpy()
    candidates = number_of[test.candidates.values]
    if train.labels is None:
        raise UserError("the training impressions have no labels: popularity and co-occurrence count their clicks")
    clicked = _clicked(train)
    if name == "popularity":
        scores = clicked.sum(axis=0)[candidates]
    else:
        scores = _co_occurrence(clicked, test, number_of, candidates)
    return np.where(candidates < 0, 0.0, scores)


def _clicked(train: Clicks) -> sparse.csr_array:
    """Which articles each user clicked (users, articles): 1 or nothing.

    An impression without a user id counts as a user of its own.
    """
    users = np.where(train.users < 0, train.users.max(initial=-1) + 1 + np.arange(len(train)), train.users)
    count = len(train.histories.lengths)
    reader, read = np.divmod(np.unique(users * count + train.history_of), count)  # each history of a user once
    histories = train.histories.take(read)
    clicked = train.labels == 1
    rows = [np.repeat(reader, histories.lengths), np.repeat(users, train.candidates.lengths)[clicked]]
    news = [histories.values, train.candidates.values[clicked]]
    places = np.concatenate(rows), np.concatenate(news)
    shape = (users.max(initial=-1) + 1, train.news.num_rows)
    found = sparse.csr_array((np.ones(len(places[0]), np.float32), places), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1
    return found


def _co_occurrence(
    clicked: sparse.csr_array, test: Clicks, number_of: np.ndarray, candidates: np.ndarray
) -> np.ndarray:
    clicked = clicked @ sparse.diags_array(1 / np.sqrt(np.maximum(clicked.sum(axis=0), 1)))
    together = (clicked.T @ clicked).tocsr()
    together -= sparse.diags_array(together.diagonal())  # an article does not vote for itself
    scores = np.zeros(len(candidates))
    histories = test.histories.last(_HISTORY)
    by_history = np.argsort(test.history_of, kind="stable")
    for rows in np.array_split(by_history, -(-len(by_history) // _HISTORIES)):
        own = histories.take(test.history_of[rows])
        news = number_of[own.values]
        known = news >= 0
        places = np.repeat(np.arange(len(rows)), own.lengths)
        shape = (len(rows), clicked.shape[1])
        read = sparse.csr_array((np.ones(known.sum(), np.float32), (places[known], news[known])), shape=shape)
        ranked = Ragged(np.arange(len(candidates)), test.candidates.offsets).take(rows)
        found = (read @ together).toarray()
        scores[ranked.values] = found[np.repeat(np.arange(len(rows)), ranked.lengths), candidates[ranked.values]]
    return scores
