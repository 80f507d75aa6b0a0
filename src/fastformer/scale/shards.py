"""Which files a command is about, and where the answers to each go.

A source is a folder, all of whose files are read, a pattern such as `data/*/part-*.parquet`, or a file. Source and
output may be anywhere that fsspec reaches: `s3://bucket/texts`, with s3fs installed. A file is identified by
its path below the folder that all files have in common, and so is its output.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fastformer.data.opening import is_data_file, split_name
from fastformer.errors import UserError
from fastformer.surroundings.progress import how_many, say

MANIFEST = "manifest.jsonl"
ANSWERS = {".parquet": ".parquet", ".csv": ".csv", ".tsv": ".csv", ".xlsx": ".csv"}  # otherwise lines of JSON
ENDINGS: Mapping[str, Mapping[str, str]] = {"predict": ANSWERS, "embed": {}, "evaluate": {}}
DEFAULT_ENDING = {"predict": ".jsonl", "embed": ".parquet", "evaluate": ".json"}
_MAGIC = frozenset("*?[")
_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True)
class Shard:
    """One file of many."""

    name: str  # its path below what all files have in common
    source: str
    output: str
    output_name: str  # the path of the output below --output
    bytes: int
    changed: str  # when, or which version it is, as its place tells
    known: str | None = None  # checksum of the file that the output which is there was made from


class Place:
    """A file, a folder or a pattern, and the file system that it is on."""

    def __init__(self, named: str | Path):
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        self.named = str(named)
        try:
            if "://" in self.named:
                self.system, path = fsspec.core.url_to_fs(self.named)
            else:  # fsspec would take `a::b` for a chain of file systems
                self.system, path = LocalFileSystem(), LocalFileSystem._strip_protocol(self.named)
        except (ValueError, ImportError) as error:
            raise UserError(f"{self.named}: cannot be reached ({error}); check the part before ://") from None
        self.is_local = isinstance(self.system, LocalFileSystem)
        self.path = str(path)

    def below(self, name: str) -> str:
        """The path of a file in this folder, as `Place` takes it."""
        joined = f"{self.path.rstrip('/')}/{name}"
        return joined if self.is_local else str(self.system.unstrip_protocol(joined))

    def files(self) -> dict[str, dict[str, Any]]:
        """Everything below this folder: path -> what the file system says of it."""
        self.system.invalidate_cache()
        told = {"on_error": "raise"} if self.is_local else {}  # or it passes over folders that may not be read
        return dict(self.system.find(self.path, detail=True, **told))


def has_magic(source: str) -> bool:
    """Whether a source is a pattern; a file may be called like one."""
    return bool(_MAGIC & set(source)) and not os.path.exists(source)


def are_many(source: Any, output: Any, /, **only_many: Any) -> bool:
    """Whether a command is about a folder of files to a folder of answers, and not about one source.

    `only_many` are options that are for many files; given with one source they are refused.
    """
    if isinstance(source, str | Path) and isinstance(output, str | Path):
        source, output = str(source), str(output)
        named_file = Path(output).suffix.lower() in (*ANSWERS, ".jsonl", ".ndjson", ".json", ".txt", ".npy")
        to_folder = output.endswith(("/", os.sep)) or os.path.isdir(output)
        elsewhere = "://" in source or "://" in output
        if source != "-" and (to_folder or (not named_file and (os.path.isdir(source) or not os.path.exists(source)))):
            return True
        if has_magic(source) or elsewhere:
            raise UserError(f"{output}: {source} may be many files; give --output a folder, such as {output}/")
    for name, value in only_many.items():
        if value is not None:
            raise UserError(
                f"--{name}: is for many files; give a folder or a pattern in quotes, and --output a folder, or leave "
                "it out"
            )
    return False


def find_shards(verb: str, source: str | Path, output: str | Path, any_name: bool = False) -> list[Shard]:
    """The files of a source, the largest first, so that none is left for the end.

    In a folder only those are meant whose names say what they hold (or with `any_name` all), and none below a name that
    begins with `.` or `_`, which others write beside data.
    """
    place, target = Place(source), Place(output)
    base, found = _listed(place, any_name)
    _check_apart(place, base, target)
    shards: dict[str, Shard] = {}
    for path, about in sorted(found.items(), key=lambda one: (-(one[1].get("size") or 0), one[0])):
        name = path.removeprefix(base).lstrip("/")
        stem, ending = split_name(name)
        output_name = stem + ENDINGS[verb].get(ending, DEFAULT_ENDING[verb])
        if output_name == MANIFEST:
            raise UserError(
                f"{name}: answers to it would be called {MANIFEST}, as the list of what is done is; rename the file"
            )
        if output_name in shards:
            raise UserError(
                f"{name} and {shards[output_name].name}: answers to both would be called {output_name}; answer them by "
                "two commands, to two folders"
            )
        version = _version(path, about, place.is_local)
        where = path if place.is_local else str(place.system.unstrip_protocol(path))
        size = about.get("size") or 0
        shards[output_name] = Shard(name, where, target.below(output_name), output_name, size, version)
    return list(shards.values())


def _listed(place: Place, any_name: bool) -> tuple[str, dict[str, dict[str, Any]]]:
    """The folder that all files are below, and the files."""
    system, path = place.system, place.path
    try:
        if system.isfile(path):
            return str(PurePosixPath(path).parent), {path: system.info(path)}
        if _MAGIC & set(path) and not system.exists(path):
            found = _only_files(system.glob(path, detail=True))
            if not found:
                raise UserError(f"{place.named}: no file matches; check the pattern, and put it in quotes")
            return _fixed_part(path), found
        if not system.isdir(path):
            raise UserError(f"{place.named}: no such file or folder; check the path")
        everything = place.files()
    except UserError:
        raise
    except Exception as error:  # every file system has its own; most are OSErrors
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{place.named}: cannot be read ({reason}); check the path and your rights") from error
    base = path.rstrip("/")
    visible = {n: about for n, about in _only_files(everything).items() if not _is_hidden(n.removeprefix(base))}
    found = {name: about for name, about in visible.items() if any_name or is_data_file(name)}
    if not found:
        others = f" among its {how_many(len(visible), 'files')}" if visible else ""
        raise UserError(
            f"{place.named}: no file to read{others}; names must end in .csv, .tsv, .jsonl, .json, .parquet, .xlsx or "
            ".txt (and .gz, .xz or .zip)"
        )
    return base, found


def _only_files(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Files and links to them; a link that leads nowhere too, whose reader will say so. No pipes, no folders."""
    files = {name: about for name, about in found.items() if about["type"] == "file" or about.get("islink")}
    for name in [name for name, about in files.items() if about.get("islink") and os.path.isdir(name)]:
        say(f"{name}: a link to a folder is not followed; give that folder itself.")
        del files[name]
    return files


def _version(path: str, about: dict[str, Any], is_local: bool) -> str:
    """What changes when a file does."""
    if is_local:  # of what a link leads to
        return str(os.stat(path).st_mtime_ns) if os.path.exists(path) else ""
    return next((str(about[key]) for key in _VERSIONS if about.get(key) is not None), "")


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _fixed_part(pattern: str) -> str:
    """The folder of a pattern, as far as no part of it is a pattern."""
    parts = pattern.split("/")[:-1]
    fixed = next((number for number, part in enumerate(parts) if _MAGIC & set(part)), len(parts))
    return "/".join(parts[:fixed])


def _check_apart(place: Place, base: str, target: Place) -> None:
    """Refuse an output that the same command would read as its input the next time."""
    if type(place.system) is not type(target.system):
        return
    inside, output = (path.rstrip("/") + "/" for path in (base, target.path))
    if place.is_local:
        inside, output = (os.path.realpath(path) + "/" for path in (inside, output))
    rest = place.path.removeprefix(base).strip("/")
    is_deep = not rest or "/" in rest or "**" in rest  # a folder, or a pattern that looks into folders
    if output == inside or (is_deep and output.startswith(inside)):
        raise UserError(
            f"{target.named}: is inside {place.named}, and answers would be read as data; give another --output"
        )
