"""Files -> events -> arrays -> batches.

A row has `behaviors` (texts, the latest last), `ad` (a text), `label` (0 or 1), perhaps `time`, and side features by
name. Of the texts each distinct one is kept once; an event is a list of numbers of texts, in a file that is mapped into
memory. So a log may be larger than memory as long as its distinct texts are not.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fastformer.data.batches import EncodedTextsWriter
from fastformer.data.formats import kind_of
from fastformer.data.objects import Object, read_objects
from fastformer.data.ragged import Ragged
from fastformer.errors import UserError

VALIDATION_SHARE = 0.1


class Columns(NamedTuple):
    """Names of the columns that hold side features."""

    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()


class Event(NamedTuple):
    """One checked row."""

    behaviors: list[str]
    ad: str
    label: int | None
    time: float | None
    numbers: list[float]  # nan where missing
    values: list[str]  # of categories; "" where missing


def read_events(
    source: str | Path, columns: Columns, *, labelled: bool = True, split: str | None = None
) -> Iterator[Event]:
    """The events of a .jsonl or .parquet file (`-`: standard input), or `builtin[:split]`, simulated ones."""
    needed = ["behaviors", "ad", *(["label"] if labelled else []), *columns.numeric, *columns.categorical]
    base, _, named = str(source).partition(":")
    if base == "builtin":
        from fastformer.tasks.conversion.simulate import builtin_objects

        objects: Iterator[Object] = builtin_objects(named or split or "train")
    else:
        objects = read_objects(source, needed, ["time"])
    return (event_of(where, record, columns, labelled) for where, record in objects)


def event_of(where: str, record: dict[str, Any], columns: Columns, labelled: bool) -> Event:
    """A row, checked; mistakes name the place `where` it stands."""
    behaviors, ad = record["behaviors"], record["ad"]
    if behaviors is None:
        behaviors = []
    if not isinstance(behaviors, list) or not all(type(text) is str for text in behaviors):
        what = kind_of(behaviors) if not isinstance(behaviors, list) else "a list with something that is no text"
        raise UserError(f"{where}: `behaviors` is {what}; give a list of texts, the latest last (it may be empty)")
    if type(ad) is not str:
        raise UserError(f"{where}: `ad` is {'missing' if ad is None else kind_of(ad)}; give a text")
    return Event(
        behaviors,
        ad,
        _label(where, record["label"]) if labelled else None,
        _time(where, record.get("time")),
        [_number(where, name, record.get(name)) for name in columns.numeric],
        [_value(where, name, record.get(name)) for name in columns.categorical],
    )


def _label(where: str, value: Any) -> int:
    if isinstance(value, int | float) and value in (0, 1):
        return int(value)
    raise UserError(f"{where}: the label is {value!r:.60}; a label is 0 or 1 (converted)")


def _time(where: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return float(value) if not isinstance(value, str) else datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError):
        raise UserError(f"{where}: the time is {value!r:.60}; give a number or a date like 2026-01-31T12:00") from None


def _number(where: str, name: str, value: Any) -> float:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise UserError(f"{where}: `{name}` is {value!r:.60}, not a finite number; mend it, or make it --categorical")


def _value(where: str, name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        raise UserError(f"{where}: `{name}` is {kind_of(value)}; a category is a string or an integer")
    return "" if value is None else str(value)


@dataclass(frozen=True)
class SideFeatures:
    """How side features become numbers, learned from the training rows: what run.json says under `features`."""

    numeric: dict[str, tuple[float, float]]  # column -> mean, deviation
    categorical: dict[str, list[str]]  # column -> its values; value i has the number i + 1, any other 0

    @property
    def columns(self) -> Columns:
        """Names of the columns."""
        return Columns(tuple(self.numeric), tuple(self.categorical))

    @classmethod
    def learn(cls, columns: Columns, numbers: np.ndarray, values: list[list[str]], counts: list[np.ndarray]):
        """From the numbers (rows, columns) and, for each category, its values and how often each occurs.

        A value that occurs once becomes unknown, so that the model knows what unknown is like.
        """
        numeric = {}
        for name, column in zip(columns.numeric, numbers.T, strict=True):
            known = column[~np.isnan(column)]
            mean = float(known.mean()) if len(known) else 0.0
            numeric[name] = (mean, (float(known.std()) if len(known) else 0.0) or 1.0)
        categorical = {
            name: sorted(value for value, often in zip(found, seen, strict=True) if value and often > 1)
            for name, found, seen in zip(columns.categorical, values, counts, strict=True)
        }
        return cls(numeric, categorical)

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers (rows, columns) with mean 0 and deviation 1; 0 where one is missing."""
        means, deviations = np.array([*self.numeric.values()], dtype=np.float64).reshape(-1, 2).T
        return np.nan_to_num((numbers - means) / deviations).astype(np.float32)

    def numbers_of(self, column: str, values: Sequence[str]) -> np.ndarray:
        """The number of each value of a category."""
        known = {value: number for number, value in enumerate(self.categorical[column], 1)}
        return np.array([known.get(value, 0) for value in values], dtype=np.int64)

    def of_events(self, events: Sequence[Event]) -> dict[str, Tensor]:
        """Model inputs: `numeric` and `categories`, where there are any."""
        inputs = {}
        if self.numeric:
            inputs["numeric"] = torch.from_numpy(self.standardised(np.array([event.numbers for event in events])))
        if self.categorical:
            columns = zip(*(event.values for event in events), strict=True)
            numbers = [self.numbers_of(name, column) for name, column in zip(self.categorical, columns, strict=True)]
            inputs["categories"] = torch.from_numpy(np.stack(numbers, axis=1))
        return inputs


@dataclass
class Events:
    """Many events as arrays. `tokens` and `inputs` are filled in once a tokenizer and the features are known."""

    texts: list[str]  # each distinct text once
    behaviors: Ragged  # numbers of texts, the latest last
    ads: np.ndarray  # number of a text
    labels: np.ndarray
    times: np.ndarray  # nan where there is none
    numbers: np.ndarray  # (rows, columns)
    category_numbers: np.ndarray  # (rows, columns): places in `category_values`
    category_values: list[list[str]]
    tokens: Ragged | None = None  # token ids of each text
    inputs: dict[str, np.ndarray] | None = None  # `numeric`, `categories`: further inputs of the model

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

    def batch(self, rows: Sequence[int], pad_token_id: int) -> dict[str, Tensor]:
        """Model inputs of some rows; a text that occurs in several of them, or several times, is there once."""
        rows = np.asarray(rows)
        lists = self.behaviors.take(rows)
        found, places = np.unique(np.concatenate([lists.values, self.ads[rows]]), return_inverse=True)
        behaviors, behavior_mask = padded(Ragged(places[: len(lists.values)], lists.offsets))
        input_ids, attention_mask = padded(self.tokens.take(found), pad_token_id)
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
    """Lists as a matrix of integers, and 1 where one is real; at least one place wide."""
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
        self.labels.append(event.label)
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


def hold_out(events: Events, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train and to validate on: the last tenth by time; at random where any row has no time."""
    count = len(events.ads)
    if count < 2:
        raise UserError("one row leaves nothing to validate on; give more rows, or a file to --validation")
    if np.isnan(events.times).any():
        order = np.random.default_rng([seed, 1]).permutation(count)
    else:
        order = np.argsort(events.times, kind="stable")
    split = count - max(1, round(VALIDATION_SHARE * count))
    return np.sort(order[:split]), np.sort(order[split:])


def collect(events: Iterable[Event], writer: EventsWriter, advance) -> np.ndarray:
    """Add all events to the writer; the numbers of their rows."""
    first = len(writer)
    for event in events:
        writer.add(event)
        advance(1)
    return np.arange(first, len(writer))
