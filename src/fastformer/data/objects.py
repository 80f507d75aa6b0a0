"""JSONL or Parquet, plain, .gz, .xz or .zip -> objects with any columns, a few at a time.

`tables.py` reads one text and one label per row; this is for tasks whose rows have lists and several fields.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastformer.data.opening import as_utf8, check_kind, decode, format_of, guard, opened, reads_once
from fastformer.data.standard_input import STANDARD_INPUT, Bytes, standard_input
from fastformer.data.values import kind_of
from fastformer.errors import UserError

ROWS_AT_ONCE = 256  # of Parquet, in memory at a time

Object = tuple[str, dict[str, Any]]  # where it stands (file and line or row), and what it holds


def read_objects(
    source: str | Path, needed: Sequence[str], optional: Sequence[str] | None = (), first: Sequence[str] = ()
) -> Iterator[Object]:
    """The rows of a .jsonl or .parquet file (`-`: JSONL from standard input); each has all of `needed`.

    The first row has all of `first` too: these columns exist, and a later row may leave them out. Of Parquet only the
    columns that are named here are read; `optional` may be None: all of them.
    """
    name = STANDARD_INPUT if str(source) == "-" else str(source)
    return guard(name, _read(str(source), name, needed, optional, first))


def given_objects(
    records: Iterable[dict[str, Any]], needed: Sequence[str], first: Sequence[str] = ()
) -> Iterator[Object]:
    """Dictionaries as if they were read from a file."""
    return _checked(((f"example {number}", record) for number, record in enumerate(records, 1)), needed, first)


def check_columns(examples: Iterable[Any], needed: Sequence[str]) -> None:
    """Refuse a dictionary that lacks a column."""
    for _ in given_objects((one for one in examples if isinstance(one, dict)), needed):
        pass


def missing_column(where: str, column: str, found: Sequence[str]) -> UserError:
    """The mistake that a column is not there."""
    listed = ", ".join(found[:30]) + (", …" if len(found) > 30 else "")
    return UserError(f"{where}: no column {column!r}; columns found: {listed or 'none'}; add or rename it")


def _read(
    source: str, name: str, needed: Sequence[str], optional: Sequence[str] | None, first: Sequence[str]
) -> Iterator[Object]:
    if source == "-":
        yield from _at_least_one(name, _checked(_read_lines(as_utf8(standard_input(), name), name), needed, first))
        return
    if not Path(source).is_file() and not reads_once(source):
        raise UserError(f"{source}: no such file; give a .jsonl or .parquet file")
    format = format_of(source)
    if format not in ("jsonl", "json", "parquet"):
        raise UserError(
            f"{source}: rows with lists are read from .jsonl or .parquet (and .gz or .xz); convert the file"
        )
    with opened(source, format) as file:
        if format == "parquet":
            rows = _read_parquet(file, name, (*needed, *first), optional)
        else:
            check_kind(file.peek(4), name, format)
            rows = _checked(_read_lines(file, name), needed, first)
        yield from _at_least_one(name, rows)


def _at_least_one(name: str, rows: Iterator[Object]) -> Iterator[Object]:
    row = None
    for row in rows:
        yield row
    if row is None:
        raise UserError(f"{name}: no rows; give a file with at least one")


def _read_lines(file: Bytes, name: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(decode(file, name), 1):
        if line.isspace():
            continue
        where = f"{name}, line {number}"
        try:
            yield where, json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deeply")
            raise UserError(f"{where}: broken JSON ({reason}); every line must hold one whole object") from None


def _checked(records: Iterable[tuple[str, Any]], needed: Sequence[str], first: Sequence[str]) -> Iterator[Object]:
    """The records, each of which must be an object and have its columns."""
    for where, record in records:
        if type(record) is not dict:
            raise UserError(f"{where}: {kind_of(record)}, not a JSON object")
        for column in (*needed, *first):
            if column not in record:
                raise missing_column(where, column, list(record))
        first = ()  # of later rows nothing more is asked
        yield where, record


def _read_parquet(file: Any, name: str, needed: Sequence[str], optional: Sequence[str] | None) -> Iterator[Object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        found = table.schema_arrow.names
        for column in needed:
            if column not in found:
                raise missing_column(name, column, found)
        columns = [column for column in found if optional is None or column in (*needed, *optional)]
        number = 0
        for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
            for record in batch.to_pylist():
                number += 1
                yield f"{name}, row {number}", record
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise UserError(f"{name}: not a readable Parquet file ({reason}); write or download it again") from None
