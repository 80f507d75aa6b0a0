"""Standard input, and whether it pauses: then what has come so far is answered, instead of waiting for more.

Code that collects many texts to work on at a time asks `input_pauses` before it takes the next one. While lines wait to
be read, or come faster than they are answered, the answer is no, and nothing is slower than from a file.
"""

import io
import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from fastformer.errors import UserError

STANDARD_INPUT = "standard input"  # what errors call it
PAUSE = 0.05  # seconds without a line that are a pause
LONGEST_WAIT = 0.25  # seconds that a text waits for others, if lines come slowly

Bytes: TypeAlias = "io.BufferedReader[Any] | io.BufferedRandom"  # an open file that can be looked into: it has `peek`


Item = TypeVar("Item")


class _Source(io.RawIOBase):
    """The bytes of a pipe or a terminal; `dry` while somebody looks at what is buffered, and nothing may be read."""

    def __init__(self, raw: io.FileIO):
        self.raw, self.dry = raw, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return None if self.dry else self.raw.readinto(buffer)


class _Pausing(io.BufferedReader):
    """A pipe or a terminal that knows whether reading a line would have to wait."""

    def __init__(self, raw: io.FileIO):
        self.source = _Source(raw)
        self.number = raw.fileno()
        super().__init__(self.source, 1 << 16)

    def waits(self, seconds: float) -> bool:
        """Whether no line is there or comes within this many seconds. At the end of the input the answer is no."""
        if self._comes(0):
            return False
        self.source.dry = True  # so that peek gives what is buffered, and does not wait for more
        buffered = self.peek(1)
        self.source.dry = False
        return b"\n" not in buffered and not self._comes(seconds)

    def _comes(self, seconds: float) -> bool:
        return bool(select.select([self.number], [], [], seconds)[0])


_opened: tuple[Any, Bytes] | None = None  # sys.stdin, and what reads it


def standard_input() -> Bytes:
    """The bytes of standard input, which may be closed."""
    global _opened
    if sys.stdin is None:
        raise UserError("standard input is closed; give a file in place of -, or pipe the text in")
    if _opened is None or _opened[0] is not sys.stdin:
        _opened = sys.stdin, _open(sys.stdin.buffer)
    return _opened[1]


def refuse_endless(device: int, name: str) -> None:
    """Refuse a device such as /dev/zero, which never ends; a terminal does, and /dev/null at once. It is closed."""
    try:
        endless = not os.isatty(device) and not os.path.samestat(os.fstat(device), os.stat(os.devnull))
    finally:
        os.close(device)
    if endless:
        raise UserError(f"{name}: is a device that never ends; give a file")


def _open(stream: Any) -> Bytes:
    """One that says when it pauses, if the system can tell; files are left as they are."""
    raw = getattr(stream, "raw", stream)
    if isinstance(raw, io.FileIO) and stat.S_ISCHR(os.fstat(raw.fileno()).st_mode):
        refuse_endless(os.dup(raw.fileno()), STANDARD_INPUT)
    try:
        if isinstance(raw, io.FileIO) and not raw.seekable():
            select.select([raw.fileno()], [], [], 0)
            return _Pausing(raw)
    except (OSError, ValueError):  # Windows knows of sockets only
        pass
    return stream if hasattr(stream, "peek") else io.BufferedReader(stream)


def input_pauses(since: float | None = None) -> bool:
    """Whether standard input is being read and has no further line now.

    `since` is when the oldest text came that waits for others, by `time.monotonic`: it does not wait for ever.
    Without it the answer is given at once.
    """
    reader = None if _opened is None else _opened[1]
    if not isinstance(reader, _Pausing) or reader.closed:
        return False
    patience = 0.0 if since is None else min(PAUSE, since + LONGEST_WAIT - time.monotonic())
    return reader.waits(max(0.0, patience))


def some_at_a_time(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Consecutive items, at most `most` at a time; fewer if standard input pauses."""
    some: list[Item] = []
    since = 0.0
    for item in items:
        since = since if some else time.monotonic()
        some.append(item)
        if len(some) == most or input_pauses(since):
            yield some
            some = []
    if some:
        yield some
