"""Whole documents: a text file, standard input, or a folder of .txt files, each of them one text with a name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastformer.data.keeping import Keep
from fastformer.data.opening import decode, guard, is_table, opened
from fastformer.data.standard_input import STANDARD_INPUT, standard_input
from fastformer.errors import UserError
from fastformer.surroundings.progress import how_many, say

NAME = "file"  # the field that says which document an answer is of
WITH_NAMES = Keep((NAME,))


class TextFiles:
    """The texts of a file (`-`: standard input) or of all .txt files in a folder and below, in the order of names.

    Files without a word have no text: they are left out, and a line says so.
    """

    def __init__(self, source: str | Path):
        self.source = str(source)
        path = Path(source)
        if self.source != "-" and not path.exists():
            raise UserError(f"{source}: no such file or folder; give --document a text file or a folder of .txt files")
        if path.is_dir():
            self.names = sorted(found.relative_to(path).as_posix() for found in path.rglob("*.txt") if found.is_file())
            if not self.names:
                raise UserError(f"{source}: no .txt file in this folder; give --document one that has some")
        elif is_table(self.source):
            raise UserError(f"{source}: a table, not one text; leave --document out, and each of its rows is answered")
        else:
            self.names = [self.source]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return (text for _, text in self.with_fields(WITH_NAMES))

    def with_fields(self, keep: Keep) -> Iterator[tuple[dict[str, Any], str]]:
        """The texts, each with its name."""
        keep.columns(self.source, [NAME])
        empty = []
        for name in self.names:
            if (text := self._read(name)).strip():
                yield {NAME: name}, text
            else:
                empty.append(name)
        if len(empty) == len(self.names):
            raise UserError(f"{self.source}: no word to answer; give a document with some")
        if empty:
            which = ", ".join(empty[:3]) + (", …" if len(empty) > 3 else "")
            say(f"{how_many(len(empty), 'documents', 'have', len(self))} no word, and so no answer: {which}.")

    def _read(self, name: str) -> str:
        if self.source == "-":
            return "".join(decode(standard_input(), STANDARD_INPUT))
        path = str(Path(self.source) / name) if Path(self.source).is_dir() else name
        return "".join(guard(path, _lines(path)))


def _lines(path: str) -> Iterator[Any]:
    with opened(path) as file:
        yield from decode(file, path)
