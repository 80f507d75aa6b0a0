"""Files or dictionaries -> events: `behaviors` (texts, the latest last), `ad` (a text), `label` (0 or 1), and perhaps
`time` and side features by name. Whatever is wrong is said in one line with its file and line.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastformer.data.keeping import NOTHING, Keep
from fastformer.data.objects import Object, given_objects, read_objects
from fastformer.data.values import kind_of
from fastformer.errors import UserError

RESERVED = ("behaviors", "ad", "label", "time")


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


NO_SIDE_FEATURES = Columns()
Source = str | Path | Iterable[dict[str, Any]]


@dataclass(frozen=True)
class EventSource:
    """The events of a source, which can be read more than once: a .jsonl or .parquet file, dictionaries, or `builtin`.

    `-` is standard input. `builtin[:split]` are simulated ones, of the `split` that is not named.
    """

    source: Source
    columns: Columns = NO_SIDE_FEATURES
    labelled: bool = True
    split: str | None = None

    def __iter__(self) -> Iterator[Event]:
        for where, record in self._objects():
            yield event_of(where, record, self.columns, self.labelled)

    def with_fields(self, keep: Keep) -> Iterator[tuple[dict[str, Any], Event]]:
        """The events, each with those fields of its row that are kept."""
        for number, (where, record) in enumerate(self._objects(keep)):
            if number == 0:
                keep.columns(where, list(record))
            yield keep.of(record), event_of(where, record, self.columns, self.labelled)

    def _objects(self, keep: Keep = NOTHING) -> Iterator[Object]:
        """The rows as they stand there, each with its place."""
        needed, side = ["behaviors", "ad", *(["label"] if self.labelled else [])], (*self.columns[0], *self.columns[1])
        if not isinstance(self.source, str | Path):
            return given_objects(self.source, needed, first=side)
        base, _, named = str(self.source).partition(":")
        if base == "builtin":
            from fastformer.tasks.conversion.simulate import builtin_objects

            return builtin_objects(named or self.split or "train")
        optional = None if keep.everything else ["time", *keep.names]
        return read_objects(self.source, needed, optional, first=side)


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
