"""Conversion prediction: reading events, training, the verbs, and what a mistake says."""

import gzip
import io
import json
import signal
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import log_loss, roc_auc_score
from typer.testing import CliRunner

import fastformer.training
from fastformer.cli import app
from fastformer.errors import Interrupted, UserError
from fastformer.run_folder import open_run
from fastformer.tasks.conversion import embed, evaluate, predict, train
from fastformer.tasks.conversion.baselines import ad_rates, floor_scores
from fastformer.tasks.conversion.data import EventsWriter, Part, collect, hold_out
from fastformer.tasks.conversion.events import Columns, read_events
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.metrics import plot_reliability, reliability, scores
from fastformer.tasks.conversion.simulate import simulate, titles

from .conftest import write_jsonl
from .conversions import TINY, make_events

quiet = {"show_progress": False}
SIDE = Columns(("price",), ("device",))


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


def collected(rows, folder, max_behaviors=5, columns=SIDE):
    path = write_jsonl(folder / "rows.jsonl", rows)
    with EventsWriter(folder, columns, max_behaviors) as writer:
        collect(read_events(path, columns), writer, lambda _: None)
        return writer.finish()


class TestReading:
    def test_jsonl_gz_and_parquet_give_the_same_events(self, tmp_path):
        rows = make_events(20, 3)
        plain = list(read_events(write_jsonl(tmp_path / "rows.jsonl", rows), SIDE))
        with gzip.open(tmp_path / "rows.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        for name in ("rows.jsonl.gz", "rows.parquet"):
            assert repr(list(read_events(tmp_path / name, SIDE))) == repr(plain)  # repr: nan is not nan
        assert plain[0].ad == rows[0]["ad"]

    def test_distinct_texts_are_kept_once_and_only_the_latest_behaviours(self, tmp_path):
        rows = [
            {"behaviors": ["a", "b", "a", "c"], "ad": "b", "label": 1},
            {"behaviors": [], "ad": "a", "label": 0},
            {"behaviors": None, "ad": "d", "label": False},
        ]
        events = collected(rows, tmp_path, max_behaviors=2, columns=Columns())
        assert events.texts == ["a", "c", "b", "d"]
        assert [events.behaviors.row(row).tolist() for row in range(3)] == [[0, 1], [], []]
        assert events.ads.tolist() == [2, 0, 3]
        assert events.labels.tolist() == [1, 0, 0]

    def test_a_batch_has_each_text_once(self, tmp_path):
        from fastformer.data.ragged import Ragged

        rows = [{"behaviors": ["a", "b", "a"], "ad": "b", "label": 1}, {"behaviors": [], "ad": "c", "label": 0}]
        events = collected([*rows, {"behaviors": ["z"], "ad": "z", "label": 1}], tmp_path, columns=Columns())
        events.tokens = Ragged.from_lengths(np.arange(10, 18), np.array([1, 2, 0, 5]))  # of a, b, c, z
        events.inputs = {}
        batch = events.batch([0, 1], pad_token_id=0)
        assert batch["input_ids"].tolist() == [[10, 0], [11, 12], [0, 0]]
        assert batch["attention_mask"].tolist() == [[1, 0], [1, 1], [0, 0]]
        assert batch["behaviors"].tolist() == [[0, 1, 0], [0, 0, 0]]
        assert batch["behavior_mask"].tolist() == [[1, 1, 1], [0, 0, 0]]
        assert batch["ads"].tolist() == [1, 2]
        assert batch["labels"].tolist() == [1, 0]
        part = Part(events, np.array([0, 1]))
        assert part.lengths.tolist() == [4, 1]
        assert part.text_counts().tolist() == [2, 2, 1, 0]

    def test_the_last_tenth_by_time_validates(self, tmp_path):
        rows = [{"behaviors": [], "ad": "x", "label": 0, "time": -number} for number in range(20)]
        training, validating = hold_out(collected(rows, tmp_path, columns=Columns()), seed=0)
        assert validating.tolist() == [0, 1]
        assert training.tolist() == [*range(2, 20)]
        rows[5]["time"] = None
        _, at_random = hold_out(collected(rows, tmp_path, columns=Columns()), seed=0)
        assert len(at_random) == 2
        assert at_random.tolist() != [0, 1]

    def test_dates_are_times(self, tmp_path):
        rows = [{"behaviors": [], "ad": "x", "label": 0, "time": time} for time in ("2026-01-31", "2026-01-31T00:01")]
        first, second = read_events(write_jsonl(tmp_path / "rows.jsonl", rows), Columns())
        assert second.time - first.time == 60


class TestSideFeatures:
    def test_they_are_learned_from_training_rows(self, tmp_path):
        rows = [
            {"behaviors": [], "ad": "x", "label": 0, "price": price, "device": device}
            for price, device in ((1, "a"), (3, "a"), (None, "b"), (99, "a"))
        ]
        events = collected(rows, tmp_path)
        features = events.learn_features(SIDE, np.arange(3))
        assert features == SideFeatures({"price": (2.0, 1.0)}, {"device": ["a"]})  # b was seen once: unknown
        assert events.inputs["numeric"][:, 0].tolist() == [-1, 1, 0, 97]
        assert events.inputs["categories"][:, 0].tolist() == [1, 1, 0, 1]

    def test_events_one_by_one_get_the_same_numbers(self, tmp_path):
        rows = make_events(30, 5)
        events = collected(rows, tmp_path)
        features = events.learn_features(SIDE, np.arange(20))
        again = features.of_events(list(read_events(write_jsonl(tmp_path / "again.jsonl", rows), SIDE)))
        for name, values in events.inputs.items():
            np.testing.assert_array_equal(again[name].numpy(), values)


class TestScores:
    def test_against_scikit_learn_and_by_hand(self):
        random = np.random.default_rng(0)
        chances, labels = random.random(500), random.integers(2, size=500)
        found = scores(chances, labels)
        assert found["auc"] == pytest.approx(roc_auc_score(labels, chances))
        assert found["log_loss"] == pytest.approx(log_loss(labels, chances))
        # Two ranges: 0.1 is said where a half converts, 0.9 where all do.
        by_hand = scores(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1]))
        assert by_hand["calibration_error"] == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)

    def test_one_label_has_no_auc(self):
        assert set(scores(np.array([0.2, 0.4]), np.array([0, 0]))) == {"log_loss", "calibration_error"}

    def test_the_groups_of_the_plot(self, tmp_path):
        chances = np.linspace(0.001, 0.02, 1500)
        labels = (np.random.default_rng(0).random(1500) < chances).astype(int)
        groups = reliability(chances, labels)
        assert groups.shape == (15, 3)
        assert groups[:, 2].tolist() == [100] * 15
        assert groups[:, 1].mean() == pytest.approx(labels.mean())
        plot_reliability(chances, labels, tmp_path / "plot.png", "Rare")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_it_learns_who_likes_what(run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["auc"] > 0.75  # at best about 0.9
    assert metrics["rows"] == {"train": 360, "validation": 40, "test": 100}


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


def test_a_prediction_does_not_depend_on_its_company(run, tmp_path):
    rows = make_events(50, 1)
    for row in rows:
        del row["label"]  # predict reads none
    out, alone = io.StringIO(), io.StringIO()
    predict(open_run(run), write_jsonl(tmp_path / "all.jsonl", rows), out, **quiet)
    predict(open_run(run), write_jsonl(tmp_path / "one.jsonl", rows[17:18]), alone, **quiet)
    together = json.loads(out.getvalue().splitlines()[17])["probability"]
    assert json.loads(alone.getvalue())["probability"] == pytest.approx(together, abs=2e-6)


def test_the_same_seed_gives_the_same_model_and_resuming_changes_nothing(source, tmp_path, monkeypatch):
    options = {"preset": TINY, "epochs": 2, "categorical": ["device"], **quiet}
    train(source["train"], output=tmp_path / "whole", **options)
    watch, original = fastformer.training._Watch, fastformer.training._Watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 15:
            signal.raise_signal(signal.SIGINT)
        original(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(watch, "on_step_end", on_step_end)
        with pytest.raises(Interrupted, match="step 15 of 24"):
            train(source["train"], output=tmp_path / "parts", **options)
    with pytest.raises(UserError, match="user_mixer='fastformer', this command user_mixer='linear'"):
        train(source["train"], output=tmp_path / "parts", resume=True, user_mixer="linear", **options)
    with pytest.raises(UserError, match="the data has changed"):
        train(source["test"], output=tmp_path / "parts", resume=True, **options)
    train(source["train"], output=tmp_path / "parts", resume=True, **options)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_floors(tmp_path):
    rates = ad_rates(np.array([0, 0, 1, 0, 2]), np.array([1, 1, 0, 0, 0]), np.arange(3))
    prior = 10 * 2 / 3
    assert rates == pytest.approx([(2 + prior) / 12, (2 + prior) / 12, prior / 11, (2 + prior) / 12, prior / 10])
    events = collected(make_events(300, 0), tmp_path, columns=Columns())
    found = floor_scores(events, np.arange(200), np.arange(200, 300))
    assert set(found) == {"ad", "words"}
    assert 0.2 < found["words"]["auc"] < 0.75  # who likes what is in no single word


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
            ('{"behaviors": [], "ad": "x", "label": null}', "line 3: the label is None"),
            ('{"behaviors": [], "ad": ', "line 3: broken JSON"),
            ("[1, 2]", "line 3: a list, not a JSON object"),
            ('{"behaviors": [], "label": 1}', "line 3: no column 'ad'; columns found: behaviors, label"),
            ('{"behaviors": "x", "ad": "x", "label": 1}', "line 3: `behaviors` is of type str; give a list"),
            ('{"behaviors": [3], "ad": "x", "label": 1}', "line 3: `behaviors` is a list with something"),
            ('{"behaviors": [], "ad": 7, "label": 1}', "line 3: `ad` is a number"),
            ('{"behaviors": [], "ad": "x", "label": 1, "time": "noon"}', "line 3: the time is 'noon'"),
        ],
    )
    def test_in_a_line(self, tmp_path, line, message):
        good = '{"behaviors": ["a"], "ad": "x", "label": 1}\n'
        (tmp_path / "rows.jsonl").write_text(good * 2 + line + "\n")
        self.check(message, train, str(tmp_path / "rows.jsonl"), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_of_files(self, source, run, tmp_path):
        self.check("no such file", train, str(tmp_path / "none.jsonl"), output=tmp_path / "run")
        (tmp_path / "empty.jsonl").write_text("")
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
        self.check("no column 'device'", predict, open_run(run), self.without_device(tmp_path), io.StringIO())

    @staticmethod
    def without_device(folder):
        return write_jsonl(folder / "no-device.jsonl", [{"behaviors": [], "ad": "x", "price": 1}])

    def test_of_settings(self, source, tmp_path):
        rows = source["train"]
        self.check("unknown mixer 'x'", train, rows, user_mixer="x", output=tmp_path / "run")
        self.check("unknown preset 'x'", train, rows, preset="x", output=tmp_path / "run")
        self.check("'label' is no side feature", train, rows, numeric=["label"], output=tmp_path / "run")
        self.check("'a' is named twice", train, rows, numeric=["a"], categorical=["a"], output=tmp_path / "run")
        self.check("`device` is 'desktop', not a finite", train, rows, numeric=["device"], output=tmp_path / "run")
        ones = write_jsonl(tmp_path / "ones.jsonl", [{"behaviors": ["a b"], "ad": "a b", "label": 1}] * 5)
        self.check("all training rows have the label 1", train, ones, preset=TINY, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_on_the_command_line(self, run, tmp_path, capsys, monkeypatch):
        from fastformer.cli import main

        (tmp_path / "rows.jsonl").write_text('{"behaviors": [], "ad": "x", "label": 5, "price": 1, "device": "a"}\n')
        monkeypatch.setattr("sys.argv", ["fastformer", "evaluate", str(run), str(tmp_path / "rows.jsonl")])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert "line 1: the label is 5" in capsys.readouterr().err
