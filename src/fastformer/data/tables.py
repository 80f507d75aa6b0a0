"""A source -> rows (text, label), a few at a time, so that a table may be larger than memory.

A source is a CSV, TSV, JSONL (.jsonl, .ndjson, .json; a JSON array too), Parquet or Excel file, plain, .gz or the one
file of a .zip; a .txt file of one text per line, with labels only if they are fastText's; a folder of LABEL/*.txt; `-`,
standard input; Amazon reviews, IMDB or MIND as published; a folder saved by `datasets`; `builtin`, the built-in corpus;
or the name of a dataset on the Hub. The last three and IMDB may have splits: `NAME:SPLIT` picks one, and so it does a
sheet of a workbook. A string joins several labels by `|`. `--text-column title,body` makes one text of several columns,
with a blank line between them; what is empty or missing is left out. In Python a source may also be an iterable of
dictionaries.

`opening.py` has the bytes of a source, `formats.py` and `published.py` read what it holds, `columns.py` chooses
columns, `values.py` checks and converts; here the name tells the kind of source. Whatever is wrong is reported in one
line with its file and line; a row without a text or a label is left out and counted.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastformer.data.columns import ColumnChoice
from fastformer.data.formats import Choose, Record, picker, read_file, read_folder, read_hub, read_saved, read_stream
from fastformer.data.keeping import Fields, Keep, KeepingColumns
from fastformer.data.left_out import LeftOut, say_once
from fastformer.data.objects import check_columns
from fastformer.data.opening import Format, Layout, as_utf8, guard
from fastformer.data.published import published_reader
from fastformer.data.separated import separator_named
from fastformer.data.standard_input import STANDARD_INPUT, standard_input
from fastformer.data.values import (
    LABEL_SEPARATOR,
    BadValueError,
    MissingValueError,
    is_missing,
    is_nan,
    is_yes,
    kind_of,
    label_of,
    labels_of,
    number_of,
)
from fastformer.errors import UserError
from fastformer.surroundings.progress import how_many, say

LabelKind = Literal["single", "multi", "number", "none"]
Source = str | Path | Iterable[dict[str, Any]]

BETWEEN_COLUMNS = "\n\n"

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILE_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}$")
_EARLY_ROWS = 1000  # rows looked at first: several labels in one of these are expected


class Row(NamedTuple):
    """One example. The label is a string, several strings, a number, or None if labels are not read."""

    text: str
    label: str | list[str] | float | None = None


@dataclass(frozen=True)
class Reading:
    """How a table is read. Whatever is None or empty is guessed."""

    text_column: str | None = None  # or several, as in `title,body`, whose texts are joined by a blank line
    label_column: str | None = None  # or several, each of which is a label itself, with 1 in it for those that have it
    format: Format | None = None  # for standard input, and for files whose name does not say it
    separator: str | None = None  # of fields in CSV and TSV
    header: bool = True  # the first row names the columns; otherwise they are called by their numbers, from 1
    split: str | None = None  # the one to read if the source has several and does not name one itself
    strict: bool = False  # a missing text or label is a mistake, and not left out
    texts_from: tuple[str, ...] = ()  # the columns of the training, which are read again if they are all there
    labels_from: tuple[str, ...] = ()
    chosen: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)  # what was read: see `columns_read`

    @property
    def layout(self) -> Layout:
        """What the readers of files want to know."""
        return Layout(self.format, separator_named(self.separator), self.header)

    def choice(self, name: str, with_label: bool) -> ColumnChoice:
        """Who chooses the columns."""
        return ColumnChoice(
            name, self.text_column, self.label_column, with_label, self.texts_from, self.labels_from, told=self.chosen
        )

    def columns_read(self) -> str:
        """What was read from which columns, as a clause; empty if the source has no columns, or was not read yet."""
        if not self.chosen:
            return ""
        said = [f"text from {_columns(self.chosen['texts'], ' and ')}"]
        if labels := self.chosen["labels"]:
            said.append(f"{'label' if len(labels) == 1 else 'labels'} from {_columns(labels)}")
        left = self.chosen["left"]
        listed = f"{_columns(left[:6])}{', …' if len(left) > 6 else ''}"
        return f"{', '.join(said)}{f' (not read: {listed})' if left else ''}"


def _columns(names: Iterable[str], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def read_rows(
    source: Source,
    reading: Reading | None = None,
    *,
    label_kind: LabelKind = "single",
    every_row: bool = False,
    **named: Any,
) -> Iterator[Row]:
    """The rows of `source`, in its order; `named` are fields of a `Reading`, and change those of `reading`.

    Labels become strings ("single"; numbers are written out), lists of strings ("multi"), finite floats ("number"), or
    are not read at all ("none"). Rows whose text or label is missing are left out, and a line says how many; if
    `every_row` is to be answered, a missing text is an empty one.
    """
    reading = replace(reading or Reading(), **named)
    converters = {"single": label_of, "multi": labels_of, "number": number_of, "none": _no_label}
    records = _open(source, reading, label_kind != "none")
    return _rows(called(source), records, converters[label_kind], reading.strict, every_row)


def given_texts(examples: Iterable[Any], reading: Reading) -> list[list[str]]:
    """The text of each string or dictionary, in a list. The first dictionary decides the columns; all have them."""
    objects = [one for one in examples if isinstance(one, dict)]
    rows = read_rows(objects, reading, label_kind="none", every_row=True) if objects else iter(())
    found = [[next(rows).text if isinstance(one, dict) else one] for one in examples]
    check_columns(objects, reading.chosen.get("texts", ()))
    return found


def read_texts_with_fields(
    source: Source, keep: Keep, reading: Reading | None = None, **named: Any
) -> Iterator[tuple[Fields, Row]]:
    """Every row of `source` without its label, with those fields of the input that are kept."""
    reading = replace(reading or Reading(), **named)
    columns = KeepingColumns(called(source), keep)
    records = columns.without_fields(_open(source, reading, False, columns))
    return ((columns.fields, row) for row in _rows(called(source), records, _no_label, reading.strict, True))


def detect_label_kind(source: Source, reading: Reading | None = None, **named: Any) -> Literal["single", "multi"]:
    """Say "multi" if any label is a list, or a string that holds `|`; else "single". All rows are looked at.

    If it shows late, most texts have one label and it may be a mistake in the file: one line says where.
    """
    records = _open(source, replace(reading or Reading(), **named), True)
    for number, (where, *_, label) in enumerate(records):
        if isinstance(label, list | tuple) or (isinstance(label, str) and LABEL_SEPARATOR in label):
            if number >= _EARLY_ROWS:
                say(f"{where}: this row has several labels, so every text may have several.")
            return "multi"
    return "single"


def called(source: Source) -> str:
    """What errors call a source."""
    if not isinstance(source, str | Path):
        return "the examples"
    return STANDARD_INPUT if str(source) == "-" else str(source)


def _rows(
    name: str, records: Iterator[Record], convert: Callable[[Any], Any], strict: bool, every_row: bool
) -> Iterator[Row]:
    total, left_out = 0, LeftOut()
    for where, *texts, label in records:
        total += 1
        try:
            row = Row(_one_text(texts), convert(label))
        except MissingValueError as error:
            if strict:
                raise UserError(f"{where}: {error}, or leave --strict out") from None
            left_out[f"without a {error.what}"] += 1
            if not every_row:
                continue
            row = Row("")
        except BadValueError as error:
            raise UserError(f"{where}: {error}") from None
        yield row
    if not total:
        raise UserError(f"{name}: no rows; give a file with at least one example")
    if every_row and left_out:
        say_once(f"{name}: {how_many(left_out.total(), 'texts', 'are', total)} missing and answered like an empty one.")
    elif left_out.total() == total:
        raise UserError(f"{name}: no row is left ({left_out.reasons()}); check --text-column and --label-column")
    else:
        left_out.say(name, total, "rows")


def _one_text(values: list[Any]) -> str:
    """The text of one column as it is, or those of several joined, without what is missing or blank."""
    given = [value for value in values if not is_missing(value)]
    if not given:
        raise MissingValueError("text", next(filter(is_nan, values), None))
    for value in given:
        if type(value) is not str:
            raise BadValueError(
                f"the text is {kind_of(value)}, not a string; correct the row, or choose another column with "
                "--text-column"
            )
    return BETWEEN_COLUMNS.join(given)


def _no_label(value: Any) -> None:
    return None


# ---- sources ---------------------------------------------------------------------------------------------------------


def _open(
    source: Source, reading: Reading, with_label: bool, keeping: KeepingColumns | None = None
) -> Iterator[Record]:
    """The records of `source`, with text and label columns chosen, and those to keep before them."""
    choice = reading.choice(called(source), with_label)
    choose = keeping.beside(choice) if keeping else choice
    name = str(source)
    base, _, named_split = name.rpartition(":")
    if not isinstance(source, str | Path):
        pick = picker(choose)
        records: Iterator[Record] = (pick(f"example {number}", record) for number, record in enumerate(source, 1))
    elif "builtin" in (name, base):
        from fastformer.data.corpus import builtin_rows

        rows = builtin_rows(named_split if base else reading.split or "train")
        records = ((f"{name}, row {number}", *row) for number, row in enumerate(rows, 1))
    else:
        records = open_records(name, choose, with_label, reading.layout, reading.split)
    return records if not with_label else _with_one_label(records, choice)


def _with_one_label(records: Iterator[Record], choice: ColumnChoice) -> Iterator[Record]:
    """The records, with one label or a list if several columns are labels themselves."""
    for where, *values, label in records:
        count = len(choice.labels)
        if count < 2:
            yield where, *values, label
            continue
        try:
            cells = zip(choice.labels, values[-count:], strict=True)
            found = [column for column, cell in cells if is_yes(cell)]
        except BadValueError as error:
            raise UserError(f"{where}: {error}") from None
        yield where, *values[:-count], found[0] if len(found) == 1 else found


def open_records(
    name: str, choose: Choose, with_label: bool, layout: Layout, split: str | None = None
) -> Iterator[Record]:
    """The records of any source but `builtin`; its name, and what is on the disk, tell what kind of source it is.

    `choose` picks two of the columns found: a text, and what belongs to it if `with_label`.
    """
    base, _, named_split = name.rpartition(":")
    if name == "-":
        if layout.format not in ("lines", "csv", "tsv", "jsonl"):
            raise UserError("standard input does not say its format; add --format lines, csv, tsv or jsonl")
        file = as_utf8(standard_input(), called(name))
        return guard(called(name), read_stream(file, called(name), layout, choose, with_label))

    path = name
    if base and not os.path.exists(name) and os.path.isdir(base):
        path, split = base, named_split
    elif base.lower().endswith(".xlsx") and not os.path.exists(name) and os.path.exists(base):
        path, layout = base, layout._replace(sheet=named_split)
    if layout.format is None and (reader := published_reader(path, split, with_label)):
        return guard(name, reader(choose))
    if os.path.isdir(path):
        saved = any(os.path.isfile(os.path.join(path, file)) for file in ("dataset_dict.json", "state.json"))
        return guard(name, read_saved(path, split, choose) if saved else read_folder(Path(path)))
    if os.path.exists(path):
        return guard(path, read_file(path, layout, choose, with_label))
    hub_name = base or name
    if layout.format or not _is_hub_name(hub_name):
        raise UserError(f"{name}: no such file or folder; check the path")
    return read_hub(hub_name, named_split if base else split, choose)


def _is_hub_name(name: str) -> bool:
    """A suffix, or a first part that is a folder here, means that a path was meant."""
    if not _HUB_NAME.fullmatch(name) or _FILE_SUFFIX.search(name):
        return False
    return "/" not in name or not os.path.isdir(name.split("/")[0])
