"""What a recommender is trained on: titles as one matrix of token ids, and clicks, each with non-clicks beside it.

An example is one click of an impression and K of its non-clicks, drawn anew every epoch by seed. In a batch every news
of all histories and candidates has its title once, however often it occurs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from fastformer.data.ragged import Ragged
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.tasks.recommendation.clicks import Clicks


class Titles(NamedTuple):
    """Token ids of all news: row i belongs to news number i."""

    ids: np.ndarray  # int32 (news, longest title)
    lengths: np.ndarray
    states: Tensor | None = None  # float16 (news, longest, width), by frozen layers of a pre-trained encoder
    cut: int = 0  # how many were longer

    def counts(self, vocab_size: int) -> np.ndarray:
        """How often each token occurs."""
        real = np.arange(self.ids.shape[1]) < self.lengths[:, None]
        return np.bincount(self.ids[real], minlength=vocab_size)

    def take(self, news: np.ndarray) -> dict[str, Tensor]:
        """Inputs of a model for some news, as wide as the longest of them."""
        lengths = self.lengths[news]
        width = max(1, lengths.max(initial=0))
        mask = np.arange(width) < lengths[:, None]
        inputs = {"input_ids": self.ids[news, :width], "attention_mask": mask}
        inputs = {name: torch.from_numpy(part.astype(np.int64)) for name, part in inputs.items()}
        if self.states is not None:
            inputs["title_states"] = self.states[torch.from_numpy(news), :width].float()
        return inputs


def news_texts(news: pa.Table, fields: Sequence[str]) -> list[str]:
    """What a model reads of each article: some columns, joined by spaces."""
    columns = [news[field].to_pylist() for field in fields]
    return [" ".join(parts) for parts in zip(*columns, strict=True)]


def encode_titles(news: pa.Table, tokenizer: PreTrainedTokenizerBase, fields: Sequence[str], max_length: int) -> Titles:
    """Tokenize every article once; longer ones are cut, and counted."""
    encoded, cut = encode_batch(tokenizer, news_texts(news, fields), max_length)
    lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
    ids, _ = Ragged.from_lengths(np.concatenate([*encoded, np.zeros(0, np.int32)]), lengths).padded(
        tokenizer.pad_token_id
    )
    ids = ids if ids.shape[1] else np.full((len(ids), 1), tokenizer.pad_token_id, np.int32)
    return Titles(ids, lengths, cut=cut)


class ClickExamples(Dataset):
    """Examples of training; `examples.__getitems__(indices)` is a batch, ready for the model."""

    def __init__(self, clicks: Clicks, titles: Titles, *, negatives: int, max_history: int, seed: int):
        impressions = np.repeat(np.arange(len(clicks), dtype=np.int64), clicks.candidates.lengths)
        clicked, passed = clicks.labels == 1, clicks.labels == 0
        counts = np.bincount(impressions[passed], minlength=len(clicks))
        self.passed = Ragged.from_lengths(clicks.candidates.values[passed], counts)
        usable = counts[impressions[clicked]] > 0  # nothing can be learned from a click beside which nothing stood
        self.impressions = impressions[clicked][usable]
        self.clicked = clicks.candidates.values[clicked][usable]
        if not len(self.clicked):
            raise UserError("no impression of the training data has both a click and a non-click; give more data")
        self.histories, self.history_of = clicks.histories.last(max_history), clicks.history_of
        self.titles, self.negatives, self.seed = titles, negatives, seed
        self.set_epoch(0)

    def __len__(self) -> int:
        return len(self.clicked)

    @property
    def lengths(self) -> np.ndarray:
        """Length of the history of every example."""
        return self.histories.lengths[self.history_of[self.impressions]]

    def set_epoch(self, epoch: int) -> None:
        """Draw the non-clicks of an epoch."""
        random = np.random.default_rng([self.seed, epoch, 1])
        places = draw_distinct(random, self.passed.lengths[self.impressions], self.negatives)
        rows = self.passed.values[np.maximum(places, 0) + self.passed.offsets[self.impressions][:, None]]
        self.drawn = np.where(places < 0, -1, rows)

    def __getitems__(self, places: Sequence[int]) -> dict[str, Tensor]:
        """A batch: titles of the distinct news, and histories and candidates as rows of them, the click first."""
        indices = np.asarray(places)
        history, history_mask = self.histories.take(self.history_of[self.impressions[indices]]).padded()
        drawn = self.drawn[indices]
        candidates = np.concatenate([self.clicked[indices][:, None], np.maximum(drawn, 0)], axis=1)
        candidate_mask = np.concatenate([np.ones((len(indices), 1), bool), drawn >= 0], axis=1)
        return batch_of(self.titles, history, history_mask, candidates, candidate_mask) | {
            "labels": torch.zeros(len(indices), dtype=torch.int64)
        }


def batch_of(
    titles: Titles, history: np.ndarray, history_mask: np.ndarray, candidates: np.ndarray, candidate_mask: np.ndarray
) -> dict[str, Tensor]:
    """Inputs of a model from news numbers (batch, …), each article with its title once."""
    if not history.shape[1]:  # nobody in this batch has clicked anything
        history, history_mask = (np.zeros((len(history), 1), part.dtype) for part in (history, history_mask))
    # Padding takes the number of an article that is there anyway.
    candidates = np.where(candidate_mask, candidates, candidates[:, :1])
    history = np.where(history_mask, history, candidates[:, :1])
    distinct, places = np.unique(np.concatenate([history, candidates], axis=1), return_inverse=True)
    places = torch.from_numpy(places.reshape(len(history), -1))
    return titles.take(distinct) | {
        "history": places[:, : history.shape[1]],
        "history_mask": torch.from_numpy(history_mask.astype(np.int64)),
        "candidates": places[:, history.shape[1] :],
        "candidate_mask": torch.from_numpy(candidate_mask.astype(np.int64)),
    }


def draw_distinct(random: np.random.Generator, counts: np.ndarray, size: int) -> np.ndarray:
    """For each row `size` different numbers below its count, all sets equally likely; -1 if it has too few.

    Floyd's algorithm on all rows at once: the j-th draw is from the first n-size+j+1 numbers, and a number that was
    drawn before gives way to the last of these.
    """
    drawn = np.full((len(counts), size), -1, dtype=np.int64)
    for step in range(size):
        last = counts - size + step
        number = random.integers(0, np.maximum(last, 0) + 1)
        number = np.where((drawn == number[:, None]).any(axis=1), last, number)
        drawn[:, step] = number
    few = counts < size
    drawn[few] = np.where(np.arange(size) < counts[few][:, None], np.arange(size), -1)
    return drawn
