import gzip
import io
import sys

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.data import opening
from fastformer.data.objects import read_objects
from fastformer.data.tables import Row, read_rows
from fastformer.errors import UserError

from .table_files import error_of, write

STRICT = {"strict": True}
GOOD = '{"text": "x", "label": "a"}\n'


@pytest.mark.parametrize(
    ("name", "data", "options", "where", "says"),
    [
        ("a.csv", "", {}, "", "the file is empty; give a file with"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0), {}, "", "the file is empty"),
        ("a.csv", "text,label\n", {}, "", "no rows; give a file with"),
        ("a.jsonl", "\n\n", {}, "", "no rows"),
        ("a.json", "[]", {}, "", "no rows"),
        ("a.csv", "text,label\nx,a\ny,\n", STRICT, ", line 3", "the label is missing; fill it in or remove the row"),
        ("a.csv", 'text,label\n"x\ny",a\nz, \n', STRICT, ", line 4", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x"}', STRICT, ", line 2", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x", "label": null}', STRICT, ", line 2", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x", "label": NaN}', STRICT, ", line 2", "the label is NaN; fill it in"),
        ("a.jsonl", GOOD + '{"text": NaN, "label": "a"}', STRICT, ", line 2", "the text is NaN; fill it in"),
        ("a.jsonl", GOOD + '{"text": "x", "label": Infinity}', {}, ", line 2", "the label is Infinity, which is no"),
        ("a.jsonl", GOOD + r'{"text": "x", "label": "a\ud83d"}', {}, ", line 2", r"'a\ud83d' holds half a character"),
        ("a.csv", "text,label\n,a\ny,\n", {}, "", "no row is left (1 without a text, 1 without a label); check"),
        ("a.jsonl", GOOD + '{"text": "x", "label": ["a"]}', {}, ", line 2", "the label is a list; give every row one"),
        (
            "a.jsonl",
            GOOD + '{"text": 5, "label": "a"}',
            {},
            ", line 2",
            "the text is a number, not a string; correct the row",
        ),
        (
            "a.jsonl",
            GOOD + '{"label": "a"}',
            STRICT,
            ", line 2",
            "the text is missing; fill it in or remove the row, or",
        ),
        (
            "a.jsonl",
            GOOD + '{"text": "x" "label"}',
            {},
            ", line 2, column 14",
            "broken JSON (Expecting ',' delimiter); every",
        ),
        ("a.jsonl", GOOD + "[1]", {}, ", line 2", "a list, not a JSON object; write {"),
        ("a.json", f"[{GOOD}, oops]", {}, ", row 2", "broken JSON (Expecting value); correct that object"),
        ("a.json", f"[{GOOD}", {}, ", row 2", "broken JSON"),
        ("a.json", f"[{GOOD}, 3]", {}, ", row 2", "a number, not a JSON object"),
        (
            "a.csv",
            "text,label\nx,a\ny,b,c\n",
            {},
            ", line 3",
            "3 fields where the header has 2; put a field that holds ','",
        ),
        ("a.tsv", "text\tlabel\nx\n", {}, ", line 2", "1 fields where the header has 2; put a field that holds '\\t'"),
        (
            "a.csv",
            'text,label\nx,a\n"y,b\nz,c\n',
            {},
            ", line 3",
            "broken CSV (unexpected end of data); close every",
        ),
        ("a.csv", b"text,label\nx,a\n\xe9,b\n", {}, ", line 3", "not UTF-8; convert the file, for example: iconv"),
        ("a.jsonl", GOOD.encode() + b'{"text": "\xff"}', {}, ", line 2", "not UTF-8"),
        ("a.json", b'[{"text": "\xff"}]', {}, ", after row 0", "not UTF-8"),
        ("a.txt", b"x\n\xff\n", {"label_kind": "none"}, ", line 2", "not UTF-8"),
        ("a.csv.gz", "text,label\nx,a\n", {}, "", "not a complete gzip file; compress it again, or take .gz off"),
        ("a.csv.gz", gzip.compress(b"text,label\nx,a\n" * 99, mtime=0)[:-9], {}, "", "not a complete gzip file"),
        ("a.parquet", "PAR1 not at all PAR1", {}, "", "not a readable Parquet file ("),
        ("a.parquet.gz", gzip.compress(b"nonsense", mtime=0), {}, "", "not a readable Parquet file ("),
        ("a.txt", "x\n", {}, "", "plain lines are texts alone; give CSV"),
        ("a.doc", "x\n", {}, "", "the name does not say what the file holds; end it in one of .csv"),
        (
            "a.csv",
            "text,label\nx,1\ny,abc\n",
            {"label_kind": "number"},
            ", line 3",
            "'abc' is not a finite number; correct",
        ),
        ("a.csv", "text,label\nx,inf\n", {"label_kind": "number"}, ", line 2", "'inf' is not a finite number"),
        ("a.csv", "text,label\nx,nan\n", {"label_kind": "number", "strict": True}, ", line 2", "the label is NaN"),
        ("a.csv", "text,label\nx,\n", {"label_kind": "number", "strict": True}, ", line 2", "the label is missing"),
        ("a.jsonl", GOOD[:-5] + "1" + "0" * 400 + "}", {"label_kind": "number"}, ", line 1", "is not a finite number"),
        ("a.csv", b"PK\x03\x04 text,label", {}, "", "is a zip file or an Excel workbook, whatever its name says"),
        ("a.csv", gzip.compress(b"text,label", mtime=0), {}, "", "is a gzip file, whatever its name says; end"),
        (
            "a.csv",
            "text,label\nx,a\n".encode("utf-16-le"),
            {},
            "",
            "looks like UTF-16 without a byte order mark; convert",
        ),
        ("a.csv", "\ufefftext,label\nx,a".encode("utf-16-le") + b"\n", {}, "", "is marked as UTF-16, but is not"),
        ("a.zip", b"PK not at all", {}, "", "not a complete zip file; zip it again"),
        ("a.xlsx", b"PK not at all", {}, "", "not a readable .xlsx workbook ("),
        ("a.json", f"[{GOOD}] oops", {}, ", after row 1", "more text after the end of the array"),
        ("a.jsonl", '{"text": "x", "label": true}', {"label_kind": "number"}, ", line 1", "is not a finite number"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, name, data, options, where, says):
    path = write(tmp_path / name, data)
    message = error_of(path, **options)
    assert message.startswith(f"{path}{where}: ")
    assert says in message


def test_nul_bytes_are_text_in_csv_and_broken_json_in_json(tmp_path):
    assert list(read_rows(write(tmp_path / "a.csv", "text,label\nx\0y,a\n"))) == [Row("x\0y", "a")]
    assert "line 1, column 11: broken JSON" in error_of(write(tmp_path / "a.jsonl", '{"text": "\0"}'))


def test_a_bad_row_is_reached_only_after_the_good_ones(tmp_path):
    rows = read_rows(write(tmp_path / "a.jsonl", GOOD + "oops"))
    assert next(rows) == Row("x", "a")
    with pytest.raises(UserError, match=r"line 2, column 1: broken JSON"):
        next(rows)


def test_parquet_text_that_is_not_utf_8_is_refused(tmp_path):
    damaged = pa.StringArray.from_buffers(2, pa.py_buffer(np.int32([0, 3, 6])), pa.py_buffer(b"ab\xbdcde"))
    pq.write_table(pa.table({"text": damaged, "label": ["a", "b"]}), tmp_path / "a.parquet")
    assert "a.parquet: not a readable Parquet file ('utf-8' codec can't decode" in error_of(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="a.parquet: not a readable Parquet file"):
        list(read_objects(str(tmp_path / "a.parquet"), ["text"]))


def test_a_parquet_column_that_is_no_text_is_named_by_its_row(tmp_path):
    pq.write_table(pa.table({"text": [1, 2], "label": ["a", "b"]}), tmp_path / "a.parquet")
    assert "a.parquet, row 1: the text is a number, not a string" in error_of(tmp_path / "a.parquet")


@pytest.mark.parametrize("path", ["no.csv", "./no", "/no/such/thing", "no/such/thing", "data.csv:train", "no.jsonl.gz"])
def test_a_missing_file_is_never_looked_for_on_the_hub(monkeypatch, path):
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **options: pytest.fail("asked the Hub"))
    assert error_of(path) == f"{path}: no such file or folder; check the path"


def test_a_file_in_a_folder_that_exists_is_never_looked_for_on_the_hub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").mkdir()
    assert error_of("reviews/train") == "reviews/train: no such file or folder; check the path"


def test_permission_denied_is_told_with_what_to_do(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", "text,label\nx,a\n")

    def refuse(*args, **options):  # a file mode would not stop root
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(opening, "open", refuse, raising=False)
    assert error_of(path) == f"{path}: permission denied; make it readable, for example: chmod +r {path}"


def test_other_trouble_of_the_machine_is_told_too(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", "text,label\nx,a\n")

    def fail(*args, **options):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(opening, "open", fail, raising=False)
    assert f"{path}: cannot be read (Input/output error)" in error_of(path)


def test_a_link_to_itself_is_told(tmp_path):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    assert "loop.csv: " in error_of(tmp_path / "loop.csv")


def test_a_folder_that_is_no_table_says_so(tmp_path):
    assert error_of(tmp_path).startswith(f"{tmp_path}: a folder with neither LABEL/*.txt nor")
    loose = write(tmp_path / "a.txt", "no label")
    assert "are in no LABEL/ folder, so they have no label; `predict --document" in error_of(tmp_path)
    loose.unlink()
    path = write(tmp_path / "pos" / "a.txt", b"fine\n\xff")
    assert error_of(tmp_path).startswith(f"{path}, line 2: not UTF-8")


def test_standard_input_needs_a_format_and_is_called_by_its_name(monkeypatch):
    assert error_of("-").endswith("add --format lines, csv, tsv or jsonl")
    for data, says in {
        "": ": the file is empty",
        "a,b\n1,2": ": cannot tell which column",
        "text\n1,2": ", line 2: 2 fi",
    }.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
        assert error_of("-", label_kind="none", format="csv").startswith("standard input" + says)
