"""Fields of the input that are copied to the answers: `--keep id` names them, `--keep-all` is all of them.

What a task reads either is a dictionary, which has its fields itself, or comes from examples with one of the methods

    with_fields(keep) -> (fields, example), …
    fields(keep)      -> fields, …    if all examples are in memory and a predictor takes them as a whole

`KeepingColumns` makes the first easy for readers of tables.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastformer.errors import UserError

CLASH = "input_"  # prefix of a field that has the name of a part of the answer

Fields = dict[str, Any]
Record = tuple[str, *tuple[Any, ...]]  # where, texts, label: see `formats.py`
Choose = Callable[[list[str]], tuple[str | None, ...]]


@dataclass(frozen=True)
class Keep:
    """Which fields are kept: those that are named, or everything."""

    names: tuple[str, ...] = ()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def columns(self, where: str, found: Sequence[str]) -> list[str]:
        """The columns to keep, of those that were found."""
        for name in self.names:
            if name not in found:
                listed = ", ".join(found[:30]) + (", …" if len(found) > 30 else "")
                raise UserError(f"{where}: no column {name!r}; columns found: {listed or 'none'}; --keep one of them")
        return list(dict.fromkeys(found if self.everything else self.names))

    def of(self, record: Fields) -> Fields:
        """The fields of one record; a missing one is None."""
        return record if self.everything else {name: record.get(name) for name in self.names}


NOTHING = Keep()


class KeepingColumns:
    """Chooses columns to keep beside those that a reader of tables chooses; `fields` are those of the record at hand.

    columns = KeepingColumns(name, keep)
    for where, *texts, label in columns.without_fields(open_records(name, columns.beside(choose), …)):
        columns.fields
    """

    def __init__(self, name: str, keep: Keep, unnamed: tuple[str, str] = ("text", "label")):
        self.name, self.keep = name, keep
        self.unnamed = unnamed  # what values are called if a source has no columns
        self.fields: Fields = {}
        self.object: Fields | None = None  # the JSON object at hand: later ones may have more fields than the first
        self._kept: list[str] | None = None

    def beside(self, choose: Choose) -> "KeepingColumns":
        """Choose what `choose` does, too."""
        self._choose = choose
        return self

    def __call__(self, found: list[str]) -> tuple[str | None, ...]:
        """The columns to read, of those that were found: those to keep first."""
        self._kept = self.keep.columns(self.name, found)
        return *self._kept, *self._choose(found)

    def without_fields(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records as they would be if nothing were kept."""
        for where, *values in records:
            if self._kept is None:  # plain lines, or texts in folders: there was nothing to choose from
                whole = {name: value for name, value in zip(self.unnamed, values, strict=True) if value is not None}
                self.keep.columns(self.name, list(whole))
                self.fields = self.keep.of(whole)
                yield where, *values
                continue
            kept, rest = values[: len(self._kept)], values[len(self._kept) :]
            every = self.object if self.keep.everything else None
            self.fields = every or dict(zip(self._kept, kept, strict=True))
            yield where, *rest


def with_fields(examples: Iterable[Any], keep: Keep) -> Iterator[tuple[Fields, Any]]:
    """The examples, each with the fields that are kept of it."""
    if hasattr(examples, "with_fields"):
        yield from examples.with_fields(keep)
        return
    for number, example in enumerate(examples, 1):
        if not isinstance(example, dict):
            raise UserError("--keep: these examples have no fields; leave it out")
        if number == 1:
            keep.columns("the examples", list(example))
        yield keep.of(example), example


def carrying(
    predict: Callable[[Iterable[Any]], Iterator[Fields]], examples: Iterable[Any], keep: Keep
) -> Iterator[Fields]:
    """What `predict` answers, each answer with the fields of its example before it.

    A field with the name of a part of the answer is kept as `input_NAME`. Fields wait for their answer: memory has
    those of as many examples as are answered at a time.
    """
    waiting: deque[Fields] = deque()

    def noted() -> Iterator[Any]:
        for fields, example in with_fields(examples, keep):
            waiting.append(fields)
            yield example

    if hasattr(examples, "fields"):
        pairs: Iterator[tuple[Fields, Fields]] = zip(examples.fields(keep), predict(examples), strict=True)
    else:
        pairs = ((waiting.popleft(), answer) for answer in predict(noted()))
    for fields, answer in pairs:
        yield {**{f"{CLASH}{name}" if name in answer else name: value for name, value in fields.items()}, **answer}
