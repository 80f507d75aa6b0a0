"""MIND as published -> `Clicks`: a folder with news.tsv and behaviors.tsv.

    news.tsv       id, category, subcategory, title, abstract, url, two lists of entities; the last may be missing
    behaviors.tsv  impression id, user id, time, history as `N1 N2`, candidates as `N1-0 N2-1` (in test as `N1 N2`)

Fields stand between tabs and nothing is quoted: a quotation mark is text. Files of millions of lines are parsed in
blocks by Arrow, without a Python object per token. The result is kept in the cache folder under a name made from the
contents of both files, and is mapped into memory the next time.

A malformed line is an error that names it. What is only odd is dealt with, counted (`QUIRKS`) and reported in one
line. Repeated clicks in a history are kept: the published models read them, and reading twice is a sign of liking.
"""

import hashlib
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from fastformer.data.opening import decode
from fastformer.errors import UserError
from fastformer.surroundings.files import cache_folder
from fastformer.surroundings.progress import how_many, say
from fastformer.tasks.recommendation.behaviors import Behaviors
from fastformer.tasks.recommendation.clicks import NEWS_COLUMNS, Clicks
from fastformer.tasks.recommendation.simulate import builtin_folder

QUIRKS = {
    "missing_in_histories": "clicks in histories dropped, on articles that are not in news.tsv",
    "missing_candidates": "candidates not in news.tsv, kept with an empty title",
    "repeated_clicks": "clicks repeated in histories, kept",
    "empty_histories": "impressions with an empty history",
    "without_positive": "impressions without a click",
    "without_negative": "impressions with clicks only",
    "repeated_news": "lines of news.tsv with an id seen before, left out",
    "blank_lines": "lines left blank",
}
_READING = 1  # raise it when the same files give other clicks: what was made from them is made again
_FORMAT = 3  # raise it when `Clicks` has other arrays: they are read again


def read_mind(
    folder: str | Path, *, labels: Literal["required", "optional"] = "optional", show_progress: bool = False
) -> Clicks:
    """The clicks of one folder of MIND, such as MINDlarge_train, or the simulated `builtin:train`, `:dev`, `:test`."""
    news, behaviors = _files(folder)
    cached = cache_folder() / f"clicks-{_key(news, behaviors)}-{_FORMAT}.arrow"
    clicks = None
    with suppress(OSError, KeyError, ValueError):  # none there, or a damaged one: made anew (Arrow's are ValueErrors)
        clicks = Clicks.load(cached)
    if clicks is None:
        clicks = _parse(news, behaviors, show_progress)
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            clicks.save(cached)
            clicks = Clicks.load(cached)
        except (OSError, UserError) as error:  # a cache is a convenience
            say(f"The clicks are not kept for the next time: {error}")
    if labels == "required" and clicks.labels is None:
        raise UserError(
            f"{behaviors}: its candidates have no labels (N123-1 for a click, N456-0 for none), as in MIND's test "
            "folder; give one that has them, such as dev"
        )
    return clicks


def has_labels(folder: str | Path) -> bool:
    """Whether the candidates of a folder have labels, as its first impression says: no more is read of it."""
    news, behaviors = _files(folder)
    with behaviors.open("rb") as file:
        for line in decode(file, str(behaviors)):
            if words := line.rpartition("\t")[2].split():
                return re.fullmatch(r".+-[01]", words[0]) is not None and words[0] not in _read_news(news)[0]["id"]
    return False


def content_key(folder: str | Path) -> str:
    """A name for what a folder says: the same wherever it lies."""
    return _key(*_files(folder))


def format_quirks(quirks: dict[str, int]) -> str:
    """What was odd, in one line; empty if nothing was."""
    return "; ".join(how_many(quirks[name], says) for name, says in QUIRKS.items() if name in quirks)


def _files(folder: str | Path) -> tuple[Path, Path]:
    name, _, split = str(folder).partition(":")
    if name == "builtin":
        folder = builtin_folder(split or "train")
    folder = Path(folder)
    if folder.is_file():
        raise UserError(
            f"{folder}: is a file; give a folder with MIND's news.tsv and behaviors.tsv, which `fastformer "
            "import-clicks` makes from a table of clicks"
        )
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one with MIND's news.tsv and behaviors.tsv, or builtin:train")
    for file in (folder / "news.tsv", folder / "behaviors.tsv"):
        if not file.is_file():
            inside = sorted(path.parent.name for path in folder.glob("*/behaviors.tsv"))
            hint = f"give one of the folders in it: {', '.join(inside)}" if inside else "check the path"
            raise UserError(f"{folder}: has no {file.name}, which MIND's folders have; {hint}")
        if not file.stat().st_size:
            raise UserError(f"{file}: is empty; get a new copy of it")
    return folder / "news.tsv", folder / "behaviors.tsv"


def _key(*files: Path) -> str:
    digest = hashlib.blake2b(str(_READING).encode(), digest_size=16)
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    return digest.hexdigest()


def _parse(news_file: Path, behaviors_file: Path, show_progress: bool) -> Clicks:
    columns, repeated, blank = _read_news(news_file)
    behaviors = Behaviors(behaviors_file, pa.array(columns["id"], pa.string()))
    behaviors.read(show_progress)
    added = len(behaviors.known) - len(columns["id"])
    news = {name: pa.array(values + [""] * added, pa.string()) for name, values in columns.items()}
    clicks = Clicks(news=pa.table(news | {"id": behaviors.known}), **behaviors.arrays(), quirks={})
    quirks = {
        "missing_in_histories": behaviors.missing,
        "missing_candidates": added,
        "repeated_clicks": behaviors.repeated,
        "empty_histories": int((clicks.histories.lengths[clicks.history_of] == 0).sum()),
        "repeated_news": repeated,
        "blank_lines": blank + behaviors.blank_lines,
    }
    if clicks.labels is not None:
        clicked = np.add.reduceat(clicks.labels, clicks.candidates.offsets[:-1], dtype=np.int64)
        quirks["without_positive"] = int((clicked == 0).sum())
        quirks["without_negative"] = int((clicked == clicks.candidates.lengths).sum())
    return replace(clicks, quirks={name: count for name, count in quirks.items() if count})


def _read_news(path: Path) -> tuple[dict[str, list[str]], int, int]:
    """The columns, how many lines had an id seen before, and how many were blank."""
    rows, repeated, blank = {}, 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(decode(file, str(path)), 1):
            fields = line.rstrip("\r\n").split("\t")
            if not line.strip():
                blank += 1
            elif not 4 <= len(fields) <= 8 or not fields[0].strip():
                raise UserError(
                    f"{path}, line {number}: {len(fields)} fields between tabs; expected id, category, subcategory, "
                    "title and at most abstract, url and two lists of entities"
                )
            elif (key := fields[0].strip()) in rows:
                repeated += 1
            else:
                rows[key] = (key, *fields[1:4], fields[4] if len(fields) > 4 else "")
    if not rows:
        raise UserError(f"{path}: holds blank lines only; get a new copy of it")
    return dict(zip(NEWS_COLUMNS, map(list, zip(*rows.values(), strict=True)), strict=True)), repeated, blank
