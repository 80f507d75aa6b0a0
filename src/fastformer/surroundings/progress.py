"""Progress of long work, on standard error so that results can be piped."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from fastformer.surroundings import ranks

console = Console(stderr=True, highlight=False)
WIDE = 100  # columns of a terminal in which a bar has room beside what it stands for
FIRST_LINE, NEXT_LINE = 5.0, 30.0  # seconds between the lines of a log


_listener: list[str] | None = None


def say(message: str) -> None:
    """Print one line for the user; of several processes only the first one prints."""
    if _listener is not None:
        _listener.append(message)
        return
    if not ranks.speaks():
        return
    console.print(message, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect the messages of this process instead of printing them: the user looks at another process' screen."""
    global _listener
    before, _listener = _listener, []
    try:
        yield _listener
    finally:
        _listener = before


_SINGULAR = {"were": "was", "are": "is", "have": "has"}


def how_many(number: int, things: str, verb: str = "", total: int | None = None) -> str:
    """A number with a noun and a verb that agree with it: `1 text was`, `2 texts were`, `1 of 4 texts was`.

    `things` begins with a plural in s, and `verb` is a plural too.
    """
    if number == 1:
        verb = _SINGULAR.get(verb, verb)
        if total is None:
            noun, *rest = things.split(" ")
            things = " ".join([noun.removesuffix("s"), *rest])
    of = "" if total is None else f" of {total:,}"
    return f"{number:,}{of} {things} {verb}".rstrip()


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Hide the progress bars and notes that transformers prints for its developers."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def progress_bar(title: str, total: int | None = None, show: bool = True) -> Iterator[Callable[..., None]]:
    """A bar for one piece of work: `with progress_bar("Reading") as advance: advance(10)`.

    `advance(count, note="…")` moves the bar and may change the note after it. Without `total` it counts. If there
    is no terminal, as in a log, there is a line now and then instead. Of several processes the first one shows it.
    """
    show = show and ranks.speaks()
    if show and not (console.is_terminal or console.is_jupyter):
        lines = _Lines(title, total)
        yield lines.advance
        lines.end()
        return
    columns = [TextColumn("{task.description}"), *[BarColumn(16)] * (console.width >= WIDE), MofNCompleteColumn()]
    columns += [_Elapsed(), *[_Remaining()] * (total is not None), TextColumn("{task.fields[note]}")]
    with Progress(*columns, console=console, disable=not show) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(count: int = 1, note: str | None = None) -> None:
            fields: dict[str, Any] = {} if note is None else {"note": note}
            bar.update(task, advance=count, **fields)

        yield advance


class _Elapsed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{_clock(task.finished_time or task.elapsed or 0)} passed", "progress.elapsed", no_wrap=True)


class _Remaining(ProgressColumn):
    max_refresh = 0.5  # it would flicker

    def render(self, task: Task) -> Text:
        left = "-:--" if task.time_remaining is None else _clock(task.time_remaining)
        return Text(f"{left} left", "progress.remaining", no_wrap=True)


class _Lines:
    """Progress in a log: the time, how far, how fast, how long still, and the note.

        14:05:40 Training: 120 of 1,600, 3.2 per second, 7:42 left, loss 0.532

    The speed is that since the line before. Work that is done at once leaves no line.
    """

    def __init__(self, title: str, total: int | None):
        self.title, self.total, self.note, self.done = title, total, "", 0
        self.started = self.said = time.monotonic()
        self.done_then: int | None = None  # at the last line: at first what was done before, of work that is resumed
        self.pause = FIRST_LINE

    def advance(self, count: int = 1, note: str | None = None) -> None:
        self.done += count
        self.note = self.note if note is None else note
        now = time.monotonic()
        if self.done_then is None:
            self.done_then = self.done
        elif now - self.said >= self.pause:
            rate = (self.done - self.done_then) / (now - self.said)
            self._say(f"{rate:,.1f} per second", *self._left(rate))
            self.said, self.done_then, self.pause = now, self.done, NEXT_LINE

    def end(self) -> None:
        """The last line."""
        seconds = time.monotonic() - self.started
        if seconds >= 1 or self.note:
            self._say(f"{_clock(seconds)} passed")

    def _left(self, rate: float) -> Iterator[str]:
        if self.total is not None and rate:
            yield f"{_clock((self.total - self.done) / rate)} left"

    def _say(self, *parts: str) -> None:
        count = f"{self.done:,}" + ("" if self.total is None else f" of {self.total:,}")
        note = [self.note] if self.note else []
        say(f"{time.strftime('%H:%M:%S')} {self.title}: {', '.join([count, *parts, *note])}")


def _clock(seconds: float) -> str:
    """7:42, or from an hour on 1:07:42."""
    minutes, left = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{left:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{left:02}"
