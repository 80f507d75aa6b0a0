"""Files -> events: rows with `behaviors` (texts, the latest last), `ad` (a text), `label` (0 or 1), perhaps `time`, and
side features by name. Whatever is wrong is said in one line with its file and line.
"""

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastformer.data.formats import kind_of
from fastformer.data.objects import Object, read_objects
from fastformer.errors import UserError


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
    needed = ["behaviors", "ad", *(["label"] if labelled else [])]
    base, _, named = str(source).partition(":")
    if base == "builtin":
        from fastformer.tasks.conversion.simulate import builtin_objects

        objects: Iterator[Object] = builtin_objects(named or split or "train")
    else:
        objects = read_objects(source, needed, ["time"], first=[*columns.numeric, *columns.categorical])
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
