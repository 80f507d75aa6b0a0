"""What `--resume` may continue: only the same settings on the same data."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer_pt_utils import safe_globals

from fastformer.errors import UserError
from fastformer.runs.checkpoints import (
    CHECKPOINT_MARK,
    checkpoints_of,
    last_complete_checkpoint,
    remove_checkpoints,
    what_is_missing,
)
from fastformer.runs.record import read_json, read_object
from fastformer.surroundings import ranks
from fastformer.surroundings.files import write_json, writing_aside
from fastformer.surroundings.machine import forget_peak_memory
from fastformer.surroundings.progress import say
from fastformer.version import __version__

_SECONDS = "seconds.json"
_ANEW = "--overwrite starts anew"


class OtherRun(UserError):
    """What was interrupted is not what is asked for now."""

    exit_code = 78  # "configuration error" among the codes of sysexits.h


def begin(checkpoints: Path, settings: dict[str, Any], resume: bool) -> bool:
    """Make the folder of checkpoints and write down the settings in it; return whether there is something to continue.

    A setting under `training` counts like any other. From here on the process' peak memory is this training's.
    """
    forget_peak_memory()
    if not ranks.is_first():  # the first process has done it
        ranks.check_shared(checkpoints / CHECKPOINT_MARK)
        return resume and last_complete_checkpoint(checkpoints) is not None
    if resume:
        _pass_over_damaged(checkpoints)
    if resume and last_complete_checkpoint(checkpoints) is None:
        say(f"{checkpoints}: no checkpoint to resume from; starting from the beginning.")
        resume = False
    if resume:
        _check_same_settings(checkpoints, settings)
        return True
    remove_checkpoints(checkpoints)
    checkpoints.mkdir(parents=True)
    with writing_aside(checkpoints / CHECKPOINT_MARK) as aside:  # half of it would not say whose folder this is
        write_json(aside, {"fastformer": __version__, **settings})
    return False


def _pass_over_damaged(checkpoints: Path) -> None:
    """Delete checkpoints that lack a part or whose parts cannot be read, and say so: an older one, or none, serves.

    Continuing without the optimizer's moments or the state of the random numbers would end with other weights.
    """
    for folder in (checkpoints, *(path.parent for path in checkpoints.glob("*/steps"))):
        for checkpoint in checkpoints_of(folder):
            wrong = what_is_missing(checkpoint) or _unreadable(checkpoint)
            if wrong is not None:
                shutil.rmtree(checkpoint, ignore_errors=True)
                say(f"{checkpoint}: {wrong} is missing or damaged, so this checkpoint is not used.")
        for checkpoint in checkpoints_of(folder):
            best = read_object(checkpoint / "trainer_state.json")["best_model_checkpoint"]
            if best and not (checkpoint.with_name(Path(str(best)).name)).is_dir():
                shutil.rmtree(checkpoint, ignore_errors=True)
                say(f"{checkpoint}: the checkpoint of its best epoch is gone, so it is not used.")


def _unreadable(checkpoint: Path) -> str | None:
    """A part of a checkpoint that cannot be loaded; none is ever unpickled into more than tensors and numbers."""
    for name in ("optimizer.pt", "scheduler.pt", *(path.name for path in checkpoint.glob("rng_state*.pth"))):
        try:
            with safe_globals():  # of NumPy's random state
                torch.load(checkpoint / name, map_location="cpu", weights_only=True)
        except Exception:  # damaged bytes, other types, code: torch raises many kinds
            return name
    try:
        with safe_open(checkpoint / "model.safetensors", framework="np") as weights:
            weights.keys()
        read_object(checkpoint / "trainer_state.json")
    except (OSError, SafetensorError):
        return "model.safetensors"
    except UserError:
        return "trainer_state.json"
    return None


def seconds_spent(checkpoints: Path) -> float:
    """How long the interrupted run that is continued has worked, whichever of its trainings was the last."""
    noted = [0.0]
    for path in (checkpoints / _SECONDS, *checkpoints.glob(f"*/{_SECONDS}")):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            noted.append(float(json.loads(path.read_text(encoding="utf-8"))["seconds"]))
    return max(noted)


def note_seconds(checkpoints: Path, seconds: float) -> None:
    """Remember how long a run has worked, for the one that continues it."""
    write_json(checkpoints / _SECONDS, {"seconds": round(seconds, 3)})


def _check_same_settings(checkpoints: Path, settings: dict[str, Any]) -> None:
    """Refuse to resume with other settings: the result would be neither of the two runs."""
    before = read_object(checkpoints / CHECKPOINT_MARK, _ANEW)
    now = json.loads(json.dumps({"fastformer": __version__, **settings}))
    trained = before.pop("training", None)
    before |= trained if isinstance(trained, dict) else {}
    now |= now.pop("training")
    for name in now:
        if before.get(name) != now[name]:
            raise OtherRun(
                f"{checkpoints.parent}: the interrupted run has {name}={before.get(name)!r}, this command "
                f"{name}={now[name]!r}; use the same settings to --resume, or --overwrite to start anew"
            )


def check_same_arrays(checkpoints: Path, parts: Mapping[str, Sequence[np.ndarray]], resume: bool) -> None:
    """Remember a fingerprint of the arrays that each part of the data consists of; refuse to resume on others."""
    path = checkpoints / "data.json"
    fingerprint = {name: _fingerprint(arrays) for name, arrays in parts.items()}
    if not ranks.is_first():
        if read_json(path, _ANEW) != fingerprint:
            raise UserError(f"process {ranks.rank()} reads other data than process 0; give all machines the same files")
        return
    if resume and path.is_file() and path.stat().st_size:
        if read_json(path, _ANEW) == fingerprint:
            return
        raise OtherRun(
            f"{checkpoints.parent}: the data has changed since the run was interrupted; "
            "give the same files to --resume, or --overwrite to start anew"
        )
    with writing_aside(path) as aside:
        write_json(aside, fingerprint)


def _fingerprint(arrays: Sequence[np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:  # one may be a file larger than memory
        for start in range(0, len(array), 1 << 24):
            digest.update(np.ascontiguousarray(array[start : start + (1 << 24)]).data)
    return digest.hexdigest()
