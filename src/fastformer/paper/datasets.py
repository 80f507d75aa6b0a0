"""`NAME=PATH` -> train, validation and test rows on disk, drawn and split by seed, once for all runs of an experiment.

A source with splits of its own keeps them: train.*, validation.* (or valid, val, dev) and test.* in a folder, IMDB's
train/ and test/, a `datasets` folder, `builtin`. Where validation is missing, a random tenth of train is set aside.
Any other source is split at random into 80% train, 10% validation, 10% test, as the paper does. A scale may then draw
fewer rows. Every draw is a permutation of row numbers by the seed, so the same seed gives the same rows, and the texts
are streamed: two readings, the first only to count.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.opening import format_of
from fastformer.data.published import bodies_of, file_stamp, published_splits
from fastformer.data.tables import Row, read_rows
from fastformer.data.tokenizers import train_tokenizer
from fastformer.errors import UserError
from fastformer.paper.recipes import PAPER_DATASETS, Scale
from fastformer.surroundings.files import digest, explain_full_disk, write_json, writing_aside, writing_text
from fastformer.surroundings.progress import progress_bar, say

SPLITS = ("train", "validation", "test")
_OTHER_NAMES = {"valid": "validation", "val": "validation", "dev": "validation"}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Dataset:
    """What `--data` says: our name for it, the paper's dataset it stands for (if any), and where it is."""

    name: str
    paper: str | None
    source: str

    @classmethod
    def parse(cls, given: str, papers: Sequence[str] = PAPER_DATASETS) -> "Dataset":
        """From `NAME=PATH` or `NAME:PAPER=PATH`, PAPER one of `papers`."""
        how = _how_to_name(papers)
        title, equals, source = given.partition("=")
        name, colon, paper = title.partition(":")
        if not equals or not source or not _NAME.fullmatch(name):
            raise UserError(f"--data {given}: {how}")
        if colon and paper not in papers:
            raise UserError(f"--data {given}: the paper has no dataset {paper!r}; {how}")
        return cls(name, paper or None, source)

    def __str__(self) -> str:
        return f"{self.name}:{self.paper}={self.source}" if self.paper else f"{self.name}={self.source}"


@dataclass(frozen=True)
class Prepared:
    """A dataset on disk: train.jsonl, validation.jsonl, test.jsonl and about.json in `folder`."""

    dataset: Dataset
    folder: Path
    about: dict[str, Any]

    def path(self, split: str) -> Path:
        """The file of a split."""
        return self.folder / f"{split}.jsonl"

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split."""
        return read_rows(self.path(split), text_column="text", label_column="label")


def _how_to_name(papers: Sequence[str]) -> str:
    return f"write NAME=PATH, or NAME:PAPER=PATH with PAPER one of {', '.join(papers)}"


def parse_data(given: Sequence[str], papers: Sequence[str] = PAPER_DATASETS) -> list[Dataset]:
    """All `--data` options; names must differ. `papers` are the paper's datasets that they may stand for."""
    datasets = [Dataset.parse(one, papers) for one in given]
    if not datasets:
        raise UserError(f"no --data; {_how_to_name(papers)}")
    names = [dataset.name for dataset in datasets]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--data: two datasets are called {name!r}; give each a name of its own")
    return datasets


def check_papers(datasets: Sequence[Dataset], scale: str, example: str) -> None:
    """At full size every dataset must say which of the paper's it stands for, such as `example`."""
    for dataset in datasets:
        if scale == "full" and dataset.paper is None:
            raise UserError(
                f"--data {dataset}: at --scale full the settings are those of a dataset of the paper; say which one "
                f"it stands for, as in --data {dataset.name}:{example}={dataset.source}"
            )


def prepare(
    dataset: Dataset,
    scale: Scale,
    folder: Path,
    *,
    seed: int = 0,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> Prepared:
    """Draw, split and write the rows of a dataset below `folder`, unless they are there from the same files."""
    sources = locate(dataset.source)
    columns = {"text_column": text_column, "label_column": label_column}
    sample = scale.sample.get(dataset.paper)
    stamp = [file_stamp(source) for source in sources.values()]
    spec = {"sources": sources, "stamp": stamp, "seed": seed, "rows": scale.rows, "sample": sample, **columns}
    place = folder / "data" / f"{dataset.name}-{digest(spec)}"
    about_file = place / "about.json"
    if None not in stamp and about_file.is_file():
        return Prepared(dataset, place, json.loads(about_file.read_text(encoding="utf-8")))
    counts = {}
    with progress_bar(f"Counting {dataset.name}", show=show_progress) as advance:
        for split, source in sources.items():
            counts[split] = sum(1 for _ in counted(read_rows(source, **columns), advance))
    chosen = choose_rows(counts, scale.rows, sample, seed, dataset.source)
    with explain_full_disk(place):
        place.mkdir(parents=True, exist_ok=True)
        about = {
            "name": dataset.name,
            "source": dataset.source,
            "split": "80/10/10 at random" if "all" in sources else "as given",
            "note": _note(dataset.source, text_column),
            "rows_in_source": counts,
            **_write(sources, chosen, columns, place, dataset.name, show_progress),
        }
        if about["classes"] < 2:
            raise UserError(f"{dataset.source}: all training rows have one label; a classifier needs at least two")
        if left_out := sum(about["unseen_labels"].values()):
            say(f"{dataset.name}: {left_out:,} validation and test rows left out, whose label no training row has.")
        with writing_aside(about_file) as aside:  # last: it says that the rest is there
            write_json(aside, about)
    return Prepared(dataset, place, about)


def locate(source: str) -> dict[str, str]:
    """Split -> source of `read_rows`; a source without splits is `all`."""
    if source == "builtin":
        return {split: f"builtin:{split}" for split in SPLITS}
    if not os.path.isdir(source):
        return {"all": source}
    if splits := published_splits(source):
        return {split: f"{source}:{split}" for split in splits}
    saved = Path(source) / "dataset_dict.json"
    if saved.is_file():
        names = json.loads(saved.read_text(encoding="utf-8"))["splits"]
        found = {_OTHER_NAMES.get(name, name): f"{source}:{name}" for name in names}
    else:
        found = {}
        for path in sorted(Path(source).iterdir()):
            split = split_of(path)
            if path.is_file() and split in SPLITS and _has_format(path.name):
                if split in found:
                    raise UserError(f"{source}: {found[split]} and {path} are both {split}; leave one of them there")
                found[split] = str(path)
    found = {split: found[split] for split in SPLITS if split in found}
    if list(found) == ["train"]:
        return {"all": found["train"]}
    if found and not {"train", "test"} <= set(found):
        raise UserError(f"{source}: has {' and '.join(found)}, but a comparison needs train and test files")
    return found or {"all": source}


def split_of(path: Path) -> str:
    """The split that a name says, whatever it is called there: `train`, `validation`, `test`, or no split at all."""
    stem = path.name.split(".", 1)[0]
    return _OTHER_NAMES.get(stem, stem)


def _note(source: str, text_column: str | None) -> str | None:
    """What a report must say of the texts."""
    bodies = bodies_of(source)
    if bodies is None or text_column is not None:
        return None
    if not bodies:
        return "Texts are titles and abstracts, not the bodies that the paper classifies."
    return "Texts are the bodies of the news, and title and abstract of those that have none."


def choose_rows(
    counts: dict[str, int], limits: dict[str, int], sample: int | None, seed: int, where: str
) -> dict[str, dict[str, np.ndarray]]:
    """Which rows of which source each split gets: split -> source's split -> row numbers."""
    order = {name: np.random.default_rng([seed, place]).permutation(count) for place, (name, count) in _places(counts)}
    if "all" in counts:
        rows = order["all"][:sample]
        parts = np.split(rows, [round(0.8 * len(rows)), round(0.9 * len(rows))])
        chosen = {split: {"all": part} for split, part in zip(SPLITS, parts, strict=True)}
    else:
        chosen = {split: {split: rows} for split, rows in order.items()}
        if "validation" not in chosen:
            rows = order["train"]
            tenth = round(0.1 * len(rows))
            chosen |= {"train": {"train": rows[tenth:]}, "validation": {"train": rows[:tenth]}}
    for split in SPLITS:
        chosen[split] = {name: rows[: limits.get(split)] for name, rows in chosen[split].items()}
        if not sum(map(len, chosen[split].values())):
            raise UserError(f"{where}: too few rows to have {split} rows; give at least ten")
    return chosen


def tokenizer_of(prepared: Prepared, kind: str, vocab_size: int, min_frequency: int, show_progress: bool) -> Path:
    """The folder of a tokenizer trained on the training rows, once for all runs on them."""
    fingerprint = prepared.about["fingerprint"]  # rows that come from no file may change below the same name
    folder = prepared.folder / f"tokenizer-{kind}-{vocab_size}-{min_frequency}-{fingerprint[:12]}"
    if not folder.is_dir():
        with progress_bar(f"Tokenizer for {prepared.dataset.name}", show=show_progress) as advance:
            texts = (row.text for row in counted(prepared.rows("train"), advance))
            tokenizer = train_tokenizer(kind, texts, vocab_size=vocab_size, min_frequency=min_frequency)
        with explain_full_disk(folder), tempfile.TemporaryDirectory(prefix=".tokenizer-", dir=folder.parent) as aside:
            made = Path(aside) / "tokenizer"
            tokenizer.save_pretrained(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster: it has made the same
                    raise
    return folder


def _places(counts: dict[str, int]) -> Iterator[tuple[int, tuple[str, int]]]:
    """Each source with a number of its own, so that its draw does not depend on which others are there."""
    return ((SPLITS.index(name) if name in SPLITS else len(SPLITS), (name, count)) for name, count in counts.items())


def _write(
    sources: dict[str, str],
    chosen: dict[str, dict[str, np.ndarray]],
    columns: dict[str, str | None],
    place: Path,
    name: str,
    show: bool,
) -> dict[str, Any]:
    """Write the chosen rows; training rows as they come, the others once the labels of training are known."""
    labels: set[str] = set()
    others: dict[str, list[Row]] = {"validation": [], "test": []}
    fingerprint = hashlib.blake2b(digest_size=16)
    rows = dict.fromkeys(SPLITS, 0)

    def write(file, split: str, row: Row) -> None:
        line = json.dumps(row._asdict(), ensure_ascii=False) + "\n"
        fingerprint.update(f"{split}\t{line}".encode())
        file.write(line)
        rows[split] += 1

    with progress_bar(f"Writing {name}", show=show) as advance, writing_text(place / "train.jsonl") as file:
        for split_of_source, source in sources.items():
            goes_to = {
                int(number): split for split in SPLITS for number in chosen[split].get(split_of_source, np.array([]))
            }
            for number, row in enumerate(counted(read_rows(source, **columns), advance)):
                split = goes_to.get(number)
                if split == "train":
                    labels.add(row.label)
                    write(file, split, row)
                elif split:
                    others[split].append(row)
    for split, found in others.items():
        with writing_text(place / f"{split}.jsonl") as file:
            for row in found:
                if row.label in labels:
                    write(file, split, row)
    unseen = {split: len(found) - rows[split] for split, found in others.items()}
    return {
        "rows": rows,
        "classes": len(labels),
        "unseen_labels": unseen,
        "fingerprint": fingerprint.hexdigest(),
    }


def counted(rows: Iterable[Any], advance: Callable[..., None]) -> Iterator[Any]:
    """The rows, each of them noted on a progress bar."""
    for row in rows:
        advance(1)
        yield row


def _has_format(name: str) -> bool:
    try:
        return format_of(name) != "lines"
    except UserError:
        return False
