"""The paper's datasets in exactly the layouts they are published in, as tiny files."""

import gzip
import json
from pathlib import Path

import pytest

from fastformer.data import left_out
from fastformer.data.keeping import Keep
from fastformer.data.tables import Row, read_rows, read_texts_with_fields
from fastformer.errors import UserError


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """What the readers say about lines that do not fit."""
    messages: list[str] = []
    left_out.say_once.cache_clear()
    monkeypatch.setattr(left_out, "say", messages.append)
    return messages


def review(text: str | None, overall: float) -> dict:
    """A review as the 5-core files have it."""
    record = {
        "reviewerID": "AO94DHGC771SJ",
        "asin": "0528881469",
        "reviewerName": "amazdnu",
        "helpful": [0, 0],
        "reviewText": text,
        "overall": overall,
        "summary": "Gotta have GPS!",
        "unixReviewTime": 1370131200,
        "reviewTime": "06 2, 2013",
    }
    return {name: value for name, value in record.items() if value is not None}


def news(key: str, category: str, title: str, abstract: str) -> str:
    entities = '[{"Label": "Prince Philip", "Type": "P", "WikidataId": "Q80976", "Confidence": 1.0}]'
    return "\t".join(
        [key, category, f"{category}sub", title, abstract, "https://assets.msn.com/labs/mind/X.html", entities, "[]"]
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class TestAmazon:
    ROWS = [Row("We got this GPS for my husband", "5"), Row("Not worth it", "1"), Row("So so", "3")]

    def file(self, path: Path, lines: list[str]) -> Path:
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return path

    def records(self) -> list[dict]:
        return [review(row.text, float(row.label)) for row in self.ROWS]

    def test_reviews_and_ratings_of_a_five_core_file(self, tmp_path, said):
        path = self.file(tmp_path / "reviews_Electronics_5.json.gz", [json.dumps(one) for one in self.records()])
        assert list(read_rows(path)) == self.ROWS
        assert not said

    def test_older_files_are_python_literals(self, tmp_path):
        path = self.file(tmp_path / "reviews.json.gz", [repr(one) for one in self.records()])
        assert list(read_rows(path)) == self.ROWS

    @pytest.mark.parametrize(
        "first",
        [
            {"text": 'the columns "reviewText" and "overall" of Amazon', "label": "a"},
            {"reviewText": "mine", "overall": "a"},
        ],
        ids=["mentions them", "has two of them"],
    )
    def test_a_users_own_table_is_not_read_leniently(self, tmp_path, said, first):
        path = write(tmp_path / "mine.jsonl", json.dumps(first) + "\n{broken\n")
        with pytest.raises(UserError, match=r"mine\.jsonl, line 2"):
            list(read_rows(path))
        assert not said

    def test_another_column_is_chosen_by_name(self, tmp_path):
        path = self.file(tmp_path / "reviews.json.gz", [json.dumps(one) for one in self.records()])
        assert {row.text for row in read_rows(path, text_column="summary")} == {"Gotta have GPS!"}
        joined = [row.text for row in read_rows(path, text_column="summary,reviewText")]
        assert joined == [f"Gotta have GPS!\n\n{row.text}".strip() for row in self.ROWS]

    def test_odd_lines_are_left_out_counted_and_said_once(self, tmp_path, said):
        good = [json.dumps(one) for one in self.records()]
        odd = ["{broken", json.dumps(review("", 2.0)), "[1, 2]"]
        path = self.file(tmp_path / "reviews.json.gz", [*good, *odd])
        for _ in range(2):
            assert list(read_rows(path)) == self.ROWS
        assert said == [
            f"{path}: 2 of 6 lines left out (2 that hold no JSON object).",
            f"{path}: 1 of 4 rows left out (1 without a text).",
        ]

    def test_every_line_is_answered_where_no_ratings_are_read(self, tmp_path, said):
        odd = [json.dumps(review(None, 2.0)), json.dumps(review(" ", 2.0)), "{broken"]
        lines = [json.dumps(review("first", 5.0)), *odd, json.dumps({**review("last", 1.0), "vote": 3})]
        path = self.file(tmp_path / "reviews.json.gz", [*lines, ""])
        answered = list(read_rows(path, label_kind="none", every_row=True))
        assert [row.text for row in answered] == ["first", "", "", "", "last"]
        assert said == [f"{path}: 3 of 5 texts are missing and answered like an empty one."]
        kept = [fields for fields, _ in read_texts_with_fields(path, Keep(everything=True))]
        assert kept[0] == review("first", 5.0)
        assert set(kept[3].values()) == {None}
        assert kept[4] == {**review("last", 1.0), "vote": 3}

    def test_texts_alone_need_no_rating(self, tmp_path, said):
        records = [{name: value for name, value in one.items() if name != "overall"} for one in self.records()[1:]]
        lines = [json.dumps(one) for one in [*self.records()[:1], *records]]
        path = self.file(tmp_path / "reviews.json.gz", lines)
        assert [row.text for row in read_rows(path, label_kind="none")] == [row.text for row in self.ROWS]
        assert not said

    def test_a_damaged_archive_is_told_in_one_line(self, tmp_path):
        path = self.file(tmp_path / "reviews.jsonl.gz", [json.dumps(one) for one in self.records()])
        data = bytearray(path.read_bytes())
        data[12:40] = bytes(28)
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"reviews\.jsonl\.gz"):
            list(read_rows(path))

    def test_a_file_with_other_columns_is_read_strictly(self, tmp_path):
        path = write(tmp_path / "rows.json", '{"text": "a", "label": "x"}\n{broken\n')
        with pytest.raises(UserError, match="line 2.*broken JSON"):
            list(read_rows(path))


class TestImdb:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        for split, first in (("train", 0), ("test", 10)):
            write(tmp_path / split / "neg" / f"{first}_3.txt", f"dull {split}")
            write(tmp_path / split / "pos" / f"{first + 1}_10.txt", f"great {split}")
            write(tmp_path / split / "urls_pos.txt", "http://www.imdb.com/title/tt0453418/usercomments\n")
        write(tmp_path / "train" / "unsup" / "0_0.txt", "unrated")
        return tmp_path

    def test_the_rating_is_in_the_name(self, folder):
        assert list(read_rows(folder / "train")) == [Row("dull train", "3"), Row("great train", "10")]

    def test_train_and_test_are_splits(self, folder):
        assert next(read_rows(folder, split="train")) == Row("dull train", "3")
        assert list(read_rows(f"{folder}:test"))[1] == Row("great test", "10")
        with pytest.raises(UserError, match="splits found: train, test"):
            list(read_rows(folder))

    def test_texts_alone(self, folder):
        assert [row.text for row in read_rows(folder / "test", label_kind="none")] == ["dull test", "great test"]

    def test_folder_names_are_a_label_column(self, folder):
        assert [row.label for row in read_rows(folder / "test", label_column="folder")] == ["neg", "pos"]

    def test_other_files_are_left_out_and_counted(self, folder, said):
        write(folder / "train" / "pos" / "notes.txt", "not a review")
        assert len(list(read_rows(folder / "train"))) == 2
        assert said == [f"{folder / 'train'}: 1 of 3 files left out (1 not named ID_RATING.txt)."]

    def test_reviews_may_be_utf16(self, folder):
        (folder / "test" / "pos" / "11_10.txt").write_text("größer", encoding="utf-16")
        assert list(read_rows(folder / "test"))[1] == Row("größer", "10")

    def test_a_folder_of_labels_stays_one(self, tmp_path):
        write(tmp_path / "pos" / "a.txt", "good")
        write(tmp_path / "neg" / "b.txt", "bad")
        assert list(read_rows(tmp_path)) == [Row("bad", "neg"), Row("good", "pos")]


class TestMind:
    LINES = [
        news("N55528", "lifestyle", 'The "Brands" the Queen Swears By', "Shop the notebooks."),
        news("N19639", "health", "50 Worst Habits", ""),
    ]
    ROWS = [Row('The "Brands" the Queen Swears By\nShop the notebooks.', "lifestyle"), Row("50 Worst Habits", "health")]

    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        write(tmp_path / "MINDsmall_train" / "news.tsv", "\n".join(self.LINES) + "\n")
        return tmp_path

    def test_title_and_abstract_with_their_topic(self, folder):
        assert list(read_rows(folder / "MINDsmall_train" / "news.tsv")) == self.ROWS
        assert list(read_rows(folder / "MINDsmall_train")) == self.ROWS

    def test_a_news_in_several_parts_is_read_once(self, folder):
        write(folder / "MINDsmall_dev" / "news.tsv", self.LINES[0] + "\n" + news("N1", "sports", "Goal", "") + "\n")
        assert sorted(row.label for row in read_rows(folder)) == ["health", "lifestyle", "sports"]

    def test_other_columns_by_name(self, folder):
        rows = list(read_rows(folder, text_column="title", label_column="subcategory"))
        assert rows[1] == Row("50 Worst Habits", "healthsub")

    def test_columns_are_joined(self, folder):
        rows = list(read_rows(folder, text_column="subcategory,title"))
        assert rows[1] == Row("healthsub\n\n50 Worst Habits", "health")

    @pytest.mark.parametrize("form", ["bodies.jsonl", "bodies.tsv", "bodies"])
    @pytest.mark.parametrize("place", ["beside", "above"])
    def test_bodies_stand_in_for_titles(self, folder, said, form, place):
        where = folder / "MINDsmall_train" if place == "beside" else folder
        if form == "bodies.jsonl":
            write(where / form, json.dumps({"id": "N55528", "body": "A long\nbody."}) + "\n")
        elif form == "bodies.tsv":
            write(where / form, "N1\tother\nN55528\tA long\\nbody.\n")
        else:
            write(where / form / "N55528.txt", "A long\nbody.")
        rows = list(read_rows(folder / "MINDsmall_train" / "news.tsv"))
        assert rows[0].text.startswith("A long")
        assert rows[1] == self.ROWS[1]
        assert len(said) == 1
        assert "1 of 2 articles has no body" in said[0]

    def test_bodies_are_found_from_a_bare_name(self, folder, monkeypatch):
        write(folder / "bodies.tsv", "N55528\tA long body.\n")
        monkeypatch.chdir(folder / "MINDsmall_train")
        assert next(read_rows("news.tsv", label_kind="none")).text == "A long body."

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_news_and_bodies_may_have_a_unicode_mark(self, folder, encoding):
        lines = "\n".join(self.LINES)
        (folder / "MINDsmall_train" / "news.tsv").write_text(lines, encoding=encoding)
        assert list(read_rows(folder)) == self.ROWS
        write(folder / "bodies" / "N55528.txt", "").write_text("größer", encoding=encoding)
        assert next(read_rows(folder)).text == "größer"

    def test_a_mark_is_no_part_of_the_first_id_of_a_body_file(self, folder):
        write(folder / "bodies.tsv", "\ufeffN55528\tA long body.\n")
        assert next(read_rows(folder)).text == "A long body."

    def test_a_broken_body_file_names_its_line(self, folder):
        write(folder / "bodies.jsonl", '{"id": "N55528", "body": "x"}\n{"id": 3}\n')
        with pytest.raises(UserError, match=r"bodies\.jsonl, line 2"):
            list(read_rows(folder))

    def test_odd_lines_are_left_out_and_counted(self, folder, said):
        path = write(folder / "news.tsv", "\n".join([*self.LINES, "N9\tsports\tbroken", news("N8", "", "x", "y")]))
        assert list(read_rows(path)) == self.ROWS
        assert said == [
            f"{path}: 1 of 4 lines left out (1 without 8 fields).",
            f"{path}: 1 of 3 rows left out (1 without a label).",
        ]

    def test_a_news_without_a_category_has_a_text(self, folder, said):
        path = write(folder / "news.tsv", "\n".join([news("N8", "", "x", ""), *self.LINES]))
        texts = ["x", *(row.text for row in self.ROWS)]
        assert [row.text for row in read_rows(path, label_kind="none")] == texts
        assert not said

    def test_a_table_called_news_is_still_a_table(self, tmp_path):
        path = write(tmp_path / "news.tsv", "text\tlabel\na\tx\n")
        assert list(read_rows(path)) == [Row("a", "x")]
