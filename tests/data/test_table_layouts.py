"""Tables as people have them: any separator, no header, workbooks, archives, fastText's lines, a column per label."""

import io
import json
import os
import threading
import zipfile

import datasets
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastformer.data import formats, left_out
from fastformer.data.columns import may_be_guessed
from fastformer.data.tables import Reading, Row, detect_label_kind, read_rows
from fastformer.data.values import label_of

from .table_files import error_of, write, write_table

ROWS = [Row("good, very; good", "pos"), Row("line one\nline two", "neg"), Row('she said "no"', "neg")]


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """What the readers say about rows that are left out."""
    messages = []
    left_out.say_once.cache_clear()
    monkeypatch.setattr(left_out, "say", messages.append)
    return messages


def separated(separator: str, rows=ROWS, header: bool = True) -> str:
    def quoted(field: str) -> str:
        return '"' + field.replace('"', '""') + '"' if any(one in field for one in f'{separator}"\n') else field

    return "".join(f"{separator.join(map(quoted, row))}\n" for row in ([Row._fields] if header else []) + rows)


# ---- separators and headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_the_separator_is_found_whatever_the_name_says(tmp_path, name, separator):
    assert list(read_rows(write(tmp_path / name, separated(separator)))) == ROWS


def test_a_separator_that_cannot_be_found_is_named(tmp_path):
    path = write(tmp_path / "a.csv", separated("~"))
    assert "cannot tell which column" in error_of(path)
    assert list(read_rows(path, separator="~")) == ROWS
    assert list(read_rows(write(tmp_path / "b.csv", separated("\t")), separator="tab")) == ROWS
    assert "--separator 'ab': give one character" in error_of(path, separator="ab")


def test_texts_with_semicolons_in_one_column_stay_whole(tmp_path):
    path = write(tmp_path / "a.csv", "text\na; b\nc; d\n")
    assert list(read_rows(path, label_kind="none")) == [Row("a; b"), Row("c; d")]


def test_without_a_header_columns_are_called_by_their_numbers(tmp_path):
    path = write(tmp_path / "a.csv", separated(",", header=False))
    assert "or say --no-header if the first line is data" in error_of(path)
    assert list(read_rows(path, header=False, text_column="1", label_column="2")) == ROWS
    assert list(read_rows(path, header=False, text_column="1")) == ROWS
    assert "cannot tell which column holds the text; columns found: 1, 2" in error_of(path, header=False)
    texts = write(tmp_path / "b.csv", "a first text\na second\n")
    assert list(read_rows(texts, header=False, label_kind="none")) == [Row("a first text"), Row("a second")]


def test_a_header_that_is_read_as_data_is_told_of(tmp_path, said):
    path = write(tmp_path / "a.csv", separated(",", header=False))
    list(read_rows(path, header=False, text_column="1"))
    assert said == []
    path = write(tmp_path / "b.csv", separated(","))
    for _ in range(2):
        assert len(list(read_rows(path, header=False, text_column="1"))) == len(ROWS) + 1
    assert len(said) == 1
    assert "b.csv, line 1: text, label is read as data" in said[0]
    book = openpyxl.Workbook()
    book.active.append(["Title", "label"])
    book.active.append(["a cat", "pets"])
    book.save(tmp_path / "c.xlsx")
    list(read_rows(tmp_path / "c.xlsx", header=False, text_column="1"))
    assert "c.xlsx, row 1: Title, label is read as data" in said[1]


# ---- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_a_unicode_mark_says_the_encoding(tmp_path, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    for name, text in {
        "a.csv": separated(";"),
        "a.jsonl": "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in ROWS),
        "a.json": json.dumps([row._asdict() for row in ROWS]),
    }.items():
        assert list(read_rows(write(tmp_path / name, (mark + text).encode(encoding)))) == ROWS


def test_long_texts_in_utf16_are_recoded_across_the_edges_of_the_buffer(tmp_path):
    rows = [Row("é😀☃ " * 300_000, "a"), Row("b", "c")]
    path = write(tmp_path / "a.csv", separated(",", rows).encode("utf-16"))
    assert list(read_rows(path)) == rows


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet", "csv.gz"])
def test_a_zip_of_one_file_is_that_file(tmp_path, suffix):
    table = write_table(tmp_path / f"rows.{suffix}", ROWS)
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(table, f"folder/rows.{suffix}")
        archive.writestr("__MACOSX/._rows", "no")
    assert list(read_rows(path)) == ROWS
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.csv", "text,label\n")
    assert error_of(path) == (
        f"{path}: has 2 files in it: folder/rows.{suffix}, more.csv; one is read: unpack it and name the file"
    )


def test_json_arrays_one_behind_the_other_are_all_read(tmp_path, monkeypatch):
    arrays = [json.dumps([row._asdict()]) for row in ROWS]
    for between in ("", "\n", " \n\n", "\n[]\n"):
        path = write(tmp_path / "all.json", between.join(arrays))
        assert list(read_rows(path)) == ROWS
        for buffer in (1, 2, 7):
            with monkeypatch.context() as patch:
                patch.setattr(formats, "BUFFER", buffer)
                assert list(read_rows(path)) == ROWS


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "news.tsv"])
def test_a_named_pipe_is_read_once_and_whole(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    data = {
        "a.csv": separated(","),
        "news.tsv": separated("\t"),
        "a.json": json.dumps([row._asdict() for row in ROWS]),
        "a.jsonl": "".join(json.dumps(row._asdict()) + "\n" for row in ROWS),
    }
    writer = threading.Thread(target=path.write_text, args=(data[name],), daemon=True)
    writer.start()
    assert list(read_rows(path)) == ROWS
    writer.join(10)


# ---- formats ---------------------------------------------------------------------------------------------------------


def workbook(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_workbook_is_a_table(tmp_path, said):
    path = workbook(tmp_path / "a.xlsx", one=[Row._fields, ("x", 1), (2024, 2.0), (None, 3), (), ("y", True)])
    assert list(read_rows(path)) == [Row("x", "1"), Row("2024", "2"), Row("y", "true")]
    assert said == [f"{path}: 1 of 4 rows left out (1 without a text)."]
    assert next(read_rows(path, header=False, text_column="1", label_kind="none")) == Row("text")


@pytest.mark.parametrize("declared", ["A1", "A1:A2", "A1:Z999"])
def test_rows_and_columns_that_a_sheet_does_not_declare_are_read(tmp_path, declared):
    true = workbook(tmp_path / "true.xlsx", one=[Row._fields, ("x", "a"), ("y", "b"), ("z", "c")])
    with zipfile.ZipFile(true) as source, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as changed:
        for name in source.namelist():
            sheet = source.read(name).replace(b'<dimension ref="A1:B4"', f'<dimension ref="{declared}"'.encode())
            changed.writestr(name, sheet)
    assert list(read_rows(tmp_path / "a.xlsx")) == [Row("x", "a"), Row("y", "b"), Row("z", "c")]


def test_a_first_row_without_a_label_has_its_column_all_the_same(tmp_path):
    path = workbook(tmp_path / "a.xlsx", one=[("x",), ("y", "b")])
    assert list(read_rows(path, header=False, text_column="1")) == [Row("y", "b")]


def test_a_sheet_of_several_is_named(tmp_path):
    path = workbook(tmp_path / "a.xlsx", one=[Row._fields, ("x", "a")], two=[Row._fields, ("y", "b")])
    assert error_of(path) == f"{path}: has 2 sheets: one, two; name one, as in {path}:one"
    assert list(read_rows(f"{path}:two")) == [Row("y", "b")]
    assert "no sheet 'three'; sheets found: one, two" in error_of(f"{path}:three")
    assert "the sheet 'one' is empty" in error_of(workbook(tmp_path / "b.xlsx", one=[]))


@pytest.mark.parametrize("name", ["a.txt", "a.train", "a"])
def test_lines_of_fasttext_have_labels(tmp_path, said, name):
    path = write(tmp_path / name, "__label__pos good , really\n__label__neg bad\nno label\n")
    assert list(read_rows(path)) == [Row("good , really", "pos"), Row("bad", "neg")]
    assert said == [f"{path}: 1 of 3 rows left out (1 without a label)."]
    assert [row.text for row in read_rows(path, label_kind="none")] == ["good , really", "bad", "no label"]
    several = write(tmp_path / "b.txt", "__label__a __label__b both\n__label__a one\n")
    assert detect_label_kind(several) == "multi"
    assert list(read_rows(several, label_kind="multi")) == [Row("both", ["a", "b"]), Row("one", ["a"])]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_a_column_may_be_a_label_itself(tmp_path, suffix):
    columns = {"text": ["x", "y", "z"], "toxic": [1, 0, 0], "threat": [1, 1, 0]}
    path = tmp_path / f"a.{suffix}"
    rows = list(zip(*columns.values(), strict=True))
    if suffix == "parquet":
        pq.write_table(pa.table(columns), path)
    elif suffix == "xlsx":
        workbook(path, one=[tuple(columns), *rows])
    elif suffix == "csv":
        write(path, "\n".join(",".join(map(str, row)) for row in [tuple(columns), *rows]))
    else:
        write(path, "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    named = {"label_column": "toxic,threat"}
    assert detect_label_kind(path, **named) == "multi"
    expected = [Row("x", ["toxic", "threat"]), Row("y", ["threat"]), Row("z", [])]
    assert list(read_rows(path, label_kind="multi", **named)) == expected


def test_columns_of_which_one_is_always_yes_are_one_label(tmp_path):
    path = write(tmp_path / "a.csv", "text,pos,neg\nx,1.0,0.0\ny,False,True\n")
    assert detect_label_kind(path, label_column="pos,neg") == "single"
    assert list(read_rows(path, label_column="pos,neg")) == [Row("x", "pos"), Row("y", "neg")]
    path = write(tmp_path / "b.csv", "text,pos,neg\nx,1,0\ny,5,0\n")
    assert "line 3: '5' in a column that stands for a label" in error_of(path, label_column="pos,neg")


# ---- one form of labels, one idea of what is missing -----------------------------------------------------------------


VALUES = {"true": [True, "True", "TRUE"], "1": [1, 1.0, "1", "1.0"], "4.5": [4.5, "4.5"], "-3": [-3, "-3.0", -3.0]}


def test_a_label_has_one_name_in_every_format(tmp_path):
    for name, values in VALUES.items():
        for value in values:
            records = [{"text": "x", "label": value}]
            found = {
                *(row.label for row in read_rows(records)),
                *(row.label for row in read_rows(write(tmp_path / "a.jsonl", json.dumps(records[0])))),
                *(row.label for row in read_rows(write(tmp_path / "a.csv", f"text,label\nx,{value}\n"))),
                *(row.label for row in read_rows(workbook(tmp_path / "a.xlsx", one=[Row._fields, ("x", value)]))),
            }
            pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
            assert found | {row.label for row in read_rows(tmp_path / "a.parquet")} == {name}


@pytest.mark.parametrize("label", ["007", "1.10", "1.", "+1", "1e3", "v1.0", "true", "nan", "Ⅷ", "½", "1_0"])
def test_a_string_that_is_not_how_a_number_is_written_stays_what_it_is(label):
    assert label_of(label) == label


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_short_float_is_the_number_that_was_written(tmp_path, kind):
    assert label_of(np.dtype(kind).type(4.1)) == "4.1"
    column = pa.array(np.array([4.1, 3, np.nan], kind))
    lists = pa.array([[4.1, 3], [], None], pa.list_(column.type))
    table = pa.table({"text": ["a", "b", "c"], "label": column, "labels": lists})
    pq.write_table(table, tmp_path / "a.parquet")
    datasets.Dataset(table).save_to_disk(str(tmp_path / "saved"))
    for source in (tmp_path / "a.parquet", tmp_path / "saved"):
        assert [row.label for row in read_rows(source, label_column="label")] == ["4.1", "3"]
        assert [row.label for row in read_rows(source, label_column="label", label_kind="number")] == [4.1, 3.0]
        several = read_rows(source, label_column="labels", label_kind="multi")
        assert [row.label for row in several] == [["4.1", "3"], [], []]


@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False) | st.integers() | st.booleans())
def test_a_label_is_called_like_what_is_written_of_it(value):
    assert label_of(value) == label_of(str(value))
    assert label_of(label_of(value)) == label_of(value)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet", "xlsx"])
def test_missing_texts_and_labels_are_left_out_and_counted(tmp_path, said, suffix):
    nothing = None if suffix in ("parquet", "xlsx") else float("nan")
    rows = [("a", "x"), (None, "x"), (nothing, "y"), ("b", None), ("  ", "x"), ("c", "y")]
    path = tmp_path / f"a.{suffix}"
    records = [dict(zip(Row._fields, row, strict=True)) for row in rows]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif suffix == "xlsx":
        workbook(path, one=[Row._fields, *rows])
    elif suffix == "csv":
        write(path, separated(",", [[cell if type(cell) is str else "" for cell in row] for row in rows]))
    else:
        write(path, json.dumps(records) if suffix == "json" else "\n".join(map(json.dumps, records)))
    for _ in range(2):
        assert list(read_rows(path)) == [Row("a", "x"), Row("c", "y")]
    assert said == [f"{path}: 4 of 6 rows left out (3 without a text, 1 without a label)."]
    assert ": the text is missing; fill it in or remove the row, or leave --strict out" in error_of(path, strict=True)
    answered = read_rows(path, label_kind="none", every_row=True)
    assert [row.text for row in answered] == ["a", "", "", "b", "", "c"]
    assert said[1:] == [f"{path}: 3 of 6 texts are missing and answered like an empty one."]


# ---- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        "id",
        "ID",
        "review_id",
        "reviewId",
        "Unnamed: 0",
        "index",
        "",
        "#",
        "uuid",
        "url",
        "created_at",
        "Row Number",
        "ids",
    ],
)
def test_ids_row_numbers_links_and_times_are_never_guessed(tmp_path, column):
    assert not may_be_guessed(column)
    path = write(tmp_path / "a.jsonl", json.dumps({column: "1", "text": "x"}))
    assert "cannot tell which column holds the label" in error_of(path)
    path = write(tmp_path / "b.jsonl", json.dumps({column: "1", "text": "x", "mood": "good"}))
    if column:
        assert list(read_rows(path)) == [Row("x", "good")]


@pytest.mark.parametrize("column", ["mood", "valid", "kind", "идея", "said", "format", "grade"])
def test_other_columns_are_guessed_where_they_are_the_only_one(column):
    assert may_be_guessed(column)


def test_a_title_and_its_body_are_one_text_and_what_was_read_is_told(tmp_path):
    path = write(tmp_path / "a.csv", "id,title,body,stars\n1,T,B,5\n")
    reading = Reading()
    assert list(read_rows(path, reading)) == [Row("T\n\nB", "5")]
    assert reading.columns_read() == "text from `title` and `body`, label from `stars` (not read: `id`)"
    assert list(read_rows(path, text_column="body")) == [Row("B", "5")]


def test_later_data_is_read_from_the_columns_of_the_training_where_they_are_there(tmp_path):
    trained = {"texts_from": ("body",), "labels_from": ("grade",)}
    path = write(tmp_path / "a.csv", "title,body,stars,grade\nT,B,5,good\n")
    assert list(read_rows(path, **trained)) == [Row("B", "good")]
    path = write(tmp_path / "b.csv", "review,stars\nR,5\n")
    assert list(read_rows(path, **trained)) == [Row("R", "5")]


def test_standard_input_may_be_utf16_with_semicolons(monkeypatch):
    data = separated(";", [Row("a", "x"), Row("b", "y")]).encode("utf-16")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert list(read_rows("-", label_kind="none", format="csv")) == [Row("a"), Row("b")]
