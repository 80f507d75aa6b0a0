"""Answers in a file, whose ending chooses the format: JSON lines (.jsonl, .ndjson, .json, .txt), CSV or Parquet.

They are streamed, written aside, and renamed into place when complete. Rows may have different fields: then CSV and
Parquet have all of them, empty if a row has none, so these two are first put into a temporary file beside the
output. A dictionary, and a list that holds more than plain values, becomes JSON text; in CSV so does every list.
"""

import csv
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from fastformer.data.values import whole_characters
from fastformer.errors import UserError
from fastformer.surroundings.files import writing_aside, writing_text

Answer = dict[str, Any]
Write = Callable[[list[Answer]], None]

LINES = (".jsonl", ".ndjson", ".json", ".txt")
TABLES = (".csv", ".parquet")
ROWS_AT_ONCE = 8192  # of Parquet, in memory and in a group
_UNFIT = (TypeError, ValueError, OverflowError, NotImplementedError)  # Arrow's own mistakes about values are among them


def check_ending(path: str | Path) -> None:
    """Refuse a name that does not say how to write; a device or a pipe takes lines."""
    path = Path(path)
    if path.suffix.lower() not in (*LINES, *TABLES) and (path.is_file() or not path.exists()):
        known = ", ".join((*LINES, *TABLES))
        raise UserError(f"{path}: the name does not say how to write answers; end it in one of {known}")


@contextmanager
def writing_answers(path: str | Path, line: Callable[[Answer], str]) -> Iterator[Write]:
    """A function that writes some answers; `line` is an answer as one line of text."""
    check_ending(path)
    ending = Path(path).suffix.lower()
    if ending not in TABLES:
        with writing_text(path) as file:
            yield lambda answers: write_lines(file, answers, line)
        return
    finish = _write_csv if ending == ".csv" else _write_parquet
    with writing_aside(path) as aside, tempfile.TemporaryFile(dir=aside.parent) as rows:
        columns: dict[str, None] = {}

        def write(answers: list[Answer]) -> None:
            for answer in answers:
                columns.update(dict.fromkeys(answer))
            pickle.dump(answers, rows)  # unnamed and ours alone; JSON has no dates, Arrow no 1 beside 2.5

        yield write
        finish(aside, list(columns), rows)


def write_lines(file: IO[str], answers: list[Answer], line: Callable[[Answer], str]) -> None:
    """Write a line per answer."""
    file.writelines(whole_characters(line(answer)) + "\n" for answer in answers)


def _blocks(rows: IO[bytes]) -> Iterator[list[Answer]]:
    rows.seek(0)
    block: list[Answer] = []
    while True:
        try:
            block += pickle.load(rows)
        except EOFError:
            break
        if len(block) >= ROWS_AT_ONCE:
            yield block
            block = []
    if block:
        yield block


def _write_csv(path: Path, columns: list[str], rows: IO[bytes]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(whole_characters, columns))
        for block in _blocks(rows):
            writer.writerows([_cell(answer.get(column)) for column in columns] for answer in block)


def _cell(value: Any) -> Any:
    """A value as CSV has it."""
    value = _json(value) if isinstance(value, dict | list | tuple) else value
    return whole_characters(value) if isinstance(value, str) else value


def _write_parquet(path: Path, columns: list[str], rows: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: dict[str, pa.DataType] = dict.fromkeys(columns, pa.null())
    for block in _blocks(rows):
        for column in columns:
            kinds[column] = _common(kinds[column], [_flat(answer.get(column)) for answer in block])
    for block in _blocks(rows):  # before the first row is written, for a type may not hold all: floats no large integer
        for column in columns:
            if not _holds(kinds[column], [_flat(answer.get(column)) for answer in block]):
                kinds[column] = pa.string()
    schema = pa.schema([(whole_characters(column), kinds[column]) for column in columns])
    with pq.ParquetWriter(path, schema) as writer:
        for block in _blocks(rows):
            flat = {column: [_flat(answer.get(column)) for answer in block] for column in columns}
            arrays = [_array(kinds[column], values) for column, values in flat.items()]
            writer.write_table(pa.table(arrays, schema=schema))


def _common(kind: Any, values: list[Any]) -> Any:
    """The type of a column so far and of further values; text, if they have nothing in common."""
    import pyarrow as pa

    try:
        own = pa.array(values).type
        inner = own.value_type if pa.types.is_list(own) else own
        if pa.types.is_temporal(inner) and len(_kinds_of_time(values)) > 1:
            return pa.string()
        schemas = [pa.schema([("", one)]) for one in (kind, own)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except _UNFIT:
        return pa.string()


def _kinds_of_time(values: list[Any]) -> set[Any]:
    """Dates, times and what else is among the values, or in lists of them, each a kind of its own.

    Beside a date Arrow would cut a datetime to its day and read 7 as the eighth day of 1970; beside a datetime with a
    zone it would take one without for UTC.
    """
    flat = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
    return {
        (datetime, one.tzinfo is None) if isinstance(one, datetime) else type(one) for one in flat if one is not None
    }


def _holds(kind: Any, values: list[Any]) -> bool:
    """Whether a column of this type can have these values."""
    try:
        _array(kind, values)
    except _UNFIT:
        return False
    return True


def _array(kind: Any, values: list[Any]) -> Any:
    """Values as a column of this type."""
    import pyarrow as pa

    if kind == pa.string():
        values = [value if value is None or isinstance(value, str) else _json(value) for value in values]
    return pa.array(values, kind)


def _flat(value: Any) -> Any:
    """A value as Parquet has it: plain, or a list of plain values."""
    if isinstance(value, dict) or (
        isinstance(value, list | tuple) and any(isinstance(one, dict | list | tuple) for one in value)
    ):
        value = _json(value)
    if isinstance(value, list | tuple):
        return [whole_characters(one) if isinstance(one, str) else one for one in value]
    return whole_characters(value) if isinstance(value, str) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
