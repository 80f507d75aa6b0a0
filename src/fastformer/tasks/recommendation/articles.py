"""The articles that somebody may choose from, by id; clicks on them that come as dictionaries, not in files."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from fastformer.data.frames import check_several
from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.tasks.recommendation.clicks import NEWS_COLUMNS, Clicks

_EXAMPLE = '{"history": ["N1", "N2"], "candidates": ["N3", "N4"]}'


class Articles:
    """A table of articles. `place` says in messages whose they are."""

    def __init__(self, table: pa.Table, place: str):
        self.table, self.place = table, place

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Row of every id."""
        return {name: number for number, name in enumerate(self.table["id"].to_pylist())}

    @cached_property
    def titled(self) -> np.ndarray:
        """Rows of those with a title: a model knows nothing of the others."""
        titles = self.table["title"].to_pylist()
        return np.flatnonzero([bool(title.strip()) for title in titles]).astype(np.int32)

    def find(self, ids: Iterable[str], what: str) -> np.ndarray:
        """The rows of some ids; the error for a missing one says `what` it is."""
        ids = list(ids)
        if missing := [str(one) for one in ids if one not in self.numbers]:
            known = next(iter(self.numbers), "")
            raise UserError(
                f"{what}: {', '.join(missing)} not among the articles of {self.place}; give ids like {known}"
            )
        return np.array([self.numbers[one] for one in ids], dtype=np.int32)

    def impressions(
        self, histories: Sequence[np.ndarray], candidates: Sequence[np.ndarray], labels: np.ndarray | None = None
    ) -> Clicks:
        """Impressions by numbers of articles."""
        count = len(histories)
        return Clicks(
            news=self.table,
            impression_ids=np.arange(1, count + 1),
            users=np.full(count, -1, np.int32),
            times=np.full(count, np.nan),
            histories=_ragged(histories),
            history_of=np.arange(count, dtype=np.int32),
            candidates=_ragged(candidates),
            labels=labels,
            quirks={},
        )

    def clicks(self, examples: Sequence[dict[str, Any]]) -> Clicks:
        """Impressions that are dictionaries: ids under `history` and `candidates`, perhaps 0 or 1 under `labels`.

        Without a history somebody is new; without candidates all articles with a title are.
        """
        histories, candidates, labels = [], [], []
        for example in examples:
            if not isinstance(example, dict) or isinstance(example.get("candidates"), str):
                raise UserError(f"an impression is a dictionary such as {_EXAMPLE}, not {str(example)[:80]!r}")
            histories.append(self.find(example.get("history") or (), "history"))
            shown = example.get("candidates")
            candidates.append(self.titled if shown is None else self.find(shown, "candidates"))
            labels.append(example.get("labels"))
        labelled = bool(labels) and all(
            one is not None and len(one) == len(row) for one, row in zip(labels, candidates, strict=True)
        )
        flat = np.concatenate([np.asarray(one, dtype=np.int8) for one in labels]) if labelled else None
        return self.impressions(histories, candidates, labels=flat)


def articles_of(examples: Clicks | Iterable[str | dict[str, str]]) -> pa.Table:
    """The articles of a folder; or of a list: dictionaries with columns of news.tsv, or titles."""
    if isinstance(examples, Clicks):
        return examples.news
    check_several(examples, "articles")
    rows = [{"title": one} if isinstance(one, str) else one for one in examples]
    return pa.table({name: pa.array([row.get(name, "") for row in rows], pa.string()) for name in NEWS_COLUMNS})


def _ragged(rows: Sequence[np.ndarray]) -> Ragged:
    return Ragged.from_lengths(
        np.concatenate([*rows, np.zeros(0, np.int32)]), np.array([len(row) for row in rows], int)
    )
