"""The JSON files of a run folder: read, and run.json checked, in this one place.

A folder may be damaged, or come from a stranger. What is wrong with it is one line that names the file and the field.
Nothing here imports PyTorch: an export is opened without it.
"""

import json
from pathlib import Path
from typing import Any

from fastformer.engine.settings import problem_with
from fastformer.errors import UserError

RUN_FILE = "run.json"
COMPLETE = ".saved"  # in a run folder: a run that is complete, whose files are on their way into place
Mark = tuple[int, int, int]
# What every task has. Entries of a task's own stand in its declaration, its settings in their dataclass.
COMMON: dict[str, Any] = {
    "fastformer": str,
    "task": str,
    "preset": str,
    "settings": dict[str, Any],
    "data": dict[str, Any],
    "files": list[str],
    "export": dict[str, Any],
    "longest": int | None,
    "estimator": dict[str, Any],
}


def mark_of(folder: Path) -> Mark | None:
    """What tells the run in a folder from the one that replaces it; None if there is no run.json."""
    try:
        found = (folder / RUN_FILE).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def is_replaced(folder: Path, mark: Mark | None) -> bool:
    """Whether a run that had this mark before its files were read may have lent some of them to another.

    The files of a new run are moved into place between two moments: `COMPLETE` appears, and run.json, the last of them,
    is another. So `COMPLETE` is looked for first: if it is gone again, run.json has changed.
    """
    return (folder / COMPLETE).is_dir() or mark_of(folder) != mark


def read_json(path: Path, mend: str = "train the run again") -> Any:
    """What a JSON file holds; one that is not there is a FileNotFoundError, a damaged one a UserError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except RecursionError:
        raise UserError(f"{path}: cannot be read (too many lists within lists); {mend}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())}); {mend}") from error


def read_object(path: Path, mend: str = "train the run again") -> dict[str, Any]:
    """`read_json` of a file that holds names and values."""
    found = read_json(path, mend)
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds no JSON object; {mend}")
    return found


def read_record(folder: Path) -> dict[str, Any]:
    """run.json, every field of which is what it may be."""
    from fastformer.tasks.base import declared

    path = folder / RUN_FILE
    record = read_object(path)
    if "task" not in record:
        raise UserError(f"{path}: names no task; train the run again")
    task = declared().get(record["task"]) if isinstance(record["task"], str) else None
    for name, kind in {**COMMON, **(task.record if task is not None else {})}.items():
        if name in record and (wrong := problem_with(record[name], kind)):
            raise UserError(f"{path}: {name} {wrong}; train the run again")
    for name in record.get("files", ()):
        if Path(name).name != name:
            raise UserError(f"{path}: files names {name!r}, which is not in the folder; train the run again")
    if task is not None and "settings" in record:
        try:
            task.settings.from_record(record)
        except (UserError, KeyError) as error:
            told = error if isinstance(error, UserError) else f"has no {error.args[0]}"
            raise UserError(f"{path}: {told}; train the run again") from None
    return record


def check_shards(folder: Path) -> None:
    """Refuse an index of weights that names files outside its folder: a stranger's folder reads what is in it."""
    for path in folder.glob("*.index.json"):
        shards = read_object(path).get("weight_map")
        for name in shards.values() if isinstance(shards, dict) else ():
            if not isinstance(name, str) or Path(name).name != name:
                raise UserError(f"{path}: weight_map names {name!r}, which is not a file of this folder; do not use it")


def holds_key(path: Path, key: str) -> bool:
    """Whether a JSON file is there and has a key that marks it as ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and key in content
