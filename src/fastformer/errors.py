"""The exceptions that the command line answers with one line instead of a traceback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_WORD, LONGEST_MESSAGE = 300, 900  # characters of a message


class UserError(ValueError):
    """Something the user can correct: the message is one line saying what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str = ""):
        super().__init__(shortened(message))


def shortened(message: str) -> str:
    """A message on one line that is not too long: long words, and then the whole message, lose their middle."""
    message = " ".join(message.splitlines()).encode(errors="backslashreplace").decode()  # as it will be printed
    message = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda found: _ends(found[0], LONGEST_WORD // 2), message)
    return _ends(message, LONGEST_MESSAGE)


def _ends(text: str, most: int) -> str:
    """The text, or its beginning and its end if it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most * 3 // 4]}…{text[-most // 4 :]}"


class Interrupted(Exception):
    """Training was stopped by Ctrl-C or a termination signal, after writing a checkpoint. Exit code 130."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around an import that only the extra `name` of this package installs: if it fails, the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed; run: pip install 'fastformer[{name}]'") from None


def diverged(how: str = "scores are not finite numbers") -> UserError:
    """The error for a model whose scores have become infinite or NaN, or whose loss has grown without bounds."""
    return UserError(f"{how}: the training diverged; lower --learning-rate")


@contextmanager
def enough_memory(what: str = "this command") -> Iterator[None]:
    """Around work whose size a user chooses: if memory does not suffice, the error says how much was asked for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if (told := no_memory(error)) is None:
            raise
        raise UserError(f"{what} needs more memory than there is ({told}); use smaller sizes or less data") from error


def no_memory(error: BaseException) -> str | None:
    """How an error of NumPy, PyTorch or Python describes missing memory; None for other errors."""
    said = " ".join(str(error).split())
    if found := re.search(r"tried to allocate (\d+) bytes|Unable to allocate ([\d.]+ \w+)", said):
        return f"{int(found[1]) / 1e9:,.1f} GB at once" if found[1] else f"{found[2]} at once"
    if isinstance(error, MemoryError) or "bad_alloc" in said or "allocate memory" in said:
        return "it ran out"
    return None
