"""Conversion prediction: training, the verbs, the simulation, and what a mistake says."""

import io
import json
import signal
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import fastformer
import fastformer.engine.training
from fastformer.cli.app import app
from fastformer.data import left_out
from fastformer.errors import Interrupted, UserError
from fastformer.modeling import FastformerForConversion
from fastformer.runs.folder import open_run
from fastformer.tasks import verbs
from fastformer.tasks.classification import calibration
from fastformer.tasks.conversion import task as conversion
from fastformer.tasks.conversion.events import EventSource
from fastformer.tasks.conversion.metrics import validation_scores
from fastformer.tasks.conversion.simulate import simulate, titles
from fastformer.tasks.verbs import embed, evaluate, predict

from .conftest import write_jsonl
from .conversions import TINY, make_events

train = partial(verbs.train, "conversion")
quiet = {"show_progress": False}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    return {
        "train": write_jsonl(folder / "train.jsonl", make_events(400, 0)),
        "test": write_jsonl(folder / "test.jsonl", make_events(100, 1)),
    }


@pytest.fixture(scope="module")
def run(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "ads"
    options = {"preset": TINY, "numeric": ["price"], "categorical": ["device"]}
    train(source["train"], test=source["test"], output=folder, **options, **quiet)
    return folder


def test_it_learns_who_likes_what(run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["auc"] > 0.75  # at best about 0.9
    assert metrics["rows"] == {"train": 360, "validation": 40, "test": 100}
    assert metrics["held_out_by"] == "time"
    assert "the last of the training data by time" in (run / "README.md").read_text()


def test_a_run_folder_says_what_it_is(run):
    record = json.loads((run / "run.json").read_text())
    assert record["task"] == "conversion"
    assert record["features"]["categorical"] == {"device": ["desktop", "phone"]}
    assert json.loads((run / "config.json").read_text())["architectures"] == ["FastformerForConversion"]
    assert "BehaviorStore.open" in (run / "README.md").read_text()
    assert not (run / "checkpoints").exists()
    assert not list(run.glob("*.bin"))


def test_evaluate_predict_and_embed_agree(run, source, tmp_path):
    opened, out = open_run(run), io.StringIO()
    found = evaluate(opened, source["test"], plot=tmp_path / "plot.png", **quiet)
    assert (tmp_path / "plot.png").is_file()
    assert found["rows"] == predict(opened, source["test"], out, **quiet) == 100
    chances = np.array([json.loads(line)["probability"] for line in out.getvalue().splitlines()])
    labels = np.array([row["label"] for row in make_events(100, 1)])
    assert roc_auc_score(labels, chances) == pytest.approx(found["auc"], abs=1e-3)
    assert found["auc"] == pytest.approx(opened.load_metrics()["test"]["auc"], abs=1e-6)
    assert embed(opened, source["test"], tmp_path / "users.npy", **quiet) == (100, 16)
    assert np.load(tmp_path / "users.npy").std() > 0


def test_what_was_interrupted_is_not_resumed_with_other_settings_or_data(source, tmp_path, monkeypatch):
    options = {"preset": TINY, "epochs": 2, "categorical": ["device"], **quiet}
    watch, original = fastformer.engine.training._Watch, fastformer.engine.training._Watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 15:
            signal.raise_signal(signal.SIGINT)
        original(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(watch, "on_step_end", on_step_end)
        with pytest.raises(Interrupted, match="step 15 of 24"):
            train(source["train"], output=tmp_path / "run", **options)
    with pytest.raises(UserError, match="user_mixer='fastformer', this command user_mixer='linear'"):
        train(source["train"], output=tmp_path / "run", resume=True, user_mixer="linear", **options)
    with pytest.raises(UserError, match="the data has changed"):
        train(source["test"], output=tmp_path / "run", resume=True, **options)


def test_validation_scores_are_not_of_the_rows_that_gave_the_temperature(source, tmp_path, monkeypatch):
    """Each half of the validation rows is scored with the temperature of the other half."""
    seen = []

    def heat(space, logits, labels, weights=None):
        seen.append((logits, labels))
        return 1.0 + len(seen)  # all rows 2; the rows 1, 3, … 3; the rows 0, 2, … 4

    monkeypatch.setattr(conversion, "temperature", heat)
    monkeypatch.setattr(calibration, "temperature", heat)
    train(source["train"], output=tmp_path / "run", preset=TINY, epochs=1, **quiet)
    (logits, labels), (odd, _), (even, _) = seen
    np.testing.assert_array_equal(logits[1::2], odd)
    np.testing.assert_array_equal(logits[::2], even)
    expected = np.where(np.arange(len(logits)) % 2, logits[:, 0] / 4, logits[:, 0] / 3)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    found = validation_scores(expected, labels[:, 0])
    assert metrics["validation"] == {name: pytest.approx(found[name]) for name in conversion.SCORES}


def test_as_a_python_object(tmp_path):
    rows = make_events(200, 0)
    made = fastformer.ConversionPredictor(epochs=2, model=TINY.model, numeric=["price"], categorical="device").fit(rows)
    answers = made.predict(rows[:5])
    assert all(0 < answer["probability"] < 1 for answer in answers)
    assert made.predict([]) == []
    assert made.embed(rows[:5]).shape == (5, 16)
    assert set(made.evaluate(rows)) == {"rows", "auc", "log_loss", "calibration_error"}
    made.save(tmp_path / "run")
    assert fastformer.ConversionPredictor.load(tmp_path / "run").predict(rows[:5]) == answers
    with pytest.raises(UserError, match="example 2: no column 'ad'; columns found: behaviors"):
        made.predict([rows[0], {"behaviors": []}])
    with pytest.raises(UserError, match="is not trained yet"):
        fastformer.ConversionPredictor().predict(rows)


def test_no_batch_of_an_evaluation_is_larger_than_one_of_training(source, tmp_path, monkeypatch):
    sizes, forward = {True: set(), False: set()}, FastformerForConversion.forward

    def counted(self, *args, ads, **kwargs):
        sizes[self.training].add(len(ads))
        return forward(self, *args, ads=ads, **kwargs)

    monkeypatch.setattr(FastformerForConversion, "forward", counted)
    train(source["train"], source["test"], output=tmp_path / "run", preset=TINY, epochs=1, batch_size=16, **quiet)
    assert max(sizes[False]) <= max(sizes[True]) == 16
    assert open_run(tmp_path / "run").load_metrics()["held_out_by"] is None


def test_words_start_from_glove(source, run, tmp_path):
    words = ["bought", "cat", "dog", "bread", "soup", "sale"]
    lines = [f"{word} {' '.join([str(number)] * 16)}" for number, word in enumerate(words, 1)]
    (tmp_path / "glove.txt").write_text("\n".join(lines))
    options = {"init": str(tmp_path / "glove.txt"), "epochs": 1, "learning_rate": 1e-9, **quiet}
    found = {}
    for name, preset in (("fitted", TINY), ("as-is", replace(TINY, adapt_init=False))):
        train(source["train"], output=tmp_path / name, preset=preset, **options)
        opened = open_run(tmp_path / name)
        assert opened.record["init"] == options["init"]
        table = opened.load_model(FastformerForConversion).get_input_embeddings().weight.detach()
        found[name] = table[[opened.load_tokenizer().get_vocab()[word] for word in words]]
    torch.testing.assert_close(found["as-is"], torch.arange(1.0, 7)[:, None].expand(6, 16))
    size = found["fitted"].abs().mean(dim=1)
    assert size.max() < 5 * TINY.model["initializer_range"]
    assert size[0] < size[1]  # "bought" is in every list and says little; by itself it is further off the mean
    with pytest.raises(UserError, match="is a run; .* give --init a GloVe file"):
        train(source["train"], output=tmp_path / "other", init=str(run), **quiet)


class TestSimulation:
    def test_the_same_seed_gives_the_same_events(self):
        assert list(simulate(20, seed=3)) == list(simulate(20, seed=3))
        assert list(simulate(20, seed=3)) != list(simulate(20, seed=4))

    def test_lists_are_as_long_as_wanted(self):
        for length in (50, 500):
            assert {len(event["behaviors"]) for event in simulate(4, behaviors=length, shortest=length)} == {length}

    def test_labels_follow_what_users_like(self):
        events = list(simulate(2000))
        assert roc_auc_score([e["label"] for e in events], [e["chance"] for e in events]) > 0.75
        assert 0.2 < np.mean([event["label"] for event in events]) < 0.8

    def test_most_of_a_history_is_from_one_library(self):
        library_of = {line: library for library, lines in titles().items() for line in lines}
        for event in simulate(5, behaviors=400, shortest=400):
            counts = Counter(library_of[text] for text in event["behaviors"])
            assert counts.most_common(1)[0][1] > 300

    def test_every_verb_works_on_it(self, tmp_path):
        call, folder = CliRunner().invoke, str(tmp_path / "run")
        command = ["train", "conversion", "--train", "builtin", "--numeric", "price", "--categorical", "device"]
        command += ["--epochs", "1", "--max-behaviors", "3", "--max-length", "8", "--batch-size", "256"]
        command += ["--output", folder, "--json"]
        trained = call(app, command)
        assert trained.exit_code == 0, trained.output
        assert json.loads(trained.stdout)["rows"] == {"train": 1800, "validation": 200}
        plot = str(tmp_path / "plot.png")
        evaluated = call(app, ["evaluate", folder, "builtin:test", "--json", "--plot", plot])
        assert json.loads(evaluated.stdout)["rows"] == 500
        predicted = call(app, ["predict", folder, "builtin:validation"])
        assert len(predicted.stdout.strip().splitlines()) == 300
        table = str(tmp_path / "answers.parquet")
        assert call(app, ["predict", folder, "builtin:test", "--keep", "user,label", "--output", table]).exit_code == 0
        answers = pq.read_table(table)
        assert answers.column_names == ["user", "label", "probability"]
        assert len(answers) == 500
        event = json.dumps({"behaviors": ["Draw a graph."], "ad": "A tensor.", "price": 3, "device": "watch"})
        [line] = call(app, ["predict", folder, "-"], input=event + "\n").stdout.strip().splitlines()
        assert 0 < json.loads(line)["probability"] < 1


class TestMistakes:
    def check(self, match, call, *arguments, **options):
        with pytest.raises(UserError, match=match) as caught:
            call(*arguments, **options, **quiet)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"behaviors": [], "ad": "x", "label": 2}', "line 3: the label is 2; a label is 0 or 1"),
            ('{"behaviors": [], "ad": "x", "label": "yes"}', "line 3: the label is 'yes'"),
            ('{"behaviors": [], "ad": ', "line 3: broken JSON"),
            ("[1, 2]", "line 3: a list, not a JSON object"),
            ('{"behaviors": [], "label": 1}', "line 3: no column 'ad'; columns found: behaviors, label"),
            ('{"behaviors": "x", "ad": "x", "label": 1}', "line 3: `behaviors` is of type str; give a list"),
            ('{"behaviors": [3], "ad": "x", "label": 1}', "line 3: `behaviors` is a list with something"),
            ('{"behaviors": [], "ad": 7, "label": 1}', "line 3: `ad` is a number"),
            ('{"behaviors": [], "ad": "x", "label": 1, "time": "noon"}', "line 3: the time is 'noon'"),
            ('{"behaviors": [], "ad": "x", "label": 1, "time": Infinity}', "line 3: the time is inf; give a number"),
            ('{"behaviors": [], "ad": "x", "label": 1, "time": 1%s}' % ("0" * 400), "line 3: the time is 10000"),
            ('{"behaviors": [], "ad": "x", "label": 1, "time": "0001-01-01"}', "line 3: the time is datetime"),
        ],
    )
    def test_in_a_line(self, tmp_path, line, message):
        good = '{"behaviors": ["a"], "ad": "x", "label": 1}\n'
        (tmp_path / "rows.jsonl").write_text(good * 2 + line + "\n")
        self.check(message, train, str(tmp_path / "rows.jsonl"), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            (
                '"price": 1%s' % ("0" * 400),
                "`price` is 10000.*, not a finite number; correct it, or make it --categorical",
            ),
            ('"price": -Infinity', "`price` is -inf, not a finite number"),
            (r'"device": "a\ud83d"', r"`device`: the category 'a.ud83d' holds half a character"),
            ('"device": Infinity', "`device`: the category is Infinity"),
        ],
    )
    def test_in_a_side_feature(self, tmp_path, field, message):
        good = '{"behaviors": ["a"], "ad": "x", "label": 1, "price": 1, "device": "phone"}\n'
        other = good.replace("}", f", {field}}}")
        (tmp_path / "rows.jsonl").write_text(good * 2 + other)
        options = {"numeric": ["price"], "categorical": ["device"], "output": tmp_path / "run"}
        self.check(f"line 3: {message}", train, str(tmp_path / "rows.jsonl"), **options)

    def test_of_missing_ads_and_labels(self, tmp_path, capsys):
        left_out.say_once.cache_clear()
        rows = [{"behaviors": [], "ad": "x", "label": 1}, {"behaviors": [], "ad": None, "label": 1}]
        source = write_jsonl(tmp_path / "rows.jsonl", [*rows, {"behaviors": [], "ad": "y", "label": float("nan")}])
        assert [event.ad for event in EventSource(source)] == ["x"]
        said = f"{source}: 2 of 3 rows left out (1 without an ad, 1 without a label).\n"
        assert capsys.readouterr().err == said
        assert [event.ad for event in EventSource(source, labelled=False)] == ["x", "", "y"]
        self.check("line 2: the ad is missing; fill it in", train, source, output=tmp_path / "run", strict=True)

    def test_of_files(self, source, run, tmp_path):
        self.check("no such file", train, str(tmp_path / "none.jsonl"), output=tmp_path / "run")
        (tmp_path / "empty.jsonl").write_text("")
        self.check("no rows", train, [], output=tmp_path / "run")
        self.check("no rows", train, str(tmp_path / "empty.jsonl"), output=tmp_path / "run")
        (tmp_path / "rows.csv").write_text("behaviors,ad,label\n")
        self.check("convert the file", train, str(tmp_path / "rows.csv"), output=tmp_path / "run")
        self.check("no column 'prize'; columns found: .*price", train, source["train"], numeric=["prize"], output="run")
        self.check("standard input", train, "-", output=tmp_path / "run")
        (tmp_path / "rows.parquet").write_text("no parquet")
        self.check("not a readable Parquet", train, str(tmp_path / "rows.parquet"), output=tmp_path / "run")
        row = {"behaviors": [], "ad": "x", "price": 1, "device": "phone"}
        unlabelled = write_jsonl(tmp_path / "unlabelled.jsonl", [row])
        self.check("no column 'label'", evaluate, open_run(run), unlabelled)
        self.check("has fixed columns", evaluate, open_run(run), source["test"], text_column="ad")
        self.check("drop --format", predict, open_run(run), "-", io.StringIO(), format="csv")
        self.check("no column 'device'", predict, open_run(run), self.without_device(tmp_path), io.StringIO())

    @staticmethod
    def without_device(folder):
        return write_jsonl(folder / "no-device.jsonl", [{"behaviors": [], "ad": "x", "price": 1}])

    def test_of_settings(self, source, tmp_path):
        rows = source["train"]
        self.check("unknown mixer 'x'", train, rows, user_mixer="x", output=tmp_path / "run")
        self.check("unknown preset 'x'", train, rows, preset="x", output=tmp_path / "run")
        self.check("'label' is not a side feature", train, rows, numeric=["label"], output=tmp_path / "run")
        self.check("'a' is named twice", train, rows, numeric=["a"], categorical=["a"], output=tmp_path / "run")
        self.check("`device` is 'desktop', not a finite", train, rows, numeric=["device"], output=tmp_path / "run")
        ones = write_jsonl(tmp_path / "ones.jsonl", [{"behaviors": ["a b"], "ad": "a b", "label": 1}] * 5)
        self.check("all training rows have the label 1", train, ones, preset=TINY, output=tmp_path / "run")
        self.check("lower --learning-rate", train, rows, preset=TINY, learning_rate=1e30, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()
