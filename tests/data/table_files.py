"""Files that the tests of tables read."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.data.tables import Row, read_rows
from fastformer.errors import UserError


def write_table(path: Path, rows: list[Row]) -> Path:
    """Write rows in the format and compression that the file's name says."""
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    records = [row._asdict() for row in rows]
    buffer = io.BytesIO()
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(records), buffer)
    else:
        text = io.TextIOWrapper(buffer, encoding="utf-8", newline="")
        if suffix == "json":
            json.dump(records, text)
        elif suffix in ("jsonl", "ndjson"):
            text.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.writer(text, delimiter={"csv": ",", "tsv": "\t"}[suffix])
            writer.writerows([Row._fields, *rows])
        text.flush()
    data = buffer.getvalue()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def error_of(source, **options) -> str:
    with pytest.raises(UserError) as caught:
        list(read_rows(source, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message
