"""The readers: what a file, a folder or a dataset holds -> records (where, text, …, label), a few at a time.

Files are CSV, TSV, JSONL, a JSON array, Parquet, or one text per line, all of them plain, .gz or .xz; CSV and TSV have
a header and quote fields by `"`. A folder holds LABEL/*.txt, or was saved by `datasets`; datasets also come from the
Hub. A reader finds the columns, asks `choose` which of them to read, and yields their values as they are, except that
class numbers of `datasets` become names. `where` is the file and the line or row, for whoever finds a value wrong.
"""

import csv
import gzip
import io
import itertools
import json
import lzma
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from typing import Any, Literal

from fastformer.data.keeping import KeepingColumns
from fastformer.data.standard_input import STANDARD_INPUT, Bytes
from fastformer.errors import UserError, extra

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "lines"]
Record = tuple[str, *tuple[Any, ...]]  # where, one text or several, label; none is checked yet
Choose = Callable[[list[str]], tuple[str | None, ...]]  # the columns found -> text column or columns, label column

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "lines",
}
_ARRAY_START = re.compile(r"\s*\[\s*")
_ARRAY_COMMA = re.compile(r"\s*,?\s*")
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20
_COMPRESSED = {".gz": lambda file: gzip.GzipFile(fileobj=file), ".xz": lzma.LZMAFile}
_BATCH = 64  # rows of Parquet and `datasets` in memory at a time: each may be megabytes

csv.field_size_limit(2**31 - 1)  # a whole book may stand in one field


def _suffix(name: str) -> str:
    """The ending of a file's name that says its format, in lower case; what says that it is compressed does not."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def format_of(name: str) -> Format:
    """The format that a file's name says."""
    suffix = _suffix(name)
    if suffix not in _FORMATS:
        endings = ", ".join(_FORMATS)
        raise UserError(
            f"{name}: the name does not say what the file holds; end it in one of {endings} (and .gz or .xz)"
        )
    return _FORMATS[suffix]


def is_table(name: str) -> bool:
    """Whether a file's name says that it holds rows."""
    return _FORMATS.get(_suffix(name), "lines") != "lines"


def guard(name: str, records: Iterator[Record]) -> Iterator[Record]:
    """Say what the machine has against reading in words that help."""
    try:
        yield from records
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError):
        kind, ending = ("xz", ".xz") if name.lower().endswith(".xz") else ("gzip", ".gz")
        raise UserError(
            f"{name}: not a whole {kind} file; compress it again, or take {ending} off its name if it is not compressed"
        ) from None
    except PermissionError as error:
        path = error.filename or name
        raise UserError(f"{path}: permission denied; make it readable, for example: chmod +r {path}") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check the disk and the path") from None


def read_file(name: str, format: Format, choose: Choose, with_label: bool) -> Iterator[Record]:
    """The records of a file, plain, .gz or .xz."""
    with opened(name, back_to_front=format == "parquet") as file:
        yield from read_stream(file, name, format, choose, with_label)


@contextmanager
def opened(name: str, back_to_front: bool = False) -> Iterator[Bytes]:
    """The bytes of a file, plain, .gz or .xz. What is read back to front, as Parquet is, is unpacked aside first."""
    with io.BufferedReader(io.FileIO(name), _BUFFER) as file:
        unzip = _COMPRESSED.get(Path(name.lower()).suffix)
        if unzip is None:
            yield file
            return
        unzipped = io.BufferedReader(unzip(file), _BUFFER)
        if not back_to_front:
            yield unzipped
            return
        with tempfile.TemporaryFile() as aside:
            copyfileobj(unzipped, aside, _BUFFER)
            aside.seek(0)
            yield aside


def read_stream(file: Bytes, name: str, format: Format, choose: Choose, with_label: bool) -> Iterator[Record]:
    """The records of an open file, from where it stands."""
    start = file.peek(1).removeprefix(_BOM)
    if not start:
        raise UserError(f"{name}: the file is empty; give a file with at least one example")
    if format == "lines":
        if with_label:
            raise UserError(
                f"{name}: plain lines are texts alone; give CSV, TSV, JSONL or Parquet, with labels or summaries too"
            )
        for number, line in enumerate(decode(file, name), 1):
            yield f"{name}, line {number}", line.rstrip("\r\n"), None
    elif format == "parquet":
        yield from _read_parquet(file, name, choose)
    elif format == "json" and start.lstrip()[:1] == b"[":
        yield from _read_array(file, name, choose)
    elif format in ("json", "jsonl"):
        yield from _read_jsonl(file, name, choose)
    else:
        yield from _read_csv(file, name, {"csv": ",", "tsv": "\t"}[format], choose)


def read_folder(folder: Path) -> Iterator[Record]:
    """The records of LABEL/*.txt, one a file."""
    found = False
    for label in sorted(path for path in folder.iterdir() if path.is_dir()):
        for path in sorted(label.glob("*.txt")):
            found = True
            with open(path, "rb") as file:
                text = "".join(decode(file, str(path)))
            yield str(path), text, label.name
    if not found:
        raise UserError(
            f"{folder}: a folder with neither LABEL/*.txt nor a saved `datasets` dataset; name a file in it"
        )


# ---- formats of files ------------------------------------------------------------------------------------------------


def decode(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open file as text."""
    for number, line in enumerate(file, 1):
        try:
            text = (line.removeprefix(_BOM) if number == 1 else line).decode()
        except UnicodeDecodeError:
            raise _not_utf8(name, f"line {number}") from None
        yield text


def _read_csv(file: Bytes, name: str, delimiter: str, choose: Choose) -> Iterator[Record]:
    reader = csv.reader(decode(file, name), delimiter=delimiter, strict=True)
    start, header = 1, None  # `start` is the first line of the row at hand, which may span several
    try:
        for fields in reader:
            if not fields:
                pass  # a blank line
            elif header is None:
                header = [column.strip() for column in fields]
                if len(header) == 1 and re.search(r"[;\t]", header[0]):
                    raise UserError(
                        f"{name}, line {start}: one column named {header[0]!r}; separate fields by {delimiter!r}"
                    )
                places = [None if column is None else header.index(column) for column in choose(header)]
            elif len(fields) != len(header):
                raise UserError(
                    f"{name}, line {start}: {len(fields)} fields where the header has {len(header)}; "
                    f"put a field that holds {delimiter!r} or a new line in double quotes"
                )
            else:
                yield f"{name}, line {start}", *(None if place is None else fields[place] for place in places)
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{name}, line {start}: broken CSV ({error}); close every double quote, and double those inside a field"
        ) from None


def _read_jsonl(file: Bytes, name: str, choose: Choose) -> Iterator[Record]:
    pick = picker(choose)
    for number, line in enumerate(decode(file, name), 1):
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


def _read_array(file: Bytes, name: str, choose: Choose) -> Iterator[Record]:
    """The objects of one JSON array, each decoded from a window of text that grows only while the object is cut off."""
    pick = picker(choose)
    decoder = json.JSONDecoder()
    stream = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    number, window, at, size = 0, "", 0, _BUFFER
    between = _ARRAY_START
    while True:
        gap = between.match(window, at)
        end = gap.end() if gap else at
        if gap and window.startswith("]", end):
            return
        try:
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


def picker(choose: Choose) -> Callable[[str, Any], Record]:
    """Takes texts and label out of JSON objects; the first object decides the columns."""
    columns: tuple[str | None, ...] | None = None

    def pick(where: str, record: Any) -> Record:
        nonlocal columns
        if type(record) is not dict:
            raise UserError(f'{where}: {kind_of(record)}, not a JSON object; write {{"COLUMN": value, …}}')
        columns = columns or choose(list(record))
        if isinstance(choose, KeepingColumns):
            choose.object = record
        values: list[Any] = [record.get(column) for column in columns]
        *texts, label = values
        texts = [whole_characters(text) if type(text) is str else text for text in texts]
        return where, *texts, label

    return pick


def whole_characters(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, which is no character; JSON can spell one."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _read_parquet(file: Bytes, name: str, choose: Choose) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        chosen = choose(table.schema_arrow.names)
        batches = table.iter_batches(batch_size=_BATCH, columns=_distinct(chosen))
        yield from _number_rows(name, (batch.to_pydict() for batch in batches), chosen, table.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{name}: not a readable Parquet file ({_reason(error)}); write or download it again") from None


# ---- datasets --------------------------------------------------------------------------------------------------------


def read_saved(path: str, split: str | None, choose: Choose) -> Iterator[Record]:
    """The records of a folder saved by `datasets`."""
    with extra("hub"):
        from datasets import load_from_disk

    try:
        dataset = load_from_disk(path)
    except Exception as error:  # whatever broken files make it raise
        raise UserError(f"{path}: this saved dataset cannot be read ({_reason(error)}); save it again") from None
    yield from _read_dataset(dataset, path, split, choose)


def read_hub(name: str, split: str | None, choose: Choose) -> Iterator[Record]:
    """The records of a dataset on the Hub."""
    with extra("hub"):
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
    chosen = choose(dataset.column_names)
    dataset = dataset.with_format(None).select_columns(_distinct(chosen))
    yield from _number_rows(name, dataset.iter(_BATCH), chosen, dataset.features.arrow_schema)


def _distinct(chosen: tuple[str | None, ...]) -> list[str]:
    """The columns to read; one that is kept may be the text too."""
    return list(dict.fromkeys(column for column in chosen if column is not None))


def _number_rows(name: str, batches: Iterator[dict], chosen: tuple[str | None, ...], schema: Any) -> Iterator[Record]:
    """The rows of column batches, with the class numbers of `datasets` turned into their names."""
    *texts, label = chosen
    names: list[str] = []
    if label is not None and b"huggingface" in (schema.metadata or {}):
        with extra("hub"):
            from datasets import ClassLabel, Features

        feature = Features.from_arrow_schema(schema)[label]
        feature = getattr(feature, "feature", feature)  # of a list: what it is a list of
        names = feature.names if isinstance(feature, ClassLabel) else []

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    number = 0
    for batch in batches:
        labels = itertools.repeat(None) if label is None else batch[label]
        for *row, one_label in zip(*(batch[text] for text in texts), labels, strict=False):
            number += 1
            yield f"{name}, row {number}", *row, named(one_label) if names else one_label


# ---- words of errors -------------------------------------------------------------------------------------------------


def _not_utf8(name: str, place: str) -> UserError:
    file = Path(name).name.removesuffix(".gz")
    files = "" if name == STANDARD_INPUT else f" {file} > utf8-{file}"
    return UserError(f"{name}, {place}: not UTF-8; convert the file, for example: iconv -f LATIN1 -t UTF-8{files}")


def _reason(error: Exception) -> str:
    return getattr(error, "msg", None) or next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def kind_of(value: Any) -> str:
    """What errors call the type of a value."""
    kinds = {dict: "an object", list: "a list", tuple: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), f"of type {type(value).__name__}")
