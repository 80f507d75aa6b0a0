"""A source -> rows (text, label), a few at a time, so that a table may be larger than memory.

A source is a CSV, TSV, JSONL (.jsonl, .ndjson, .json; a JSON array too) or Parquet file, plain or .gz; a .txt file of
one text per line (no labels); a folder of LABEL/*.txt; `-`, standard input; Amazon reviews, IMDB or MIND as published;
a folder saved by `datasets`; `builtin`, the built-in corpus; or the name of a dataset on the Hub. The last three and
IMDB may have splits: `NAME:SPLIT` picks one. A string joins several labels by `|`. `--text-column title,body` makes one
text of several columns, with a blank line between them; what is empty or missing is left out. In Python a
source may also be an iterable of dictionaries.

`formats.py` and `published.py` read what a source holds; here the source is told by its name, the columns are chosen,
and every value is checked and converted. Whatever is wrong is said in one line with its file and line.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastformer.data.formats import (
    Choose,
    Format,
    Record,
    format_of,
    guard,
    kind_of,
    picker,
    read_file,
    read_folder,
    read_hub,
    read_saved,
    read_stream,
)
from fastformer.data.keeping import Fields, Keep, KeepingColumns
from fastformer.data.published import published_reader
from fastformer.data.standard_input import STANDARD_INPUT, standard_input
from fastformer.errors import UserError
from fastformer.surroundings.progress import say

LabelKind = Literal["single", "multi", "number", "none"]
Source = str | Path | Iterable[dict[str, Any]]

# Column names recognised in any case; the first of each wins over the others.
TEXT_COLUMNS = (
    "text",
    "document",
    "content",
    "body",
    "article",
    "review",
    "reviewtext",
    "sentence",
    "comment",
    "message",
    "tweet",
)
LABEL_COLUMNS = (
    "label",
    "labels",
    "class",
    "category",
    "categories",
    "target",
    "topic",
    "sentiment",
    "rating",
    "stars",
    "overall",
)
LABEL_SEPARATOR = "|"
COLUMN_SEPARATOR = ","
BETWEEN_COLUMNS = "\n\n"

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILE_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}$")
_EARLY_ROWS = 1000  # several labels in one of these surprise nobody
_MISSING = "the label is missing; fill it in or remove the row"


class Row(NamedTuple):
    """One example. The label is a string, several strings, a number, or None where labels are not read."""

    text: str
    label: str | list[str] | float | None = None


class _BadValueError(Exception):
    """A value that cannot be used; `_rows` adds where it stands."""


def read_rows(
    source: Source,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    label_kind: LabelKind = "single",
    format: Format | None = None,
    split: str | None = None,
) -> Iterator[Row]:
    """The rows of `source`, in its order.

    `text_column` may name several columns, as in `title,body`, whose texts are joined with a blank line between them.
    Labels become strings ("single"; integers are written out), lists of strings ("multi"), finite floats ("number"),
    or are not read at all ("none"). `format` is for standard input and for files whose name does not say it; `split`
    is the split to use where the source has several and does not name one itself.
    """
    converters = {"single": _one_label, "multi": _several_labels, "number": _number, "none": _no_label}
    records = _open(source, text_column, label_column, label_kind != "none", format, split)
    return _rows(called(source), records, converters[label_kind])


def read_texts_with_fields(
    source: Source,
    keep: Keep,
    *,
    text_column: str | None = None,
    format: Format | None = None,
    split: str | None = None,
) -> Iterator[tuple[Fields, Row]]:
    """The rows of `source` without their labels, each with those fields of the input that are kept."""
    columns = KeepingColumns(called(source), keep)
    records = columns.without_fields(_open(source, text_column, None, False, format, split, columns))
    return ((columns.fields, row) for row in _rows(called(source), records, _no_label))


def detect_label_kind(
    source: Source,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    format: Format | None = None,
    split: str | None = None,
) -> Literal["single", "multi"]:
    """Say "multi" if any label is a list, or a string that holds `|`; else "single". All rows are looked at.

    Where it shows late, most texts have one label and it may be a mistake in the file: one line says where.
    """
    records = _open(source, text_column, label_column, True, format, split)
    for number, (where, *_, label) in enumerate(records):
        if isinstance(label, list | tuple) or (isinstance(label, str) and LABEL_SEPARATOR in label):
            if number >= _EARLY_ROWS:
                say(f"{where}: the first row with several labels, so every text may have several.")
            return "multi"
    return "single"


def called(source: Source) -> str:
    """What errors call a source."""
    if not isinstance(source, str | Path):
        return "the examples"
    return STANDARD_INPUT if str(source) == "-" else str(source)


def _rows(name: str, records: Iterator[Record], convert: Callable[[Any], Any]) -> Iterator[Row]:
    where = None
    for where, *texts, label in records:
        try:
            row = Row(_one_text(texts), convert(label))
        except _BadValueError as error:
            raise UserError(f"{where}: {error}") from None
        yield row
    if where is None:
        raise UserError(f"{name}: no rows; give a file with at least one example")


# ---- values ----------------------------------------------------------------------------------------------------------


def _one_text(values: list[Any]) -> str:
    """The text of one column as it is, or those of several joined, without what is missing or blank."""
    given = [value for value in values if value is not None] or [None]
    for value in given:
        if type(value) is not str:
            kind = "missing" if value is None else f"{kind_of(value)}, not a string"
            raise _BadValueError(f"the text is {kind}; mend the row, or choose another column with --text-column")
    if len(values) == 1:
        return given[0]
    return BETWEEN_COLUMNS.join(value for value in given if value and not value.isspace())


def _no_label(value: Any) -> None:
    return None


def _one_label(value: Any) -> str:
    if isinstance(value, str):
        if value and not value.isspace():
            return value
    elif isinstance(value, bool):
        return str(value).lower()
    elif isinstance(value, int):
        return str(value)
    elif isinstance(value, float):
        if not math.isnan(value):
            return str(int(value)) if value.is_integer() else repr(value)
    elif value is not None:
        raise _BadValueError(
            f"the label is {kind_of(value)}; give every row one string or integer, or every row a list"
        )
    raise _BadValueError(_MISSING)


def _several_labels(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(LABEL_SEPARATOR)] if value.strip() else []
    elif not isinstance(value, list | tuple):
        value = [value]
    return list(dict.fromkeys(map(_one_label, value)))


def _number(value: Any) -> float:
    if value is None or value == "":
        raise _BadValueError(_MISSING)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _BadValueError(f"the label {str(value)[:60]!r} is not a finite number; mend it, or drop --regression")
    return number


# ---- columns ---------------------------------------------------------------------------------------------------------


def _choose_columns(
    name: str, text: str | None, label: str | None, with_label: bool, found: list[str]
) -> tuple[str | None, ...]:
    """The text column or columns and the label column: as told, else by name, else by there being no other."""
    listed = f"columns found: {', '.join(found[:30])}{', …' if len(found) > 30 else ''}"
    texts = _named_columns(text, found)
    label = label if with_label else None
    for column, flag in (*((column, "--text-column") for column in texts), (label, "--label-column")):
        if column is not None and found.count(column) != 1:
            count = "more than one column" if column in found else "no column"
            raise UserError(f"{name}: {count} {column!r}; {listed}; name one of them with {flag}")
    if len(set(texts)) < len(texts):
        raise UserError(f"{name}: --text-column {text} names a column twice; name each of them once")
    if not texts and (guess := recognise_column(found, TEXT_COLUMNS, taken=(label,))):
        texts = [guess]
    label = label or recognise_column(found, LABEL_COLUMNS, taken=texts)
    others = [column for column in found if column not in (*texts, label)]
    if len(found) > 1 and len(others) == 1 and all(found) and bool(texts) != bool(label):
        texts, label = texts or others, label or others[0]
    if len(found) == 1 and not with_label:
        texts = found
    for missing, role in ((not texts, "text"), (label is None and with_label, "label")):
        if missing:
            raise UserError(
                f"{name}: cannot tell which column holds the {role}; {listed}; name it with --{role}-column"
            )
    if with_label and label in texts:
        raise UserError(
            f"{name}: {label!r} cannot be text and label at once; {listed}; name another with --label-column"
        )
    return *texts, label if with_label else None


def _named_columns(text: str | None, found: list[str]) -> list[str]:
    """The columns that `--text-column` names: one, which may have a comma in its name, or several between commas."""
    if text is None:
        return []
    return [text] if text in found else [column.strip() for column in text.split(COLUMN_SEPARATOR)]


def recognise_column(found: list[str], candidates: tuple[str, ...], taken: Collection[str | None]) -> str | None:
    """The column that bears one of these names: the first of them, else the only one; None where in doubt."""
    matches = [column for column in found if column not in taken and column.lower() in candidates]
    best = [column for column in matches if column.lower() == candidates[0]] or matches
    return best[0] if len(best) == 1 else None


# ---- sources ---------------------------------------------------------------------------------------------------------


def _open(
    source: Source,
    text_column: str | None,
    label_column: str | None,
    with_label: bool,
    format: Format | None,
    split: str | None,
    keeping: KeepingColumns | None = None,
) -> Iterator[Record]:
    """The records of `source`, with text and label columns chosen, and those to keep before them."""
    choose: Choose = partial(_choose_columns, called(source), text_column, label_column, with_label)
    choose = keeping.beside(choose) if keeping else choose
    if not isinstance(source, str | Path):
        pick = picker(choose)
        return (pick(f"example {number}", record) for number, record in enumerate(source, 1))
    name = str(source)
    base, _, named_split = name.rpartition(":")
    if "builtin" in (name, base):
        from fastformer.data.corpus import builtin_rows

        rows = builtin_rows(named_split if base else split or "train")
        return ((f"{name}, row {number}", *row) for number, row in enumerate(rows, 1))
    return open_records(name, choose, with_label, format, split)


def open_records(
    name: str, choose: Choose, with_label: bool, format: Format | None = None, split: str | None = None
) -> Iterator[Record]:
    """The records of any source but `builtin`: what kind of source it is, its name and the disk say.

    `choose` picks two of the columns found: a text, and what belongs to it where `with_label`.
    """
    base, _, named_split = name.rpartition(":")
    if name == "-":
        if format not in ("lines", "csv", "tsv", "jsonl"):
            raise UserError("standard input does not say its format; add --format lines, csv, tsv or jsonl")
        return guard(called(name), read_stream(standard_input(), called(name), format, choose, with_label))

    path = name
    if base and not os.path.exists(name) and os.path.isdir(base):
        path, split = base, named_split
    if format is None and (reader := published_reader(path, split)):
        return guard(name, reader(choose))
    if os.path.isdir(path):
        saved = any(os.path.isfile(os.path.join(path, file)) for file in ("dataset_dict.json", "state.json"))
        return guard(name, read_saved(path, split, choose) if saved else read_folder(Path(path)))
    if os.path.exists(path):
        return guard(name, read_file(name, format or format_of(name), choose, with_label))
    hub_name = base or name
    if format or not _is_hub_name(hub_name):
        raise UserError(f"{name}: no such file or folder; check the path")
    return read_hub(hub_name, named_split if base else split, choose)


def _is_hub_name(name: str) -> bool:
    """A suffix, or a first part that is a folder here, means that a path was meant."""
    if not _HUB_NAME.fullmatch(name) or _FILE_SUFFIX.search(name):
        return False
    return "/" not in name or not os.path.isdir(name.split("/")[0])
