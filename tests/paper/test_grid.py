"""A grid of runs: each made once, by commands in processes of their own, and nothing lost by whatever ends one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastformer.errors import Interrupted
from fastformer.paper import grid
from fastformer.paper.grid import Command, Job, Measurement, Training, read_answers, run_grid
from fastformer.paper.study import chosen
from fastformer.runs.claiming import unharmed
from fastformer.runs.resuming import OtherRun
from fastformer.runs.saving import InUse
from fastformer.surroundings.files import write_json
from fastformer.tasks.base import get_task

# A process that logs its name, does as it is told, and leaves a result.
SCRIPT = """
import json, os, pathlib, signal, sys, time
name, end, log, place = sys.argv[1:]
with open(log, "a") as file:
    file.write(name + "\\n")
pathlib.Path(place).mkdir(exist_ok=True)
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if end == "waits":
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print("ready", file=open(place + ".ready", "w"))
        time.sleep(60)
    except KeyboardInterrupt:
        print("stopped", file=open(place + ".stopped", "w"))
        sys.exit(130)
if end == "busy":
    time.sleep(0.5)
if end.isdigit():
    print("fastformer: the disk is full", file=sys.stderr)
    sys.exit(int(end))
print(json.dumps({"score": name, "process": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}))
"""


@dataclass(frozen=True)
class Toy(Job):
    log: Path = Path()
    end: str = ""
    alone: bool = False

    def next_command(self, place):
        printed = place.with_name(f"{place.name}.printed")
        if printed.is_file():
            return None
        return Command(["-c", SCRIPT, self.name, self.end, str(self.log), str(place)], prints=printed)

    def metrics(self, place):
        return json.loads(place.with_name(f"{place.name}.printed").read_text())


@pytest.fixture(autouse=True)
def python_itself(monkeypatch):
    """Commands are arguments of Python, not of `python -m fastformer`."""
    monkeypatch.setattr(grid, "PROGRAM", (sys.executable,))


@pytest.fixture
def jobs(tmp_path) -> list[Toy]:
    return [Toy(f"toys/train-seed{seed}", {"seed": seed, "width": 8}, tmp_path / "log") for seed in range(3)]


@pytest.fixture
def log(tmp_path):
    return lambda: (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


def run(jobs, tmp_path, **options):
    return run_grid(jobs, tmp_path / "out", str, processes=options.pop("processes", 1), show=False, **options)


def test_every_run_is_made_once_and_leaves_its_result(jobs, tmp_path, log):
    first = run(jobs[:2], tmp_path)
    assert [one["metrics"]["score"] for one in first.found.values()] == [job.name for job in jobs[:2]]
    second = run([*jobs, jobs[0]], tmp_path)
    assert {name: second.found[name] for name in first.found} == first.found
    assert log() == [job.name for job in jobs]
    assert len({one["metrics"]["process"] for one in second.found.values()} | {os.getpid()}) == 4
    assert {one["metrics"]["threads"] for one in second.found.values()} == {"1"}
    assert {path.suffix for path in (tmp_path / "out" / "runs" / "toys").iterdir()} == {".json", ".printed"}


def test_changed_settings_are_another_run(jobs, tmp_path, log):
    run(jobs, tmp_path)
    wider = replace(jobs[1], determined_by={"seed": 1, "width": 16})
    assert run([jobs[0], wider, jobs[2]], tmp_path).found[wider.name]["width"] == 16
    assert len(log()) == 4


def test_models_are_kept_on_demand(jobs, tmp_path):
    run(jobs[:1], tmp_path)
    run(jobs[1:2], tmp_path, keep_models=True)
    assert [job.place(tmp_path / "out").is_dir() for job in jobs[:2]] == [False, True]


def test_several_run_at_a_time_but_measurements_alone(jobs, tmp_path, monkeypatch):
    most, begin = [], grid._Work._begin

    def watched(self, place, job, started=None):
        begin(self, place, job, started)
        most.append(sorted(one.job.name[-5:] for one in self.active))

    monkeypatch.setattr(grid._Work, "_begin", watched)
    busy = [replace(job, end="busy", alone=job is jobs[0]) for job in jobs]
    run(busy, tmp_path, processes=2)
    assert ["seed0"] in most
    assert ["seed1", "seed2"] in most
    assert not any("seed0" in names and len(names) > 1 for names in most)


@pytest.mark.parametrize(("end", "why"), [("killed", "want of memory"), ("2", "the disk is full"), ("1", "full")])
def test_what_ends_a_run_ends_no_other(jobs, tmp_path, log, end, why):
    ended = replace(jobs[1], end=end)
    result = run([jobs[0], ended, jobs[2]], tmp_path)
    assert list(result.found) == [jobs[0].name, jobs[2].name]
    assert why in result.failed[ended.name]
    assert run(jobs, tmp_path).failed == {}
    assert log() == [job.name for job in jobs] + [ended.name]


def test_a_run_of_another_command_is_left_to_it(jobs, tmp_path, monkeypatch, log):
    """The others come first; then its result is taken, or made here where that command has stopped."""
    monkeypatch.setattr(grid, "WAIT_SECONDS", 0.3)
    taken, given_up = (replace(job, end=str(InUse.exit_code)) for job in jobs[:2])

    def other_command():
        while jobs[2].name not in log():
            time.sleep(0.02)
        write_json(taken.file(tmp_path / "out"), {"metrics": {"score": 9}})
        object.__setattr__(given_up, "end", "")

    other = threading.Thread(target=other_command)
    other.start()
    result = run([taken, given_up, jobs[2]], tmp_path)
    other.join()
    assert result.failed == {}
    assert result.found[taken.name]["metrics"]["score"] == 9
    assert result.found[given_up.name]["metrics"]["score"] == given_up.name
    assert log()[:3] == [taken.name, given_up.name, jobs[2].name]


def wait_until(condition) -> None:
    ends = time.monotonic() + 300  # a machine may be busy
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_ctrl_c_lets_runs_stop_by_themselves(jobs, tmp_path):
    waiting = [replace(job, end="waits") for job in jobs[:2]]
    places = [job.place(tmp_path / "out") for job in waiting]

    def press():
        wait_until(lambda: all(place.with_name(f"{place.name}.ready").exists() for place in places))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=press).start()
    with pytest.raises(
        Interrupted, match=r"after 0 of 2 runs \(toys/train-seed0, toys/train-seed1 at work\); the same"
    ):
        run(waiting, tmp_path, processes=2)
    assert all(place.with_name(f"{place.name}.stopped").exists() for place in places)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's end")
def test_a_run_stops_when_its_parent_is_killed(tmp_path):
    root = Path(__file__).parents[2]
    code = f"""
import pathlib, sys
from tests.paper.test_grid import Toy, grid, run
grid.PROGRAM = (sys.executable,)
folder = pathlib.Path({str(tmp_path)!r})
run([Toy("toys/one", {{}}, folder / "log", "waits")], folder)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    try:
        wait_until(lambda: list(tmp_path.rglob("*.ready")))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: list(tmp_path.rglob("*.stopped")))


class TestTraining:
    """Which command comes next, as the files say."""

    @pytest.fixture
    def training(self, tmp_path) -> Training:
        settings = get_task("classification").settings("paper-imdb", seed=3)
        files = {"train": "train.jsonl", "test": "test.jsonl"}
        return Training("things/one", {"task": "classification"}, settings, files, "label", ["--top", "1"])

    @pytest.fixture
    def place(self, training, tmp_path) -> Path:
        place = training.place(tmp_path)
        place.mkdir(parents=True)
        return place

    def test_it_is_trained_by_a_file_with_all_settings(self, training, place):
        command = list(training.next_command(place).arguments)
        preset = command[command.index("--preset") + 1]
        assert command[:6] == ["train", "classification", "--train", "train.jsonl", "--test", "test.jsonl"]
        assert command[-1] == "--overwrite"
        assert get_task("classification").settings(preset) == training.settings

    def test_an_interrupted_one_goes_on(self, training, place):
        checkpoint = place / "checkpoints" / "steps" / "checkpoint-4"
        checkpoint.mkdir(parents=True)
        for part in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (checkpoint / part).write_text("a part")
        assert "--resume" not in training.next_command(place).arguments
        write_json(checkpoint / "trainer_state.json", {"best_model_checkpoint": None})
        assert "--resume" in training.next_command(place).arguments

    def test_then_it_answers_and_is_scored_if_it_was_not(self, training, place):
        write_json(place / "run.json", {"task": "classification"})
        write_json(place / "metrics.json", {"train_seconds": 1})
        answers = place.with_name(f"{place.name}.parquet")
        assert training.next_command(place).arguments[0] == "predict"
        assert training.next_command(place).arguments[3:] == ["--top", "1", "--output", str(answers)]
        answers.touch()
        scoring = training.next_command(place)
        assert scoring.arguments[0] == "evaluate"
        write_json(scoring.prints, {"accuracy": 0.5})
        assert training.next_command(place) is None
        assert training.metrics(place) == {"train_seconds": 1, "test": {"accuracy": 0.5}}
        write_json(place / "metrics.json", {"test": {"accuracy": 0.7}})
        assert training.metrics(place) == {"test": {"accuracy": 0.7}}

    def test_one_column_of_its_answers_is_kept(self, training, tmp_path):
        answers = training.answers(tmp_path)
        answers.parent.mkdir(parents=True)
        pq.write_table(pa.table({"label": ["a", "b"], "probabilities": ["{}", "{}"]}), answers)
        for _ in range(2):  # the second time after a stop that came before the result was written
            training.tidy(tmp_path)
            assert pq.read_schema(answers).names == ["label"]
            assert read_answers(answers, "label") == ["a", "b"]

    def test_without_its_answers_it_is_not_done(self, training, tmp_path):
        training.file(tmp_path).parent.mkdir(parents=True)
        write_json(training.file(tmp_path), {})
        assert not training.is_done(tmp_path)
        training.answers(tmp_path).touch()
        assert training.is_done(tmp_path)

    def test_a_checkpoint_of_another_run_is_left(self, jobs, tmp_path, log):
        job = replace(jobs[0], end=str(OtherRun.exit_code))
        (job.place(tmp_path / "out") / "checkpoints").mkdir(parents=True)
        begin, tries = grid._Work._begin, []

        def again(self, place, job, started=None):
            tries.append((place / "checkpoints").exists())
            begin(self, place, replace(job, end="" if len(tries) > 1 else job.end), started)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grid._Work, "_begin", again)
            assert run([job], tmp_path).failed == {}
        assert tries[:2] == [True, False]


def test_exit_codes_tell_the_grid_what_happened(tmp_path, monkeypatch, capsys):
    from fastformer.cli import main

    with unharmed(tmp_path / "run"):
        monkeypatch.setattr(
            sys, "argv", ["fastformer", "train", "classification", "--train", "x", "--output", str(tmp_path / "run")]
        )
        with pytest.raises(SystemExit) as exited:
            main()
    assert exited.value.code == InUse.exit_code == 75
    assert "another command is writing there" in capsys.readouterr().err


def test_a_measurement_is_one_command(tmp_path):
    job = Measurement("simulated/lists", {"length": 4}, "conversion-lists", {"length": 4})
    (tmp_path / "runs" / "simulated").mkdir(parents=True)
    command = job.next_command(job.place(tmp_path))
    assert command.arguments[:3] == ["reproduce", "measure", "conversion-lists"]
    assert json.loads(Path(command.arguments[3]).read_text()) == {"length": 4}
    write_json(command.prints, {"seconds": 1})
    assert job.next_command(job.place(tmp_path)) is None
    assert job.metrics(job.place(tmp_path)) == {"seconds": 1}
    assert job.alone


def test_an_option_that_a_later_version_adds_leaves_finished_runs_valid():
    from fastformer.engine.settings import TrainingSettings

    @dataclass(frozen=True)
    class Later(TrainingSettings):
        new_option: bool = False

    now, later = (kind(epochs=3, learning_rate=1e-3, seed=2) for kind in (TrainingSettings, Later))
    assert chosen(now) == chosen(later) == {"epochs": 3, "learning_rate": 1e-3, "seed": 2}
    assert chosen(Later(new_option=True)) == {"new_option": True}
