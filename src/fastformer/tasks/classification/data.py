"""Labelled texts, which can be read many times, and their labels as the model is trained on them."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedConfig

from fastformer.data.formats import Format
from fastformer.data.keeping import Fields, Keep
from fastformer.data.tables import Row, Source, called, detect_label_kind, read_rows, read_texts_with_fields
from fastformer.errors import UserError

LabelKind = Literal["single", "multi", "number"]
AT_ONCE = 4096  # labels that are encoded at a time


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of a list of dictionaries, that can be read many times.

    Where `label_kind` is None, one or several labels per text are read, as they look.
    """

    source: Source
    text_column: str | None = None
    label_column: str | None = None
    label_kind: LabelKind | Literal["none"] | None = None
    split: str = "test"
    format: Format | None = None

    @property
    def name(self) -> str:
        """What errors call it."""
        return called(self.source)

    @property
    def kind(self) -> LabelKind | Literal["none"]:
        """What its labels are."""
        return self.label_kind or detect_label_kind(
            self.source,
            text_column=self.text_column,
            label_column=self.label_column,
            format=self.format,
            split=self.split,
        )

    def of_kind(self, kind: LabelKind | Literal["none"]) -> "Table":
        """The same rows with their labels read as this kind."""
        return replace(self, label_kind=kind)

    def __iter__(self) -> Iterator[Row]:
        return read_rows(
            self.source,
            text_column=self.text_column,
            label_column=self.label_column,
            label_kind=self.kind,
            format=self.format,
            split=self.split,
        )

    def with_fields(self, keep: Keep) -> Iterator[tuple[Fields, Row]]:
        """The rows without their labels, each with those fields of the input that are kept."""
        named = {"text_column": self.text_column, "format": self.format, "split": self.split}
        return read_texts_with_fields(self.source, keep, **named)

    def check(self) -> "Table":
        """Read one row: a wrong file or column fails here, before any work."""
        if self.source != "-":
            next(iter(self if self.label_kind else self.of_kind("multi")))  # which may be any one label, too
        return self


@dataclass(frozen=True)
class Rows:
    """Rows whose labels are what they should be already; the same as a `Table` otherwise."""

    rows: Sequence[Row]
    kind: LabelKind | Literal["none"]
    name: str

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
    def of(cls, kind: LabelKind, config: PreTrainedConfig) -> "LabelSpace":
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

    def encode(self, labels: Sequence[str | list[str] | float], where: str, first_row: int = 1) -> np.ndarray:
        """Labels as the model is trained on them: class numbers, 0/1 rows, or numbers."""
        if self.kind == "number":
            return np.array(labels, dtype=np.float64)
        if self.kind == "single":
            numbers = [self._number(label, where, first_row + place) for place, label in enumerate(labels)]
            return np.array(numbers, dtype=np.int64)
        encoded = np.zeros((len(labels), len(self.names)), dtype=np.float32)
        for place, (row, names) in enumerate(zip(encoded, labels, strict=True)):
            row[[self._number(name, where, first_row + place) for name in names]] = 1.0
        return encoded

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def _number(self, label: str, where: str, row: int) -> int:
        try:
            return self._numbers[label]
        except KeyError:
            seen = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
            raise UserError(
                f"{where}, row {row}: label {label!r} was not seen in training (seen: {seen}); "
                "mend the label, remove its rows, or train with such rows"
            ) from None


def label_space(kind: LabelKind, counts: Counter, where: str) -> LabelSpace:
    """The labels that occur, in natural order ("2" before "10")."""
    if kind == "number":
        return LabelSpace("number")
    if kind == "single" and len(counts) == 1:
        raise UserError(f"{where}: all rows have the label {next(iter(counts))!r}; a classifier needs at least two")
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
            elif self.kind == "multi":
                self.counts.update(row.label)
            yield row.text


class LabelEncoder:
    """Passes rows through as texts while encoding their labels, which `labels` has once all have passed."""

    def __init__(self, rows: Iterable[Row], space: LabelSpace, where: str):
        self.rows, self.space, self.where = rows, space, where
        self._encoded: list[np.ndarray] = []

    def __iter__(self) -> Iterator[str]:
        pending: list[Any] = []
        for row in self.rows:
            pending.append(row.label)
            if len(pending) == AT_ONCE:
                self._encode(pending)
                pending = []
            yield row.text
        self._encode(pending)

    @property
    def labels(self) -> np.ndarray:
        """All labels, as the model is trained on them."""
        return np.concatenate([part for part in self._encoded if len(part)])

    def _encode(self, labels: list[Any]) -> None:
        self._encoded.append(self.space.encode(labels, self.where, 1 + AT_ONCE * len(self._encoded)))
