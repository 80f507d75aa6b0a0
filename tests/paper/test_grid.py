"""A grid of runs: each made once, in its own process, and nothing lost by whatever ends one."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fastformer.errors import Interrupted, UserError
from fastformer.paper import grid
from fastformer.paper.comparison import _job
from fastformer.paper.datasets import parse_data, prepare
from fastformer.paper.grid import Job, run_grid, train_or_go_on
from fastformer.paper.recipes import load_recipe, load_scale
from fastformer.runs.resuming import OtherRun
from fastformer.surroundings.files import write_json

from .toy import train


@pytest.fixture
def jobs(tmp_path) -> list[Job]:
    inputs = {"log": str(tmp_path / "log")}
    return [Job(f"toys/train-seed{seed}", {"seed": seed, "width": 8}, inputs) for seed in range(3)]


@pytest.fixture
def log(tmp_path):
    def lines() -> list[str]:
        path = tmp_path / "log"
        return path.read_text().splitlines() if path.exists() else []

    return lines


def run(jobs, tmp_path, **options):
    return run_grid(jobs, tmp_path / "out", train, str, show_progress=False, **options)


def test_every_run_is_made_once(jobs, tmp_path, log):
    first = run(jobs[:2], tmp_path)
    assert [one["metrics"]["score"] for one in first] == [0.5, 1.5]
    second = run([*jobs, jobs[0]], tmp_path)
    assert second[:2] == first
    assert second[3] == first[0]
    assert log() == [job.name for job in jobs]


def test_what_another_command_makes_meanwhile_is_not_made_again(jobs, tmp_path, log):
    def describe(metrics):
        run(jobs[1:2], tmp_path)  # after the first run of the three
        return ""

    run_grid(jobs, tmp_path / "out", train, describe)
    assert log() == [job.name for job in jobs]


def test_a_run_has_a_process_of_its_own_and_leaves_one_file(jobs, tmp_path):
    results = run(jobs[:2], tmp_path)
    assert len({os.getpid(), *(one["metrics"]["process"] for one in results)}) == 3
    files = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert [json.loads(file.read_text())["seed"] for file in files] == [0, 1]


def test_models_are_kept_on_demand(jobs, tmp_path):
    run(jobs[:1], tmp_path, keep_models=True)
    assert jobs[0].file(tmp_path / "out").with_suffix("").joinpath("model.safetensors").is_file()


def test_changed_settings_are_another_run(jobs, tmp_path, log):
    run(jobs, tmp_path)
    wider = replace(jobs[1], settings={**jobs[1].settings, "width": 16})
    results = run([jobs[0], wider, jobs[2]], tmp_path)
    assert [one["width"] for one in results] == [8, 16, 8]
    assert len(log()) == 4


@pytest.mark.parametrize(
    ("end", "error", "message"),
    [
        ("stopped", Interrupted, r"run 2 of 3 \(toys/train-seed1\); the same command goes on"),
        ("killed", UserError, "toys/train-seed1: its process was ended.*want of memory"),
        ("mistaken", UserError, "toys/train-seed1: the disk is full"),
        ("broken", RuntimeError, "ZeroDivisionError: a bug"),
    ],
)
def test_what_ends_a_run_loses_no_other(jobs, tmp_path, log, end, error, message):
    ended = replace(jobs[1], inputs={**jobs[1].inputs, "end": end})
    with pytest.raises(error, match=message):
        run([jobs[0], ended, jobs[2]], tmp_path)
    assert log() == [jobs[0].name, jobs[1].name]
    assert jobs[0].file(tmp_path / "out").is_file()
    assert not jobs[1].file(tmp_path / "out").exists()


def wait_until(condition) -> None:
    ends = time.monotonic() + 300  # a machine may be busy
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_run_stops_when_its_parent_is_killed(tmp_path, log):
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-m", "tests.paper.toy", str(tmp_path)], cwd=root)
    try:
        wait_until(log)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: list(tmp_path.rglob("stopped")))


class TestGoingOn:
    @pytest.fixture
    def interrupted(self, tmp_path):
        (tmp_path / "checkpoints" / "steps" / "checkpoint-4").mkdir(parents=True)
        (tmp_path / "checkpoints" / "steps" / "checkpoint-4" / "trainer_state.json").write_text(
            '{"best_model_checkpoint": null}'
        )
        return tmp_path

    def test_without_a_checkpoint_it_starts(self, tmp_path):
        assert train_or_go_on(tmp_path, lambda resume: {"resume": resume}) == {"resume": False}

    def test_with_one_it_goes_on(self, interrupted):
        assert train_or_go_on(interrupted, lambda resume: {"resume": resume}) == {"resume": True}

    def test_a_checkpoint_of_another_run_is_left(self, interrupted):
        def train(resume):
            if resume:
                raise OtherRun("other settings")
            return {"resume": resume}

        assert train_or_go_on(interrupted, train) == {"resume": False}

    def test_any_other_mistake_is_the_users(self, interrupted):
        def train(resume):
            raise UserError("no space left")

        with pytest.raises(UserError, match="no space"):
            train_or_go_on(interrupted, train)


def test_another_glove_file_of_the_same_name_and_size_is_another_run(things, tmp_path):
    scale, [variant, *_] = load_scale("small"), load_recipe("table-classification")["variants"]
    prepared = prepare(parse_data([things])[0], scale, tmp_path / "out", show_progress=False)
    for place, numbers in (("one", "1 2"), ("two", "3 4"), ("copy", "1 2")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "glove.txt").write_text(f"cat {numbers}\n")
    one, two, copy, without = (
        _job(prepared, variant, scale, 0, glove, False).settings
        for glove in (*(str(tmp_path / place / "glove.txt") for place in ("one", "two", "copy")), None)
    )
    assert one == copy != two
    assert without["glove"] is None


def test_a_run_that_another_command_makes_does_not_end_the_grid(jobs, tmp_path, log, monkeypatch):
    """The others come first, then its result is taken, or made where that command has stopped."""
    taken, given_up = (replace(job, inputs={**job.inputs, "in_use": True}) for job in jobs[:2])
    waits = []

    def wait(what):
        waits.append(what)
        assert log()[0] == jobs[2].name
        write_json(taken.file(tmp_path / "out"), {"metrics": {"score": 9}})  # the other command is done
        Path(taken.inputs["log"]).with_name("free").touch()

    monkeypatch.setattr(grid, "_wait", wait)
    results = run([taken, given_up, jobs[2]], tmp_path)
    assert [one["metrics"]["score"] for one in results] == [9, 1.5, 2.5]
    assert log() == [jobs[2].name, jobs[1].name]
    assert waits
