"""The readers: what a file, a folder or a dataset holds -> records (where, text, …, label), a few at a time.

Files are CSV, TSV, JSONL, a JSON array, Parquet, a workbook, or one text per line, which may have fastText's labels;
CSV quotes fields by `"`. A folder holds LABEL/*.txt, or was saved by `datasets`; datasets also come from the Hub. A
reader finds the columns, asks `choose` which of them to read, and yields their values as they are, except that class
numbers of `datasets` become names. `where` is the file and the line or row, for error messages.
"""

import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.columns import numbered_columns
from fastformer.data.keeping import KeepingColumns
from fastformer.data.left_out import say_once
from fastformer.data.opening import (
    BOM,
    BUFFER,
    Format,
    Layout,
    check_kind,
    decode,
    format_of,
    not_utf8,
    opened,
    reads_once,
)
from fastformer.data.separated import read_fields
from fastformer.data.standard_input import Bytes
from fastformer.data.values import as_written, kind_of, label_of, whole_characters
from fastformer.errors import UserError, extra
from fastformer.surroundings.progress import how_many

Record = tuple[str, *tuple[Any, ...]]  # where, one text or several, label; none is checked yet
Choose = Callable[[list[str]], tuple[str | None, ...]]  # the columns found -> text column or columns, label column

FASTTEXT_LABEL = "__label__"
_ARRAY_START = re.compile(r"\s*\[\s*")
_ARRAY_COMMA = re.compile(r"\s*,?\s*")
_BATCH = 64  # rows of Parquet and `datasets` in memory at a time: each may be megabytes

_SHORT_FLOATS: dict[str, type[np.floating[Any]]] = {"halffloat": np.float16, "float": np.float32}  # by Arrow's names


def read_file(name: str, layout: Layout, choose: Choose, with_label: bool) -> Iterator[Record]:
    """The records of a file, plain or compressed."""
    layout = layout._replace(format=layout.format or _told_format(name))
    with opened(name, layout.format) as file:
        yield from read_stream(file, name, layout, choose, with_label)


def read_stream(file: Bytes, name: str, layout: Layout, choose: Choose, with_label: bool) -> Iterator[Record]:
    """The records of an open file, from where it stands."""
    format = layout.format or "lines"
    if format == "parquet":
        yield from _read_parquet(file, name, choose)
        return
    if format == "xlsx":
        yield from _read_workbook(file, name, layout, choose)
        return
    start = file.peek(1).removeprefix(BOM)
    if not start:
        raise UserError(f"{name}: the file is empty; give a file with at least one example")
    check_kind(start, name, format)
    if format == "lines" and start.startswith(FASTTEXT_LABEL.encode()):
        yield from _read_fasttext(file, name)
    elif format == "lines":
        if with_label:
            raise UserError(
                f"{name}: plain lines are texts alone; give CSV, TSV, JSONL or Parquet, with labels or summaries too"
            )
        for number, line in enumerate(decode(file, name), 1):
            yield f"{name}, line {number}", line.rstrip("\r\n"), None
    elif format == "json" and start.lstrip()[:1] == b"[":
        yield from _read_array(file, name, choose)
    elif format in ("json", "jsonl"):
        yield from _read_jsonl(file, name, choose)
    else:
        yield from _read_csv(file, name, layout, choose)


def _told_format(name: str) -> Format:
    """The format that the name says, or, if it says none, fastText's if the first line is of that kind."""
    try:
        return format_of(name)
    except UserError:
        if not reads_once(name):
            with opened(name) as file:
                if file.peek(1).startswith(FASTTEXT_LABEL.encode()):
                    return "lines"
        raise


def read_folder(folder: Path) -> Iterator[Record]:
    """The records of LABEL/*.txt, one per file."""
    found, loose = False, sum(1 for _ in folder.glob("*.txt"))
    for label in sorted(path for path in folder.iterdir() if path.is_dir()):
        for path in sorted(label.glob("*.txt")):
            found = True
            with opened(str(path)) as file:
                text = "".join(decode(file, str(path)))
            yield str(path), text, label.name
    if not found and loose:
        raise UserError(
            f"{folder}: its .txt files are in no LABEL/ folder, so they have no label; `predict --document {folder}` "
            "answers each of them"
        )
    if not found:
        raise UserError(
            f"{folder}: a folder with neither LABEL/*.txt nor a saved `datasets` dataset; name a file in it"
        )
    if loose:
        say_once(f"{folder}: {how_many(loose, 'files (.txt)', 'are')} in no LABEL/ folder and left out.")


# ---- formats of files ------------------------------------------------------------------------------------------------


def _read_csv(file: Bytes, name: str, layout: Layout, choose: Choose) -> Iterator[Record]:
    rows = read_fields(file, name, layout.format or "csv", layout.separator, layout.header)
    _, columns = next(rows, (0, None))
    if columns is None:
        return
    places = [None if column is None else columns.index(column) for column in choose(columns)]
    for line, fields in rows:
        yield f"{name}, line {line}", *(None if place is None else fields[place] for place in places)


def _read_fasttext(file: Bytes, name: str) -> Iterator[Record]:
    """fastText's lines: `__label__A __label__B the text`."""
    for number, line in enumerate(decode(file, name), 1):
        labels, text = [], line.strip()
        while text.startswith(FASTTEXT_LABEL):
            label, _, text = text.partition(" ")
            labels.append(label.removeprefix(FASTTEXT_LABEL))
            text = text.lstrip()
        yield f"{name}, line {number}", text, labels if len(labels) > 1 else next(iter(labels), None)


def _read_workbook(file: Any, name: str, layout: Layout, choose: Choose) -> Iterator[Record]:
    """The rows of a sheet of Excel's. Cells have types of their own, so a number among texts is a text there."""
    with extra("excel"):
        import openpyxl
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except Exception as error:  # whatever a broken file makes it raise
        raise UserError(f"{name}: not a readable .xlsx workbook ({_reason(error)}); save it again") from None
    sheets = book.sheetnames
    if layout.sheet is None and len(sheets) > 1:
        raise UserError(f"{name}: has {len(sheets)} sheets: {', '.join(sheets)}; name one, as in {name}:{sheets[0]}")
    if layout.sheet is not None and layout.sheet not in sheets:
        raise UserError(f"{name}: no sheet {layout.sheet!r}; sheets found: {', '.join(sheets)}")
    sheet = book[layout.sheet or sheets[0]]
    if not hasattr(sheet, "iter_rows"):
        raise UserError(f"{name}: the sheet {sheet.title!r} is a chart; name another, as in {name}:SHEET")
    width = sheet.max_column or 0
    sheet.reset_dimensions()  # some programs declare fewer rows and columns than there are: read all
    numbered = enumerate(sheet.iter_rows(values_only=True), 1)
    rows: Iterator[tuple[int, Any]] = ((number, row) for number, row in numbered if any(map(_filled, row)))
    number, first = next(rows, (0, ()))
    if not first:
        raise UserError(f"{name}: the sheet {sheet.title!r} is empty; give one with at least one example")
    columns = ["" if cell is None else str(cell).strip() for cell in first]
    columns += [""] * (width - len(columns))  # a first row may be shorter than others
    if not layout.header:
        columns = numbered_columns(columns, f"{name}, row {number}")
        rows = itertools.chain([(number, first)], rows)
    chosen = choose(columns)
    places = [None if column is None else columns.index(column) for column in chosen]
    for number, row in rows:
        cells = [row[place] if place is not None and place < len(row) else None for place in places]
        for place in range(len(cells) - 1):
            if isinstance(cells[place], int | float) and not isinstance(cells[place], bool):
                cells[place] = label_of(cells[place])
        yield f"{name}, row {number}", *cells


def _filled(cell: Any) -> bool:
    return cell is not None and cell != ""


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
    number, window, at, size = 0, "", 0, BUFFER
    between = _ARRAY_START
    while True:
        gap = between.match(window, at)
        end = gap.end() if gap else at
        if gap and window.startswith("]", end):  # another array may follow, as where files were joined by `cat`
            at, between = end + 1, _ARRAY_START
            if window[at:].isspace() or at == len(window):
                more = _more(stream, size, name, number)
                while more.isspace():
                    more = _more(stream, size, name, number)
                if not more:
                    return
                window, at = more, 0
            if not _ARRAY_START.match(window, at):
                raise UserError(f"{name}, after row {number}: more text after the end of the array; correct the file")
            continue
        try:
            record, at = decoder.raw_decode(window, end)
        except (ValueError, RecursionError) as error:
            cut_off = getattr(error, "pos", 0) > len(window) - 16 or _reason(error).startswith("Unterminated")
            more = _more(stream, size, name, number) if cut_off else ""
            if not more:
                raise UserError(
                    f"{name}, row {number + 1}: broken JSON ({_reason(error)}); correct that object"
                ) from None
            window, at, size = window[at:] + more, 0, 2 * size
            continue
        number, size, between = number + 1, BUFFER, _ARRAY_COMMA
        yield pick(f"{name}, row {number}", record)


def _more(stream: io.TextIOWrapper, size: int, name: str, number: int) -> str:
    """The next characters of an array; none at its end."""
    try:
        return stream.read(size)
    except UnicodeDecodeError:
        raise not_utf8(name, f"after row {number}") from None


def picker(choose: Choose) -> Callable[[str, Any], Record]:
    """Takes texts and label out of JSON objects; the first object decides the columns.

    It may lack a field, so that another was taken for the text: an object with further fields that says so is an error.
    """
    columns: tuple[str | None, ...] | None = None
    first: list[str] = []
    known: set[str] = set()

    def check(where: str, record: dict[str, Any], chosen: tuple[str | None, ...]) -> None:
        known.update(record)
        try:
            better = choose(list(record))
        except UserError:  # it tells nothing of its own
            return
        finally:
            choose(first)
        if set(chosen[:-1]) <= record.keys() and not set(chosen[:-1]) <= set(better):
            others = ", ".join(repr(one) for one in better[:-1] if one is not None)
            raise UserError(f"{where}: has {others} and the first row does not; fill it in there, or name the column")

    def pick(where: str, record: Any) -> Record:
        nonlocal columns
        if type(record) is not dict:
            raise UserError(f'{where}: {kind_of(record)}, not a JSON object; write {{"COLUMN": value, …}}')
        if columns is None:
            columns = choose(list(record))
            first.extend(record)
            known.update(record)
        elif not record.keys() <= known:
            check(where, record, columns)
        if isinstance(choose, KeepingColumns):
            choose.object = record
        values: list[Any] = [record.get(column) for column in columns]
        *texts, label = values
        texts = [whole_characters(text) if type(text) is str else text for text in texts]
        return where, *texts, label

    return pick


def _read_parquet(file: Bytes, name: str, choose: Choose) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        chosen = choose(table.schema_arrow.names)
        batches = table.iter_batches(batch_size=_BATCH, columns=_distinct(chosen))
        yield from _number_rows(name, (batch.to_pydict() for batch in batches), chosen, table.schema_arrow)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
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
    """The rows of column batches; class numbers of `datasets` become their names, and 4.1 in 32 bits becomes 4.1."""
    *texts, label = chosen
    names: list[str] = []
    kind = None if label is None else schema.field(label).type
    short = _SHORT_FLOATS.get(str(getattr(kind, "value_type", kind)))  # of a list: what it is a list of
    if label is not None and b"huggingface" in (schema.metadata or {}):
        with extra("hub"):
            from datasets import ClassLabel, Features

        feature = Features.from_arrow_schema(schema)[label]
        feature = getattr(feature, "feature", feature)  # of a list, too
        names = feature.names if isinstance(feature, ClassLabel) else []

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        if short is not None:
            return None if value is None else as_written(short(value))
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    number = 0
    for batch in batches:
        labels = itertools.repeat(None) if label is None else batch[label]
        for *row, one_label in zip(*(batch[text] for text in texts), labels, strict=False):
            number += 1
            yield f"{name}, row {number}", *row, named(one_label) if names or short else one_label


# ---- words of errors -------------------------------------------------------------------------------------------------


def _reason(error: Exception) -> str:
    return getattr(error, "msg", None) or next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
