"""Peak memory of one step, measured by the system in a fresh process.

A helper process (`serve`) imports everything once and then forks a child for every measurement. The child builds the
model and its batch, runs one small step so that libraries are set up, notes its resident memory, resets the kernel's
high-water mark, runs the real step, and reads the mark (`machine.peak_memory`): what the step needed beyond the model
and its input. It needs no special rights. If there is no /proc (macOS) the mark cannot be reset, and its growth is
taken instead; if processes cannot fork (Windows) nothing is measured. `allocations.py` counts tensors instead.

One process cannot measure several steps: the allocator keeps the memory that an earlier step freed, as `machine.tune`
asks it to, which hides what a later step needs.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import torch

from fastformer.bench.measuring import seconds_of
from fastformer.bench.steps import build_model, build_step
from fastformer.surroundings import machine

_SMALL = 32  # tokens of the step that only sets things up


class MemoryProbe:
    """The helper process: `with MemoryProbe() as probe: probe.measure(mixer="linear", ...)`."""

    def __enter__(self) -> "MemoryProbe":
        self._process: subprocess.Popen[str] | None = None
        if hasattr(os, "fork"):
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from fastformer.bench.memory import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,  # Ctrl-C is for us: we end the helper
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with a child that may be at work
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def measure(self, **job: Any) -> dict[str, Any]:
        """Run one step: `peak_memory_mb` and, since it was run anyway, its `seconds`; or an `error` in one line.

        A job says mixer, module (of the mixer's class), length, batch, mode, seed and threads. Empty if nothing can
        be measured.
        """
        if self._process is None or self._process.stdout is None:
            return {}
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"error": "the process that measures memory has died"}


def serve() -> None:
    """Answer jobs from standard input, one JSON line each, until it ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    for line in sys.stdin:
        print(json.dumps(_in_child(json.loads(line))), file=answers, flush=True)


def _in_child(job: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = _measure(**job)
        except Exception as error:  # whatever it is, it is the answer
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else {"error": "the system ended it, most likely for want of memory"}


def _measure(mixer: str, module: str, length: int, batch: int, mode: str, seed: int, threads: int) -> dict[str, Any]:
    importlib.import_module(module)  # a mixer from elsewhere registers itself
    machine.tune()
    torch.set_num_threads(threads)
    model = build_model(mixer, length, seed)
    step = build_step(model, mode, batch, length, seed)
    build_step(model, mode, 1, min(length, _SMALL), seed)()
    model.zero_grad(set_to_none=True)
    machine.forget_peak_memory()
    before = machine.resident_memory()
    seconds = seconds_of(step)
    grown = machine.peak_memory_beyond(before)
    return {"peak_memory_mb": None if grown is None else round(grown / 1e6, 1), "seconds": seconds}
