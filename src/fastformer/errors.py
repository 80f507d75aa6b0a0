"""The exceptions that the command line answers with one line instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Something the user can mend: the message is one line saying what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 2


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
