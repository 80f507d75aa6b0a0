"""Rows of a table -> label numbers and token ids, streamed to disk, and a held-out slice where none is given."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import EncodedTexts, EncodedTextsWriter, Subset
from fastformer.data.tables import Row, read_rows
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.inference import chunks

LabelKind = Literal["single", "multi", "number"]


@dataclass(frozen=True)
class Table:
    """A table that can be read many times: iterating gives its rows."""

    source: str
    text_column: str | None
    label_column: str | None
    label_kind: LabelKind | Literal["none"]
    split: str

    def __iter__(self) -> Iterator[Row]:
        return read_rows(
            self.source,
            text_column=self.text_column,
            label_column=self.label_column,
            label_kind=self.label_kind,
            split=self.split,
        )


@dataclass(frozen=True)
class LabelSpace:
    """What can be predicted: one of `names`, several of them, or a number (then there are no names)."""

    kind: LabelKind
    names: tuple[str, ...] = ()
    thresholds: tuple[float, ...] | None = None  # several labels: the probability above which a text has each (or 0.5)

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


def encode_rows(
    rows: Iterable[Row],
    tokenizer: PreTrainedTokenizerBase,
    space: LabelSpace | None,
    max_length: int,
    path: Path,
    where: str,
    advance,
) -> tuple[EncodedTexts, int]:
    """Encode all rows into the file `path`; also return how many texts were cut at `max_length`.

    Without a `space` the texts have no labels.
    """
    labels: list[np.ndarray] = []
    cut_in_all = 0

    def texts() -> Iterator[str]:
        pending: list = []
        if space is None:
            yield from (row.text for row in rows)
            return
        for row in rows:
            pending.append(row.label)
            if len(pending) == 4096:
                labels.append(space.encode(pending, where, 1 + 4096 * len(labels)))
                pending.clear()
            yield row.text
        labels.append(space.encode(pending, where, 1 + 4096 * len(labels)))

    with EncodedTextsWriter(path) as writer:
        for chunk in chunks(texts()):
            encoded, cut = encode_batch(tokenizer, chunk, max_length)
            cut_in_all += cut
            for ids in encoded:
                writer.add(ids)
            advance(len(chunk))
        found = None if space is None else np.concatenate([part for part in labels if len(part)])
        return writer.finish(found), cut_in_all


def hold_out(texts: EncodedTexts, kind: LabelKind, seed: int, few: int = 0) -> tuple[Subset, Subset]:
    """Split off a tenth for validation (at most 5,000 texts), by class where each text has one.

    Of fewer than `few` texts it is a tenth of `few`, but not more than three tenths of them.
    """
    if len(texts) < 2:
        raise UserError("one row leaves nothing to validate on; give more rows")
    share = max(min(0.1, 5000 / len(texts)), min(0.3, few / 10 / len(texts)))
    groups = texts.labels if kind == "single" else np.zeros(len(texts), dtype=np.int64)
    shuffled = np.random.default_rng([seed, 1]).permutation(len(texts))
    by_group = shuffled[np.argsort(groups[shuffled], kind="stable")]
    members = np.split(by_group, np.cumsum(np.bincount(groups))[:-1])
    validation = np.sort(np.concatenate([group[: round(share * len(group))] for group in members]))
    if (
        len(validation) < share * len(texts) / 2
    ):  # the classes are tiny: go through them all, and pass over single texts
        many = np.concatenate([group for group in members if len(group) > 1] or [by_group])
        steps = np.arange(0, len(many), 1 / share)
        validation = np.sort(many[steps.astype(np.int64)])
    training = np.setdiff1d(np.arange(len(texts)), validation)
    return Subset(texts, training), Subset(texts, validation)
