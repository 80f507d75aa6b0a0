"""Answers to files by their names, with the fields of the input that they carry along."""

import csv
import datetime
import gzip
import json
import math
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.data import answers
from fastformer.data.answers import check_ending, writing_answers
from fastformer.data.keeping import Keep, carrying
from fastformer.data.tables import read_texts_with_fields
from fastformer.errors import UserError

line = partial(json.dumps, ensure_ascii=False)
ROWS = [
    {"id": 1, "label": "good", "probabilities": {"good": 0.75, "bad": 0.25}, "tags": ["a", "b"]},
    {"id": 2.5, "label": "bäd, or\nnot", "probabilities": {"bad": 1.0}, "tags": []},
    {"id": None, "label": "good", "probabilities": {}, "more": "\ud83d"},  # half a character
]


def write(path, *parts):
    with writing_answers(path, line) as some:
        for part in parts:
            some(part)


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.txt", "A.NDJSON"])
def test_lines(tmp_path, name):
    write(tmp_path / name, ROWS[:2], ROWS[2:])
    found = [json.loads(one) for one in (tmp_path / name).read_text().splitlines()]
    assert found == [*ROWS[:2], {**ROWS[2], "more": "\ufffd"}]


def test_csv_has_nested_values_as_json_and_every_field_of_every_row(tmp_path):
    write(tmp_path / "a.csv", ROWS[:2], ROWS[2:])
    first, second, third = read_csv(tmp_path / "a.csv")
    assert list(first) == ["id", "label", "probabilities", "tags", "more"]
    assert json.loads(first["probabilities"]) == {"good": 0.75, "bad": 0.25}
    assert json.loads(first["tags"]) == ["a", "b"]
    assert (second["id"], second["label"], second["more"]) == ("2.5", "bäd, or\nnot", "")
    assert (third["id"], third["more"]) == ("", "\ufffd")


def test_parquet_has_types_that_hold_all_rows(tmp_path):
    day = datetime.datetime(2026, 1, 31, 12)
    rows = [{**row, "day": day, "mixed": mixed} for row, mixed in zip(ROWS, (1, "one", [1]), strict=True)]
    write(tmp_path / "a.parquet", rows[:1], rows[1:])
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.field("id").type == pa.float64()
    assert table.schema.field("tags").type == pa.list_(pa.string())
    assert table["tags"].to_pylist() == [["a", "b"], [], None]
    assert [json.loads(one) for one in table["probabilities"].to_pylist()] == [row["probabilities"] for row in ROWS]
    assert table["day"].to_pylist() == [day] * 3
    assert table["mixed"].to_pylist() == ["1", "one", "[1]"]
    assert table["more"].to_pylist() == [None, None, "\ufffd"]


BIG = 2**63 - 1
DAY = datetime.date(2026, 1, 31)
MOMENT = datetime.datetime(2026, 1, 31, 12, 30)


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        (BIG, math.nan, [str(BIG), "NaN"]),
        (BIG, 2.5, [str(BIG), "2.5"]),
        (2**64 - 1, -1, [str(2**64 - 1), "-1"]),
        (2**70, b"x", [str(2**70), "\"b'x'\""]),
        (Decimal("1.5"), 2.5, ['"1.5"', "2.5"]),
        (Decimal("1.5"), b"x", ['"1.5"', "\"b'x'\""]),
        (DAY, 7, ['"2026-01-31"', "7"]),
        (DAY, math.nan, ['"2026-01-31"', "NaN"]),
        (DAY, MOMENT, ['"2026-01-31"', '"2026-01-31 12:30:00"']),
        (MOMENT, MOMENT.replace(tzinfo=datetime.UTC), ['"2026-01-31 12:30:00"', '"2026-01-31 12:30:00+00:00"']),
        ([DAY], [MOMENT], ['["2026-01-31"]', '["2026-01-31 12:30:00"]']),
        (("\ud83d", 1), b"x", ['["\ufffd", 1]', "\"b'x'\""]),
        ([BIG], [math.nan], [f"[{BIG}]", "[NaN]"]),
    ],
)
@pytest.mark.parametrize("rows_at_once", [1, 2])
def test_parquet_has_text_where_no_type_holds_all_rows(tmp_path, monkeypatch, first, second, written, rows_at_once):
    monkeypatch.setattr(answers, "ROWS_AT_ONCE", rows_at_once)
    for values, expected in (([first, second], written), ([second, first], written[::-1])):
        write(tmp_path / "a.parquet", *([{"mixed": value}] for value in values))
        assert pq.read_table(tmp_path / "a.parquet")["mixed"].to_pylist() == expected


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_what_fails_leaves_nothing_and_replaces_nothing(tmp_path, name):
    (tmp_path / name).write_text("older")
    with pytest.raises(ZeroDivisionError), writing_answers(tmp_path / name, line) as some:
        some(ROWS)
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "older"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_no_answers_are_an_empty_table(tmp_path, name):
    write(tmp_path / name)
    assert (tmp_path / name).exists()


def test_other_names_are_refused(tmp_path):
    for name in ("answers", "answers.xlsx", "answers.jsonl.gz"):
        with pytest.raises(UserError, match="end it in one of .jsonl, .ndjson, .json, .txt, .csv, .parquet"):
            check_ending(tmp_path / name)
    check_ending("/dev/null")


class TestKeeping:
    """Readers bring fields along, whatever the format."""

    rows = [{"id": 7, "text": "a cat", "label": "x"}, {"id": 8, "text": "a dog", "label": "y", "extra": [1]}]

    def kept(self, source, *names, **options):
        keep = Keep(names, everything=not names)
        return [(row.text, fields) for fields, row in read_texts_with_fields(source, keep, **options)]

    def files(self, folder):
        plain = [{name: value for name, value in row.items() if name != "extra"} for row in self.rows]
        with open(folder / "rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text", "label"])
            writer.writeheader()
            writer.writerows(plain)
        (folder / "rows.json").write_text(json.dumps(plain))
        pq.write_table(pa.Table.from_pylist(plain), folder / "rows.parquet")
        with gzip.open(folder / "rows.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in plain)
        return [folder / name for name in ("rows.csv", "rows.json", "rows.parquet", "rows.jsonl.gz")]

    def test_named_fields(self, tmp_path):
        for path in self.files(tmp_path):
            found = self.kept(path, "id", "text")
            assert [text for text, _ in found] == ["a cat", "a dog"]
            assert [(int(fields["id"]), fields["text"]) for _, fields in found] == [(7, "a cat"), (8, "a dog")]

    def test_all_fields(self, tmp_path):
        for path in self.files(tmp_path):
            assert [list(fields) for _, fields in self.kept(path)] == [["id", "text", "label"]] * 2

    def test_dictionaries(self):
        assert [fields for _, fields in self.kept(self.rows)] == self.rows
        assert [fields for _, fields in self.kept(self.rows, "id")] == [{"id": 7}, {"id": 8}]

    def test_later_objects_may_have_more_fields(self, tmp_path):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        assert [fields for _, fields in self.kept(tmp_path / "rows.jsonl")] == self.rows

    def test_what_has_no_columns(self, tmp_path):
        (tmp_path / "rows.txt").write_text("a cat\na dog\n")
        assert self.kept(tmp_path / "rows.txt") == [("a cat", {"text": "a cat"}), ("a dog", {"text": "a dog"})]
        (tmp_path / "folder" / "pets").mkdir(parents=True)
        (tmp_path / "folder" / "pets" / "1.txt").write_text("a cat")
        assert self.kept(tmp_path / "folder") == [("a cat", {"text": "a cat", "label": "pets"})]
        assert self.kept("builtin:test", "label")[0][1].keys() == {"label"}

    def test_columns_that_are_not_there(self, tmp_path):
        for path in self.files(tmp_path):
            with pytest.raises(UserError, match="no column 'key'; columns found: id, text, label; --keep one of them"):
                self.kept(path, "key")
        (tmp_path / "rows.txt").write_text("a cat\n")
        with pytest.raises(UserError, match="no column 'id'; columns found: text"):
            self.kept(tmp_path / "rows.txt", "id")

    def test_a_field_that_is_called_like_an_answer_is_renamed(self):
        answers = carrying(
            lambda rows: ({"label": "z", "of": row["id"]} for row in rows), self.rows, Keep(("id", "label"))
        )
        assert list(answers) == [
            {"id": 7, "input_label": "x", "label": "z", "of": 7},
            {"id": 8, "input_label": "y", "label": "z", "of": 8},
        ]
        with pytest.raises(UserError, match="leave it out"):
            list(carrying(iter, ["a text"], Keep(("id",))))
