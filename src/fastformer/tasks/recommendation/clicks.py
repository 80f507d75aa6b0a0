"""`Clicks`: who was shown what and clicked what, as flat arrays, and its one file on disk.

The file is an Arrow file with a single row, every array a list in it: it is mapped into memory rather than read, so a
million users are there at once, and processes that use the same clicks share the pages.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastformer.data.keeping import Fields, Keep, with_fields
from fastformer.data.ragged import Ragged
from fastformer.surroundings.files import writing_aside

NEWS_COLUMNS = ("id", "category", "subcategory", "title", "abstract")
_QUIRKS = b"quirks"


@dataclass(frozen=True)
class Clicks:
    """Impressions and the histories of who saw them; articles are numbers, rows of `news`.

    Arrays are not to be changed. Read one after the other, impressions are dictionaries with ids of articles.
    """

    news: pa.Table  # NEWS_COLUMNS, all strings; row i is news number i
    impression_ids: np.ndarray  # as in the file: int64, or str if they are not numbers
    users: np.ndarray  # int32, impression -> code of who saw it, from 0; -1 if the file does not say
    times: np.ndarray  # float64, impression -> seconds since 1970; NaN if the file does not say
    histories: Ragged  # the distinct ones: news numbers, int32, oldest click first
    history_of: np.ndarray  # int32, impression -> row of `histories`
    candidates: Ragged  # news numbers, int32, one row per impression, in the order of the file
    labels: np.ndarray | None  # int8, one per value of `candidates`, 1 for a click; None if the file has none
    quirks: dict[str, int]  # what was odd and how often, see `fastformer.tasks.recommendation.mind.QUIRKS`

    def __len__(self) -> int:
        """Number of impressions."""
        return len(self.impression_ids)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """`{"impression": 7, "history": ["N1"], "candidates": ["N2", "N3"], "labels": [0, 1]}`, and so on."""
        ids = self.news["id"].to_pylist()
        for number, impression in enumerate(self.impression_ids.tolist()):
            history = [ids[one] for one in self.histories.row(self.history_of[number])]
            candidates = [ids[one] for one in self.candidates.row(number)]
            found = {"impression": impression, "history": history, "candidates": candidates}
            if self.labels is not None:
                found["labels"] = Ragged(self.labels, self.candidates.offsets).row(number).tolist()
            yield found

    def fields(self, keep: Keep) -> Iterator[Fields]:
        """Of every impression what is kept of it; a predictor needs the articles of the folder as well."""
        return (fields for fields, _ in with_fields(iter(self), keep))

    def take(self, impressions: np.ndarray) -> "Clicks":
        """Some impressions, in the order given, with their histories only; news and quirks stay as they are."""
        labels = self.labels
        used, history_of = np.unique(self.history_of[impressions], return_inverse=True)
        return replace(
            self,
            impression_ids=self.impression_ids[impressions],
            users=self.users[impressions],
            times=self.times[impressions],
            histories=self.histories.take(used),
            history_of=history_of.astype(np.int32),
            candidates=self.candidates.take(impressions),
            labels=None if labels is None else Ragged(labels, self.candidates.offsets).take(impressions).values,
        )

    def save(self, path: Path) -> None:
        """Write the file that `load` maps; it appears under its name only when complete."""
        arrays = {f"news.{name}": self.news[name].combine_chunks() for name in NEWS_COLUMNS}
        arrays |= {
            "impression_ids": pa.array(self.impression_ids),
            "users": pa.array(self.users),
            "times": pa.array(self.times),
            "histories.values": pa.array(self.histories.values),
            "histories.offsets": pa.array(self.histories.offsets),
            "history_of": pa.array(self.history_of),
            "candidates.values": pa.array(self.candidates.values),
            "candidates.offsets": pa.array(self.candidates.offsets),
        }
        if self.labels is not None:
            arrays["labels"] = pa.array(self.labels)
        whole = {name: pa.LargeListArray.from_arrays([0, len(array)], array) for name, array in arrays.items()}
        table = pa.table(whole).replace_schema_metadata({_QUIRKS: json.dumps(self.quirks)})
        with writing_aside(path) as aside, pa.ipc.new_file(str(aside), table.schema) as writer:
            writer.write_table(table)

    @classmethod
    def load(cls, path: Path) -> "Clicks":
        """The clicks that `save` wrote; a damaged file is an OSError, KeyError or ValueError."""
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        arrays = {name: table[name].chunk(0).values for name in table.column_names}
        news = pa.table({name: arrays.pop(f"news.{name}") for name in NEWS_COLUMNS})
        found = {name: _to_numpy(array) for name, array in arrays.items()}
        clicks = cls(
            news=news,
            impression_ids=found["impression_ids"],
            users=found["users"],
            times=found["times"],
            histories=Ragged(found["histories.values"], found["histories.offsets"]),
            history_of=found["history_of"],
            candidates=Ragged(found["candidates.values"], found["candidates.offsets"]),
            labels=found.get("labels"),
            quirks=json.loads(table.schema.metadata[_QUIRKS]),
        )
        clicks._check()
        return clicks

    def _check(self) -> None:
        """That every number points at something."""
        for numbers, limit in (
            (self.histories.values, self.news.num_rows),
            (self.candidates.values, self.news.num_rows),
            (self.history_of, len(self.histories.offsets) - 1),
        ):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < limit:
                raise ValueError("a number points at nothing")
        for values, offsets in (self.histories, self.candidates):
            if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
                raise ValueError("lists do not fit their offsets")
        flat = len(self.candidates.values)
        offsets, by_impression = self.candidates.offsets, (self.users, self.times, self.history_of)
        if not all(len(array) == len(self) == len(offsets) - 1 for array in by_impression):
            raise ValueError("the arrays of impressions have different lengths")
        if self.labels is not None and len(self.labels) != flat:
            raise ValueError("the number of labels is not the number of candidates")


def _to_numpy(array: pa.Array) -> np.ndarray:
    if pa.types.is_string(array.type):
        return np.array(array.to_pylist(), dtype=np.str_)
    return array.to_numpy()
