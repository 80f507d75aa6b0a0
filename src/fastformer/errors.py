"""The exceptions that the command line answers with one line instead of a traceback."""


class UserError(ValueError):
    """Something the user can mend: the message is one line saying what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


class Interrupted(Exception):
    """Training was stopped by Ctrl-C or a termination signal, after writing a checkpoint. Exit code 130."""


def diverged() -> UserError:
    """What is said of a model whose scores are no numbers any more."""
    return UserError("scores are not finite numbers: the training diverged; lower --learning-rate")
