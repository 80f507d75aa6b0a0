"""Embeddings from a GloVe file: one row for each word of a vocabulary, from text, .gz or .zip, read line by line.

A word is looked up as it is written, then in lower case. `word_vectors.py` gives random vectors to the words that GloVe
lacks and brings all to the model's width. The padding row is zero. Same seed, same matrix, whatever the order of the
lines.
"""

import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.word_vectors import fill_embedding
from fastformer.errors import UserError


def load_glove(
    path: str | Path,
    vocabulary: dict[str, int],
    width: int,
    *,
    seed: int,
    pad_token: str = "[PAD]",
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, int]:
    """Return the float32 matrix (rows = highest id + 1, width) and how many words of the vocabulary GloVe has.

    Of a .zip the .txt file with `width` numbers per line is read, or the largest if none has.
    `progress` is called now and then with the number of lines read so far.
    """
    spellings = {word: (word.encode(), word.lower().encode()) for word in vocabulary if word != pad_token}
    with _open(Path(path), width) as lines:
        vectors = _read(lines, path, {key for keys in spellings.values() for key in keys}, progress)

    found, missing = {}, []
    for word, row in sorted(vocabulary.items(), key=lambda item: item[1]):
        keys = [key for key in spellings.get(word, ()) if key in vectors]
        if keys:
            found[row] = vectors[keys[0]]
        elif word != pad_token:
            missing.append(row)
    if not found:
        raise UserError(f"the GloVe file {path} has none of the {len(vocabulary):,} words; is it of another language?")
    known = np.array(list(found.values()))  # words, GloVe's width
    if not np.isfinite(known).all():
        raise UserError(f"the GloVe file {path} has numbers that are not finite; get a new copy")

    rows = max(vocabulary.values()) + 1
    return fill_embedding(list(found), known, missing, rows, width, seed=seed), len(found)


def _read(
    lines: Iterable[bytes], path: str | Path, wanted: set[bytes], progress: Callable[[int], None] | None
) -> dict[bytes, np.ndarray]:
    """The vectors of the wanted words. Of other lines the numbers are only counted, which is far faster."""
    vectors: dict[bytes, np.ndarray] = {}
    width = 0
    for number, line in enumerate(lines, 1):
        if progress and number % 10_000 == 0:
            progress(number)
        line = line.rstrip(b" \r\n")
        spaces = line.count(b" ")
        if not width:
            width = _width(line)
            if not width:
                raise UserError(f"{path} is not a GloVe file: line {number} is not a word and its numbers")
            if spaces == 1:
                continue  # the header of word2vec's format
        word, _, numbers = line.partition(b" ")
        if spaces > width and not _is_number(numbers.partition(b" ")[0]):
            word = line.rsplit(b" ", width)[0]  # a word with spaces in it, as glove.840B has
        elif spaces != width and line:
            raise UserError(f"{path}, line {number}: {spaces} numbers, not {width} as before; get a new copy")
        if word in wanted and word not in vectors:
            try:
                vectors[word] = np.array([*map(float, line[len(word) + 1 :].split(b" "))], dtype=np.float32)
            except ValueError as error:
                raise UserError(f"{path}, line {number}: {error}; get a new copy") from None
    if not width:
        raise UserError(f"the GloVe file {path} is empty; get a new copy")
    return vectors


def _width(line: bytes) -> int:
    """How many numbers follow the word, or how many word2vec's header (words, width) promises; 0: not GloVe."""
    first, *fields = line.split(b" ")
    if len(fields) == 1:
        return int(fields[0]) if first.isdigit() and fields[0].isdigit() else 0
    return sum(1 for _ in takewhile(_is_number, reversed(fields)))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


@contextmanager
def _open(path: Path, width: int) -> Iterator[Iterable[bytes]]:
    """The lines of a plain, gzipped or zipped file, told apart by their first bytes."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            if magic.startswith(b"\x1f\x8b"):
                yield BufferedReader(gzip.GzipFile(fileobj=file), 1 << 20)
            elif magic == b"PK\x03\x04":
                with zipfile.ZipFile(file) as archive:
                    member: Any = archive.open(_member(archive, path, width))  # typed as less than a reader needs
                    yield BufferedReader(member, 1 << 20)
            else:
                yield file
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read the GloVe file {path}: {reason}; check the path or get a new copy") from error


def _member(archive: zipfile.ZipFile, path: Path, width: int) -> zipfile.ZipInfo:
    members = [item for item in archive.infolist() if item.filename.endswith((".txt", ".vec"))]
    if not members or any(item.flag_bits & 1 for item in members):
        raise UserError(f"{path} holds no .txt file that opens without a password; give a GloVe file")
    widths = {item.filename: _width(archive.open(item).readline().rstrip()) for item in members}
    return max(members, key=lambda item: (widths[item.filename] == width, widths[item.filename] > 0, item.file_size))
