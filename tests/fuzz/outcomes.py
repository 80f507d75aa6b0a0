"""What becomes of a case: run in a fork with limits, then judged by what it printed and left."""

import ctypes
import gc
import importlib
import json
import math
import os
import pkgutil
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import uvicorn

import fastformer
import fastformer.cli.app as cli
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks import verbs

from .cases import Case
from .subjects import Subject

GOOD = ("answer", "refusal")
CPU_SECONDS, WALL_SECONDS = 30, 120
LASTING_SECONDS = 20
MEMORY = 3 << 30  # beyond what the parent has
LONGEST_MESSAGE = 1000

command: Any = typer.main.get_command(cli.app)  # made once: it takes longer than most cases


def import_all() -> None:
    """Import what verbs import when they are called: each fork would do it again."""
    for module in pkgutil.walk_packages(fastformer.__path__, "fastformer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@dataclass
class Outcome:
    """How a case ended, why that is so, and what it took."""

    kind: str
    why: str
    seconds: float = 0.0
    said: str = ""


class Runner:
    """Runs cases in `place`: `with Runner(…) as runner`. Predictors of whole runs are loaded once, in the parent."""

    def __init__(self, subjects: list[Subject], place: Path):
        self.place = place
        self.predictors = {subject.run: verbs.load(subject.run) for subject in subjects}
        self.before = verbs.load, cli.app
        self.expected: dict[str, list[Any]] = {}

    def __enter__(self) -> "Runner":
        verbs.load, cli.app = self._loaded, command
        gc.collect()
        gc.freeze()  # a child that collects would copy every page
        _large_pages()
        self.limit = _virtual_memory() + MEMORY
        return self

    def __exit__(self, *error: Any) -> None:
        verbs.load, cli.app = self.before
        gc.unfreeze()

    def _loaded(self, run: Any, *given: Any, **named: Any) -> Any:
        found = self.predictors.get(os.fspath(getattr(run, "folder", run)))
        return found or self.before[0](run, *given, **named)

    def run(self, case: Case) -> Outcome:
        """Run a case. One that took too long is run again, once, for the machine may have been busy.

        So is one in which torch lost its threads: that comes from the fork, now and then, and not from the case.
        """
        outcome = self._once(case)
        again = outcome.kind == "hang" or "Invalid thread pool" in outcome.why
        return self._once(case) if again else outcome

    def _once(self, case: Case) -> Outcome:
        started = time.monotonic()
        out, error = self.place / ".out", self.place / ".error"
        (self.place / ".in").write_bytes(case.stdin)
        before = set(self.place.rglob("*"))
        child = os.fork()
        if child == 0:
            self._child(case, out, error)
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started
        printed, said = out.read_text(errors="replace"), error.read_text(errors="replace")
        outcome = self._judged(case, status, printed, said)
        outcome.seconds, outcome.said = round(time.monotonic() - started, 3), said[-3000:]
        for path in set(self.place.rglob("*")) - before - {out, error}:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return outcome

    def _child(self, case: Case, out: Path, error: Path) -> None:
        """The command line, as a process of its own would run it."""
        try:
            os.setpgid(0, 0)
            for number, path, how in ((0, self.place / ".in", os.O_RDONLY), (1, out, 577), (2, error, 577)):
                os.dup2(os.open(path, how, 0o600), number)
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            sys.stderr = os.fdopen(2, "w", errors="backslashreplace")  # as Python's own
            os.chdir(self.place)
            resource.setrlimit(resource.RLIMIT_AS, (self.limit, self.limit))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))  # at the second it is killed
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
            signal.alarm(LASTING_SECONDS if case.lasting else WALL_SECONDS)
            uvicorn.Server.main_loop = _no_requests
            sys.argv = ["fastformer", *case.arguments]
            code = 0
            try:
                cli.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1 if end.code else 0
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        finally:
            os._exit(99)

    # ---- judging -----------------------------------------------------------------------------------------------------

    def _judged(self, case: Case, status: int, printed: str, said: str) -> Outcome:
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number in (signal.SIGXCPU, signal.SIGALRM):
                return Outcome("answer", "it went on") if case.lasting else Outcome("hang", "it did not end")
            memory = re.search(r"memory allocation of|bad_alloc", said)
            return Outcome("memory" if memory else "crash", f"{signal.Signals(number).name} {_last(said)}")
        code = os.WEXITSTATUS(status)
        if "Traceback (most recent call last)" in said:
            memory = re.search(r"^MemoryError|can't allocate memory|bad_alloc", said, re.MULTILINE)
            return Outcome("memory" if memory else "traceback", f"{_last(said)} {_place(said)}")
        if code == 0:
            return self._held(case, printed, said)
        if (wrong := _wrong_refusal(said, code)) is not None:
            return Outcome("traceback", wrong)
        if code == 2 and (self.place / "made").exists():
            return Outcome("silent wrong", "a refused command left a folder")
        return Outcome("refusal", _last(said))

    def _held(self, case: Case, printed: str, said: str) -> Outcome:
        """An answer, if what was printed is what was asked for."""
        wrong = None
        if case.verb == "predict":
            wrong = self._wrong_answers(case, printed, said)
        elif "--json" in case.arguments and not case.verb.endswith("?"):
            wrong = _not_json(printed)
        elif not printed.strip() and not said.strip() and case.verb in ("summarize", "explain"):
            wrong = "nothing was printed"
        if wrong is None and case.verb in ("train", "export") and "--help" not in case.arguments:
            try:
                open_run(self.place / "made")
            except UserError as error:
                wrong = f"what was made cannot be opened: {error}"
        return Outcome("answer", "") if wrong is None else Outcome("silent wrong", wrong)

    def _wrong_answers(self, case: Case, printed: str, said: str) -> str | None:
        lines = printed.splitlines()
        if wrong := next(filter(None, map(_not_json, lines)), None):
            return wrong
        if not lines and not said.strip():
            return "no answer, and no word"
        if case.answers is not None and len(lines) != case.answers:
            return None if "left out" in said else f"{len(lines)} answers to {case.answers} rows"
        if case.answers is not None and case.same and case.subject is not None and not case.damaged:
            usual = self._usual(case.subject)
            if other := [place for place in case.same if not _close(json.loads(lines[place]), usual[place])]:
                return f"row {other[0]} is whole and has another answer"
        return None

    def _usual(self, subject: Subject) -> list[Any]:
        if subject.run not in self.expected:
            (self.place / "whole.jsonl").write_text("".join(json.dumps(row) + "\n" for row in subject.rows))
            self._once(Case(["predict", subject.run, str(self.place / "whole.jsonl")]))
            printed = (self.place / ".out").read_text()
            self.expected[subject.run] = [json.loads(line) for line in printed.splitlines()]
        return self.expected[subject.run]


async def _no_requests(server: Any) -> None:
    """In place of waiting for requests: a server that is ready stops."""


def _not_json(text: str) -> str | None:
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return f"not JSON: {error}"
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4)
    return one == other


def _wrong_refusal(said: str, code: int) -> str | None:
    """What is wrong with a refusal: it is one line that names the program, or the usage of a command."""
    lines = said.strip().splitlines() or [""]
    if code not in (2, 75, 78, 130):
        return f"exit code {code}: {lines[-1][:200]}"
    if re.match(r"Usage: ", said) or "Error: " in lines[-1]:
        return None
    if not lines[-1].startswith("fastformer: "):
        return f"no line of ours: {lines[-1][:200]}"
    if len(lines[-1]) > LONGEST_MESSAGE:
        return f"a message of {len(lines[-1])} characters: {lines[-1][:200]}"
    return None


def _last(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1][:300]


def _place(said: str) -> str:
    """Where in our own code a traceback was."""
    found = re.findall(r'fastformer/([\w/]+\.py)", line (\d+)', said)
    return f"[{':'.join(found[-1])}]" if found else ""


def _large_pages() -> None:
    """Ask Linux to hold our memory in large pages: a fork copies the table of them, and small ones make it a long one.

    Where it cannot, forks take longer and nothing else changes.
    """
    size, collapse = 2 << 20, 25  # bytes of a page; MADV_COLLAPSE, which is not in `mmap`
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if madvise and maps.is_file() else []:
        addresses, rights, _, _, file, *name = line.split()
        if "w" in rights and file == "0" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) // size * size for address in addresses.split("-"))
            for place in range(start + size, end, size):
                madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), collapse)


def _virtual_memory() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
