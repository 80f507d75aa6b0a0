"""Labelled texts, which can be read many times, and their labels as the model is trained on them."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastformer.data.keeping import Fields, Keep
from fastformer.data.opening import reads_once
from fastformer.data.tables import (
    Reading,
    Row,
    Source,
    called,
    detect_label_kind,
    read_rows,
    read_texts_with_fields,
)
from fastformer.data.values import is_missing, label_of
from fastformer.errors import UserError
from fastformer.surroundings.progress import how_many

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LabelKind = Literal["single", "multi", "number"]
AT_ONCE = 4096  # labels that are encoded at a time
FEWEST_ROWS = 2  # may have a label each


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of a list of dictionaries, that can be read many times.

    If `label_kind` is None, one or several labels per text are read, as they look.
    """

    source: Source
    reading: Reading
    label_kind: LabelKind | Literal["none"] | None = None
    every_row: bool = False  # is to be answered, whether or not it has a text

    @property
    def name(self) -> str:
        """What errors call it."""
        return called(self.source)

    @property
    def kind(self) -> LabelKind | Literal["none"]:
        """What its labels are."""
        return self.label_kind or detect_label_kind(self.source, self.reading)

    def of_kind(self, kind: LabelKind | Literal["none"]) -> "Table":
        """The same rows with their labels read as this kind."""
        return replace(self, label_kind=kind)

    def __iter__(self) -> Iterator[Row]:
        return read_rows(self.source, self.reading, label_kind=self.kind, every_row=self.every_row)

    def with_fields(self, keep: Keep) -> Iterator[tuple[Fields, Row]]:
        """The rows without their labels, each with those fields of the input that are kept."""
        return read_texts_with_fields(self.source, keep, self.reading)

    def check(self) -> "Table":
        """Read one row: a wrong file or column fails here, before any work; a pipe is read once."""
        if not reads_once(self.source):
            next(iter(self if self.label_kind else self.of_kind("multi")))  # which may be any one label, too
        return self


@dataclass(frozen=True)
class Rows:
    """Rows whose labels are what they should be already; the same as a `Table` otherwise.

    `weights` says how much each row counts in training, 1 on average; without it all count the same.
    """

    rows: Sequence[Row]
    kind: LabelKind | Literal["none"]
    name: str
    weights: np.ndarray | None = None

    def of_kind(self, kind: LabelKind | Literal["none"]) -> "Rows":
        """Itself."""
        return self

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


@dataclass(frozen=True)
class LabelSpace:
    """What can be predicted: one of `names`, several of them, or a number (then there are no names)."""

    kind: LabelKind
    names: tuple[str, ...] = ()
    thresholds: tuple[float, ...] | None = None  # several labels: the probability above which a text has each (or 0.5)

    @classmethod
    def of(cls, kind: LabelKind, config: "PreTrainedConfig") -> "LabelSpace":
        """What a trained model predicts."""
        names = () if kind == "number" else tuple(config.id2label.values())
        thresholds = config.label_thresholds
        return cls(kind, names, None if thresholds is None else tuple(thresholds))

    @property
    def size(self) -> int:
        """Number of outputs of the model."""
        return len(self.names) or 1

    @property
    def problem_type(self) -> str:
        """The name transformers has for it."""
        return {
            "single": "single_label_classification",
            "multi": "multi_label_classification",
            "number": "regression",
        }[self.kind]

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Labels as the model is trained on them: class numbers, 0/1 rows, or numbers.

        A label that training did not see cannot be predicted. As a class it is -1; with several labels per text such
        labels are one more column, which is there only if some text has one.
        """
        if self.kind == "number":
            return np.array(labels, dtype=np.float64)
        if self.kind == "single":
            return np.array([self.number(label) for label in labels], dtype=np.int64)
        encoded = np.zeros((len(labels), len(self.names) + 1), dtype=np.float32)
        for row, names in zip(encoded, labels, strict=True):
            row[[self.number(name) for name in names]] = 1.0  # the last column is that of -1
        return encoded if encoded[:, -1].any() else encoded[:, :-1]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        # older runs may have "True" or "1.0"
        return {name if is_missing(name) else label_of(name): number for number, name in enumerate(self.names)}

    def number(self, label: str) -> int:
        """The number of a class; -1 if training did not see it."""
        return self._numbers.get(label, -1)

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Encoded labels without what training did not see, if a text may have several."""
        return labels[:, : self.size] if self.kind == "multi" else labels


def label_space(kind: LabelKind, counts: Counter, where: str, rows: int | None = None) -> LabelSpace:
    """The labels that were counted, in natural order ("2" before "10"); `rows` is how many rows there were."""
    if kind == "number":
        return LabelSpace("number")
    if kind == "single" and len(counts) == 1:
        raise UserError(f"{where}: all rows have one class, {next(iter(counts))!r}; a classifier needs at least two")
    if kind == "single" and len(counts) == rows and rows > FEWEST_ROWS:
        raise UserError(
            f"{where}: all {rows:,} rows have a label of their own, so there is nothing to learn; name the right "
            "column with --label-column, or say --regression if they are numbers"
        )
    if kind == "multi" and not counts:
        raise UserError(f"{where}: no row has any label; a multi-label classifier needs at least one")
    return LabelSpace(kind, tuple(sorted(counts, key=_natural_order)))


def _natural_order(label: str) -> tuple:
    with suppress(ValueError):
        if math.isfinite(float(label)):
            return (0, float(label), label)
    return (1, 0.0, label)


class LabelCounter:
    """Passes rows through as texts while counting their labels, so that one reading serves tokenizer and labels."""

    def __init__(self, rows: Iterable[Row], kind: LabelKind):
        self.rows, self.kind = rows, kind
        self.counts: Counter = Counter()
        self.total = 0

    def __iter__(self) -> Iterator[str]:
        for row in self.rows:
            self.total += 1
            if self.kind == "single":
                self.counts[row.label] += 1
            elif isinstance(row.label, list):
                self.counts.update(row.label)
            yield row.text


class LabelEncoder:
    """Passes rows through as texts while encoding their labels, which `labels` has once all have passed.

    `unseen` counts labels that training did not see. If they are not `allowed`, the first is a mistake.
    """

    def __init__(self, rows: Iterable[Row], space: LabelSpace, where: str, allowed: bool = False):
        self.rows, self.space, self.where, self.allowed = rows, space, where, allowed
        self.unseen: Counter = Counter()
        self._encoded: list[np.ndarray] = []

    def __iter__(self) -> Iterator[str]:
        pending: list[Any] = []
        for number, row in enumerate(self.rows, 1):
            self._look_at(row.label, number)
            pending.append(row.label)
            if len(pending) == AT_ONCE:
                self._encoded.append(self.space.encode(pending))
                pending = []
            yield row.text
        self._encoded.append(self.space.encode(pending))

    @property
    def labels(self) -> np.ndarray:
        """All labels, as the model is trained on them."""
        parts = [part for part in self._encoded if len(part)]
        if self.space.kind == "multi" and self.unseen:  # some parts have one more column: see `LabelSpace.encode`
            parts = [np.pad(part, ((0, 0), (0, self.space.size + 1 - part.shape[1]))) for part in parts]
        found = np.concatenate(parts)
        if self.unseen and not self.space.known(found).max(initial=-1) > (-1 if self.space.kind == "single" else 0):
            raise UserError(f"{self.where}: none of its labels was {self._seen(self.unseen)}")
        return found

    def _look_at(self, label: Any, row: int) -> None:
        if self.space.kind == "number":
            return
        for name in [label] if self.space.kind == "single" else label:
            if self.space.number(name) < 0:
                if not self.allowed:
                    raise UserError(f"{self.where}, row {row}: label {name!r} was not {self._seen()}")
                self.unseen[name] += 1

    def _seen(self, unseen: Iterable[str] = ()) -> str:
        """What was seen, beside what was not; what to do."""
        found = f", but {_listed(unseen)}" if unseen else ""
        listed = ", ".join(self.space.names[:10]) + (", …" if len(self.space.names) > 10 else "")
        return f"seen in training{found} (seen: {listed}); correct the label, remove its rows, or train with such rows"

    def note(self) -> str | None:
        """How many texts have a label that counts as wrong, if any have."""
        if not self.unseen:
            return None
        labels = how_many(self.unseen.total(), "labels", "were")
        return f"{self.where}: {labels} not seen in training and counted as wrong: {_listed(self.unseen)}."


def _listed(labels: Iterable[str]) -> str:
    labels = list(labels)
    return ", ".join(map(repr, labels[:5])) + (", …" if len(labels) > 5 else "")
