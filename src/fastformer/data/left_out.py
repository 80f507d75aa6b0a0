"""Rows that are left out: counted by reason and reported in one line, once however often a source is read."""

from collections import Counter
from functools import cache
from typing import Any

from fastformer.surroundings.progress import say


class LeftOut(Counter):
    """Counts what does not fit, by reason."""

    def say(self, source: Any, total: int, what: str) -> None:
        """One line if anything was left out."""
        if self:
            say_once(f"{source}: {self.total():,} of {total:,} {what} left out ({self.reasons()}).")

    def reasons(self) -> str:
        """The reasons, each with its number of rows."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.items())


@cache
def say_once(message: str) -> None:
    """Print a line for the person who waits, unless it was printed before."""
    say(message)
