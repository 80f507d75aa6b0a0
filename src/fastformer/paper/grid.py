"""The runs behind a table or figure: each made once, in a process of its own, and kept as one JSON file.

    OUTPUT/runs/NAME-KEY.json    a finished run: its settings and its metrics
    OUTPUT/runs/NAME-KEY/        a run at work, or, with --keep-models, its run folder

KEY is a hash of everything that determines the result, so a run that is done is not made again, whichever table or
figure asks for it, and a changed recipe makes again only what it changes. Ctrl-C leaves a checkpoint, and the same
command goes on from there. The process of its own makes a run's peak memory its own, and what kills it kills no other.
"""

import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fastformer.errors import Interrupted, UserError
from fastformer.runs.folder import CHECKPOINTS, RUN_FILE, InUse, finish_saving, last_complete_checkpoint, open_run
from fastformer.runs.resuming import OtherRun
from fastformer.surroundings.files import digest, writing_text
from fastformer.surroundings.progress import console, progress_bar, say

Metrics = dict[str, Any]
WAIT_SECONDS = 5  # before a run that another command is making is looked at again


@dataclass(frozen=True)
class Job:
    """A run that a table needs. `settings` is all that determines its result; `inputs` says where the files are."""

    name: str  # of its files, such as imdb/fastformer-seed0
    settings: dict[str, Any]
    inputs: dict[str, Any]

    def file(self, output: Path) -> Path:
        """Where its result is kept."""
        return output / "runs" / f"{self.name}-{digest(self.settings)}.json"


def run_grid(
    jobs: Sequence[Job],
    output: Path,
    train: Callable[[Job, Path, bool], Metrics],
    describe: Callable[[Metrics], str],
    *,
    keep_models: bool = False,
    show_progress: bool = True,
    show_runs: bool = False,
) -> list[dict[str, Any]]:
    """The results of all jobs, in order; those not on disk yet are made by `train(job, folder, show)`, one by one.

    `train` leaves its checkpoints in `folder`, goes on from those that are there, and is a function that another
    process can import. `describe` says a result in a few words. A run that another command is making is left to it:
    the others come first, then we wait for it, or make it ourselves if that command stops.
    """
    waiting = deque({job.file(output): job for job in jobs if not job.file(output).is_file()}.values())
    count, number, elsewhere = len(waiting), 0, set()
    if waiting and show_progress:
        done = len(jobs) - count
        say(f"{len(jobs)} runs{f', {done} of them done before' if done else ''}; results go to {output / 'runs'}.")
    bar = progress_bar("Runs", total=count, show=bool(waiting) and show_progress and not show_runs)
    with bar as advance:
        while waiting:
            job, number = waiting.popleft(), count - len(waiting)
            advance(0, note=job.name)
            file, started = job.file(output), time.monotonic()
            if file.is_file():  # another command has made it meanwhile
                advance(1)
                continue
            try:
                folder = file.with_suffix("")
                folder.parent.mkdir(parents=True, exist_ok=True)
                metrics = in_own_process(train, job, folder, show_progress and show_runs)
            except (Interrupted, KeyboardInterrupt):
                raise Interrupted(
                    f"stopped in run {number} of {count} ({job.name}); the same command goes on from there"
                ) from None
            except InUse:
                waiting.append(job)
                if job.name not in elsewhere and show_progress:
                    say(f"{job.name}: another command is making it; its result will be taken.")
                elsewhere.add(job.name)
                if len(elsewhere) >= len(waiting):  # nothing else is left to do
                    _wait(f"run {number} of {count} ({job.name})")
                continue
            except UserError as error:
                raise UserError(f"{job.name}: {error}") from None
            elsewhere.discard(job.name)
            with writing_text(file) as out:
                json.dump({"run": job.name, **job.settings, "metrics": metrics}, out, indent=2, ensure_ascii=False)
            if not keep_models:
                shutil.rmtree(folder, ignore_errors=True)
            advance(1)
            if show_progress:
                took = time.monotonic() - started
                say(f"{number}/{count} {job.name}: {describe(metrics)}; {took:.0f} s")
    return [json.loads(job.file(output).read_text(encoding="utf-8")) for job in jobs]


def _wait(what: str) -> None:
    try:
        time.sleep(WAIT_SECONDS)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped while another command makes {what}; the same command goes on from there") from None


def train_or_go_on(folder: Path, train: Callable[..., Metrics]) -> Metrics:
    """Metrics of the run in `folder`: as it left them if it is done, else those of `train(resume=…)`.

    A checkpoint is gone on from where it fits; one that a file elsewhere or another version has made is not.
    """
    finish_saving(folder)
    if (folder / RUN_FILE).is_file():  # done, but stopped before its result was written
        return open_run(folder).load_metrics()
    if last_complete_checkpoint(folder / CHECKPOINTS) is not None:
        with suppress(OtherRun):
            return train(resume=True)
    return train(resume=False)


def in_own_process(train: Callable[[Job, Path, bool], Metrics], job: Job, folder: Path, show: bool) -> Metrics:
    """`train(job, folder, show)` in a child process, forked from a server that has imported everything already.

    A signal that would stop us is handed to the child, which writes a checkpoint; so it does if we are killed. Where
    processes cannot fork (Windows) it runs here.
    """
    if not hasattr(os, "fork"):
        return train(job, folder, show)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([train.__module__])
    receiving, sending = context.Pipe(duplex=False)
    parent_end, held = context.Pipe(duplex=False)  # `held` closes with us, whatever ends us
    child = context.Process(target=_answer, args=(sending, parent_end, train, job, folder, show))
    child.start()
    sending.close()
    parent_end.close()
    with receiving, held, _signals_to(child):
        try:
            kind, answer = receiving.recv()
        except EOFError:
            kind, answer = "died", None
        child.join()
    if kind == "metrics":
        return answer
    if kind == "interrupted":
        raise Interrupted(answer)
    if kind == "in use":
        raise InUse(answer)
    if kind == "mistake":
        raise UserError(answer)
    if kind == "error":
        raise RuntimeError(f"{job.name} failed in its own process:\n{answer}")
    if child.exitcode < 0:
        raise UserError(
            f"its process was ended by signal {-child.exitcode}, most likely for want of memory; "
            "take a smaller --scale or a machine with more, and the same command goes on"
        )
    raise UserError('its process did not start; in a script of yours, call this under `if __name__ == "__main__":`')


def _answer(sending: Connection, parent_end: Connection, train: Callable, job: Job, folder: Path, show: bool) -> None:
    """In the child: train, and send what came of it."""
    threading.Thread(target=_stop_when_parent_dies, args=(parent_end,), daemon=True).start()
    os.setsid()  # Ctrl-C reaches the parent only, which hands it on: once, not twice
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the training listens itself
    console.quiet = not show
    try:
        answer = "metrics", train(job, folder, show)
    except (Interrupted, KeyboardInterrupt) as stop:
        answer = "interrupted", str(stop)
    except InUse as error:
        answer = "in use", str(error)
    except UserError as error:
        answer = "mistake", str(error)
    except BaseException:  # whatever it is, the parent must hear of it
        answer = "error", traceback.format_exc()
    with suppress(BrokenPipeError):  # nobody is there to hear it
        sending.send(answer)
    sending.close()


def _stop_when_parent_dies(parent_end: Connection) -> None:
    """Stop this process, as SIGTERM would, when its parent is gone."""
    with suppress(EOFError, OSError):
        parent_end.recv()
    console.quiet = True  # the terminal may be gone too
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _signals_to(child: multiprocessing.Process) -> Iterator[None]:
    def hand_on(number: int, frame: Any) -> None:
        say("Stopping: the run writes a checkpoint after this step.")
        if child.is_alive():
            os.kill(child.pid, number)

    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            handlers[number] = signal.signal(number, hand_on)
        except ValueError:  # not the main thread: whoever runs us handles signals
            break
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
