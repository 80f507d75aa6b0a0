"""How we measure: in turns, after a warm-up, on a machine that is described beside the numbers."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fastformer.errors import UserError
from fastformer.surroundings import machine
from fastformer.version import __version__

Step = Callable[[], Any]
MOST = 100_000_000  # tokens or rows that can be asked for


@contextmanager
def measuring(threads: int | None = None) -> Iterator[int]:
    """Within it the process is tuned as for training, and uses this many threads; yields their number."""
    machine.tune()
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def seconds_of(step: Step) -> float:
    """Time one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def in_turns(
    steps: Mapping[str, Step], repetitions: int, advance: Callable[..., None] = lambda *_, **__: None
) -> dict[str, list[float]]:
    """Times of every step, measured round-robin so that a slow minute of the machine falls on all of them alike.

    Each round begins with another step: none is always first. Warm up before.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(repetitions):
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            advance(note=name)
            times[name].append(seconds_of(steps[name]))
    return times


def timing(times: list[float]) -> dict[str, Any]:
    """The median of some times, and all of them."""
    return {"seconds": _round(median(times)), "all_seconds": [_round(seconds) for seconds in times]}


def _round(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def describe_machine(threads: int) -> dict[str, Any]:
    """What a reader must know about the machine to judge the numbers, without its name."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gb": round(machine.physical_memory() / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fastformer": __version__,
    }


def machine_line(described: dict[str, Any]) -> str:
    """The machine in one line, for captions."""
    threads = f"{described['threads']} thread{'s' * (described['threads'] != 1)}"
    return f"{described['cpu']}, {threads}, torch {described['torch']}, float32"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def numbers(given: str | Sequence[int] | Sequence[str], option: str) -> list[int]:
    """Positive whole numbers in rising order, from a list or from `128,256,512`."""
    parts = given.split(",") if isinstance(given, str) else given
    try:
        found = sorted({int(part) for part in parts})
    except ValueError:
        raise UserError(f"{option} {given}: give whole numbers with commas between them, like 128,256,512") from None
    if not found or found[0] < 1 or found[-1] > MOST:
        raise UserError(f"{option} {given}: give at least one number, each from 1 to {MOST:,}")
    return found


def result_folder(output: str | Path) -> Path:
    """The folder that results go to, made now rather than after an hour's work."""
    output = Path(output)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output}: cannot be made a folder ({error.strerror}); give another --output") from error
    return output
