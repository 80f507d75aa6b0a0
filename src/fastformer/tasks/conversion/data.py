"""Events -> arrays -> batches.

Each distinct text is kept once and tokenized once; an event is a list of numbers of texts, in a file that
is mapped into memory. So a log may be larger than memory as long as its distinct texts are not.
"""

import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fastformer.data.batches import EncodedTextsWriter
from fastformer.data.ragged import Ragged
from fastformer.engine.settings import settled
from fastformer.tasks.conversion.events import Columns, Event
from fastformer.tasks.conversion.features import SideFeatures


@dataclass
class Events:
    """Many events as arrays. `tokens` and `inputs` are filled in once a tokenizer and the features are known."""

    texts: list[str]  # each distinct text once
    behaviors: Ragged  # numbers of texts, the latest last
    ads: np.ndarray  # number of a text
    labels: np.ndarray
    times: np.ndarray  # nan if there is none
    numbers: np.ndarray  # (rows, columns)
    category_numbers: np.ndarray  # (rows, columns): places in `category_values`
    category_values: list[list[str]]
    tokens: Ragged | None = None  # token ids of each text
    inputs: dict[str, np.ndarray] = field(default_factory=dict)  # `numeric`, `categories`: further inputs of the model

    def learn_features(self, columns: Columns, rows: np.ndarray) -> SideFeatures:
        """Learn from some rows how side features become numbers, and apply it to all."""
        counts = [
            np.bincount(column[rows], minlength=len(values))
            for column, values in zip(self.category_numbers.T, self.category_values, strict=True)
        ]
        features = SideFeatures.learn(columns, self.numbers[rows], self.category_values, counts)
        self.inputs = {}
        if columns.numeric:
            self.inputs["numeric"] = features.standardised(self.numbers)
        if columns.categorical:
            found = zip(columns.categorical, self.category_values, self.category_numbers.T, strict=True)
            numbers = [features.numbers_of(name, values)[column] for name, values, column in found]
            self.inputs["categories"] = np.stack(numbers, axis=1)
        return features

    def batch(self, numbers: Sequence[int] | np.ndarray, pad_token_id: int) -> dict[str, Tensor]:
        """Model inputs of some rows; a text that occurs in several of them, or several times, is there once."""
        rows = np.asarray(numbers)
        lists = self.behaviors.take(rows)
        found, places = np.unique(np.concatenate([lists.values, self.ads[rows]]), return_inverse=True)
        behaviors, behavior_mask = padded(Ragged(places[: len(lists.values)], lists.offsets))
        input_ids, attention_mask = padded(settled(self.tokens).take(found), pad_token_id)
        return {
            "labels": torch.from_numpy(self.labels[rows].astype(np.float32)),  # first: its length is the batch's
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "behaviors": behaviors,
            "behavior_mask": behavior_mask,
            "ads": torch.from_numpy(places[len(lists.values) :]),
            **{name: torch.from_numpy(values[rows]) for name, values in self.inputs.items()},
        }


def padded(lists: Ragged, fill: int = 0) -> tuple[Tensor, Tensor]:
    """Lists as a matrix of integers, and 1 if one is real; at least one place wide."""
    matrix, mask = lists.padded(fill)
    if not matrix.shape[1]:
        matrix, mask = np.full((len(matrix), 1), fill), np.zeros((len(matrix), 1), dtype=bool)
    return torch.from_numpy(matrix.astype(np.int64)), torch.from_numpy(mask.astype(np.int64))


class EventsWriter:
    """Takes events one by one: `with EventsWriter(folder, columns, 50) as writer: writer.add(event) …`."""

    def __init__(self, folder: Path, columns: Columns, max_behaviors: int):
        self.max_behaviors = max_behaviors
        self.texts: dict[str, int] = {}
        self.lists = EncodedTextsWriter(folder / "behaviors.numbers")
        self.ads, self.labels, self.times = array("i"), array("b"), array("d")
        self.numbers, self.category_numbers = array("d"), array("i")
        self.values: list[dict[str, int]] = [{} for _ in columns.categorical]
        self.cut = 0  # events with more behaviours than are kept

    def __enter__(self) -> "EventsWriter":
        return self

    def __exit__(self, *error) -> None:
        self.lists.file.close()

    def __len__(self) -> int:
        return len(self.ads)

    def add(self, event: Event) -> None:
        """Append one event."""
        texts = self.texts
        self.cut += len(event.behaviors) > self.max_behaviors
        recent = event.behaviors[-self.max_behaviors :]
        self.lists.add(np.array([texts.setdefault(text, len(texts)) for text in recent], dtype=np.int32))
        self.ads.append(texts.setdefault(event.ad, len(texts)))
        self.labels.append(settled(event.label))
        self.times.append(math.nan if event.time is None else event.time)
        self.numbers.extend(event.numbers)
        self.category_numbers.extend(
            known.setdefault(value, len(known)) for known, value in zip(self.values, event.values, strict=True)
        )

    def finish(self) -> Events:
        """Close the file and open what was written."""
        lists, rows = self.lists.finish(None), len(self)
        numbers = np.array(self.numbers, dtype=np.float64)
        return Events(
            texts=list(self.texts),
            behaviors=Ragged(lists.tokens, lists.offsets),
            ads=np.array(self.ads, dtype=np.int32),
            labels=np.array(self.labels, dtype=np.int8),
            times=np.array(self.times),
            numbers=numbers.reshape(rows, len(numbers) // max(1, rows)),
            category_numbers=np.array(self.category_numbers, dtype=np.int32).reshape(rows, len(self.values)),
            category_values=[list(known) for known in self.values],
        )


class Part(Dataset):
    """Some rows of the events. An item is the number of a row; `Events.batch` makes the model's inputs of many."""

    def __init__(self, events: Events, rows: np.ndarray):
        self.events, self.rows = events, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        return int(self.rows[index])

    @property
    def lengths(self) -> np.ndarray:
        """Number of behaviours of every row, and one for the ad."""
        return self.events.behaviors.lengths[self.rows] + 1

    @property
    def labels(self) -> np.ndarray:
        """Labels in the order of the rows."""
        return self.events.labels[self.rows]

    def texts(self, most: int) -> Iterator[str]:
        """The distinct texts of these rows, each as often as it occurs here, but not more than `most` times.

        So a word that a single text has counts as known if many rows meet the text.
        """
        for text, count in zip(self.events.texts, np.minimum(self.text_counts(), most), strict=True):
            yield from itertools.repeat(text, count)

    def token_counts(self, vocab_size: int) -> np.ndarray:
        """How often each token occurs in these rows."""
        tokens, often = settled(self.events.tokens), self.text_counts()
        return np.bincount(tokens.values, np.repeat(often, tokens.lengths), minlength=vocab_size)

    def text_counts(self) -> np.ndarray:
        """How often each text occurs in these rows, as a behaviour or as an ad."""
        events = self.events  # which forgets the texts once it has their tokens
        found = np.zeros(len(events.texts if events.tokens is None else events.tokens.lengths), dtype=np.int64)
        for start in range(0, len(self.rows), 1 << 16):
            rows = self.rows[start : start + (1 << 16)]
            for numbers in (events.behaviors.take(rows).values, events.ads[rows]):
                found += np.bincount(numbers, minlength=len(found))
        return found


def collect(events: Iterable[Event], writer: EventsWriter) -> np.ndarray:
    """Add all events to the writer; the numbers of their rows."""
    first = len(writer)
    for event in events:
        writer.add(event)
    return np.arange(first, len(writer))
