"""The manifest of a folder of answers: what they are answers to, and a line per file that is done.

The first line says what was asked: verb, run, options. Then every file has a line, the last of which counts:

    {"input": "a.csv", "bytes": 5310, "checksum": "…", "changed": "…", "output": "a.csv", "output_bytes": 9120,
     "output_checksum": "…", "rows": 60, "seconds": 0.8, "notes": []}

or `{"input": "b.csv", "error": "…"}`. A line is written when the output is in place. So whenever a process is killed,
the manifest is true: an output without its line is made again.
"""

import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastformer.errors import UserError
from fastformer.scale.shards import MANIFEST, Place, Shard
from fastformer.surroundings.files import explain_full_disk, writing_text

SAVING = ".saving"  # the ending of files that are still being written
PAUSE = 10.0  # seconds between two copies of a manifest that cannot be appended to


class Manifest:
    """The manifest of `folder`, opened by the one process that writes there."""

    def __init__(self, folder: Place, asked: dict[str, Any], about: dict[str, Any]):
        self.folder, self.asked, self.about = folder, asked, about
        self.place = Place(folder.below(MANIFEST))
        self.entries: dict[str, dict[str, Any]] = {}
        self._written = 0.0
        self.files = self._swept()
        if not self._read() and self.files:
            raise UserError(f"{folder.named}: is not empty, and no answers of ours are there; give another --output")
        self._write_whole()  # drops the half line that a killed command may have left

    def _swept(self) -> dict[str, int | None]:
        """The files of the folder and their sizes. What a killed process left half-written is deleted."""
        found: dict[str, int | None] = {}
        for path, about in self.folder.files().items():
            if path.endswith(SAVING) and path.rpartition("/")[2].startswith("."):
                with suppress(OSError):
                    self.folder.system.rm_file(path)
            else:
                found[path] = about.get("size")
        return found

    def _read(self) -> bool:
        """Read what an earlier command wrote; False if there was none."""
        if self.place.path not in self.files:
            return False
        lines: list[Any] = []
        whole = self.place.system.cat_file(self.place.path).decode(errors="replace")
        for line in whole.split("\n"):  # `splitlines` would cut at U+2028, which a name may have in it
            with suppress(ValueError):  # the last, if the command was killed
                lines.append(json.loads(line))
        if not lines or not isinstance(lines[0], dict) or "fastformer" not in lines[0]:
            raise UserError(f"{self.place.named}: not a manifest of ours; give another --output")
        for name, value in self.asked.items():
            if (before := lines[0].get(name)) != value:
                told = f"{name} {_told(before)}, not {_told(value)}"
                if name == "model":
                    told = f"another run than {self.about['run']} is now, that of {lines[0].get('run')} then"
                raise UserError(
                    f"{self.folder.named}: has answers of another command ({told}); give another --output, or delete "
                    "that folder"
                )
        self.entries = {entry["input"]: entry for entry in lines[1:] if isinstance(entry, dict) and "input" in entry}
        return True

    def left(self, shards: list[Shard]) -> list[Shard]:
        """The files that are still to do: their output is missing, or they have changed since.

        A file with another date and the same size may still be the same: its checksum decides.
        """
        found = []
        for shard in shards:
            entry = self.entries.get(shard.name, {})
            there = self.files.get(Place(shard.output).path)
            made = "error" not in entry and there is not None and there == entry.get("output_bytes")
            same_size = made and shard.bytes == entry.get("bytes")
            if not same_size:
                found.append(shard)
            elif shard.changed != entry.get("changed"):
                found.append(replace(shard, known=entry.get("checksum")))
        return found

    def add(self, entry: dict[str, Any]) -> None:
        """Write the line of a file."""
        self.entries[entry["input"]] = entry
        if "error" not in entry:
            self.files[Place(self.folder.below(entry["output"])).path] = entry["output_bytes"]
        if self.folder.is_local:
            with explain_full_disk(Path(self.place.path)), open(self.place.path, "a", encoding="utf-8") as file:
                file.write(_line(entry))
        elif time.monotonic() - self._written > PAUSE:
            self._write_whole()

    def close(self) -> None:
        """Leave a whole manifest, and no half-written file beside the answers."""
        if not self.folder.is_local:
            self._write_whole()
        self._swept()

    def _write_whole(self) -> None:
        lines = "".join(map(_line, [self.about | self.asked, *self.entries.values()]))
        self._written = time.monotonic()
        if not self.folder.is_local:
            self.place.system.pipe_file(self.place.path, lines.encode())
            return
        with writing_text(self.place.path) as file:
            file.write(lines)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + "\n"  # in ASCII: the name of a file may be no UTF-8


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
