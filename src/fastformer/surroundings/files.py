"""Writing files so that nothing is lost: aside first, renamed into place when complete."""

import errno
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

from fastformer.errors import UserError

_numbers = itertools.count()


class FullDisk(UserError):
    """The disk is full: whatever is written next fails too."""


# What Rust's and torch's writers say when the disk is full: less was written than they gave, or nothing.
_FULL_DISK = ("No space left", "file write failed", "PytorchStreamWriter failed", "unexpected pos", "iostream error")


def cache_folder() -> Path:
    """Where we keep what can be made again: `$FASTFORMER_CACHE` or `~/.cache/fastformer`. It may be deleted."""
    named = os.environ.get("FASTFORMER_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "fastformer"


def content_hash(path: str | Path) -> str:
    """A hash of what a file holds; of a large one that is asked for again and again it is made once."""
    path = Path(path)
    try:
        found = path.stat()
        return _content_hash(path.resolve(), found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the file") from error


@lru_cache(maxsize=256)
def _content_hash(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def digest(content: Any) -> str:
    """A short name for what determines a result."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=6).hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people read too."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


SUMS = "sums.json"  # of a folder that is kept


def write_sums(folder: Path) -> None:
    """Write the checksums of all files of a cache folder into it, so that a reader can tell whether they are intact."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    write_json(folder / SUMS, {path.relative_to(folder).as_posix(): _sum(path) for path in files})


def has_sums(folder: Path) -> bool:
    """Whether all files of a folder of the cache are what was written."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        return all(_sum(folder / name) == sum for name, sum in sums.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def check_apart(output: Any, *sources: Any) -> None:
    """Refuse to write results over the file that they are made from. Arguments that are not paths are ignored."""
    if not isinstance(output, str | Path) or not os.path.isfile(output):
        return
    paths = (path for path in sources if isinstance(path, str | Path) and os.path.exists(path))
    if any(os.path.samefile(output, path) for path in paths):
        raise UserError(f"{output}: would be replaced by what is made from it; give another --output")


@contextmanager
def writing_aside(path: str | Path) -> Iterator[Path]:
    """A place beside `path` to write to; it becomes `path` when all is well, and vanishes otherwise.

    A link stays a link, and a file keeps its permissions. A device or a pipe is written to itself.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        with explain_full_disk(path):
            yield path
        return
    path = Path(os.path.realpath(path))  # unlike `resolve` it takes a link to itself as it is, on every Python
    if path.is_symlink():
        raise UserError(f"{path}: is a link that leads to itself; give another place")
    aside = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.saving")  # others may write there too
    with explain_full_disk(path):
        try:
            try:
                aside.touch()  # now rather than after the work
                if path.exists():
                    aside.chmod(stat.S_IMODE(path.stat().st_mode))
            except OSError as error:
                raise UserError(f"{path}: cannot be written ({error.strerror}); give another place") from error
            yield aside
            os.replace(aside, path)
        finally:
            with suppress(OSError):
                aside.unlink()


@contextmanager
def writing_text(path: str | Path) -> Iterator[TextIO]:
    """Open a result file for writing; it appears under its name only when complete."""
    with writing_aside(path) as aside, open(aside, "w", encoding="utf-8") as file:
        yield file
        file.flush()


@contextmanager
def explain_full_disk(place: Path) -> Iterator[None]:
    """Turn the various errors of a full disk into one clear line."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        full |= any(part in str(error) for part in _FULL_DISK)
        if full:
            raise FullDisk(f"{place}: the disk is full, nothing was replaced; free some space and run again") from error
        raise
