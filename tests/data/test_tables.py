import csv
import gzip
import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastformer.data import formats
from fastformer.data.tables import Row, detect_label_kind, read_rows
from fastformer.errors import UserError

ROWS = [Row("good, very good", "pos"), Row("line one\nline two", "neg"), Row('she said "no"\t…', "neg"), Row("", "pos")]
DATA = Path(os.environ.get("FASTFORMER_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


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
    rows = [Row(text, str(number)) for number, text in enumerate(texts)]
    path = tmp_path_factory.getbasetemp() / f"round-trip.{suffix}"
    assert list(read_rows(write_table(path, rows))) == rows


def test_json_may_hold_one_object_a_line(tmp_path):
    path = write(tmp_path / "rows.json", '{"text": "a", "label": 1}\n\n{"text": "b", "label": 2}')
    assert list(read_rows(path)) == [Row("a", "1"), Row("b", "2")]


def test_json_arrays_are_decoded_across_the_edges_of_the_window(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_BUFFER", 3)
    rows = [Row('é "x" ☃ 😀 ' * count, str(count)) for count in range(5)]
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
        Row(""),
        Row("b"),
    ]


def test_a_text_of_many_megabytes_is_one_text(tmp_path):
    book = "word " * 1_000_000
    for suffix in ("csv", "jsonl.gz", "json"):
        assert next(read_rows(write_table(tmp_path / f"book.{suffix}", [Row(book, "long")]))).text == book


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path):
    path = write(tmp_path / "a.jsonl", r'{"text": "cut \ud83d", "label": 1}')
    assert list(read_rows(path)) == [Row("cut \ufffd", "1")]


def test_a_folder_of_labels_is_read_in_sorted_order(tmp_path):
    for name, text in {
        "pos/b.txt": "B",
        "pos/a.txt": "A\nA",
        "neg/c.txt": "C",
        "notes.txt": "no",
        "pos/x.md": "no",
    }.items():
        write(tmp_path / name, text)
    assert list(read_rows(tmp_path)) == [Row("C", "neg"), Row("A\nA", "pos"), Row("B", "pos")]


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


def test_the_real_reviews_are_all_read():
    path = DATA / "imdb" / "train.jsonl.gz"
    if not path.exists():
        pytest.skip("no real data here: set FASTFORMER_DATA to the folder that holds imdb/train.jsonl.gz")
    labels = [row.label for row in read_rows(path)]
    assert len(labels) == 25_000
    assert set(labels) == {"1", "2", "3", "4", "7", "8", "9", "10"}


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_one_label_is_a_string_whatever_its_type_was(tmp_path):
    labels = ["a", 3, -1, True, 4.0, 4.5, " b "]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": "", "label": label}) + "\n" for label in labels))
    assert [row.label for row in read_rows(path)] == ["a", "3", "-1", "true", "4", "4.5", " b "]


def test_several_labels_are_a_list_or_joined_by_a_bar(tmp_path):
    values = [["a", 2], [], "a|b", "a | b", "a", "", 7, ["a", "a"]]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": "", "labels": value}) + "\n" for value in values))
    expected = [["a", "2"], [], ["a", "b"], ["a", "b"], ["a"], [], ["7"], ["a"]]
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
def test_label_kind_is_detected_from_the_first_rows(tmp_path, name, data, kind):
    assert detect_label_kind(write(tmp_path / name, data)) == kind


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
        ("text;label;id", {}, "line 1: one column named 'text;label;id'; separate fields by ','"),
    ],
)
def test_columns_that_are_not_obvious_are_listed(tmp_path, header, options, says):
    path = write(tmp_path / "a.csv", header + "\n1,2,3\n")
    message = error_of(path, **options)
    assert message.startswith(f"{path}")
    assert says in message


# ---- what is wrong ---------------------------------------------------------------------------------------------------

GOOD = '{"text": "x", "label": "a"}\n'


@pytest.mark.parametrize(
    ("name", "data", "options", "where", "says"),
    [
        ("a.csv", "", {}, "", "the file is empty; give a file with"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0), {}, "", "the file is empty"),
        ("a.csv", "text,label\n", {}, "", "no rows; give a file with"),
        ("a.jsonl", "\n\n", {}, "", "no rows"),
        ("a.json", "[]", {}, "", "no rows"),
        ("a.csv", "text,label\nx,a\ny,\n", {}, ", line 3", "the label is missing; fill it in or remove the row"),
        ("a.csv", 'text,label\n"x\ny",a\nz, \n', {}, ", line 4", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x"}', {}, ", line 2", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x", "label": null}', {}, ", line 2", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x", "label": NaN}', {}, ", line 2", "the label is missing"),
        ("a.jsonl", '{"text": "x", "label": null}', {"label_kind": "multi"}, ", line 1", "the label is missing"),
        ("a.jsonl", GOOD + '{"text": "x", "label": ["a"]}', {}, ", line 2", "the label is a list; give every row one"),
        (
            "a.jsonl",
            GOOD + '{"text": 5, "label": "a"}',
            {},
            ", line 2",
            "the text is a number, not a string; mend the row",
        ),
        ("a.jsonl", GOOD + '{"label": "a"}', {}, ", line 2", "the text is missing; mend the row"),
        (
            "a.jsonl",
            GOOD + '{"text": "x" "label"}',
            {},
            ", line 2, column 14",
            "broken JSON (Expecting ',' delimiter); every",
        ),
        ("a.jsonl", GOOD + "[1]", {}, ", line 2", "a list, not a JSON object; write {"),
        ("a.json", f"[{GOOD}, oops]", {}, ", row 2", "broken JSON (Expecting value); mend that object"),
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
        ("a.csv.gz", "text,label\nx,a\n", {}, "", "not a whole gzip file; compress it again, or take .gz off"),
        ("a.csv.gz", gzip.compress(b"text,label\nx,a\n" * 99, mtime=0)[:-9], {}, "", "not a whole gzip file"),
        ("a.parquet", "PAR1 not at all PAR1", {}, "", "not a readable Parquet file ("),
        ("a.parquet.gz", gzip.compress(b"nonsense", mtime=0), {}, "", "not a readable Parquet file ("),
        ("a.txt", "x\n", {}, "", "plain lines have no labels; give CSV"),
        ("a.doc", "x\n", {}, "", "the name does not say what the file holds; end it in one of .csv"),
        (
            "a.csv",
            "text,label\nx,1\ny,abc\n",
            {"label_kind": "number"},
            ", line 3",
            "'abc' is not a finite number; mend",
        ),
        ("a.csv", "text,label\nx,nan\n", {"label_kind": "number"}, ", line 2", "'nan' is not a finite number"),
        ("a.csv", "text,label\nx,\n", {"label_kind": "number"}, ", line 2", "the label is missing"),
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

    monkeypatch.setattr(formats, "open", refuse, raising=False)
    assert error_of(path) == f"{path}: permission denied; make it readable, for example: chmod +r {path}"


def test_other_trouble_of_the_machine_is_told_too(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", "text,label\nx,a\n")

    def fail(*args, **options):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(formats, "open", fail, raising=False)
    assert f"{path}: cannot be read (Input/output error)" in error_of(path)


def test_a_folder_that_is_no_table_says_so(tmp_path):
    assert error_of(tmp_path).startswith(f"{tmp_path}: a folder with neither LABEL/*.txt nor")
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


# ---- datasets --------------------------------------------------------------------------------------------------------


def classed(count: int) -> datasets.Dataset:
    features = datasets.Features(
        text=datasets.Value("string"),
        label=datasets.ClassLabel(names=["bad", "fine"]),
        tags=datasets.List(datasets.ClassLabel(names=["x", "y"])),
    )
    columns = {
        "text": [f"t{i}" for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "tags": [[1, 0]] * count,
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_class_numbers_become_names_in_saved_datasets_and_parquet(tmp_path):
    classed(3).save_to_disk(tmp_path / "saved")
    classed(3).to_parquet(tmp_path / "saved.parquet")
    for source in (tmp_path / "saved", tmp_path / "saved.parquet"):
        assert list(read_rows(source)) == [Row("t0", "bad"), Row("t1", "fine"), Row("t2", "bad")]
        rows = read_rows(source, label_column="tags", label_kind="multi")
        assert next(rows) == Row("t0", ["y", "x"])
        assert detect_label_kind(source, label_column="tags") == "multi"
        assert list(read_rows(source, label_kind="none"))[2] == Row("t2")


def test_a_row_without_class_is_a_missing_label(tmp_path):
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["a"]))
    datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, -1]}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    assert error_of(tmp_path / "saved").startswith(f"{tmp_path / 'saved'}, row 2: the label is missing")


def test_splits_are_named_or_taken_by_role(tmp_path):
    saved = tmp_path / "saved"
    datasets.DatasetDict(train=classed(3), test=classed(1)).save_to_disk(saved)
    assert len(list(read_rows(f"{saved}:test"))) == 1
    assert len(list(read_rows(saved, split="train"))) == 3
    assert len(list(read_rows(f"{saved}:train", split="test"))) == 3
    assert "several splits; splits found: train, test; name one" in error_of(saved)
    assert "no split 'dev'; splits found: train, test" in error_of(f"{saved}:dev")


def test_a_broken_saved_dataset_is_told(tmp_path):
    write(tmp_path / "state.json", "{}")
    assert error_of(tmp_path).startswith(f"{tmp_path}: this saved dataset cannot be read (")


def test_a_hub_name_is_loaded_by_datasets(monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **options: None)
    found = datasets.DatasetDict(train=classed(3), test=classed(1))
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"owner/name": found}[name])
    assert len(list(read_rows("owner/name", split="train"))) == 3
    assert list(read_rows("owner/name:test")) == [Row("t0", "bad")]


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
    def unreachable(*args, **options):
        raise ConnectionError("Name or service not known\nand so on")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    message = error_of("owner/name")
    assert message.startswith(
        "owner/name: no such file here, and the Hub gives no such dataset (Name or service not known);"
    )
    assert "check the path and the network" in message


def test_a_dataset_that_the_hub_lacks_is_one_line(monkeypatch):
    def missing(*args, **options):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'owner/name' doesn't exist on the Hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args, **options: None)
    monkeypatch.setattr(datasets, "load_dataset", missing)
    assert error_of("owner/name") == "owner/name: no such file here and no such dataset on the Hub; check the spelling"
