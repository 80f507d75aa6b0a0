"""How a run folder is written: all of it or nothing, whatever ends the process.

A run is first written as a whole beside the old one, becomes the run by one rename, and then its files move into place.
So after a crash at any moment there is either the old run or the new one, and whoever opens the folder next moves what
is left (`finish_saving`).
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pyarrow import parquet
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.errors import UserError
from fastformer.export.session import MODEL_FILE
from fastformer.runs.checkpoints import CHECKPOINTS, remove_checkpoints
from fastformer.runs.record import COMPLETE, RUN_FILE, read_json
from fastformer.surroundings.files import explain_full_disk, write_json, writing_aside, writing_text
from fastformer.surroundings.progress import quiet_libraries
from fastformer.version import __version__

LARGE_TABLE = 100_000  # numbers of a table that are worth rounding
ASIDE = ".saving"  # a run that is being written
_NAMES = ".names.json"  # in it: what its files are called
_OPTIONAL = ("model.safetensors", MODEL_FILE, "generation_config.json")


class InUse(UserError):
    """Another command is writing to the folder; it will finish."""

    exit_code = 75  # "temporary failure; try again later" among the codes of sysexits.h


@contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Wait for a folder that another process writes to, or refuse it; if the system has no such locks, go on."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # Windows
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InUse(f"{folder}: another command is writing there; wait for it, or give another place") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def save_run(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    record: dict[str, Any],
    metrics: dict[str, Any],
    card: str,
    tables: Mapping[str, pa.Table] | None = None,
) -> None:
    """Write a finished run; `tables` are kept as NAME.parquet. Checkpoints have then served."""
    with writing_run(folder, {"fastformer": __version__, **record}) as aside:
        model.save_pretrained(aside, state_dict=_in_half_where_exact(model.state_dict()))
        tokenizer.save_pretrained(aside)
        (aside / "README.md").write_text(card, encoding="utf-8")
        write_json(aside / "metrics.json", metrics)
        for name, table in (tables or {}).items():
            parquet.write_table(table, aside / f"{name}.parquet")
    remove_checkpoints(folder / CHECKPOINTS)


def _in_half_where_exact(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose numbers are all exact in half precision, stored so; loading them gives the same numbers."""
    halves: dict[int, Tensor] = {}  # by their place in memory: tied weights stay one tensor
    kept = dict(weights)
    for name, weight in weights.items():
        if weight.dtype == torch.float32:
            half = halves.setdefault(weight.data_ptr(), weight.half())
            kept[name] = half if torch.equal(half.float(), weight) else weight
    return kept


def round_tables(model: PreTrainedModel) -> None:
    """Round large embeddings and buffers to half precision, in place: on disk they take half the room (`save_run`)."""
    embeddings = (module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding))
    with torch.no_grad():
        for table in (*embeddings, *model.buffers()):
            if table.numel() >= LARGE_TABLE and table.dtype == torch.float32:
                half = table.half().float()
                if torch.isfinite(half).all():  # else it has numbers too large for that
                    table.copy_(half)


def save_results(folder: Path, metrics: dict[str, Any], card: str) -> None:
    """Replace metrics.json and README.md of a finished run."""
    with writing_aside(folder / "metrics.json") as aside:
        write_json(aside, metrics)
    with writing_text(folder / "README.md") as file:
        file.write(card)


@contextmanager
def writing_run(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A place to write a run's files to; when all are there, they become the run in `folder`."""
    finish_saving(folder)
    aside = folder / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    with explain_full_disk(folder), quiet_libraries():
        try:
            aside.mkdir(parents=True)
            yield aside
            files = sorted({*record.get("files", ()), *(path.name for path in aside.iterdir() if path.is_file())})
            write_json(aside / RUN_FILE, {**record, "files": files})
            for path in filter(Path.is_file, aside.iterdir()):  # safetensors keeps its file to the owner; share it
                path.chmod((aside / RUN_FILE).stat().st_mode)
            names = sorted((path.name for path in aside.iterdir()), key=lambda name: name == RUN_FILE)
            write_json(aside / _NAMES, names)
            aside.rename(folder / COMPLETE)  # from here on it is the run, even if we are killed
            finish_saving(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def finish_saving(folder: Path) -> None:
    """Move those files of a complete run into place that its writer, perhaps killed, has not moved."""
    complete = folder / COMPLETE
    if not complete.is_dir():
        return
    try:
        with locked(complete, wait=True):  # two would get in each other's way
            with suppress(FileNotFoundError):  # all is in place
                _move_into_place(complete, read_json(complete / _NAMES, "save the run again"), folder)
            with suppress(FileNotFoundError):  # somebody else was here
                complete.rmdir()
    except PermissionError as error:
        raise UserError(
            f"{folder}: a run was saved, but its files are not all in place, and cannot be moved ({error.strerror}); "
            "open it once as a user who may write there"
        ) from error


def _move_into_place(complete: Path, names: list[str], folder: Path) -> None:
    for name in _files_of(folder) - set(names):  # of the run before
        (folder / name).unlink(missing_ok=True)
    for name in names:
        if (complete / name).exists():  # else it is in place
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            os.replace(complete / name, folder / name)
    (complete / _NAMES).unlink()


def _files_of(folder: Path) -> set[str]:
    """Files of the run that is in `folder`, as its run.json tells; those of somebody else are none of them."""
    try:
        told = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        told = []
    told = told if isinstance(told, list) else []
    return {*_OPTIONAL, *(name for name in told if isinstance(name, str) and Path(name).name == name)}
