"""The runs behind a table or figure: each made once, by our own commands in processes of their own, several at a time.

    OUTPUT/runs/NAME-KEY.json      a finished run: what determined it, and its metrics
    OUTPUT/runs/NAME-KEY.parquet   its answers to the test examples
    OUTPUT/runs/NAME-KEY/          a run at work, or, with --keep-models, its run folder
    OUTPUT/runs/NAME-KEY.log       what its commands print; it stays if they fail

KEY is a hash of everything that determines the result, so a run that is done is not made again, whichever table or
figure asks for it, and a changed recipe makes again only what it changes. What is on disk says which command comes next
(`Job.next_command`), so the same command continues after any interruption. In a process of its own a run's peak memory
is its own, and if it is killed the others go on. Each has one thread: two of them on two cores do more than one with
two threads.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq

from fastformer.bench.measuring import describe_machine
from fastformer.engine.settings import TaskSettings
from fastformer.errors import Interrupted
from fastformer.runs.checkpoints import CHECKPOINTS, last_complete_checkpoint
from fastformer.runs.folder import open_run
from fastformer.runs.record import RUN_FILE
from fastformer.runs.resuming import OtherRun
from fastformer.runs.saving import InUse, finish_saving
from fastformer.surroundings.files import digest, write_json, writing_aside
from fastformer.surroundings.machine import physical_memory
from fastformer.surroundings.processes import end_with_parent
from fastformer.surroundings.progress import progress_bar, say

Metrics = dict[str, Any]
PROGRAM = (sys.executable, "-m", "fastformer")
MEMORY_A_RUN = 3e9  # bytes: as many runs at a time as this leaves room for
WAIT_SECONDS = 5.0  # before a run that another command is making is looked at again
_LOOK_SECONDS = 0.1
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Command:
    """A command of ours. What it prints goes to `prints`, if that is given, and is there only if it succeeds."""

    arguments: Sequence[str]
    prints: Path | None = None


@dataclass(frozen=True)
class Job:
    """A run that a table needs. `determined_by` is all that determines its result."""

    name: str  # of its files, such as imdb/fastformer-seed0
    determined_by: dict[str, Any]
    alone = False  # nothing else runs meanwhile

    def place(self, output: Path) -> Path:
        """The run folder; files beside it have its name."""
        return output / "runs" / f"{self.name}-{digest(self.determined_by)}"

    def file(self, output: Path) -> Path:
        """Where its result is kept."""
        return _beside(self.place(output), ".json")

    def is_done(self, output: Path) -> bool:
        """Whether its result is there."""
        return self.file(output).is_file()

    def next_command(self, place: Path) -> Command | None:
        """What is to be done next, as the files say; None if nothing is."""
        raise NotImplementedError

    def metrics(self, place: Path) -> Metrics:
        """What came of it, once nothing is to be done."""
        raise NotImplementedError

    def tidy(self, output: Path) -> None:
        """Leave only what a report needs of the files beside its result."""


@dataclass(frozen=True)
class Training(Job):
    """`train`, `predict` on the test examples, and `evaluate` if a stop has kept `train` from scoring them."""

    settings: TaskSettings
    files: dict[str, str]
    answer_column: str  # the one that is kept of its answers
    predict: Sequence[str] = ()

    def answers(self, output: Path) -> Path:
        """The file with the answers to the test examples."""
        return _beside(self.place(output), ".parquet")

    def is_done(self, output: Path) -> bool:
        """Whether result and answers are both there."""
        return super().is_done(output) and self.answers(output).is_file()

    def next_command(self, place: Path) -> Command | None:
        """What is to be done next, as the files say."""
        finish_saving(place)
        test, answers, scores = self.files["test"], _beside(place, ".parquet"), _beside(place, ".test.json")
        if not (place / RUN_FILE).is_file():
            settings = _beside(place, ".settings.json")
            write_json(settings, asdict(self.settings))
            goes_on = last_complete_checkpoint(place / CHECKPOINTS) is not None
            splits = [part for split, file in self.files.items() for part in (f"--{split}", file)]
            places = ["--preset", str(settings), "--output", str(place), "--resume" if goes_on else "--overwrite"]
            return Command(["train", self.determined_by["task"], *splits, *places])
        if not answers.is_file():
            return Command(["predict", str(place), test, *self.predict, "--output", str(answers)])
        if "test" not in open_run(place).load_metrics() and not scores.is_file():
            return Command(["evaluate", str(place), test, "--json"], prints=scores)
        return None

    def metrics(self, place: Path) -> Metrics:
        """Those of the run folder."""
        found, scores = open_run(place).load_metrics(), _beside(place, ".test.json")
        return found if "test" in found else {**found, "test": json.loads(scores.read_text(encoding="utf-8"))}

    def tidy(self, output: Path) -> None:
        """Keep one column of the answers: the labels of 5,000 texts take 2 kB, their probabilities 180 kB."""
        answers = pq.read_table(self.answers(output), columns=[self.answer_column])
        with writing_aside(self.answers(output)) as aside:
            pq.write_table(answers, aside)


def read_answers(file: Path, column: str) -> list[Any]:
    """The answers of a finished training, in the order of the test examples."""
    return pq.read_table(file, columns=[column])[column].to_pylist()


@dataclass(frozen=True)
class Measurement(Job):
    """`reproduce measure WHAT FILE`: a function of `measuring.py` with arguments from a file, alone on the machine."""

    what: str
    arguments: dict[str, Any]
    alone = True

    def next_command(self, place: Path) -> Command | None:
        """Measure, unless that is done."""
        measured, arguments = _beside(place, ".measured.json"), _beside(place, ".settings.json")
        if measured.is_file():
            return None
        write_json(arguments, self.arguments)
        return Command(["reproduce", "measure", self.what, str(arguments)], prints=measured)

    def metrics(self, place: Path) -> Metrics:
        """What was measured."""
        return json.loads(_beside(place, ".measured.json").read_text(encoding="utf-8"))


def _beside(place: Path, ending: str) -> Path:
    return place.with_name(place.name + ending)


@dataclass
class Grid:
    """What came of the jobs: metrics by name of those that are done, and why the others are not."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def run_grid(
    jobs: Sequence[Job],
    output: Path,
    describe: Callable[[Metrics], str],
    *,
    processes: int | None = None,
    keep_models: bool = False,
    show: bool = True,
) -> Grid:
    """Make what is not on disk yet; give all results.

    `describe` says a result in a few words. A run that fails ends no other. One that another command is making is left
    to it: the others come first, then its result is taken, or made here if that command has stopped.
    """
    missing = {job.place(output): job for job in jobs if not job.is_done(output)}
    grid, work = Grid(), _Work(output, describe, processes or usual_processes(), keep_models, show)
    if missing:
        if show:
            done = len({job.place(output) for job in jobs}) - len(missing)
            before = f", {done} of them done before" if done else ""
            at_once = f"; {work.processes} at a time" if work.processes > 1 else ""
            say(f"{len(missing) + done} runs{before}{at_once}; results go to {output / 'runs'}.")
        grid.failed = work.do(deque(missing.items()))
    for job in jobs:
        if job.is_done(output):
            grid.found[job.name] = json.loads(job.file(output).read_text(encoding="utf-8"))
    return grid


def usual_processes() -> int:
    """As many runs at a time as there are cores that we may use, and memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(physical_memory() // MEMORY_A_RUN)))


@dataclass
class _Active:
    """A job at work."""

    job: Job
    place: Path
    process: subprocess.Popen[bytes]
    command: Command
    started: float


class _Work:
    """Commands at work, never more than `processes` at a time."""

    def __init__(self, output: Path, describe: Callable[[Metrics], str], processes: int, keep: bool, show: bool):
        self.output, self.describe, self.processes, self.keep, self.show = output, describe, processes, keep, show
        self.active: list[_Active] = []
        self.elsewhere: dict[Path, tuple[Job, float]] = {}  # made by another command, and when to look again
        self.failed: dict[str, str] = {}
        self.seconds: list[float] = []  # of the runs that were made

    def do(self, waiting: deque[tuple[Path, Job]]) -> dict[str, str]:
        """Do all of them; why those failed that did."""
        self.total = len(waiting)
        # Without a total, as a bar guesses what is left from its last seconds, and a run takes longer: `_note` has it.
        with progress_bar(f"Of {self.total} runs", show=self.show) as self.advance, _terminated_as_interrupted():
            try:
                while waiting or self.active or self.elsewhere:
                    self._look_elsewhere(waiting)
                    while waiting and self._has_room(waiting[0][1]):
                        self._begin(*waiting.popleft())
                        self.advance(0, note=self._note(len(waiting)))
                    for one in [one for one in self.active if one.process.poll() is not None]:
                        self.active.remove(one)
                        self._ended(one)
                        self.advance(0, note=self._note(len(waiting)))
                    time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt:
                self._stop()
        return self.failed

    def _has_room(self, job: Job) -> bool:
        alone = job.alone or any(one.job.alone for one in self.active)
        return not self.active if alone else len(self.active) < self.processes

    def _begin(self, place: Path, job: Job, started: float | None = None) -> None:
        """Start the next command of a job, or keep its result if there is none."""
        started = time.monotonic() if started is None else started
        if job.is_done(self.output):  # another command has made it meanwhile
            return self.advance(1)
        place.parent.mkdir(parents=True, exist_ok=True)
        command = job.next_command(place)
        if command is None:
            return self._keep(place, job, started)
        self.active.append(_Active(job, place, start(command, _beside(place, ".log")), command, started))

    def _ended(self, one: _Active) -> None:
        code = one.process.returncode
        if one.job.is_done(self.output):  # another command was faster
            return self.advance(1)
        if code == 0:
            if one.command.prints:
                os.replace(_printed(one.command.prints), one.command.prints)
            return self._begin(one.place, one.job, one.started)
        if code == OtherRun.exit_code:  # a checkpoint that another version has made, or other files
            shutil.rmtree(one.place / CHECKPOINTS)
            return self._begin(one.place, one.job, one.started)
        if code == InUse.exit_code:
            if one.place not in self.elsewhere and self.show:
                say(f"{one.job.name}: another command is making it; its result will be taken.")
            self.elsewhere[one.place] = one.job, time.monotonic() + WAIT_SECONDS
            return None
        self.failed[one.job.name] = _why(code, _beside(one.place, ".log"))
        say(f"{one.job.name}: failed: {self.failed[one.job.name]}")
        return self.advance(1)

    def _look_elsewhere(self, waiting: deque[tuple[Path, Job]]) -> None:
        for place, (job, when) in list(self.elsewhere.items()):
            if job.is_done(self.output) or time.monotonic() > when:
                del self.elsewhere[place]
                waiting.append((place, job))

    def _keep(self, place: Path, job: Job, started: float) -> None:
        metrics = job.metrics(place)
        job.tidy(self.output)
        kept = {"run": job.name, **job.determined_by, "metrics": metrics, "machine": describe_machine(threads=1)}
        with writing_aside(job.file(self.output)) as aside:
            write_json(aside, kept)
        if not self.keep:
            shutil.rmtree(place, ignore_errors=True)
        for ending in (".log", ".test.json", ".measured.json", ".settings.json"):
            _beside(place, ending).unlink(missing_ok=True)
        self.seconds.append(time.monotonic() - started)
        self.advance(1)
        if self.show:
            number = len(self.seconds) + len(self.failed)
            say(f"{number}/{self.total} {job.name}: {self.describe(metrics)}; {self.seconds[-1]:.0f} s")

    def _note(self, waiting: int) -> str:
        names = ", ".join(one.job.name for one in self.active)
        if not self.seconds:
            return names
        seconds = mean(self.seconds) * (waiting + len(self.active) / 2) / self.processes
        return f"about {time.strftime('%H:%M', time.gmtime(seconds))} h left; {names}"

    def _stop(self) -> None:
        """Let all runs write a checkpoint, and say so."""
        names = ", ".join(one.job.name for one in self.active)
        say("Stopping: what runs writes a checkpoint after its step.")
        for one in self.active:
            with suppress(OSError):
                one.process.terminate()  # not SIGINT, which a command in the background ignores
        for one in self.active:
            one.process.wait()
        done = len(self.seconds)
        raise Interrupted(
            f"stopped after {done} of {self.total} runs{f' ({names} at work)' if names else ''}; "
            "the same command continues from there"
        )


def start(command: Command, log: Path) -> subprocess.Popen[bytes]:
    """Start a command of ours with one thread; what it prints goes to a file."""
    with log.open("ab") as errors, (_printed(command.prints) if command.prints else log).open("ab") as out:
        if command.prints:
            out.truncate(0)
        return subprocess.Popen(
            [*PROGRAM, *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,  # Ctrl-C reaches us only, and we hand it on: once, not twice
            preexec_fn=end_with_parent,
        )


def _printed(path: Path) -> Path:
    """Where a command prints to until it succeeds."""
    return path.with_name(f".{path.name}")


def _why(code: int, log: Path) -> str:
    """Why a command failed, in a line."""
    if code < 0:
        return (
            f"its process was ended by signal {-code}, most likely for want of memory; "
            "take fewer --processes, a smaller --scale or a machine with more"
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.removeprefix("fastformer: ") for line in lines if line.startswith("fastformer: ")]
    return said[-1] if said else f"a bug; what it printed is in {log}"


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM stops us as Ctrl-C does, if signals are ours to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
