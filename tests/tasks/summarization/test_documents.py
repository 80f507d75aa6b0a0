"""Every layout of documents is read, and what is wrong with one is said in one line."""

import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.data.tables import Reading
from fastformer.errors import UserError
from fastformer.tasks.summarization.documents import Document, Documents, builtin_documents, read_documents, sentences

from ..conftest import write_jsonl

TWO = [{"article": "One  two.\n\nThree.", "summary": "1"}, {"article": "Four.", "summary": "2"}]
READ = [Document("One two.\nThree.", "1"), Document("Four.", "2")]


def test_tables_of_every_format(tmp_path):
    jsonl = write_jsonl(tmp_path / "a.jsonl", TWO)
    (tmp_path / "a.csv").write_text('summary,article\n1,"One  two.\n\nThree."\n2,Four.\n', encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(TWO), tmp_path / "a.parquet")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in TWO))
    for source in (jsonl, *(str(tmp_path / name) for name in ("a.csv", "a.parquet", "b.jsonl.gz"))):
        assert list(read_documents(source)) == READ


def test_columns_are_recognised_or_named(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [{"Document": "a b", "Headline": "a", "n": 1}])
    assert list(read_documents(source)) == [Document("a b", "a")]
    source = write_jsonl(tmp_path / "b.jsonl", [{"x": "a b", "y": "a"}])
    assert list(read_documents(source, text_column="x", label_column="y")) == [Document("a b", "a")]
    with pytest.raises(
        UserError, match="cannot tell which column holds the article; columns found: x, y; name it with"
    ):
        next(read_documents(source))
    with pytest.raises(UserError, match="no column 'z'; columns found: x, y; name one of them with --summary-column"):
        next(read_documents(source, text_column="x", label_column="z"))
    with pytest.raises(UserError, match="'x' cannot be article and summary at once"):
        next(read_documents(source, text_column="x", label_column="x"))


def test_stories_of_cnn_and_daily_mail(tmp_path):
    (tmp_path / "cnn" / "stories").mkdir(parents=True)
    story = '(CNN) -- A cat sat.\n\nIt slept.\n\n@highlight\n\nNEW: a cat\n\n@highlight\n\nIt said: "Now!"\n'
    (tmp_path / "cnn" / "stories" / "b.story").write_text(story, encoding="utf-8")
    (tmp_path / "cnn" / "stories" / "a.story").write_text("\n@highlight\nonly this", encoding="utf-8")
    found = [
        Document("", "only this ."),  # a full stop: words have no new line between highlights
        Document("(CNN) -- A cat sat.\nIt slept.", 'NEW: a cat .\nIt said: "Now!"'),
    ]
    assert list(read_documents(str(tmp_path / "cnn"))) == found
    assert list(read_documents(str(tmp_path / "cnn" / "stories" / "b.story"))) == found[1:]


def test_papers_of_cohan_et_al_are_json_in_txt_files(tmp_path):
    paper = {
        "article_id": "PMC1",
        "article_text": ["cells divide .", "they grow ."],
        "abstract_text": ["<S> cells . </S>", "<S> growth . </S>"],
        "labels": None,
        "section_names": ["intro"],
        "sections": [["cells divide ."]],
    }
    source = write_jsonl(tmp_path / "train.txt", [paper])
    assert list(read_documents(source)) == [Document("cells divide .\nthey grow .", "cells .\ngrowth .")]


def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text(r'{"article": ["a \ud83d b"], "summary": "\ude00 \ud83d\ude00"}' + "\n", encoding="utf-8")
    assert list(read_documents(str(source))) == [Document("a \ufffd b", "\ufffd \N{GRINNING FACE}")]


def test_articles_alone(tmp_path):
    lines = tmp_path / "articles.txt"
    lines.write_text("One.\nTwo.\n", encoding="utf-8")
    assert list(read_documents(str(lines), with_summary=False)) == [Document("One."), Document("Two.")]
    with pytest.raises(UserError, match="plain lines are texts alone"):
        next(read_documents(str(lines)))


def test_bad_values_are_named_with_their_place(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [*TWO, {"article": "x", "summary": None}])
    with pytest.raises(UserError, match=re.escape("a.jsonl, line 3: the summary is missing; fill it in, or leave")):
        list(Documents(source, Reading(strict=True)))
    source = write_jsonl(tmp_path / "b.jsonl", [{"article": 7, "summary": "x"}])
    with pytest.raises(UserError, match="line 1: the article is a number, not text"):
        list(read_documents(source))
    with pytest.raises(UserError, match="neither .story files nor a saved `datasets` dataset; name a file"):
        read_documents(str(tmp_path))
    with pytest.raises(UserError, match="no such file or folder"):
        list(read_documents(str(tmp_path / "none.jsonl")))


def test_documents_without_words_are_left_out_and_counted(tmp_path):
    source = write_jsonl(
        tmp_path / "a.jsonl", [*TWO, {"article": " \n", "summary": "x"}, {"article": "x", "summary": None}]
    )
    documents = Documents(source, Reading(split="train")).check()
    assert list(documents) == list(documents) == READ  # again and again
    assert [*documents.notes()] == [f"{source}: 2 of 4 documents were left out: no article or no summary."]
    empty = write_jsonl(tmp_path / "b.jsonl", [{"article": "", "summary": "x"}])
    with pytest.raises(UserError, match="every article or summary is empty"):
        Documents(empty, Reading(split="train")).check()


def test_documents_may_come_in_a_list():
    documents = Documents(TWO, Reading(split="train")).check()
    assert list(documents) == list(documents) == READ
    assert list(read_documents(iter(TWO))) == READ
    named = [{"x": "a b", "y": "a"}, {"x": "c"}]
    assert next(read_documents(named, text_column="x", label_column="y")) == Document("a b", "a")
    assert list(read_documents(named, text_column="x", label_column="y"))[1:] == [Document("c", "")]
    with pytest.raises(UserError, match="the documents: cannot tell which column holds the article; columns found: x"):
        next(read_documents(named))
    articles = Documents(["One.", {"text": "Two."}, Document("Three.", "3")], Reading(split="test"), labelled=False)
    assert [document.article for document in articles] == ["One.", "Two.", "Three."]
    assert list(read_documents([], with_summary=False)) == []
    with pytest.raises(UserError, match="document 1: a number; give a dictionary with an article, or the article"):
        list(read_documents([7]))
    with pytest.raises(UserError, match="give a list of documents, not one dictionary"):
        list(read_documents({"article": "x"}))
    with pytest.raises(UserError, match="the documents: every article or summary is empty"):
        Documents([{"article": "x", "summary": " "}], Reading(split="train")).check()


def test_the_built_in_corpus_hides_the_first_line():
    found = list(builtin_documents("test"))
    assert len(found) > 100
    for document in found:
        assert "\n" not in document.summary
        assert not document.article.startswith(document.summary)
    assert list(read_documents("builtin:test")) == found
    with pytest.raises(UserError, match="builtin has no split 'dev'"):
        list(read_documents("builtin:dev"))


def test_sentences_end_at_stops_and_new_lines():
    assert sentences("Mr. Smith slept. He woke!\nNo stop here\n我吃饭。我睡觉。") == [
        "Mr. Smith slept.",
        "He woke!",
        "No stop here",
        "我吃饭。",
        "我睡觉。",
    ]
    assert len(sentences("राम घर गया। वह सो गया। फिर वह उठा।")) == 3
    assert len(sentences("هل نام؟ نعم نام. لا")) == 3
    assert len(sentences("وہ گیا۔ وہ آیا۔")) == 2


def test_fields_of_the_input_are_kept(tmp_path):
    from fastformer.data.keeping import Keep

    def kept(source, *names):
        documents = Documents(source, Reading(split="test"), labelled=False)
        return [fields for fields, _ in documents.with_fields(Keep(names, everything=not names))]

    rows = [{"id": 1, "article": "a  b"}, {"id": 2, "article": "c", "more": 3}]
    for source in (rows, write_jsonl(tmp_path / "rows.jsonl", rows)):
        assert kept(source) == rows
        assert kept(source, "id") == [{"id": 1}, {"id": 2}]
        with pytest.raises(UserError, match="no column 'key'; columns found: id, article"):
            kept(source, "key")
    assert kept(["a text"]) == [{"article": "a text"}]
    (tmp_path / "a.story").write_text("One.\n@highlight\nTwo")
    assert kept(str(tmp_path / "a.story"), "summary") == [{"summary": "Two ."}]
    assert kept("builtin:test")[0].keys() == {"article", "summary"}
