"""Train, evaluate, predict and embed on files: what a user gets, and what a mistake costs."""

import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from fastformer import available_mixers
from fastformer.bench import pipeline as measured
from fastformer.data.tables import Row
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks import get_task, verbs
from fastformer.tasks.verbs import embed, evaluate, load, predict

from .conftest import FILLER, make_rows, write_csv, write_jsonl

train = partial(verbs.train, "classification")

quiet = {"show_progress": False}


def predictions(run, source, **options) -> list[dict]:
    out = io.StringIO()
    count = predict(open_run(run), str(source), out, **quiet, **options)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert count == len(lines)
    return lines


def test_a_run_folder_says_what_it_is(run_folder):
    assert {path.name for path in run_folder.iterdir()} == {
        "README.md",
        "config.json",
        "metrics.json",
        "model.safetensors",
        "run.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] > 0.9
    card = (run_folder / "README.md").read_text()
    assert f"{metrics['test']['accuracy']:.4f}" in card
    assert "`animal`, `food`, `tool`" in card


def test_evaluate_repeats_the_test_score_of_training(run_folder, files):
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert evaluate(open_run(run_folder), files["test"], by_class=False, **quiet) == metrics["test"]
    assert "classes" not in metrics["test"]


def test_predictions_come_in_input_order_with_probabilities(run_folder, tmp_path):
    rows = make_rows(40, 5)
    lines = predictions(run_folder, write_csv(tmp_path / "in.csv", rows))
    assert len(lines) == 40
    agree = [line["label"] == label for line, (_, label) in zip(lines, rows, strict=True)]
    assert np.mean(agree) > 0.8  # in order: in any other order about a third would
    for line in lines:
        assert list(line["probabilities"]) == ["animal", "food", "tool"]
        assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert line["label"] == max(line["probabilities"], key=line["probabilities"].get)


def test_in_python_texts_come_in_a_list_or_a_data_frame(run_folder):
    loaded = load(run_folder)
    for answer in (loaded.predict, loaded.vectors):
        for one in ("a cat", {"text": "a cat"}):
            with pytest.raises(UserError, match="give a list of texts, not one"):
                list(answer(one))
    assert list(loaded.predict(pd.DataFrame({"text": ["a cat"]}))) == list(loaded.predict(["a cat"]))


def test_top_keeps_the_largest_probabilities_in_falling_order(run_folder, tmp_path):
    source = write_csv(tmp_path / "in.csv", make_rows(20, 5))
    whole = predictions(run_folder, source)
    for top in (1, 2, 3, 99):
        for line, all_of_it in zip(predictions(run_folder, source, top=top), whole, strict=True):
            falling = sorted(all_of_it["probabilities"].items(), key=lambda pair: -pair[1])
            # Equal when rounded, two may be in either order: the model knows more digits.
            assert list(line["probabilities"].values()) == [chance for _, chance in falling[:top]]
            assert line["probabilities"].items() <= all_of_it["probabilities"].items()
            assert line["label"] == all_of_it["label"] == falling[0][0]


def test_below_the_threshold_there_is_no_label(run_folder, tmp_path):
    source = write_csv(tmp_path / "in.csv", make_rows(20, 5))
    whole = predictions(run_folder, source)
    sure = sorted(max(line["probabilities"].values()) for line in whole)
    # In the middle of the widest gap: written with few digits, neighbours may be equal.
    below = max(range(1, len(sure)), key=lambda count: sure[count] - sure[count - 1])
    lines = predictions(run_folder, source, threshold=(sure[below - 1] + sure[below]) / 2)
    assert sum(line["label"] is None for line in lines) == below
    assert all(line["label"] in (None, all_of_it["label"]) for line, all_of_it in zip(lines, whole, strict=True))
    with pytest.raises(UserError, match="--threshold 70.0: a probability is between 0 and 1"):
        predictions(run_folder, source, threshold=70.0)


def test_transformers_loads_the_run_by_itself(run_folder, tmp_path):
    text = "the old cat and a horse"
    [ours] = predictions(run_folder, write_csv(tmp_path / "one.csv", [(text, "animal")]))
    tokenizer = AutoTokenizer.from_pretrained(run_folder)
    model = AutoModelForSequenceClassification.from_pretrained(run_folder).eval()
    chances = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
    assert chances.tolist() == pytest.approx(list(ours["probabilities"].values()), abs=1e-5)
    [result] = pipeline("text-classification", model=str(run_folder))(text)
    assert result["label"] == ours["label"]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_embed_writes_one_vector_a_text(run_folder, files, tmp_path, suffix):
    path = tmp_path / f"vectors{suffix}"
    assert embed(open_run(run_folder), files["test"], path, **quiet) == (60, 128)
    vectors = np.load(path) if suffix == ".npy" else np.stack(pq.read_table(path)["vector"].to_pylist())
    assert vectors.shape == (60, 128)
    assert vectors.std() > 0
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("mixer", available_mixers())
def test_every_mixer_trains(mixer, files, tmp_path):
    metrics = train(files["train"], test=files["test"], output=tmp_path / "run", mixer=mixer, epochs=6, **quiet)
    assert metrics["test"]["accuracy"] > 0.5  # a guess is right for a third


def test_several_labels_a_text(tmp_path):
    def record(seed):
        (text, one), (more, other) = make_rows(2, seed)
        return {"text": f"{text} {more}", "label": sorted({one, other})}

    source = write_jsonl(tmp_path / "train.jsonl", [record(seed) for seed in range(400)])
    metrics = train(source, output=tmp_path / "run", **quiet)
    assert metrics["validation"]["micro_f"] > 0.85
    [line] = predictions(tmp_path / "run", write_jsonl(tmp_path / "one.jsonl", [{"text": "cat otter hammer saw"}]))
    assert line["labels"] == ["animal", "tool"]
    [line] = predictions(tmp_path / "run", tmp_path / "one.jsonl", threshold=0.0)
    assert line["labels"] == list(line["probabilities"])


def test_regression_predicts_in_the_units_of_the_data(tmp_path):
    rows = [(text, 5000.0 + 100 * text.split().count("old")) for text, _ in make_rows(400, 2)]
    source = write_csv(tmp_path / "train.csv", rows)
    metrics = train(source, test=source, output=tmp_path / "run", regression=True, epochs=8, **quiet)
    assert metrics["test"]["r2"] > 0.5
    values = [line["prediction"] for line in predictions(tmp_path / "run", source)]
    assert 4900 < min(values) < max(values) < 5600
    with pytest.raises(UserError, match="predicts a number and has no probabilities"):
        predictions(tmp_path / "run", source, top=1)


def test_a_predictor_takes_strings_dictionaries_and_rows(run_folder):
    rows = make_rows(5, 7)
    predictor = load(run_folder)
    found = list(predictor.predict([text for text, _ in rows]))
    assert list(predictor.predict([{"text": text, "id": 3} for text, _ in rows])) == found
    assert list(predictor.predict(Row(*row) for row in rows)) == found
    assert list(predictor.predict([])) == []
    labelled = [{"text": text, "label": label} for text, label in rows]
    assert predictor.evaluate(labelled)["rows"] == 5
    with pytest.raises(UserError, match=r"the examples: cannot tell which column holds the text; columns found: a, b"):
        list(predictor.predict([{"a": 1, "b": 2, "c": 3}]))
    answers = list(predictor.predict([{"text": "a cat"}, {"body": "a dog"}]))  # which has no text
    assert answers == list(predictor.predict(["a cat", ""]))


def test_a_list_of_dictionaries_is_a_source(tmp_path):
    examples = [{"words": text, "kind": label} for text, label in make_rows(60, 0)]
    columns = {"text_column": "words", "label_column": "kind"}
    metrics = train(examples, test=examples[:20], output=tmp_path / "run", epochs=1, **columns, **quiet)
    assert metrics["rows"] == {"train": 42, "validation": 18, "test": 20}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["train"] is None
    assert evaluate(tmp_path / "run", examples[:20], by_class=False, **quiet) == metrics["test"]


def test_joined_columns_are_recorded_and_used_again(tmp_path):
    rows = [
        {"title": text, "body": "" if number % 3 else "more", "label": label}
        for number, (text, label) in enumerate(make_rows(90, 4))
    ]
    source = write_jsonl(tmp_path / "train.jsonl", rows)
    train(source, output=tmp_path / "run", text_column="title,body", epochs=1, **quiet)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["text_column"] == "title,body"
    joined = [{"text": "\n\n".join(filter(None, (row["title"], row["body"])))} for row in rows]
    as_one = write_jsonl(tmp_path / "joined.jsonl", joined)
    assert predictions(tmp_path / "run", source) == predictions(tmp_path / "run", as_one, text_column="text")
    assert evaluate(open_run(tmp_path / "run"), source, **quiet)["rows"] == 90
    with pytest.raises(UserError, match=r"joined.jsonl: no column 'title'; columns found: text"):
        predictions(tmp_path / "run", as_one)


def test_integer_labels_are_ordered_as_numbers(tmp_path):
    rows = [(f"{text} w{index % 3}", [2, 10, 7][index % 3]) for index, (text, _) in enumerate(make_rows(60, 3))]
    train(write_csv(tmp_path / "train.csv", rows), output=tmp_path / "run", epochs=1, **quiet)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert list(config["id2label"].values()) == ["2", "7", "10"]
    assert config["label2id"] == {"2": 0, "7": 1, "10": 2}


@pytest.mark.parametrize("tokenizer", ["nltk", "bpe"])
def test_other_tokenizers_reload_in_transformers_alone(tokenizer, files, tmp_path):
    train(files["train"], output=tmp_path / "run", tokenizer=tokenizer, epochs=1, **quiet)
    text = "Don't saw the U.S. apple. A cat."
    ours = open_run(tmp_path / "run").load_tokenizer()(text)["input_ids"]
    code = "import sys, fastformer; from transformers import AutoTokenizer; "
    code += "print(AutoTokenizer.from_pretrained(sys.argv[1])(sys.argv[2])['input_ids'])"
    command = [sys.executable, "-c", code, str(tmp_path / "run"), text]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed.splitlines()[-1]) == ours


def test_a_run_starts_from_a_saved_tokenizer(run_folder, files, tmp_path):
    train(files["train"], output=tmp_path / "run", tokenizer=str(run_folder), epochs=1, **quiet)
    assert (tmp_path / "run" / "tokenizer.json").read_text() == (run_folder / "tokenizer.json").read_text()


@pytest.mark.slow
def test_a_file_larger_than_what_is_held_trains(tmp_path):
    """What training holds does not grow with the file: of 200 MB more, not half is held.

    Both have enough tokens for the largest table of word pairs, so that the models are of one size.
    """

    def peak(rows):
        source = tmp_path / f"{rows}.csv"
        with open(source, "w") as file:
            file.write("text,label\n")
            for text, label in make_rows(rows, 0):
                file.write(f"{text} {'filler ' * 3500},{label}\n")
        code = "import sys; from fastformer.tasks.verbs import train; "
        code += "options = {'epochs': 1, 'max_length': 64, 'show_progress': False}; "
        code += "run = train('classification', sys.argv[1], output=sys.argv[2], **options); "
        code += "print(run['peak_memory_gb'])"
        command = [sys.executable, "-c", code, str(source), str(tmp_path / f"run-{rows}")]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(printed.splitlines()[-1])

    assert peak(12_000) < peak(4_000) + 0.1


def test_a_huge_text_is_cut_with_one_counted_warning(run_folder, tmp_path, capsys):
    huge = "the old cat " * 420_000  # 5 MB
    lines = predictions(run_folder, write_csv(tmp_path / "huge.csv", [(huge, "animal"), ("a saw", "tool")]))
    assert len(lines) == 2
    assert lines[1]["label"] == "tool"
    limit = get_task("classification").settings().max_length
    assert capsys.readouterr().err.count(f"1 text was cut after {limit:,} tokens") == 1


# Table "hyper": layers, global, random, window, pooling window, block, projection, heads, width; length for the others.
TABLE = {
    "paper-amazon": (2, 8, 8, 8, 64, 4, 16, 16, 256, 512),
    "paper-imdb": (2, 8, 8, 8, 64, 4, 16, 16, 256, 1024),
    "paper-mind": (2, 16, 16, 16, 256, 8, 16, 16, 256, 2048),
}


@pytest.mark.parametrize("name", TABLE)
def test_paper_presets_are_the_columns_of_the_table(name):
    settings = get_task("classification").settings
    preset = settings(name)
    model = preset.model
    assert TABLE[name] == (
        model["num_hidden_layers"],
        model["num_global_tokens"],
        model["num_random_tokens"],
        model["window_size"],
        model["pooling_window_size"],
        model["block_size"],
        model["projection_size"],
        model["num_attention_heads"],
        model["hidden_size"],
        preset.max_length,
    )
    training = preset.training
    assert (training.batch_size, training.learning_rate, training.epochs, training.weight_decay) == (64, 1e-3, 3, 0)
    assert (model["hidden_dropout_prob"], preset.tokenizer, model["share_layers"]) == (0.2, "nltk", True)
    assert settings(name, mixer="transformer").max_length == 512
    assert not settings(name, mixer="bigbird").model["share_layers"]


class TestMistakes:
    """Each gets one clear line, and costs nothing that was there."""

    def check(self, match, call, *arguments, **options):
        with pytest.raises(UserError, match=match) as caught:
            call(*arguments, **options, **quiet)
        assert "\n" not in str(caught.value)

    def test_one_class_only(self, tmp_path):
        source = write_csv(tmp_path / "train.csv", [("a cat", "x"), ("a dog", "x")])
        self.check(r"train.csv: all rows have one class, 'x'", train, source, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()  # nothing is left that would look like a run

    def test_label_unseen_in_training(self, run_folder, files, tmp_path):
        source = write_csv(tmp_path / "new.csv", [("a cat", "animal"), ("a planet", "star")])
        other = write_csv(tmp_path / "other.csv", [("a cat", "stars"), ("a planet", "star")])
        unseen = r"other.csv: none of its labels was seen in training, but 'stars', 'star' \(seen: animal, food, tool\)"
        self.check(unseen, evaluate, open_run(run_folder), other)
        self.check(unseen, train, files["train"], test=other, output=tmp_path / "run")  # before it is trained
        options = {"validation": source, "output": tmp_path / "run"}
        self.check(r"new.csv, row 2: label 'star' was not seen in training", train, files["train"], **options)
        assert not (tmp_path / "run").exists()

    def test_not_a_run_folder(self, tmp_path):
        with pytest.raises(UserError, match="no such run folder"):
            open_run(tmp_path / "nothing")
        with pytest.raises(UserError, match=r"not a run folder \(no run.json"):
            open_run(tmp_path)
        (tmp_path / "run.json").write_text("{")
        with pytest.raises(UserError, match=r"run.json: cannot be read"):
            open_run(tmp_path)

    def test_top_of_nothing(self, run_folder, files):
        self.check("--top 0: .*give 1 or more", predict, open_run(run_folder), files["test"], io.StringIO(), top=0)

    def test_a_damaged_model(self, run_folder, files, tmp_path):
        shutil.copytree(run_folder, tmp_path / "run")
        (tmp_path / "run" / "model.safetensors").write_bytes(b"not weights")
        self.check("the model cannot be loaded", evaluate, open_run(tmp_path / "run"), files["test"])

    def test_a_damaged_configuration(self, run_folder, files, tmp_path):
        shutil.copytree(run_folder, tmp_path / "run")
        config = json.loads((run_folder / "config.json").read_text())
        (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "hidden_size": 16.5}))
        self.check("the model cannot be loaded", evaluate, open_run(tmp_path / "run"), files["test"])

    def test_a_training_that_diverges(self, files, tmp_path):
        self.check("the training diverged", train, files["train"], output=tmp_path / "run", learning_rate=1e30)

    def test_only_safetensors_are_loaded(self, run_folder, files, tmp_path):
        shutil.copytree(run_folder, tmp_path / "run")
        os.rename(tmp_path / "run" / "model.safetensors", tmp_path / "run" / "pytorch_model.bin")
        self.check("the model cannot be loaded", evaluate, open_run(tmp_path / "run"), files["test"])

    def test_existing_output_is_left_alone(self, run_folder, files, tmp_path):
        shutil.copytree(run_folder, tmp_path / "run")
        before = (tmp_path / "run" / "model.safetensors").read_bytes()
        self.check("holds a finished run.*--overwrite", train, files["train"], output=tmp_path / "run")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("x")
        self.check("not empty and not a run folder", train, files["train"], output=tmp_path / "mine", overwrite=True)
        self.check("is a file", train, files["train"], output=files["train"])
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == before

    def test_unknown_names_are_answered_with_the_known(self, files, tmp_path):
        self.check(
            "unknown mixer 'flash'; choose from .*bigbird", train, files["train"], output=tmp_path / "r", mixer="flash"
        )
        self.check("unknown preset 'x'; choose from default", train, files["train"], output=tmp_path / "r", preset="x")
        self.check("no tokenizer at ./x", train, files["train"], output=tmp_path / "r", tokenizer="./x")

    def test_a_full_disk_leaves_the_old_run(self, run_folder, files, tmp_path, monkeypatch):
        shutil.copytree(run_folder, tmp_path / "run")
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

        def full(*arguments, **options):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("fastformer.runs.saving.write_json", full)
        self.check("the disk is full", train, files["train"], output=tmp_path / "run", epochs=1, overwrite=True)
        after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
        assert after == before


def test_more_classes_than_the_channel_takes(tmp_path, capsys):
    rows = [
        (f"name{number} of thing{number} {word}", f"class{number}") for word in FILLER[:5] for number in range(1200)
    ]
    source = write_csv(tmp_path / "train.csv", rows)
    metrics = train(source, output=tmp_path / "run", epochs=1)
    said = " ".join(capsys.readouterr().err.split())
    assert "1,200 labels: the encoder answers alone" in said
    assert "--label-column?" not in said  # five texts per class are no mistake
    assert "ngrams" not in metrics
    assert metrics["rows"] == {"train": 5400, "validation": 600}
    found = evaluate(open_run(tmp_path / "run"), source, **quiet)
    assert found["rows"] == 6000
    assert found["accuracy"] > 10 / 1200  # far above a guess
    [line] = predictions(tmp_path / "run", write_csv(tmp_path / "one.csv", rows[:1]), top=3)
    assert len(line["probabilities"]) == 3
    assert metrics["peak_memory_gb"] < 4


def test_the_pipeline_is_measured_beside_fasttext(run_folder, files, tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "ROUNDS", 1)
    found = measured.pipeline(open_run(run_folder), str(files["test"]), tmp_path, threads=1, **quiet)
    assert found == json.loads((tmp_path / "pipeline.json").read_text())
    assert found["texts"] == 60
    taken = found["cpu_seconds_a_1000"]
    assert taken["predict"] > 0
    installed = find_spec("fasttext") is not None
    assert ("fasttext" in taken) == (found["fasttext"] is not None) == installed
