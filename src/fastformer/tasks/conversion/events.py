"""Files or dictionaries -> events.

An event has `behaviors` (texts, the latest last), `ad` (a text), `label` (0 or 1), and optionally `time` and side
features by name. Whatever is wrong is reported in one line with its file and line.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastformer.data.keeping import NOTHING, Keep
from fastformer.data.left_out import LeftOut
from fastformer.data.objects import Object, given_objects, read_objects
from fastformer.data.tables import called
from fastformer.data.values import BadValueError, MissingValueError, is_missing, is_nan, kind_of, label_of
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
    numbers: list[float]  # nan if missing
    values: list[str]  # of categories; "" if missing


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
    strict: bool = False  # a missing ad or label is a mistake, and not left out

    def __iter__(self) -> Iterator[Event]:
        return (event for _, event in self._events(self._objects()))

    def with_fields(self, keep: Keep) -> Iterator[tuple[dict[str, Any], Event]]:
        """The events, each with those fields of its row that are kept."""
        for number, (where, record) in enumerate(self._objects(keep)):
            if number == 0:
                keep.columns(where, list(record))
            for _, event in self._events([(where, record)]):
                yield keep.of(record), event

    def _events(self, rows: Iterable[Object]) -> Iterator[tuple[dict[str, Any], Event]]:
        """The rows, and the events that they are. If all are to be answered, one without an ad has an empty one."""
        total, left_out = 0, LeftOut()
        for where, record in rows:
            total += 1
            for column in ("label", "ad") if self.labelled else ("ad",):
                if record[column] is None or is_nan(record[column]):
                    if self.strict:
                        raise UserError(f"{where}: {MissingValueError(column, record[column])}, or leave --strict out")
                    left_out[f"without {'an ad' if column == 'ad' else 'a label'}"] += 1
                    break
            else:
                yield record, event_of(where, record, self.columns, self.labelled)
                continue
            if not self.labelled:
                yield record, event_of(where, {**record, "ad": ""}, self.columns, self.labelled)
        if not self.labelled:
            return
        if total and left_out.total() == total:
            raise UserError(f"{self.name}: no row is left ({left_out.reasons()}); check the columns `ad` and `label`")
        left_out.say(self.name, total, "rows")

    @property
    def name(self) -> str:
        """What messages call it."""
        return called(self.source)

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
    raise UserError(f"{where}: the label is {_shown(value)}; a label is 0 or 1 (converted)")


def _time(where: str, value: Any) -> float | None:
    if value is None:
        return None
    if type(value) is date:  # without a time: as if it were written
        value = value.isoformat()
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        time = value.timestamp() if isinstance(value, datetime) else float(value)
    except (TypeError, ValueError, OverflowError, OSError):
        time = math.inf
    if is_nan(time):
        return None
    if math.isinf(time):
        raise UserError(f"{where}: the time is {_shown(value)}; give a number or a date like 2026-01-31T12:00")
    return time


def _number(where: str, name: str, value: Any) -> float:
    if value is None or is_nan(value):
        return math.nan
    try:
        number = float(value) if isinstance(value, int | float) else math.inf
    except OverflowError:
        number = math.inf
    if math.isfinite(number):
        return number
    raise UserError(f"{where}: `{name}` is {_shown(value)}, not a finite number; correct it, or make it --categorical")


def _value(where: str, name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        raise UserError(f"{where}: `{name}` is {kind_of(value)}; a category is a string or an integer")
    if is_missing(value):
        return ""
    try:
        return label_of(value)
    except BadValueError as error:
        raise UserError(f"{where}: `{name}`: {str(error).replace('the label', 'the category')}") from None


def _shown(value: Any) -> str:
    """A value in a message, which may be a number of any length."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python does not write out thousands of digits
        return "a number with thousands of digits"
