"""How many rows a source has, if that is known without reading it: the total of a progress bar."""

from collections.abc import Sized
from pathlib import Path
from typing import Any

_LINES = (".txt", ".jsonl", ".ndjson")
_COUNTED = 1 << 31  # bytes of lines that are counted: a second or so


def how_many_rows(source: Any) -> int | None:
    """The rows of a list, a Parquet file, or a file of lines; None if only reading it would tell.

    Rows that are left out later, such as empty lines, are counted too.
    """
    if not isinstance(source, str | Path):
        return len(source) if isinstance(source, Sized) else None
    path = Path(source)
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_metadata(path).num_rows
        if path.suffix.lower() in _LINES and path.is_file() and path.stat().st_size <= _COUNTED:
            return _count_lines(path)
    except (OSError, ValueError):  # reading it reports what is wrong; Arrow's errors are ValueErrors
        pass
    return None


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")
