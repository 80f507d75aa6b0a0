"""Files -> rows (text, label), a few at a time, so that a table may be larger than memory.

A source is a CSV, TSV, JSONL (.jsonl, .ndjson, .json; a JSON array too) or Parquet file, plain or .gz; a .txt file of
one text a line (no labels); a folder of LABEL/*.txt; `-`, standard input; a folder saved by `datasets`; `builtin`, the
built-in corpus; or the name of a dataset on the Hub. The last three may have splits: `NAME:SPLIT` picks one. CSV and
TSV have a header, quote fields by `"`, and join several labels by `|`. Every reader yields (where, text, label) as the
file has them; `read_rows` checks and converts them. Whatever is wrong is said in one line with its file and line.
"""

import csv
import gzip
import io
import itertools
import json
import math
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import Any, Literal, NamedTuple

from fastformer.errors import UserError

LabelKind = Literal["single", "multi", "number", "none"]
Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "lines"]

# Column names recognised in any case; the first of each wins over the others.
TEXT_COLUMNS = ("text", "document", "content", "body", "article", "review", "sentence", "comment", "message", "tweet")
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
)
LABEL_SEPARATOR = "|"

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "lines",
}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILE_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}$")
_ARRAY_START = re.compile(r"\s*\[\s*")
_ARRAY_COMMA = re.compile(r"\s*,?\s*")
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20
_BATCH = 64  # rows of Parquet and `datasets` in memory at a time: each may be megabytes

csv.field_size_limit(2**31 - 1)  # a whole book may stand in one field


class Row(NamedTuple):
    """One example. The label is a string, several strings, a number, or None where labels are not read."""

    text: str
    label: str | list[str] | float | None = None


Record = tuple[str, Any, Any]  # where, text, label; neither is checked yet
Choose = Callable[[list[str]], tuple[str, str | None]]  # the columns found -> text column, label column


class _BadValueError(Exception):
    """A value that cannot be used; `_rows` adds where it stands."""


def read_rows(
    source: str | Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    label_kind: LabelKind = "single",
    format: Format | None = None,
    split: str | None = None,
) -> Iterator[Row]:
    """The rows of `source`, in its order.

    Labels become strings ("single"; integers are written out), lists of strings ("multi"), finite floats ("number"),
    or are not read at all ("none"). `format` is for standard input and for files whose name does not say it; `split`
    is the split to use where the source has several and does not name one itself.
    """
    convert = {"single": _one_label, "multi": _several_labels, "number": _number, "none": lambda value: None}[
        label_kind
    ]
    with_label = label_kind != "none"
    choose = partial(_choose_columns, _called(source), text_column, label_column, with_label)
    return _rows(_called(source), _open(str(source), format, split, choose, with_label), convert)


def detect_label_kind(
    source: str | Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    format: Format | None = None,
    split: str | None = None,
) -> Literal["single", "multi"]:
    """Say "multi" if one of the first thousand labels is a list, or a string that holds `|`; else "single"."""
    choose = partial(_choose_columns, _called(source), text_column, label_column, True)
    for _, _, label in itertools.islice(_open(str(source), format, split, choose, True), 1000):
        if isinstance(label, list | tuple) or (isinstance(label, str) and LABEL_SEPARATOR in label):
            return "multi"
    return "single"


def _called(source: str | Path) -> str:
    """What errors call a source."""
    return "standard input" if str(source) == "-" else str(source)


def _rows(name: str, records: Iterator[Record], convert: Callable[[Any], Any]) -> Iterator[Row]:
    where = None
    for where, text, label in records:
        try:
            if type(text) is not str:
                kind = "missing" if text is None else f"{_kind_of(text)}, not a string"
                raise _BadValueError(f"the text is {kind}; mend the row, or choose another column with --text-column")
            row = Row(text, convert(label))
        except _BadValueError as error:
            raise UserError(f"{where}: {error}") from None
        yield row
    if where is None:
        raise UserError(f"{name}: no rows; give a file with at least one example")


# ---- values ----------------------------------------------------------------------------------------------------------


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
            f"the label is {_kind_of(value)}; give every row one string or integer, or every row a list"
        )
    raise _BadValueError("the label is missing; fill it in or remove the row")


def _several_labels(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(LABEL_SEPARATOR)] if value.strip() else []
    elif not isinstance(value, list | tuple):
        value = [value]
    return list(dict.fromkeys(map(_one_label, value)))


def _number(value: Any) -> float:
    if value is None or value == "":
        raise _BadValueError("the label is missing; fill it in or remove the row")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _BadValueError(f"the label {str(value)[:60]!r} is not a finite number; mend it, or drop --regression")
    return number


def _kind_of(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", tuple: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), f"of type {type(value).__name__}")


# ---- columns ---------------------------------------------------------------------------------------------------------


def _choose_columns(
    name: str, text: str | None, label: str | None, with_label: bool, found: list[str]
) -> tuple[str, str | None]:
    """The text and label columns: as told, else by their names, else by there being no other."""
    listed = f"columns found: {', '.join(found[:30])}{', …' if len(found) > 30 else ''}"
    label = label if with_label else None
    for column, flag in ((text, "--text-column"), (label, "--label-column")):
        if column is not None and found.count(column) != 1:
            count = "more than one column" if column in found else "no column"
            raise UserError(f"{name}: {count} {column!r}; {listed}; name one of them with {flag}")
    text = text or _recognise(found, TEXT_COLUMNS, taken=label)
    label = label or _recognise(found, LABEL_COLUMNS, taken=text)
    if len(found) == 2 and all(found) and (text is None) != (label is None):
        other = found[1 - found.index(text or label)]
        text, label = text or other, label or other
    if len(found) == 1 and not with_label:
        text = found[0]
    for column, role in ((text, "text"), (label, "label")):
        if column is None and (with_label or role == "text"):
            raise UserError(
                f"{name}: cannot tell which column holds the {role}; {listed}; name it with --{role}-column"
            )
    if with_label and text == label:
        raise UserError(
            f"{name}: {text!r} cannot be text and label at once; {listed}; name another with --label-column"
        )
    return text, label if with_label else None


def _recognise(found: list[str], candidates: tuple[str, ...], taken: str | None) -> str | None:
    matches = [column for column in found if column != taken and column.lower() in candidates]
    best = [column for column in matches if column.lower() == candidates[0]] or matches
    return best[0] if len(best) == 1 else None


# ---- sources ---------------------------------------------------------------------------------------------------------


def _open(name: str, format: Format | None, split: str | None, choose: Choose, with_label: bool) -> Iterator[Record]:
    base, _, named_split = name.rpartition(":")
    if "builtin" in (name, base):
        from fastformer.data.corpus import builtin_rows

        rows = builtin_rows(named_split if base else split or "train")
        return ((f"{name}, row {number}", *row) for number, row in enumerate(rows, 1))
    if name == "-":
        if format not in ("lines", "csv", "tsv", "jsonl"):
            raise UserError("standard input does not say its format; add --format lines, csv, tsv or jsonl")
        stream = sys.stdin.buffer
        stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
        return _guard(_called(name), _read_stream(stream, _called(name), format, choose, with_label))

    path = name
    if base and not os.path.exists(name) and os.path.isdir(base):
        path, split = base, named_split
    if os.path.isdir(path):
        saved = any(os.path.isfile(os.path.join(path, file)) for file in ("dataset_dict.json", "state.json"))
        return _guard(name, _read_saved(path, split, choose) if saved else _read_folder(Path(path)))
    if os.path.exists(path):
        return _guard(name, _read_file(name, format or _format_of(name), choose, with_label))
    hub_name = base or name
    if format or not _is_hub_name(hub_name):
        raise UserError(f"{name}: no such file or folder; check the path")
    return _read_hub(hub_name, named_split if base else split, choose)


def _is_hub_name(name: str) -> bool:
    """A suffix, or a first part that is a folder here, means that a path was meant."""
    if not _HUB_NAME.fullmatch(name) or _FILE_SUFFIX.search(name):
        return False
    return "/" not in name or not os.path.isdir(name.split("/")[0])


def _format_of(name: str) -> Format:
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if suffix not in _FORMATS:
        endings = ", ".join(_FORMATS)
        raise UserError(f"{name}: the name does not say what the file holds; end it in one of {endings} (and .gz)")
    return _FORMATS[suffix]


def _guard(name: str, records: Iterator[Record]) -> Iterator[Record]:
    """Say what the machine has against reading in words that help."""
    try:
        yield from records
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(
            f"{name}: not a whole gzip file; compress it again, or take .gz off its name if it is not compressed"
        ) from None
    except PermissionError as error:
        path = error.filename or name
        raise UserError(f"{path}: permission denied; make it readable, for example: chmod +r {path}") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check the disk and the path") from None


def _read_file(name: str, format: Format, choose: Choose, with_label: bool) -> Iterator[Record]:
    with open(name, "rb", buffering=_BUFFER) as file:
        if not name.lower().endswith(".gz"):
            yield from _read_stream(file, name, format, choose, with_label)
            return
        unzipped = io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER)
        if format != "parquet":
            yield from _read_stream(unzipped, name, format, choose, with_label)
            return
        with tempfile.TemporaryFile() as whole:  # Parquet is read back to front
            copyfileobj(unzipped, whole, _BUFFER)
            whole.seek(0)
            yield from _read_stream(whole, name, format, choose, with_label)


def _read_stream(
    file: io.BufferedReader, name: str, format: Format, choose: Choose, with_label: bool
) -> Iterator[Record]:
    start = file.peek(1).removeprefix(_BOM)
    if not start:
        raise UserError(f"{name}: the file is empty; give a file with at least one example")
    if format == "lines":
        if with_label:
            raise UserError(f"{name}: plain lines have no labels; give CSV, TSV, JSONL or Parquet with a label column")
        for number, line in enumerate(_decode(file, name), 1):
            yield f"{name}, line {number}", line.rstrip("\r\n"), None
    elif format == "parquet":
        yield from _read_parquet(file, name, choose)
    elif format == "json" and start.lstrip()[:1] == b"[":
        yield from _read_array(file, name, choose)
    elif format in ("json", "jsonl"):
        yield from _read_jsonl(file, name, choose)
    else:
        yield from _read_csv(file, name, {"csv": ",", "tsv": "\t"}[format], choose)


def _read_folder(folder: Path) -> Iterator[Record]:
    found = False
    for label in sorted(path for path in folder.iterdir() if path.is_dir()):
        for path in sorted(label.glob("*.txt")):
            found = True
            data = path.read_bytes().removeprefix(_BOM)
            try:
                text = data.decode()
            except UnicodeDecodeError as error:
                line = 1 + data.count(b"\n", 0, error.start)
                raise _not_utf8(str(path), f"line {line}") from None
            yield str(path), text, label.name
    if not found:
        raise UserError(
            f"{folder}: a folder with neither LABEL/*.txt nor a saved `datasets` dataset; name a file in it"
        )


# ---- formats ---------------------------------------------------------------------------------------------------------


def _decode(file: io.BufferedReader, name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            text = (line.removeprefix(_BOM) if number == 1 else line).decode()
        except UnicodeDecodeError:
            raise _not_utf8(name, f"line {number}") from None
        yield text


def _not_utf8(name: str, place: str) -> UserError:
    file = Path(name).name.removesuffix(".gz")
    how = f"convert the file, for example: iconv -f LATIN1 -t UTF-8 {file} > utf8-{file}"
    return UserError(f"{name}, {place}: not UTF-8; {how}")


def _read_csv(file: io.BufferedReader, name: str, delimiter: str, choose: Choose) -> Iterator[Record]:
    reader = csv.reader(_decode(file, name), delimiter=delimiter, strict=True)
    start, header = 1, None  # `start` is the first line of the row at hand, which may span several
    try:
        for fields in reader:
            if header is None:
                if fields:
                    header = [column.strip() for column in fields]
                    if len(header) == 1 and re.search(r"[;\t]", header[0]):
                        raise UserError(
                            f"{name}, line {start}: one column named {header[0]!r}; separate fields by {delimiter!r}"
                        )
                    text, label = choose(header)
                    text, label = header.index(text), label and header.index(label)
            elif len(fields) == len(header):
                yield f"{name}, line {start}", fields[text], None if label is None else fields[label]
            elif fields:
                raise UserError(
                    f"{name}, line {start}: {len(fields)} fields where the header has {len(header)}; "
                    f"put a field that holds {delimiter!r} or a new line in double quotes"
                )
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{name}, line {start}: broken CSV ({error}); close every double quote, and double those inside a field"
        ) from None


def _read_jsonl(file: io.BufferedReader, name: str, choose: Choose) -> Iterator[Record]:
    pick = _picker(choose)
    for number, line in enumerate(_decode(file, name), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if line.isspace():
                continue
            place = f"line {number}, column {getattr(error, 'colno', 1)}"
            raise UserError(
                f"{name}, {place}: broken JSON ({_reason(error)}); every line must hold one whole object"
            ) from None
        yield pick(f"{name}, line {number}", record)


def _read_array(file: io.BufferedReader, name: str, choose: Choose) -> Iterator[Record]:
    """The objects of one JSON array, each decoded from a window of text that grows only while the object is cut off."""
    pick = _picker(choose)
    decoder = json.JSONDecoder()
    stream = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    number, window, at, size = 0, "", 0, _BUFFER
    between = _ARRAY_START
    while True:
        gap = between.match(window, at)
        end = gap.end() if gap else at
        try:
            if gap and window[end : end + 1] == "]":
                return
            record, at = decoder.raw_decode(window, end)
        except (ValueError, RecursionError) as error:
            cut_off = getattr(error, "pos", 0) > len(window) - 16 or _reason(error).startswith("Unterminated")
            try:
                more = cut_off and stream.read(size)
            except UnicodeDecodeError:
                raise _not_utf8(name, f"after row {number}") from None
            if not more:
                raise UserError(f"{name}, row {number + 1}: broken JSON ({_reason(error)}); mend that object") from None
            window, at, size = window[at:] + more, 0, 2 * size
            continue
        number, size, between = number + 1, _BUFFER, _ARRAY_COMMA
        yield pick(f"{name}, row {number}", record)


def _picker(choose: Choose) -> Callable[[str, Any], Record]:
    """Takes text and label out of JSON objects; the first object decides the columns."""
    columns: tuple[str, str | None] | None = None

    def pick(where: str, record: Any) -> Record:
        nonlocal columns
        if type(record) is not dict:
            raise UserError(f'{where}: {_kind_of(record)}, not a JSON object; write {{"text": …, "label": …}}')
        columns = columns or choose(list(record))
        text, label = map(record.get, columns)
        if type(text) is str and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:  # JSON can spell half a surrogate pair, which is no character: make it U+FFFD
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return where, text, label

    return pick


def _read_parquet(file: io.BufferedReader, name: str, choose: Choose) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        text, label = choose(table.schema_arrow.names)
        batches = table.iter_batches(batch_size=_BATCH, columns=[text, label] if label else [text])
        yield from _number_rows(name, (batch.to_pydict() for batch in batches), text, label, table.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{name}: not a readable Parquet file ({_reason(error)}); write or download it again") from None


# ---- datasets --------------------------------------------------------------------------------------------------------


def _read_saved(path: str, split: str | None, choose: Choose) -> Iterator[Record]:
    from datasets import load_from_disk

    try:
        dataset = load_from_disk(path)
    except Exception as error:  # whatever broken files make it raise
        raise UserError(f"{path}: this saved dataset cannot be read ({_reason(error)}); save it again") from None
    yield from _read_dataset(dataset, path, split, choose)


def _read_hub(name: str, split: str | None, choose: Choose) -> Iterator[Record]:
    import datasets
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    offline = datasets.config.HF_HUB_OFFLINE
    try:
        if not offline:
            HfApi().dataset_info(name, timeout=10)  # fails at once where load_dataset would retry for half a minute
        dataset = datasets.load_dataset(name)
    except (RepositoryNotFoundError, datasets.exceptions.DatasetNotFoundError):
        raise UserError(f"{name}: no such file here and no such dataset on the Hub; check the spelling") from None
    except Exception as error:  # no network, a proxy, a gated dataset, a configuration to choose: there are many
        hint = "unset HF_HUB_OFFLINE to download it" if offline else "set HF_HUB_OFFLINE=1 if it was downloaded before"
        raise UserError(
            f"{name}: no such file here, and the Hub gives no such dataset ({_reason(error)}); "
            f"check the path and the network, or {hint}"
        ) from None
    yield from _read_dataset(dataset, name, split, choose)


def _read_dataset(dataset: Any, name: str, split: str | None, choose: Choose) -> Iterator[Record]:
    if isinstance(dataset, dict):
        split = split or (next(iter(dataset)) if len(dataset) == 1 else None)
        if split not in dataset:
            wanted = f"no split {split!r}" if split else "several splits"
            raise UserError(
                f"{name}: {wanted}; splits found: {', '.join(dataset)}; name one, as in {name}:{next(iter(dataset))}"
            )
        dataset = dataset[split]
    text, label = choose(dataset.column_names)
    dataset = dataset.with_format(None).select_columns([text, label] if label else [text])
    yield from _number_rows(name, dataset.iter(_BATCH), text, label, dataset.features.arrow_schema)


def _number_rows(name: str, batches: Iterator[dict], text: str, label: str | None, schema: Any) -> Iterator[Record]:
    """The rows of column batches, with the class numbers of `datasets` turned into their names."""
    names = None
    if label and b"huggingface" in (schema.metadata or {}):
        from datasets import ClassLabel, Features

        feature = Features.from_arrow_schema(schema)[label]
        feature = getattr(feature, "feature", feature)  # of a list: what it is a list of
        names = feature.names if isinstance(feature, ClassLabel) else None

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    number = 0
    for batch in batches:
        labels = batch[label] if label else itertools.repeat(None)
        for one_text, one_label in zip(batch[text], labels, strict=False):
            number += 1
            yield f"{name}, row {number}", one_text, named(one_label) if names else one_label


def _reason(error: Exception) -> str:
    return getattr(error, "msg", None) or next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
