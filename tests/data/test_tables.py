import csv
import gzip
import io
import json
import sys
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastformer.data import formats, tables
from fastformer.data.tables import Row, detect_label_kind, read_rows

from .table_files import error_of, write, write_table

ROWS = [Row("good, very good", "pos"), Row("line one\nline two", "neg"), Row('she said "no"\t…', "neg")]


FORMATS = ["csv", "tsv", "jsonl", "ndjson", "json", "parquet"]


# ---- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_rows(tmp_path, suffix, zipped):
    assert list(read_rows(write_table(tmp_path / f"rows.{suffix}{zipped}", ROWS))) == ROWS


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.text("\",\t\n\r\\'|[]{}\x00"), min_size=1))
def test_any_text_survives_the_round_trip(tmp_path_factory, suffix, texts):
    rows = [Row(text, str(number)) for number, text in enumerate(["some", *texts]) if text and not text.isspace()]
    path = tmp_path_factory.getbasetemp() / f"round-trip.{suffix}"
    assert list(read_rows(write_table(path, rows))) == rows


def test_json_may_hold_one_object_a_line(tmp_path):
    path = write(tmp_path / "rows.json", '{"text": "a", "label": 1}\n\n{"text": "b", "label": 2}')
    assert list(read_rows(path)) == [Row("a", "1"), Row("b", "2")]


def test_json_arrays_are_decoded_across_the_edges_of_the_window(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "BUFFER", 3)
    rows = [Row('é "x" ☃ 😀 ' * count, str(count)) for count in range(1, 6)]
    path = write(tmp_path / "rows.json", json.dumps([row._asdict() for row in rows], indent=1, ensure_ascii=False))
    assert list(read_rows(path)) == rows
    assert list(read_rows(write_table(path, rows))) == rows


def test_byte_order_mark_and_windows_line_ends_are_no_part_of_the_data(tmp_path):
    bom = "\ufeff"
    for name, data in {
        "a.csv": "text,label\r\na,1\r\n\r\n",
        "a.tsv": "text\tlabel\r\na\t1\r\n",
        "a.jsonl": '{"text": "a", "label": 1}\r\n\r\n',
        "a.json": '[{"text": "a", "label": 1}]\r\n',
    }.items():
        assert list(read_rows(write(tmp_path / name, bom + data))) == [Row("a", "1")]
    assert list(read_rows(write(tmp_path / "a.txt", bom + "a\r\n\r\nb"), label_kind="none")) == [
        Row("a"),
        Row("b"),
    ]


def test_a_text_of_many_megabytes_is_one_text(tmp_path):
    book = "word " * 1_000_000
    for suffix in ("csv", "jsonl.gz", "json"):
        assert next(read_rows(write_table(tmp_path / f"book.{suffix}", [Row(book, "long")]))).text == book


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path):
    path = write(tmp_path / "a.jsonl", r'{"text": "cut \ud83d", "label": 1}')
    assert list(read_rows(path)) == [Row("cut \ufffd", "1")]


def test_a_folder_of_labels_is_read_in_sorted_order(tmp_path, capsys):
    for name, text in {
        "pos/b.txt": "B",
        "pos/a.txt": "A\nA",
        "neg/c.txt": "C",
        "notes.txt": "no",
        "pos/x.md": "no",
    }.items():
        write(tmp_path / name, text)
    assert list(read_rows(tmp_path)) == [Row("C", "neg"), Row("A\nA", "pos"), Row("B", "pos")]
    assert "1 file (.txt) is in no LABEL/ folder and left out." in capsys.readouterr().err


def test_texts_in_folders_may_be_utf16(tmp_path):
    write(tmp_path / "pos" / "a.txt", "größer".encode("utf-16"))
    write(tmp_path / "pos" / "b.txt", b"\xef\xbb\xbfB")
    assert list(read_rows(tmp_path)) == [Row("größer", "pos"), Row("B", "pos")]


def test_standard_input_is_read_in_the_format_named(monkeypatch):
    for format, data in {"lines": "a\nb\n", "csv": "text\na\nb\n", "jsonl": '{"text": "a"}\n{"text": "b"}\n'}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
        assert list(read_rows("-", label_kind="none", format=format)) == [Row("a"), Row("b")]


def test_reading_is_lazy_and_holds_little(tmp_path):
    text = "a long text " * 1000
    line = json.dumps({"text": text, "label": 1})
    zipped, array = tmp_path / "big.csv.gz", tmp_path / "big.json"
    with gzip.open(zipped, "wt", compresslevel=1) as file:
        file.write("text,label\n")
        file.writelines(f"{text},1\n" for _ in range(4000))  # 48 MB
    array.write_text("[" + ",\n".join([line] * 1000) + "]")  # 12 MB
    for path, count in ((zipped, 4000), (array, 1000)):
        tracemalloc.start()
        assert sum(1 for _ in read_rows(path)) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8e6, path


@pytest.mark.slow
def test_the_real_reviews_are_all_read(data):
    labels = [row.label for row in read_rows(data / "imdb" / "train.jsonl.gz")]
    assert len(labels) == 25_000
    assert set(labels) == {"1", "2", "3", "4", "7", "8", "9", "10"}


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_one_label_is_a_string_whatever_its_type_was(tmp_path):
    labels = ["a", 3, -1, True, 4.0, 4.5, " b "]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels))
    assert [row.label for row in read_rows(path)] == ["a", "3", "-1", "true", "4", "4.5", " b "]


def test_several_labels_are_a_list_or_joined_by_a_bar(tmp_path):
    values = [["a", 2], [], "a|b", "a | b", "a", "", 7, ["a", "a"], "a|", " |a", "|"]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": "x", "labels": value}) + "\n" for value in values))
    expected = [["a", "2"], [], ["a", "b"], ["a", "b"], ["a"], [], ["7"], ["a"], ["a"], ["a"], []]
    assert [row.label for row in read_rows(path, label_kind="multi")] == expected
    path = write(tmp_path / "a.csv", "text,label\nx,a|b\ny,\n")
    assert list(read_rows(path, label_kind="multi")) == [Row("x", ["a", "b"]), Row("y", [])]
    path = write_table(tmp_path / "a.parquet", [Row("x", ["a", "b"]), Row("y", [])])
    assert list(read_rows(path, label_kind="multi")) == [Row("x", ["a", "b"]), Row("y", [])]


def test_numbers_are_floats(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,-2.5e3\n")
    assert [row.label for row in read_rows(path, label_kind="number")] == [1.0, -2500.0]


def test_labels_are_not_looked_at_when_they_are_not_wanted(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,\n")
    assert list(read_rows(path, label_kind="none")) == [Row("x", None)]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.jsonl", '{"text": "x", "label": ["a"]}', "multi"),
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "x", "label": "a|b"}', "multi"),
        ("a.csv", "text,label\nx,a\ny,b|a\n", "multi"),
        ("a.csv", "text,label\nx,a\ny,b\n", "single"),
        ("a.jsonl", '{"text": "x", "label": 3}', "single"),
    ],
)
def test_label_kind_is_detected(tmp_path, name, data, kind):
    assert detect_label_kind(write(tmp_path / name, data)) == kind


def test_several_labels_are_found_however_late_they_come(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(tables, "say", said.append)
    path = write(tmp_path / "a.csv", "text,label\n" + "x,a\n" * 3000 + "y,a|b\n")
    assert detect_label_kind(path) == "multi"
    [line] = said
    assert "line 3002: this row has several labels" in line


# ---- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("text,label", {}),
        ("Review,Rating", {}),
        ("text,whatever", {}),
        ("whatever,Label", {}),
        ("a,b", {"text_column": "a"}),
        ("a,b", {"label_column": "b"}),
        ("label,text", {"text_column": "label", "label_column": "text"}),
    ],
)
def test_columns_are_guessed_when_obvious(tmp_path, header, options):
    assert list(read_rows(write(tmp_path / "a.csv", header + "\nx,y\n"), **options)) == [Row("x", "y")]


def test_text_and_label_win_over_other_names_and_one_column_is_the_text(tmp_path):
    path = write(tmp_path / "a.csv", "id,review,text,rating,label\n1,2,3,4,5\n")
    assert list(read_rows(path)) == [Row("3", "5")]
    assert list(read_rows(write(tmp_path / "b.csv", "anything\nx\n"), label_kind="none")) == [Row("x")]


@pytest.mark.parametrize(
    ("header", "options", "says"),
    [
        ("a,b,c", {}, "which column holds the text; columns found: a, b, c; name it with --text-column"),
        ("text,b,c", {}, "which column holds the label; columns found: text, b, c; name it with --label-column"),
        ("review,comment,label", {}, "which column holds the text"),
        (
            "text,,label",
            {"text_column": "txt"},
            "no column 'txt'; columns found: text, , label; name one of them with --text",
        ),
        (
            "text,b,label",
            {"label_column": "y"},
            "no column 'y'; columns found: text, b, label; name one of them with --label",
        ),
        ("x,x,label", {"text_column": "x"}, "more than one column 'x'"),
        ("a,b,c", {"text_column": "a", "label_column": "a"}, "'a' cannot be text and label at once"),
        ("a,b,label", {"text_column": "a,label", "label_column": "label"}, "'label' cannot be text and label at once"),
        (
            "a,b,label",
            {"text_column": "a,txt"},
            "no column 'txt'; columns found: a, b, label; name one of them with --t",
        ),
        ("a,b,label", {"text_column": "a,"}, "no column ''; columns found: a, b, label"),
        ("a,b,label", {"text_column": "a,b,a"}, "--text-column a,b,a names a column twice"),
        ("text;label;id", {}, "line 1: one column named 'text;label;id'; separate fields by ','"),
    ],
)
def test_columns_that_are_not_obvious_are_listed(tmp_path, header, options, says):
    path = write(tmp_path / "a.csv", header + "\n1,2,3\n")
    message = error_of(path, **options)
    assert message.startswith(f"{path}")
    assert says in message


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_several_columns_are_joined_by_a_blank_line(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    columns = {"title": ["T", "", "  ", ""], "body": ["B", "b", "c\n", ""], "label": ["x", "y", "x", "y"]}
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if suffix == "parquet":
        pq.write_table(pa.table(columns), path)
    elif suffix in ("jsonl", "json"):
        write(path, "\n".join(map(json.dumps, records)))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(columns), delimiter={"csv": ",", "tsv": "\t"}[suffix])
            writer.writeheader()
            writer.writerows(records)
    expected = [Row("T\n\nB", "x"), Row("b", "y"), Row("c\n", "x")]
    assert list(read_rows(path, text_column="title,body")) == expected
    assert next(read_rows(path, text_column=" body , title ", label_kind="none")).text == "B\n\nT"


def test_a_missing_part_is_left_out_and_only_parts_may_be_missing(tmp_path):
    rows = [{"title": "T", "body": "B"}, {"title": None, "body": "b"}, {"title": "t"}, {"body": None}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    texts = read_rows(path, text_column="title,body", label_kind="none")
    assert [row.text for row in texts] == ["T\n\nB", "b", "t"]
    says = error_of(path, text_column="title,body", label_kind="none", strict=True)
    assert "line 4: the text is missing" in says
    path = write(tmp_path / "b.jsonl", '{"title": "T", "body": 3}')
    assert "line 1: the text is a number" in error_of(path, text_column="title,body", label_kind="none")


def test_a_column_with_a_comma_in_its_name_is_one_column(tmp_path):
    path = write(tmp_path / "a.csv", '"title,body",title,body,label\nwhole,T,B,x\n')
    assert list(read_rows(path, text_column="title,body")) == [Row("whole", "x")]


def test_a_joined_column_is_never_taken_for_the_label(tmp_path):
    path = write(tmp_path / "a.csv", "topic,body,class\nT,B,x\n")  # topic and class are both names of labels
    assert list(read_rows(path, text_column="topic,body")) == [Row("T\n\nB", "x")]
    path = write(tmp_path / "b.csv", "topic,body,anything\nT,B,x\n")  # the only other column is the label
    assert list(read_rows(path, text_column="topic,body")) == [Row("T\n\nB", "x")]
    path = write(tmp_path / "c.csv", "topic,body\nT,B\n")
    assert "which column holds the label" in error_of(path, text_column="topic,body")
