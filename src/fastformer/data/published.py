"""The paper's classification datasets as they are published -> records (where, text, …, label), recognized by content.

    Amazon   one JSON object per line (.json, plain or .gz), with reviewerID, asin, reviewText, overall (1.0 to 5.0), …
    IMDB     pos/ID_RATING.txt and neg/ID_RATING.txt (unsup/ is left out), or train/ and test/ with such folders in them
    MIND     news.tsv without a header: id, category, subcategory, title, abstract, url and two lists of entities; a
             folder with news.tsv in it, or in the folders in it (each id is read once)

They are columns like those of any table, so `--text-column` and `--label-column` choose others than the usual:

    Amazon   the names in the JSON; usually reviewText and overall
    IMDB     text, rating, folder; usually text and rating. `--label-column folder` gives pos and neg
    MIND     text, id, category, subcategory, title, abstract; usually text and category

MIND's `text` is title and abstract. News bodies are not part of MIND and are crawled from its links: where they lie
beside news.tsv or in the folder above, as bodies.jsonl ({"id": …, "body": …}), as bodies.tsv (id, tab, body) or as
bodies/ID.txt, `text` is the body, and title and abstract only for the news that have none.

What does not fit the layout is left out, counted, and reported in one line; but where no labels are read, each line of
Amazon's is a row, so that rows are counted like lines.
"""

import ast
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fastformer.data.columns import WholeTexts
from fastformer.data.formats import Choose, Record, picker
from fastformer.data.left_out import LeftOut, say_once
from fastformer.data.opening import BOM, decode, opened
from fastformer.errors import UserError
from fastformer.surroundings.files import digest
from fastformer.surroundings.progress import how_many

Reader = Callable[[Choose], Iterator[Record]]

_AMAZON_KEYS = {"reviewerID", "asin", "reviewText", "overall"}
_RATED = re.compile(r"\d+_(\d+)\.txt")
_NEWS_FIELDS = 8
_SPLITS = ("train", "test")


def published_reader(path: str, split: str | None = None, with_label: bool = True) -> Reader | None:
    """The reader of a file or folder in one of these layouts, or None; `split` is for IMDB's train and test."""
    if news := _news_files(path):
        return partial(_read_mind, news)
    if os.path.isdir(path):
        if _is_rated(Path(path)):
            return partial(_read_imdb, Path(path))
        if published_splits(path):
            if split not in _SPLITS:
                raise UserError(f"{path}: splits found: {', '.join(_SPLITS)}; name one, as in {path}:train")
            return partial(_read_imdb, Path(path) / split)
    elif path.lower().removesuffix(".gz").endswith((".json", ".jsonl")) and _is_review(_object(_first_line(path))):
        return partial(_read_amazon, path, with_label)
    return None


def published_splits(path: str) -> tuple[str, ...]:
    """The splits that a folder in IMDB's layout has: train and test, or none."""
    return _SPLITS if all(_is_rated(Path(path) / split) for split in _SPLITS) else ()


def bodies_of(path: str) -> list[Path] | None:
    """Files and folders with bodies that are read beside a news.tsv or a folder of MIND; None if it is not MIND."""
    news = _news_files(path)
    return sorted({place for place in map(_place_of_bodies, news) if place is not None}) if news else None


def file_stamp(source: str) -> Any:
    """What tells whether files have changed without reading them; None if there are none to look at."""
    path = source if os.path.exists(source) else source.rpartition(":")[0]
    if not os.path.exists(path):
        return None
    files = sorted({file for place in (path, *(bodies_of(path) or ())) for file in _files_in(str(place))})
    return digest([(file, os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files])


def _files_in(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    return [os.path.join(folder, file) for folder, _, names in os.walk(path) for file in names]


def _first_line(path: str) -> bytes:
    if not os.path.isfile(path):  # a pipe has its first line once
        return b""
    try:
        with opened(path) as file:
            return file.readline(1 << 20)
    except (OSError, EOFError, zlib.error):  # reading the whole file reports what is wrong with it
        return b""


# ---- Amazon ----------------------------------------------------------------------------------------------------------


def _read_amazon(path: str, with_label: bool, choose: Choose) -> Iterator[Record]:
    pick, left_out, number = picker(choose), LeftOut(), 0
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            record = _object(line)
            if record is None and with_label:
                left_out["that hold no JSON object"] += 1
            else:  # without labels every line is to be answered: one that says nothing, too
                yield pick(f"{path}, line {number}", record or {})
    left_out.say(path, number, "lines")


def _is_review(record: dict | None) -> bool:
    """Whether the first line is one of Amazon's: a text that only mentions these names, or a user's own table, is not.

    Such a file is read leniently: lines that do not fit are left out.
    """
    return record is not None and record.keys() >= _AMAZON_KEYS


def _object(line: bytes) -> dict | None:
    """The object of a line: JSON, or a Python literal as the older files of the same source have."""
    for parse in (json.loads, lambda line: ast.literal_eval(line.decode().strip())):
        try:
            record = parse(line)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return record if isinstance(record, dict) else None
    return None


# ---- IMDB ------------------------------------------------------------------------------------------------------------


def _is_rated(folder: Path) -> bool:
    """Whether pos/ and neg/ are there and the first file has a rating in its name."""
    if not all((folder / side).is_dir() for side in ("pos", "neg")):
        return False
    first = next((entry.name for entry in os.scandir(folder / "pos") if entry.name.endswith(".txt")), "")
    return _RATED.fullmatch(first) is not None


def _read_imdb(folder: Path, choose: Choose) -> Iterator[Record]:
    chosen = choose(["text", "rating", "folder"])
    left_out, number = LeftOut(), 0
    for path in (path for side in ("neg", "pos") for path in sorted((folder / side).iterdir())):
        number += 1
        rated = _RATED.fullmatch(path.name)
        if rated is None:
            left_out["not named ID_RATING.txt"] += 1
            continue
        with opened(str(path)) as file:
            values = {"text": "".join(decode(file, str(path))), "rating": rated[1], "folder": path.parent.name}
        yield (str(path), *(values.get(column or "") for column in chosen))
    left_out.say(folder, number, "files")


# ---- MIND ------------------------------------------------------------------------------------------------------------


def _news_files(path: str) -> list[Path]:
    """MIND's news.tsv: the file given, the one in the folder given, or those in the folders in it."""
    if os.path.isdir(path):
        own = Path(path) / "news.tsv"
        return [own] if own.is_file() else sorted(Path(path).glob("*/news.tsv"))
    is_mind = os.path.basename(path) == "news.tsv" and _first_line(path).count(b"\t") == _NEWS_FIELDS - 1
    return [Path(path)] if is_mind else []


def _read_mind(files: list[Path], choose: Choose) -> Iterator[Record]:
    chosen = choose(WholeTexts(["text", "category", "subcategory", "title", "abstract", "id"]))
    left_out, number, seen, without_body = LeftOut(), 0, set(), 0
    for path in files:
        body_of = _bodies(path)
        with opened(str(path)) as file:
            for line_number, line in enumerate(decode(file, str(path)), 1):
                number += 1
                fields = line.rstrip("\r\n").split("\t")
                if len(fields) != _NEWS_FIELDS:
                    left_out[f"without {_NEWS_FIELDS} fields"] += 1
                    continue
                values = dict(zip(("id", "category", "subcategory", "title", "abstract"), fields, strict=False))
                if values["id"] not in seen:
                    seen.add(values["id"])
                    body = body_of(values["id"]) if body_of and "text" in chosen else None
                    without_body += body_of is not None and not body
                    values["text"] = body or "\n".join(filter(None, (values["title"], values["abstract"])))
                    yield (f"{path}, line {line_number}", *(values.get(column or "") for column in chosen))
    source = files[0] if len(files) == 1 else files[0].parent.parent
    left_out.say(source, number, "lines")
    if without_body and "text" in chosen:
        without = how_many(without_body, "articles", "have", len(seen))
        say_once(f"{source}: {without} no body; title and abstract stand in.")


def _bodies(news: Path) -> Callable[[str], str | None] | None:
    """A function from an id to its body, if there are bodies."""
    place = _place_of_bodies(news)
    if place is None:
        return None
    if place.is_dir():
        return partial(_read_body, place)
    return _BodyFile(place, _json_body if place.suffix == ".jsonl" else _tsv_body)


def _place_of_bodies(news: Path) -> Path | None:
    """Where bodies lie: beside news.tsv or one folder up."""
    beside = news.resolve().parent
    places = (folder / name for folder in (beside, beside.parent) for name in ("bodies", "bodies.jsonl", "bodies.tsv"))
    return next((place for place in places if place.exists()), None)


def _read_body(folder: Path, key: str) -> str | None:
    if Path(key).name != key:  # an id is a name: one that is a path would read files from elsewhere
        return None
    path = folder / f"{key}.txt"
    if not path.is_file():
        return None
    with opened(str(path)) as file:
        return "".join(decode(file, str(path)))


class _BodyFile:
    """Bodies by id from a file that may be larger than memory: only where each line begins is kept."""

    def __init__(self, path: Path, split: Callable[[str], tuple[str, str]]):
        self.path, self.split, self.starts = path, split, {}
        start = 0
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self.starts[self._parse(line, number)[0]] = start
                start += len(line)
        self.file = open(path, "rb")  # noqa: SIM115  read from as long as the news are

    def __call__(self, key: str) -> str | None:
        if key not in self.starts:
            return None
        self.file.seek(self.starts[key])
        return self._parse(self.file.readline(), 0)[1]

    def _parse(self, line: bytes, number: int) -> tuple[str, str]:
        try:
            return self.split(line.removeprefix(BOM).decode().rstrip("\r\n"))
        except (ValueError, KeyError, TypeError):
            form = '{"id": …, "body": …}' if self.split is _json_body else "an id, a tab and the body"
            raise UserError(f"{self.path}, line {number}: not {form} in UTF-8; correct that line") from None


def _json_body(line: str) -> tuple[str, str]:
    record = json.loads(line)
    return str(record["id"]), str(record["body"])


def _tsv_body(line: str) -> tuple[str, str]:
    key, body = line.split("\t", 1)
    return key, body
