"""Requests that arrive together run together, and none of them notices.

A model has one thread, which takes what waits: all jobs of the same kind, in their order, up to a number of tokens. An
idle thread may wait for more to come (`Limits.wait`); a busy one finds them when it is done. Where a batch of several
fails, each of its jobs runs again alone, so that a mistake meets whoever made it and nobody else.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastformer.serve.failures import overloaded, stopping
from fastformer.serve.limits import Limits
from fastformer.serve.metrics import Metrics
from fastformer.surroundings.machine import tune

_LOG = logging.getLogger("fastformer.serve")
_TURN = threading.Lock()  # of all models of a process: two that compute at once take the cores from each other
_LONGEST_RETRY = 60


@dataclass(eq=False)
class Job:
    """Some examples, what is to be done with them, and who waits for the answers."""

    kind: Hashable  # jobs of one kind run together; None: alone
    run: Callable[[list[Any]], Sequence[Any]]  # an answer per example
    examples: list[Any]
    tokens: int
    future: asyncio.Future
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """The jobs of one model, and the thread that does them."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics):
        self.limits, self.metrics, self.name = limits, metrics, name
        self._jobs: deque[Job] = deque()
        self._tokens = 0  # of the jobs that wait
        self._pace = 0.0  # tokens per second, of the last batches
        self._ready = threading.Condition()
        self._closed = self._working = False
        self._thread = threading.Thread(target=self._work, name=f"model {name}", daemon=True)
        self._thread.start()

    async def submit(
        self, kind: Hashable, run: Callable[[list[Any]], Sequence[Any]], examples: list[Any], tokens: int
    ) -> Sequence[Any]:
        """The answers to some examples. A job that nobody waits for any more is dropped, if it has not begun."""
        future = asyncio.get_running_loop().create_future()
        job = Job(kind, run, examples, tokens, future)
        with self._ready:
            if self._closed:
                raise stopping()
            if self._is_full(tokens):
                self._drop_abandoned()
            if self._is_full(tokens):
                self.metrics.shed(self.name)
                raise overloaded(self._seconds_to_go())
            self._jobs.append(job)
            self._tokens += tokens
            self._ready.notify()
        return await future

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    @property
    def is_working(self) -> bool:
        """Whether a batch runs."""
        return self._working

    def close(self) -> None:
        """Take on nothing new; what waits is still done."""
        with self._ready:
            self._closed = True
            self._ready.notify()

    def _is_full(self, tokens: int) -> bool:
        """Whether so many more tokens are too many; one request alone never is."""
        many = len(self._jobs) >= self.limits.queue
        return many or bool(self._jobs and self._tokens + tokens > self.limits.queue_tokens)

    def _drop_abandoned(self) -> None:
        """Forget jobs that nobody waits for."""
        self._jobs = deque(job for job in self._jobs if not job.future.done())
        self._tokens = sum(job.tokens for job in self._jobs)

    def _seconds_to_go(self) -> int:
        """How long what waits will take, as far as can be told."""
        return max(1, min(_LONGEST_RETRY, round(self._tokens / self._pace))) if self._pace else 1

    def _work(self) -> None:
        tune()
        while (jobs := self._next()) is not None:
            started, self._working = time.monotonic(), True
            with _TURN:
                self._run(jobs)
            self._working = False
            tokens, took = sum(job.tokens for job in jobs), time.monotonic() - started
            pace = tokens / max(took, 1e-6)
            self._pace = pace if not self._pace else 0.8 * self._pace + 0.2 * pace

    def _next(self) -> list[Job] | None:
        """Jobs of one kind, the oldest among them; None when there will be no more."""
        with self._ready:
            idle = not self._jobs
            while not self._jobs:
                if self._closed:
                    return None
                self._ready.wait()
            alone = self._jobs[0].kind is None
            full = self._tokens >= self.limits.batch_tokens
        if idle and not alone and not full and self.limits.wait:
            time.sleep(self.limits.wait)
        with self._ready:
            self._drop_abandoned()
            return self._take()

    def _take(self) -> list[Job]:
        """The oldest job, and those of its kind behind it as far as they fit; none overtakes another of its kind."""
        taken: list[Job] = []
        left: deque[Job] = deque()
        tokens, full = 0, False
        for job in self._jobs:
            joins = taken and not full and job.kind is not None and job.kind == taken[0].kind
            full = full or bool(joins and tokens + job.tokens > self.limits.batch_tokens)
            if not taken or (joins and not full):
                taken.append(job)
                tokens += job.tokens
            else:
                left.append(job)
        self._jobs = left
        self._tokens -= tokens
        return taken

    def _run(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        examples = [example for job in jobs for example in job.examples]
        started = time.monotonic()
        self.metrics.batch(self.name, len(examples), sum(job.tokens for job in jobs), started - jobs[0].since)
        try:
            answers = list(jobs[0].run(examples))
            if len(answers) != len(examples):
                raise RuntimeError(f"{len(answers)} answers to {len(examples)} examples")
        except BaseException as error:  # whatever it is, somebody waits to hear of it
            if len(jobs) > 1:
                for job in jobs:
                    self._run([job])
            else:
                _settle(jobs, [error])
            return
        finally:
            self.metrics.computed(self.name, time.monotonic() - started)
        results, at = [], 0
        for job in jobs:
            results.append(answers[at : at + len(job.examples)])
            at += len(job.examples)
        _settle(jobs, results)


def _settle(jobs: list[Job], results: Sequence[Any]) -> None:
    """Give the results to those who wait, in their own thread."""
    loop = jobs[0].future.get_loop()

    def give() -> None:
        for job, result in zip(jobs, results, strict=True):
            if job.future.done():  # nobody waits
                continue
            if isinstance(result, BaseException):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    try:
        loop.call_soon_threadsafe(give)
    except RuntimeError:  # the server is gone
        _LOG.debug("answers to %d requests came after the end", len(jobs))
