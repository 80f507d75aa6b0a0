"""behaviors.tsv -> arrays, in blocks and without a Python object per token, so that millions of lines take seconds.

Arrow cuts a block of lines into fields, the fields into words, and looks the words up among the ids of the news. Only
distinct histories are taken apart, and only the first time.
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from fastformer.data.opening import decode
from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.surroundings.progress import progress_bar

_FIELDS = ("impression id", "user id", "time", "history", "candidates")
_BLOCK_BYTES = 1 << 25
_TIME = "%m/%d/%Y %I:%M:%S %p"  # 11/15/2019 8:55:22 AM


class _Block(NamedTuple):
    """Some lines of behaviors.tsv that are not blank."""

    columns: pa.RecordBatch
    lines: np.ndarray  # the number of each in the file, from 1
    bytes_read: int


class Behaviors:
    """What behaviors.tsv says, with news as numbers: places in `known`."""

    def __init__(self, path: Path, ids: pa.Array):
        self.path = path
        self.ids = ids  # of news.tsv
        self.known = ids  # and those of candidates that are not in it
        self.labelled: bool | None = None  # the first candidate decides
        self.blank_lines = self.impressions = self.missing = self.repeated = 0
        self.rows: dict[bytes, int] = {}  # digest of a history as written -> its row
        self.impression_ids: list[pa.Array] = []
        self.codes: dict[str, int] = {"": -1}  # user id -> code; nobody knows who an empty one is
        self.users: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        self.histories: list[tuple[np.ndarray, np.ndarray]] = []  # values, lengths
        self.history_of: list[np.ndarray] = []
        self.candidates: list[tuple[np.ndarray, np.ndarray]] = []
        self.labels: list[np.ndarray] = []

    def read(self, show_progress: bool = False) -> None:
        """Read the whole file."""
        megabytes = -(-self.path.stat().st_size // 2**20)
        with progress_bar(
            f"{self.path.parent.name}/{self.path.name}, MB", total=megabytes, show=show_progress
        ) as advance:
            done = 0
            for block in self._blocks():
                self._add(block)
                read = -(-block.bytes_read // 2**20)
                advance(read - done, note=f"{self.impressions:,} impressions")
                done = read
        if not self.impressions:
            raise UserError(f"{self.path}: holds blank lines only; get a new copy of it")

    def _blocks(self) -> Iterator[_Block]:
        """The file in blocks; lines that do not have five fields are errors, blank ones are counted."""
        odd: list[csv.InvalidRow] = []  # only blank ones pass the check below

        def keep_aside(row: csv.InvalidRow) -> str:
            odd.append(row)
            return "skip"

        def check() -> None:
            for row in odd:
                if row.text.strip():
                    raise self._mistake(row.number, f"{row.actual_columns} fields between tabs")

        start = 0  # rows before this block
        with self.path.open("rb") as file, self._explaining(), _without_asides():
            reader = csv.open_csv(
                file,
                csv.ReadOptions(column_names=_FIELDS, use_threads=False, block_size=_BLOCK_BYTES),
                csv.ParseOptions(
                    delimiter="\t", quote_char=False, ignore_empty_lines=False, invalid_row_handler=keep_aside
                ),
                csv.ConvertOptions(column_types=dict.fromkeys(_FIELDS, pa.string()), strings_can_be_null=False),
            )
            for columns in reader:
                check()
                lines = np.arange(start, start + columns.num_rows) + 1
                start += columns.num_rows
                for row in odd:  # in their order: each moves those behind it by one line
                    lines += lines >= row.number
                real = np.sum([_lengths(columns[name]) for name in _FIELDS], axis=0) > 0
                self.blank_lines += int((~real).sum())
                yield _Block(columns.filter(pa.array(real)), lines[real], file.tell())
            check()
        self.blank_lines += len(odd)

    def _add(self, block: _Block) -> None:
        self.impressions += len(block.lines)
        self.impression_ids.append(block.columns["impression id"])
        self._add_users(block.columns["user id"].dictionary_encode())
        self.times.append(_seconds(block.columns["time"]))
        self._add_histories(block.columns["history"].dictionary_encode())
        self._add_candidates(block)

    def _add_users(self, users: pa.DictionaryArray) -> None:
        codes = [self.codes.setdefault(user, len(self.codes) - 1) for user in users.dictionary.to_pylist()]
        self.users.append(np.array(codes, dtype=np.int32)[users.indices.to_numpy()])

    def _add_histories(self, histories: pa.DictionaryArray) -> None:
        """Only those not seen before are taken apart: in MIND a user has the same history all along."""
        written = histories.dictionary
        digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in written.to_pylist()]
        fresh = [place for place, digest in enumerate(digests) if digest not in self.rows]
        self.rows.update((digests[place], row) for row, place in enumerate(fresh, len(self.rows)))
        row_of = np.array([self.rows[digest] for digest in digests], dtype=np.int32)
        self.history_of.append(row_of[histories.indices.to_numpy()])
        words, lengths = _words(written.take(pa.array(fresh, pa.int64())))
        numbers = _find(words, self.ids)
        rows = np.repeat(np.arange(len(lengths)), lengths)[numbers >= 0]
        self.missing += int((numbers < 0).sum())
        numbers = numbers[numbers >= 0]
        self.repeated += int((np.diff(np.sort(rows * len(self.ids) + numbers)) == 0).sum())
        self.histories.append((numbers, np.bincount(rows, minlength=len(lengths))))

    def _add_candidates(self, block: _Block) -> None:
        words, lengths = _words(block.columns["candidates"])
        incomplete = (lengths == 0) | (_lengths(block.columns["impression id"]) == 0)
        if incomplete.any():
            raise self._mistake(block.lines[incomplete.argmax()], "no impression id or no candidates")
        line_of = np.repeat(block.lines, lengths)
        if self.labelled is None and len(words):
            first = words[0].as_py()
            self.labelled = "-" in first and _find(words[:1], self.ids)[0] < 0
        if self.labelled:
            wrong = ~_has_label(words)
            if wrong.any():
                place = int(wrong.argmax())
                raise self._mistake(line_of[place], f"the candidate {words[place].as_py()!r}")
            words, labels = _split_labels(words)
            self.labels.append(labels)
        numbers = _find(words, self.known)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            missing = words.take(pa.array(unknown))
            if not self.labelled and (wrong := _has_label(missing)).any():
                place = int(wrong.argmax())
                said = f"the candidate {missing[place].as_py()!r} has a label and those before have none"
                raise self._mistake(line_of[unknown[place]], said)
            self.known = pa.concat_arrays([self.known, missing.unique()])
            numbers = _find(words, self.known)
        self.candidates.append((numbers, lengths))

    def arrays(self) -> dict[str, Any]:
        """The fields of `Clicks` that this file gives."""
        histories, candidates = (
            Ragged.from_lengths(*map(np.concatenate, zip(*parts, strict=True)))
            for parts in (self.histories, self.candidates)
        )
        return {
            "impression_ids": _as_numbers(pa.chunked_array(self.impression_ids)),
            "users": np.concatenate(self.users),
            "times": np.concatenate(self.times),
            "histories": histories,
            "history_of": np.concatenate(self.history_of),
            "candidates": candidates,
            "labels": np.concatenate(self.labels) if self.labelled else None,
        }

    def _mistake(self, line: int, found: str) -> UserError:
        candidates = {None: "N1-0 N2-1", True: "N1-0 N2-1 with labels 0 or 1", False: "N1 N2"}[self.labelled]
        return UserError(
            f"{self.path}, line {line}: {found}; expected {', '.join(_FIELDS[:3])}, history (N1 N2) and candidates "
            f"({candidates}), with tabs between them"
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say of a file that Arrow cannot read what is wrong with it."""
        try:
            yield
        except pa.ArrowInvalid as error:
            with self.path.open("rb") as file:
                for _ in decode(file, str(self.path)):  # says which line is not UTF-8, if that is it
                    pass
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{self.path}: cannot be read ({reason}); get a new copy of it") from error


def _words(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The words of all texts one after the other, and how many each text has."""
    lists = pc.ascii_split_whitespace(column)
    words, rows = lists.flatten(), np.repeat(np.arange(len(lists)), np.diff(lists.offsets))
    real = _lengths(words) > 0  # two spaces have an empty word between them
    return words.filter(pa.array(real)), np.bincount(rows[real], minlength=len(lists))


def _seconds(times: pa.Array) -> np.ndarray:
    """Seconds since 1970, NaN for what is not a time."""
    found = pc.strptime(pc.utf8_trim_whitespace(times), format=_TIME, unit="s", error_is_null=True)
    return found.cast(pa.int64()).cast(pa.float64()).fill_null(np.nan).to_numpy()


def _lengths(texts: pa.Array) -> np.ndarray:
    return pc.binary_length(texts).to_numpy(zero_copy_only=False)


def _find(words: pa.Array, ids: pa.Array) -> np.ndarray:
    """The place of each word in `ids`, -1 for one that is not there; int32."""
    return pc.index_in(words, value_set=ids).fill_null(-1).to_numpy()


def _bytes(words: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all words, and where each word starts, with one more for the end of the last."""
    _, offsets, text = words.buffers()
    offsets = np.frombuffer(offsets, np.int32, len(words) + 1, 4 * words.offset)
    return np.frombuffer(text, np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def _has_label(words: pa.Array) -> np.ndarray:
    """Whether each word ends in -0 or -1, with an id before it; no word is empty."""
    text, offsets = _bytes(words)
    last = text[offsets[1:] - 1]
    return (np.diff(offsets) > 2) & (text[offsets[1:] - 2] == ord("-")) & ((last == ord("0")) | (last == ord("1")))


def _split_labels(words: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """`N1-0` -> N1 and 0, for all at once: the last two bytes of each are cut out of the buffer they share."""
    text, offsets = _bytes(words)
    ends = offsets[1:]
    kept = np.ones(len(text), dtype=bool)
    kept[ends - 1] = kept[ends - 2] = False
    starts = offsets - 2 * np.arange(len(offsets), dtype=np.int32)
    ids = pa.StringArray.from_buffers(len(words), pa.py_buffer(starts), pa.py_buffer(text[kept]))
    return ids, (text[ends - 1] - ord("0")).astype(np.int8)


def _as_numbers(texts: pa.ChunkedArray) -> np.ndarray:
    """Impression ids as int64 if that loses nothing, else as strings."""
    with suppress(pa.ArrowInvalid):
        numbers = texts.cast(pa.int64())
        if numbers.cast(pa.string()).equals(texts):
            return numbers.to_numpy()
    return np.array(texts.to_pylist(), dtype=np.str_)


@contextmanager
def _without_asides() -> Iterator[None]:
    """Arrow prints a traceback for a row that is not UTF-8 before it says so in an error."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda aside: None
    try:
        yield
    finally:
        sys.unraisablehook = hook
