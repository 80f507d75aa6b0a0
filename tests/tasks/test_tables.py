"""Tables that are not quite right: what is left out, what is read, what nobody can know. Said, and right or refused."""

import json
import os
import re
import threading
from collections.abc import Callable

import pytest

from fastformer.data import left_out
from fastformer.data.overlap import overlap
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks import get_task
from fastformer.tasks.verbs import evaluate, load, predict, train

from . import samples
from .conftest import make_rows, write_csv, write_jsonl

quiet = {"show_progress": False}


@pytest.fixture
def said(capsys) -> Callable[[], list[str]]:
    """The lines that were said to the person who waits, since the last time."""
    left_out.say_once.cache_clear()
    capsys.readouterr()
    return lambda: capsys.readouterr().err.splitlines()


def test_the_columns_that_were_read_are_printed_kept_and_on_the_card(tmp_path, said):
    rows = [
        {"id": n, "title": text[:9], "body": text, "kind": label} for n, (text, label) in enumerate(make_rows(60, 0))
    ]
    source = write_jsonl(tmp_path / "a.jsonl", [*rows, {"id": 60, "body": None, "kind": "food"}])
    train("classification", source, test=source, output=tmp_path / "run", epochs=1, preset="encoder")
    lines = said()
    assert f"{source}: text from `title` and `body`, label from `kind` (not read: `id`)." in lines
    assert f"{source}: 1 of 61 rows left out (1 without a text)." in lines
    data = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert (data["texts_from"], data["labels_from"]) == (["title", "body"], ["kind"])
    assert (
        "It read texts from `title` and `body` and labels from `kind`." in (tmp_path / "run" / "README.md").read_text()
    )
    later = write_jsonl(tmp_path / "b.jsonl", [{"review": row["body"], "label": row["kind"]} for row in rows])
    evaluate(tmp_path / "run", later)
    assert (
        f"{later}: text from `review`, label from `label`; in training the text was from `title` and `body`." in said()
    )
    evaluate(tmp_path / "run", source)
    assert not [line for line in said() if "text from" in line]


def test_strict_stops_at_a_missing_value_in_every_verb(run_folder, tmp_path, said):
    source = write_csv(tmp_path / "a.csv", [*make_rows(20, 0), ("", "food")])
    for call in (
        lambda: train("classification", source, output=tmp_path / "run", strict=True, **quiet),
        lambda: evaluate(run_folder, source, strict=True, **quiet),
        lambda: predict(run_folder, source, tmp_path / "out.jsonl", strict=True, **quiet),
    ):
        with pytest.raises(UserError, match=r"a.csv, line 22: the text is missing; fill it in or remove the row"):
            call()
    assert evaluate(run_folder, source, **quiet)["rows"] == 20
    assert predict(run_folder, source, tmp_path / "out.jsonl", **quiet) == 21  # an answer per row
    assert said() == [
        f"{source}: 1 of 21 rows left out (1 without a text).",
        f"{source}: 1 of 21 texts is missing and answered like an empty one.",
    ]


def test_labels_that_training_did_not_see_count_as_wrong(run_folder, tmp_path, said):
    rows = make_rows(30, 3)
    whole = evaluate(run_folder, write_csv(tmp_path / "a.csv", rows), **quiet)
    source = write_csv(tmp_path / "b.csv", [*rows, ("a planet", "star"), ("a comet", "star"), ("a moon", "rock")])
    found = evaluate(run_folder, source, report=tmp_path / "report", **quiet)
    assert found["rows"] == 33
    assert found["accuracy"] == pytest.approx(whole["accuracy"] * 30 / 33)
    assert found["macro_f"] <= whole["macro_f"]
    assert found["unseen_labels"] == 3
    assert said() == [
        "The report is " + str(tmp_path / "report" / "report.md") + ".",
        f"{source}: 3 labels were not seen in training and counted as wrong: 'star', 'rock'.",
    ]
    assert "unseen_labels" not in whole


def test_an_unseen_label_among_several_is_a_miss(tmp_path):
    rows = [{"text": text, "labels": [label, *(["old"] if "old" in text else [])]} for text, label in make_rows(90, 0)]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    train("classification", source, output=tmp_path / "run", epochs=2, preset="encoder", **quiet)
    whole = evaluate(tmp_path / "run", source, **quiet)
    strange = [{**row, "labels": [*row["labels"], "strange"]} for row in rows[:9]] + rows[9:]
    found = evaluate(tmp_path / "run", write_jsonl(tmp_path / "b.jsonl", strange), **quiet)
    assert found["unseen_labels"] == 9
    assert found["micro_f"] < whole["micro_f"]
    assert found["accuracy"] <= min(whole["accuracy"], 81 / 90)
    assert found["macro_f"] == pytest.approx(whole["macro_f"])  # over the labels of the training
    with pytest.raises(UserError, match="none of its labels was seen in training, but 'x'"):
        evaluate(tmp_path / "run", write_jsonl(tmp_path / "c.jsonl", [{"text": "a", "labels": ["x"]}]), **quiet)


def test_a_run_is_at_home_in_every_format(run_folder, files, tmp_path):
    rows = make_rows(20, 4)
    answers = list(load(run_folder).predict([text for text, _ in rows]))
    semicolons = tmp_path / "a.tsv"
    semicolons.write_text("text;label\n" + "".join(f"{text};{label}\n" for text, label in rows), encoding="utf-16")
    bare = tmp_path / "b.csv"
    bare.write_text("".join(f"{label},{text}\n" for text, label in rows))
    fasttext = tmp_path / "c.txt"
    fasttext.write_text("".join(f"__label__{label} {text}\n" for text, label in rows))
    for source, how in ((semicolons, {}), (fasttext, {}), (bare, {"header": False, "text_column": "2"})):
        assert evaluate(open_run(run_folder), str(source), **how, **quiet)["rows"] == 20
        predict(run_folder, str(source), tmp_path / "out.jsonl", **how, **quiet)
        assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == answers


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_predict_reads_a_named_pipe_and_train_refuses_it(run_folder, tmp_path):
    pipe = tmp_path / "texts.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("text\na cat\na hammer\n",), daemon=True)
    writer.start()
    assert predict(run_folder, str(pipe), tmp_path / "out.jsonl", **quiet) == 2
    writer.join(10)
    with pytest.raises(UserError, match="more than once; give files, not standard input or a pipe"):
        train("classification", str(pipe), output=tmp_path / "run", **quiet)


def test_a_column_per_label_trains_several_labels(tmp_path):
    rows = [(text, int(label == "food"), int("old" in text)) for text, label in make_rows(60, 0)]
    source = tmp_path / "a.csv"
    source.write_text("text,food,old\n" + "".join(f"{text},{food},{old}\n" for text, food, old in rows))
    options = {"epochs": 1, "preset": "encoder", "label_column": "food,old", **quiet}
    train("classification", str(source), output=tmp_path / "run", **options)
    [answer] = load(tmp_path / "run").predict(["old bread"])
    assert set(answer["probabilities"]) == {"food", "old"}
    assert "micro_f" in evaluate(tmp_path / "run", str(source), **quiet)


@pytest.mark.parametrize("rate", [1, 10, 1e4])
def test_a_rate_that_is_far_too_large_is_an_error(files, tmp_path, rate):
    with pytest.raises(UserError, match="diverged; lower --learning-rate"):
        train("classification", files["train"], output=tmp_path / "run", learning_rate=rate, epochs=1, **quiet)
    assert not (tmp_path / "run" / "run.json").exists()


def test_data_to_score_on_that_was_trained_on_is_said(files, run_folder, tmp_path, said):
    options = {"epochs": 1, "preset": "encoder", **quiet}
    rows = [*make_rows(20, 0), *make_rows(30, 9)]  # the first of them are in the training data
    mixed = write_csv(tmp_path / "mixed.csv", rows)
    train("classification", files["train"], mixed, files["train"], output=tmp_path / "run", **options)
    after = "in the training data too, so scores on them say little about new ones."
    lines = said()
    assert f"{files['train']}: 300 of 300 rows are {after}" in lines
    [line] = [line for line in lines if line.startswith(mixed)]
    assert re.fullmatch(rf"{re.escape(mixed)}: 2\d of 50 rows are {re.escape(after)}", line)
    evaluate(run_folder, files["train"], **quiet)
    assert said() == [f"{files['train']}: the run was trained on it, so its scores say nothing about new data."]
    evaluate(run_folder, files["test"], **quiet)
    assert said() == []


@pytest.mark.parametrize("task", ["conversion", "summarization", "recommendation"])
def test_every_task_knows_examples_again(task, tmp_path):
    sample = getattr(samples, task)(tmp_path)
    taught = get_task(task)
    settings = taught.settings(**sample.options)
    some, others = (taught.read(source, "train", settings) for source in (sample.train, sample.test))
    assert overlap(taught.same(some), taught.same(some))[0] == overlap(taught.same(some), taught.same(some))[1] > 0
    found, count = overlap(taught.same(some), taught.same(others))
    assert found < count / 2
