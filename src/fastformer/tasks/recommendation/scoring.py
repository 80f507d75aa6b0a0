"""Scores of all candidates of all impressions, each news encoded once and each history once.

A recommender that has vectors scores with dot products: s = u·r. FIM has none: the segments of titles are kept, and
matched for some impressions at a time.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fastformer.data.batches import token_budget_batches
from fastformer.data.ragged import Ragged
from fastformer.engine.inference import BATCH_TOKENS
from fastformer.modeling import FastformerForRecommendation, NewsRecommender
from fastformer.surroundings.machine import physical_memory, tune
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.examples import Titles

_PAIRS_AT_ONCE = 1 << 14
_CUBES_AT_ONCE = 1 << 8


def score_clicks(
    model: NewsRecommender, titles: Titles, clicks: Clicks, max_history: int, *, show_progress: bool = False
) -> np.ndarray:
    """A score of every candidate, float32, aligned with `clicks.candidates.values`; larger is better."""
    tune()
    total = len(titles.lengths) + len(clicks)
    with progress_bar("Scoring", total=total, show=show_progress) as advance, torch.inference_mode():
        return match_clicks(model, encode_news(model, titles, advance), clicks, max_history, advance)


def match_clicks(
    model: NewsRecommender, news: Tensor, clicks: Clicks, max_history: int, advance: Callable[[int], None]
) -> np.ndarray:
    """The same, given what `encode_news` keeps of every title."""
    match = _dot_products if isinstance(model, FastformerForRecommendation) else _matched
    return match(model, news, clicks, max_history, advance)


def encode_news(model: NewsRecommender, titles: Titles, advance: Callable[[int], None] = lambda _: None) -> Tensor:
    """What the model keeps of every title (news, …), on the CPU."""
    kept: Tensor | None = None
    for batch in token_budget_batches(titles.lengths, BATCH_TOKENS):
        inputs = {name: part.to(model.device) for name, part in titles.take(batch).items()}
        encoded = model.encode_news(**inputs).float().cpu()
        if kept is None:
            kept = encoded.new_zeros(len(titles.lengths), *encoded.shape[1:])
        kept[torch.from_numpy(batch)] = encoded
        advance(len(batch))
    return kept


@torch.no_grad()
def keep_states(model: FastformerForRecommendation, titles: Titles, show: bool = False) -> Titles:
    """The titles with their token vectors by what is frozen of a pre-trained encoder: it reads each title once.

    They are kept in float16, half the memory, which changes a score by a thousandth of itself; not if they would take
    more than half of the machine's. Titles are as they were if nothing is frozen.
    """
    needed = 2 * titles.ids.size * model.news.plm.config.hidden_size
    if needed > physical_memory() / 2:
        if show:
            say(f"Token vectors of all titles would take {needed / 1e9:,.0f} GB: they are made again at every step.")
        return titles
    tune()
    states: Tensor | None = None
    with progress_bar("Reading titles", total=len(titles.lengths), show=show) as advance:
        for batch in token_budget_batches(titles.lengths, BATCH_TOKENS):
            inputs = {name: part.to(model.device) for name, part in titles.take(batch).items()}
            read = model.eval().read_titles(**inputs)
            if read is None:
                return titles
            if states is None:
                states = torch.zeros(*titles.ids.shape, read.shape[-1], dtype=torch.float16)
            largest = torch.finfo(states.dtype).max
            states[torch.from_numpy(batch), : read.shape[1]] = read.clamp(-largest, largest).cpu().to(states.dtype)
            advance(len(batch))
    return titles._replace(states=states)


def encode_users(model: FastformerForRecommendation, news: Tensor, clicks: Clicks, max_history: int) -> Tensor:
    """The vector of each distinct history (histories, width), on the CPU."""
    histories = clicks.histories.last(max_history)
    users = news.new_zeros(len(histories.lengths), news.shape[1])
    for batch in token_budget_batches(histories.lengths, BATCH_TOKENS):
        numbers, mask = _at_least_one(*histories.take(batch).padded())
        clicked = news[torch.from_numpy(numbers)].to(model.device, model.dtype)
        found = model.encode_users(clicked, torch.from_numpy(mask).to(model.device))
        users[torch.from_numpy(batch)] = found.float().cpu()
    return users


def _at_least_one(numbers: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A batch of empty histories is one place wide, of padding."""
    if numbers.shape[1]:
        return numbers, mask
    return np.zeros((len(numbers), 1), numbers.dtype), np.zeros((len(mask), 1), mask.dtype)


def _dot_products(
    model: NewsRecommender, news: Tensor, clicks: Clicks, max_history: int, advance: Callable[[int], None]
) -> np.ndarray:
    users = encode_users(model, news, clicks, max_history)
    candidates, offsets = clicks.candidates
    scores = np.empty(len(candidates), dtype=np.float32)
    for start in range(0, len(candidates), _PAIRS_AT_ONCE):
        pairs = np.arange(start, min(start + _PAIRS_AT_ONCE, len(candidates)))
        impressions = np.searchsorted(offsets, pairs, side="right") - 1
        shown, seen_by = torch.from_numpy(candidates[pairs]), torch.from_numpy(clicks.history_of[impressions])
        scores[pairs] = (news[shown] * users[seen_by]).sum(dim=-1).numpy()
    advance(len(clicks))
    return scores


def _matched(
    model: NewsRecommender, news: Tensor, clicks: Clicks, max_history: int, advance: Callable[[int], None]
) -> np.ndarray:
    histories = clicks.histories.last(max_history)
    scores = np.empty(len(clicks.candidates.values), dtype=np.float32)
    pieces, impression_of = _pieces(clicks.candidates, _CUBES_AT_ONCE)
    places, first = pieces._replace(values=np.arange(len(scores))), np.diff(impression_of, prepend=-1) > 0
    for batch in token_budget_batches(pieces.lengths, _CUBES_AT_ONCE):
        history, mask = _at_least_one(*histories.take(clicks.history_of[impression_of[batch]]).padded())
        candidates, real = pieces.take(batch).padded()
        distinct, rows = np.unique(np.concatenate([history, candidates], axis=1), return_inverse=True)
        rows = torch.from_numpy(rows.reshape(len(batch), -1)).to(model.device)
        found = model.match(
            news[torch.from_numpy(distinct)].to(model.device, model.dtype),
            rows[:, : history.shape[1]],
            torch.from_numpy(mask).to(model.device),
            rows[:, history.shape[1] :],
        )
        scores[places.take(batch).values] = found.float().cpu().numpy()[real]
        advance(int(first[batch].sum()))
    return scores


def _pieces(candidates: Ragged, limit: int) -> tuple[Ragged, np.ndarray]:
    """Rows cut into pieces of at most `limit` values, in their order, and the row that each piece comes from."""
    count = np.maximum(1, -(-candidates.lengths // limit))
    row_of = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(row_of)) - np.repeat(np.cumsum(count) - count, count)  # of a piece in its row
    starts = candidates.offsets[row_of] + limit * number
    return Ragged(candidates.values, np.append(starts, candidates.offsets[-1])), row_of
