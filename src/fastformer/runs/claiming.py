"""The folder that a training writes to: which ones it may have, and that it is left unharmed if nothing comes of it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastformer.errors import UserError
from fastformer.runs.checkpoints import CHECKPOINTS, are_ours, last_complete_checkpoint, remove_checkpoints
from fastformer.runs.record import RUN_FILE, holds_key
from fastformer.runs.saving import ASIDE, finish_saving, locked


def claim_output(folder: str | Path, *, resume: bool, overwrite: bool) -> Path:
    """Check that a training may write to `folder`, before any work is done; no run there is changed yet.

    A folder with anything in it must be a run of ours. With `resume` an interrupted training is continued, whatever
    else is there.
    """
    folder = Path(folder)
    if any("\ud800" <= one <= "\udfff" for one in str(folder)):
        raise UserError(f"{folder}: a name that is not UTF-8, which tokenizers cannot write to; give --output another")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give --output a folder")
    finish_saving(folder)
    finished, checkpoints = holds_key(folder / RUN_FILE, "task"), folder / CHECKPOINTS
    ours = are_ours(checkpoints) if checkpoints.exists() else finished
    if holds_anything(folder) and not ours:
        raise UserError(f"{folder}: is not empty and not a run folder; give --output another place")
    interrupted = last_complete_checkpoint(checkpoints) is not None
    if not overwrite and not (resume and interrupted):
        if finished:
            raise UserError(f"{folder}: holds a finished run; give another --output, or --overwrite to replace it")
        if interrupted:
            raise UserError(f"{folder}: holds an interrupted run; --resume continues it, --overwrite starts anew")
    return folder


@contextmanager
def unharmed(folder: Path) -> Iterator[None]:
    """Make `folder`, for this process alone; if training fails before its first checkpoint, leave it as it was."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); give --output another place") from None
    with locked(folder, wait=False):
        try:
            yield
        except BaseException:
            if last_complete_checkpoint(folder / CHECKPOINTS) is None:
                remove_checkpoints(folder / CHECKPOINTS)
                if made:
                    with suppress(OSError):  # what was saved before it failed stays
                        folder.rmdir()
            raise


def holds_anything(folder: Path) -> bool:
    """Whether there is anything in a folder but what a command that was killed had not written to its end."""
    return folder.is_dir() and any(path.name != ASIDE for path in folder.iterdir())
