"""Interrupted and resumed equals uninterrupted."""

import json
import pickle
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

import fastformer.engine.training
from fastformer.errors import Interrupted, UserError
from fastformer.runs.checkpoints import last_complete_checkpoint
from fastformer.runs.claiming import unharmed
from fastformer.runs.folder import open_run
from fastformer.runs.resuming import begin, note_seconds, seconds_spent
from fastformer.surroundings.files import write_json
from fastformer.tasks import verbs
from fastformer.tasks.classification import encoding, stacking
from fastformer.version import __version__

train = partial(verbs.train, "classification")

quiet = {"show_progress": False, "epochs": 3}


@pytest.fixture
def stop_after(monkeypatch):
    """Send this process the signal of Ctrl-C after a number of steps."""

    def install(steps, folder="checkpoints"):
        watch = fastformer.engine.training._Watch
        original = watch.on_step_end

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == steps and self.folder.name == folder:
                signal.raise_signal(signal.SIGINT)
            original(self, args, state, control, **kwargs)

        monkeypatch.setattr(watch, "on_step_end", on_step_end)

    return install


@pytest.mark.parametrize("steps", [4, 7, 10])  # within the first epoch, at the end of one, within the second
def test_resumed_training_ends_with_the_same_weights(files, tmp_path, stop_after, steps, monkeypatch):
    train(files["train"], output=tmp_path / "whole", **quiet)
    with monkeypatch.context():
        stop_after(steps)
        with pytest.raises(Interrupted, match=f"step {steps} of 21"):
            train(files["train"], output=tmp_path / "parts", **quiet)
    monkeypatch.undo()
    checkpoints = tmp_path / "parts" / "checkpoints"
    assert last_complete_checkpoint(checkpoints).name == f"checkpoint-{steps}"
    assert 0 < seconds_spent(checkpoints) < 1000
    note_seconds(checkpoints, 1000)
    with pytest.raises(UserError, match="training has not finished.*--resume"):
        open_run(tmp_path / "parts")
    train(files["train"], output=tmp_path / "parts", resume=True, **quiet)

    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    scores = [json.loads((tmp_path / name / "metrics.json").read_text())["validation"] for name in ("whole", "parts")]
    assert scores[0] == scores[1]
    assert json.loads((tmp_path / "parts" / "metrics.json").read_text())["train_seconds"] > 1000  # both parts count
    assert not (tmp_path / "parts" / "checkpoints").exists()


def test_the_second_training_resumes_too(files, tmp_path, stop_after, monkeypatch):
    """If the encoder is used and the texts are few, it is trained once more, on the held-out texts too."""
    monkeypatch.setattr(stacking, "SURE", -1e9)
    monkeypatch.setattr(stacking, "WORTH", -1e9)
    train(files["train"], output=tmp_path / "whole", **quiet)
    heard = json.loads((tmp_path / "whole" / "metrics.json").read_text())["ngrams"]
    assert heard["weights"]["encoder"] > 0
    stop_after(3, folder="again")
    with pytest.raises(Interrupted, match="step 3 of"):
        train(files["train"], output=tmp_path / "parts", **quiet)
    monkeypatch.undo()
    monkeypatch.setattr(stacking, "SURE", -1e9)
    monkeypatch.setattr(stacking, "WORTH", -1e9)
    train(files["train"], output=tmp_path / "parts", resume=True, **quiet)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_only_a_person_who_asks_twice_loses_the_checkpoint(tmp_path):
    """Whatever stops a process may send more than one signal: Ctrl-C first, then the end of its parent."""
    with fastformer.engine.training._Watch(False, tmp_path, time.monotonic(), None):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_is_not_started_over_by_accident(files, tmp_path, stop_after):
    stop_after(4)
    with pytest.raises(Interrupted):
        train(files["train"], output=tmp_path / "run", **quiet)
    with pytest.raises(UserError, match="interrupted run; --resume continues"):
        train(files["train"], output=tmp_path / "run", **quiet)


def test_resuming_with_other_settings_or_data_is_refused(files, tmp_path, stop_after):
    stop_after(4)
    with pytest.raises(Interrupted):
        train(files["train"], output=tmp_path / "run", **quiet)
    with pytest.raises(UserError, match=r"learning_rate=.*use the same settings"):
        train(files["train"], output=tmp_path / "run", resume=True, learning_rate=0.5, **quiet)
    with pytest.raises(UserError, match="mixer='fastformer', this command mixer='linear'"):
        train(files["train"], output=tmp_path / "run", resume=True, mixer="linear", **quiet)
    with pytest.raises(UserError, match="the data has changed"):
        train(files["test"], output=tmp_path / "run", resume=True, **quiet)


def test_a_half_written_checkpoint_is_passed_over(tmp_path):
    for step, state in (
        (5, '{"best_model_checkpoint": null}'),
        (10, '{"best_model_checkpoint": "x"}'),
        (15, ""),
        (20, None),
    ):
        folder = tmp_path / "steps" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / name).write_text("something")
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-10"
    (tmp_path / "steps" / "checkpoint-10" / "optimizer.pt").unlink()
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-5"
    (tmp_path / "steps" / "checkpoint-5" / "rng_state.pth").write_bytes(b"")
    assert last_complete_checkpoint(tmp_path) is None


class Evil:
    def __reduce__(self):
        return print, ("code of a checkpoint ran",)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "pickled"])
@pytest.mark.parametrize("part", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors"])
def test_a_checkpoint_without_one_of_its_parts_is_not_used_and_that_is_said(tmp_path, capsys, part, damage):
    checkpoint = tmp_path / "steps" / "checkpoint-7"
    checkpoint.mkdir(parents=True)
    write_json(checkpoint / "trainer_state.json", {"best_model_checkpoint": None})
    save_file({"a": torch.ones(3)}, checkpoint / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"a": torch.ones(3)}, checkpoint / name)
    settings = {"task": "toy", "training": {}}
    write_json(tmp_path / "settings.json", {"fastformer": __version__, **settings})
    assert begin(tmp_path, settings, resume=True)
    path = checkpoint / part
    match damage:
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(path.read_bytes()[:-30])
        case "pickled":
            path.write_bytes(pickle.dumps(Evil()))
    capsys.readouterr()
    assert not begin(tmp_path, settings, resume=True)
    said = capsys.readouterr()
    assert f"{part} is missing or damaged" in " ".join(said.err.split())
    assert "no checkpoint to resume from" in " ".join(said.err.split())
    assert "code of a checkpoint ran" not in said.out


def test_ctrl_c_on_the_command_line(files, tmp_path):
    command = [sys.executable, "-m", "fastformer", "train", "classification", "--train", files["train"]]
    command += ["--output", str(tmp_path / "run"), "--epochs", "400"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("run/checkpoints/steps/checkpoint-*/trainer_state.json")):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert "Traceback" not in errors


def test_a_run_that_was_moved_ends_with_its_best_epoch(files, tmp_path, stop_after, monkeypatch):
    """A checkpoint knows the best one by its path."""
    scores = iter([0.9, 0.5, 0.4])

    def falling(*args):
        return {"accuracy": 0.0, "negative_log_loss": next(scores), "accuracy_and_macro_f": 0.0}

    monkeypatch.setattr(encoding, "validation_scores", falling)
    with monkeypatch.context():
        stop_after(21)
        with pytest.raises(Interrupted):
            train(files["train"], output=tmp_path / "here", **quiet)
    best = load_file(tmp_path / "here" / "checkpoints" / "steps" / "checkpoint-7" / "model.safetensors")
    monkeypatch.undo()
    (tmp_path / "here").rename(tmp_path / "there")
    train(files["train"], output=tmp_path / "there", resume=True, **quiet)
    found = load_file(tmp_path / "there" / "model.safetensors")
    name = "fastformer.embeddings.word_embeddings.weight"
    assert torch.equal(found[name], best[name].to(found[name].dtype))  # large tables are kept in half precision


def test_two_trainings_never_share_a_folder(files, tmp_path, monkeypatch):
    with unharmed(tmp_path / "run"), pytest.raises(UserError, match="run: another command is writing there"):
        train(files["train"], output=tmp_path / "run", **quiet)
    save = verbs.save_run

    def save_run(folder, *rest, **named):
        with pytest.raises(UserError, match="run: another command is writing there"), unharmed(folder):
            pass
        save(folder, *rest, **named)

    monkeypatch.setattr(verbs, "save_run", save_run)  # until the very end
    train(files["train"], output=tmp_path / "run", **{**quiet, "epochs": 1})  # free again
    for name in ("course.png", "notes.txt"):
        (tmp_path / "run" / name).touch()
    record = open_run(tmp_path / "run").record
    write_json(tmp_path / "run" / "run.json", {**record, "files": [*record["files"], "course.png", "../outside"]})
    (tmp_path / "outside").touch()
    train(files["train"], output=tmp_path / "run", **{**quiet, "epochs": 1}, overwrite=True)
    assert (tmp_path / "run" / "notes.txt").exists()  # not ours
    assert not (tmp_path / "run" / "course.png").exists()  # of the run that was there, as it told
    assert (tmp_path / "outside").exists()


def test_a_lost_checkpoint_of_the_best_epoch_is_told(files, tmp_path, monkeypatch):
    save = fastformer.engine.training._Watch.on_save

    def lose(self, args, state, control, **kwargs):
        save(self, args, state, control, **kwargs)
        if state.global_step == 21:
            shutil.rmtree(self.folder / "steps")

    monkeypatch.setattr(fastformer.engine.training._Watch, "on_save", lose)
    with pytest.raises(UserError, match="the checkpoint of the best epoch was deleted"):
        train(files["train"], output=tmp_path / "run", **quiet)
