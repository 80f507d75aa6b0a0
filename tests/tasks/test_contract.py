"""What holds for every task, those that come with the package and a sixth that only these tests know."""

import csv
import io
import json
import pickle
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from typer.testing import CliRunner

import fastformer.engine.training
from fastformer.cli.train import train_command
from fastformer.engine.fit import Workspace, fit
from fastformer.errors import Interrupted, UserError
from fastformer.runs.folder import open_run
from fastformer.scale.scoring import score_files
from fastformer.tasks.base import Predictor, declared, get_declaration, get_task, register
from fastformer.tasks.verbs import embed, evaluate, load, predict, train

from .samples import SAMPLES
from .toy import LOUDNESS

register(LOUDNESS)
quiet = {"show_progress": False}


@pytest.fixture(scope="module", params=list(SAMPLES))
def task(request):
    return request.param


@pytest.fixture(scope="module")
def sample(task, tmp_path_factory):
    return SAMPLES[task](tmp_path_factory.mktemp(task))


@pytest.fixture(scope="module")
def run(task, sample, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / task
    train(task, sample.train, test=sample.test, output=folder, **sample.options, **quiet)
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def close(one, other):
    """Equal, but for the last digits of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, abs=2e-5) if isinstance(one, float) else one == other


def test_every_task_has_a_sample():
    assert set(SAMPLES) == set(declared())


def test_a_run_says_what_it_is(task, run, sample):
    record = open_run(run).record
    assert record["task"] == task
    assert record["preset"] == "default"
    assert record["data"]["train"] in (sample.train, [sample.train])
    assert record["settings"]["training"]["epochs"] == sample.options.get("epochs")
    metrics = json.loads((run / "metrics.json").read_text())
    assert len(metrics["epochs"]) == sample.options["epochs"]
    assert set(metrics) >= {"train_seconds", "rows", "parameters", "validation"}
    assert ("test" in metrics) == (sample.test is not None)
    card = (run / "README.md").read_text()
    assert card.startswith("---\n")
    assert "library_name: fastformer" in card
    assert f"`fastformer train {task}`" in card
    body = card.split("---\n", 2)[2].split("\n\n")
    assert "`import fastformer` first" in body[1]  # right below the title
    tags = ModelCard(card).data.tags
    assert len(tags) == len(set(tags))


def test_the_same_seed_gives_the_same_weights(task, sample, run, tmp_path):
    train(task, sample.train, output=tmp_path / "again", **sample.options, **quiet)
    assert same_weights(run, tmp_path / "again")
    train(task, sample.train, output=tmp_path / "other", seed=1, **sample.options, **quiet)
    assert not same_weights(run, tmp_path / "other")


def test_stopped_and_resumed_equals_uninterrupted(task, sample, run, tmp_path, monkeypatch):
    watch, stopped = fastformer.engine.training._Watch, []
    original = watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2 and not stopped:
            stopped.append(signal.raise_signal(signal.SIGINT))
        original(self, args, state, control, **kwargs)

    monkeypatch.setattr(watch, "on_step_end", on_step_end)
    with pytest.raises(Interrupted, match="--resume"):
        train(task, sample.train, output=tmp_path / "run", **sample.options, **quiet)
    with pytest.raises(UserError, match="interrupted run has epochs"):
        changed = {**sample.options, "epochs": sample.options["epochs"] + 1}
        train(task, sample.train, output=tmp_path / "run", resume=True, **changed, **quiet)
    train(task, sample.train, output=tmp_path / "run", resume=True, **sample.options, **quiet)
    assert same_weights(run, tmp_path / "run")


def test_documents_are_answered_with_their_names(task, run, sample, tmp_path):
    texts = [example for example in sample.examples if isinstance(example, str)] or ["the cat and the soup", "a saw"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    if not get_declaration(task).reads_texts:
        with pytest.raises(UserError, match=f"an example of {task} is more than a text"):
            predict(run, document=tmp_path, **quiet)
        return
    out = io.StringIO()
    predict(run, output=out, document=tmp_path, **quiet)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [one.pop("file") for one in found] == [f"{number}.txt" for number in range(len(texts))]
    assert close(found, list(load(run).predict(texts)))


def test_company_changes_no_answer(run, sample):
    predictor = load(run)
    together = list(predictor.predict(sample.examples))
    assert len(together) == len(sample.examples)
    alone = [next(iter(predictor.predict([example]))) for example in sample.examples]
    assert close(alone, together)


def test_saved_and_loaded_answers_the_same(task, sample, run, tmp_path):
    made = get_task(task)
    settings = made.settings(**sample.options)
    data = {"train": made.read(Path(sample.train), "train", settings)}
    trained = fit(made, data, settings, Workspace(tmp_path / "work", show=False))
    fresh = list(made.predictor(trained).predict(sample.examples))
    assert fresh == list(load(run).predict(sample.examples))


def test_the_verbs_write_what_the_predictor_says(run, sample, tmp_path):
    source = sample.test or sample.train
    count = predict(run, source, tmp_path / "answers.txt", **quiet)
    assert len((tmp_path / "answers.txt").read_text().splitlines()) == count > 0
    assert evaluate(run, source, **quiet)
    if type(load(run)).vectors is Predictor.vectors:
        with pytest.raises(UserError, match="has no vectors"):
            embed(run, source, tmp_path / "vectors.npy", **quiet)
        return
    rows, width = embed(run, source, tmp_path / "vectors.npy", **quiet)
    assert np.load(tmp_path / "vectors.npy").shape == (rows, width)


def test_answers_carry_fields_of_the_input_along(run, sample, tmp_path):
    source, path = sample.test or sample.train, tmp_path / "answers.csv"

    def table(**options):
        assert predict(run, source, path, **options, **quiet) == count
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    count = predict(run, source, tmp_path / "answers.jsonl", **quiet)
    plain, kept = table(), table(keep=sample.fields)
    assert len(plain) == len(kept) == count
    names = [f"input_{name}" if name in plain[0] else name for name in sample.fields]
    assert list(kept[0]) == [*names, *plain[0]]
    assert [{name: row[name] for name in plain[0]} for row in kept] == plain
    assert predict(run, source, tmp_path / "answers.parquet", keep_all=True, **quiet) == count
    assert set(pq.read_table(tmp_path / "answers.parquet").column_names) >= set(kept[0])
    with pytest.raises(UserError, match="no column 'nowhere'"):
        predict(run, source, path, keep=["nowhere"], **quiet)
    with pytest.raises(UserError, match="end it in one of"):
        predict(run, source, tmp_path / "answers.doc", **quiet)


def test_many_files_have_the_answers_of_one(run, sample, tmp_path):
    source = Path(sample.test or sample.train)
    if source.is_dir():
        pytest.skip("its data is a folder, not a file")
    (tmp_path / "in").mkdir()
    for number in range(2):
        shutil.copy(source, tmp_path / "in" / f"{number}{source.suffix}")
    found = score_files("predict", run, tmp_path / "in", tmp_path / "out", workers=1, keep_all=True, **quiet)
    alone = tmp_path / f"alone{'.csv' if source.suffix == '.csv' else '.jsonl'}"
    assert found.rows == 2 * predict(run, str(source), alone, keep_all=True, **quiet)
    for number in range(2):
        assert (tmp_path / "out" / f"{number}{alone.suffix}").read_bytes() == alone.read_bytes()


def test_a_loaded_run_is_pickled_as_its_path(run, sample):
    sent = pickle.dumps(load(run))
    assert len(sent) < 1000
    assert list(pickle.loads(sent).predict(sample.examples)) == list(load(run).predict(sample.examples))


def test_a_mistake_is_one_line_and_leaves_nothing(task, sample, tmp_path):
    for source, said in sample.refused.items():
        with pytest.raises(UserError, match=said) as caught:
            train(task, source, output=tmp_path / "run", **sample.options, **quiet)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="give files, not standard input"):
        train(task, "-", output=tmp_path / "run", **quiet)
    with pytest.raises(UserError, match="unknown preset 'defualt'; did you mean 'default'?"):
        train(task, sample.train, output=tmp_path / "run", preset="defualt", **quiet)
    with pytest.raises(UserError, match="unknown setting 'epoch'; did you mean 'epochs'?"):
        train(task, sample.train, output=tmp_path / "run", epoch=3, **quiet)
    assert not (tmp_path / "run").exists()


def test_ctrl_c_while_the_test_file_is_scored_loses_nothing(task, sample, run, tmp_path, monkeypatch):
    if sample.test is None:
        pytest.skip(f"{task} has no test data")
    kind = type(load(run))

    def interrupted(self, examples, options=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(kind, "evaluate", interrupted)
        with pytest.raises(Interrupted, match="the model is in .* scores it"):
            train(task, sample.train, test=sample.test, output=tmp_path / "run", **sample.options, **quiet)
    assert same_weights(run, tmp_path / "run")
    assert evaluate(tmp_path / "run", sample.test, **quiet)


def test_the_command_line_is_made_from_the_settings(task, sample, tmp_path):
    import typer

    app = typer.Typer()
    app.command(task)(train_command(declared()[task]))
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    for option in ("--train", "--output", "--epochs", "--learning-rate", "--seed", "--resume", "--preset"):
        assert option in shown.output
    given = [f"--{name.replace('_', '-')}={value}" for name, value in sample.options.items()]
    done = CliRunner().invoke(app, ["--train", sample.train, "--output", str(tmp_path / "run"), *given])
    assert done.exit_code == 0, done.output
    assert f"The model is in {tmp_path / 'run'}." in done.output
