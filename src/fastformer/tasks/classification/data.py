"""Rows of a table -> label numbers and token ids, streamed to disk, and a held-out slice where none is given."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    label_kind: LabelKind
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

    def encode(self, labels: Iterable[str | list[str] | float], where: str) -> np.ndarray:
        """Labels as the model is trained on them: class numbers, 0/1 rows, or float32 numbers."""
        if self.kind == "number":
            return np.array(list(labels), dtype=np.float32)
        number = {name: index for index, name in enumerate(self.names)}
        try:
            if self.kind == "single":
                return np.array([number[label] for label in labels], dtype=np.int64)
            rows = [[number[name] for name in names] for names in labels]
        except KeyError as error:
            seen = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
            raise UserError(
                f"{where}: label {error.args[0]!r} was not seen in training (seen: {seen}); "
                "mend the label, remove its rows, or train with such rows"
            ) from None
        encoded = np.zeros((len(rows), len(self.names)), dtype=np.float32)
        for row, numbers in zip(encoded, rows, strict=True):
            row[numbers] = 1.0
        return encoded


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
    try:
        return (0, float(label), label)
    except ValueError:
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
    space: LabelSpace,
    max_length: int,
    path: Path,
    where: str,
    advance,
) -> tuple[EncodedTexts, int]:
    """Encode all rows into the file `path`; also return how many texts were cut at `max_length`."""
    labels: list[np.ndarray] = []
    cut_in_all = 0

    def texts() -> Iterator[str]:
        pending: list = []
        for row in rows:
            pending.append(row.label)
            if len(pending) == 4096:
                labels.append(space.encode(pending, where))
                pending.clear()
            yield row.text
        labels.append(space.encode(pending, where))

    with EncodedTextsWriter(path) as writer:
        for chunk in chunks(texts()):
            encoded, cut = encode_batch(tokenizer, chunk, max_length)
            cut_in_all += cut
            for ids in encoded:
                writer.add(ids)
            advance(len(chunk))
        return writer.finish(np.concatenate([part for part in labels if len(part)])), cut_in_all


def hold_out(texts: EncodedTexts, kind: LabelKind, seed: int) -> tuple[Subset, Subset]:
    """Split off a tenth for validation (at most 5,000 texts), by class where each text has one."""
    random = np.random.default_rng([seed, 1])
    if len(texts) < 2:
        raise UserError("a training file with one row leaves nothing to validate on; give more rows")
    share = min(0.1, 5000 / len(texts))
    groups = texts.labels if kind == "single" else np.zeros(len(texts), dtype=np.int64)
    held: list[np.ndarray] = []
    for group in np.unique(groups):
        members = random.permutation(np.flatnonzero(groups == group))
        held.append(members[: round(share * len(members))])
    validation = np.sort(np.concatenate(held))
    if not len(validation):  # every class is tiny: one text, from the largest class
        largest = np.bincount(groups).argmax()
        validation = random.permutation(np.flatnonzero(groups == largest))[:1]
    training = np.setdiff1d(np.arange(len(texts)), validation)
    return Subset(texts, training), Subset(texts, validation)
