"""Progress of long work, on standard error so that results can be piped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers.utils import logging

console = Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """Print one line for the person who waits."""
    console.print(message, markup=False, emoji=False, soft_wrap=True)


_SINGULAR = {"were": "was", "are": "is", "have": "has"}


def how_many(number: int, things: str, verb: str = "", total: int | None = None) -> str:
    """A number with the noun and verb that fit it: `1 text was`, `2 texts were`, `1 of 4 texts was`.

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

    `advance(count, note="…")` moves the bar and may change the note behind it. Without `total` it counts.
    """
    columns = [TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn()]
    columns += [TimeRemainingColumn()] * (total is not None) + [TextColumn("{task.fields[note]}")]
    with Progress(*columns, console=console, disable=not show) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(count: int = 1, note: str | None = None) -> None:
            fields: dict[str, Any] = {} if note is None else {"note": note}
            bar.update(task, advance=count, **fields)

        yield advance
