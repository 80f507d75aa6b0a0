"""Checkpoints in a run folder: which are complete, whether they are ours, and how they go."""

import shutil
from contextlib import suppress
from pathlib import Path

from fastformer.runs.record import holds_key

CHECKPOINTS = "checkpoints"
CHECKPOINT_MARK = "settings.json"  # in checkpoints/: says that they are ours


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end and has all its parts."""
    return next((path for path in checkpoints_of(folder) if what_is_missing(path) is None), None)


def checkpoints_of(folder: Path) -> list[Path]:
    """All checkpoints, complete or not, the newest first."""
    found = {path: path.name.rpartition("-")[2] for path in folder.glob("steps/checkpoint-*")}
    return sorted((path for path, step in found.items() if step.isdecimal()), key=lambda path: -int(found[path]))


def what_is_missing(checkpoint: Path) -> str | None:
    """A file without which a checkpoint cannot be continued to the same weights; None if all are there."""
    if not holds_key(checkpoint / "trainer_state.json", "best_model_checkpoint"):  # the trainer writes it last
        return "trainer_state.json"
    states = [path.name for path in checkpoint.glob("rng_state*.pth")]  # of each process, if there were several
    parts = ("model.safetensors", "optimizer.pt", "scheduler.pt", *(states or ["rng_state.pth"]))
    missing = (name for name in parts if not (checkpoint / name).is_file() or not (checkpoint / name).stat().st_size)
    return next(missing, None)


def remove_checkpoints(checkpoints: Path) -> None:
    """Delete the folder. What says that it is ours goes last: a process that is killed leaves nothing in the way."""
    with suppress(OSError):
        for path in checkpoints.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != CHECKPOINT_MARK:
                path.unlink()
    shutil.rmtree(checkpoints, ignore_errors=True)


def are_ours(checkpoints: Path) -> bool:
    """Whether a training made this folder: it says so, or it was killed before it could say anything."""
    if holds_key(checkpoints / CHECKPOINT_MARK, "fastformer"):
        return True
    mark = f".{CHECKPOINT_MARK}."
    inside = checkpoints.iterdir() if checkpoints.is_dir() else [checkpoints]
    return all(
        path.name.startswith(mark) or (path.name == CHECKPOINT_MARK and not path.stat().st_size) for path in inside
    )
