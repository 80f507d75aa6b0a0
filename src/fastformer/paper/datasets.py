"""`NAME=PATH` -> train, validation and test examples on disk, drawn and split by seed, once for all runs on them.

A source with splits of its own keeps them: train.*, validation.* (or valid, val, dev) and test.* in a folder, or as
published. Any other source is split at random into 80% train, 10% validation, 10% test, as the paper does. A scale may
then draw fewer. Every draw is a permutation of row numbers by the seed, so the same seed gives the same rows, and the
examples are streamed. What is one task's own is in its `Examples`, beside its study.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.opening import format_of
from fastformer.data.published import file_stamp, published_splits
from fastformer.errors import UserError
from fastformer.paper.recipes import Scale
from fastformer.surroundings.files import digest, explain_full_disk, write_json, writing_aside, writing_text
from fastformer.surroundings.progress import progress_bar

SPLITS = ("train", "validation", "test")
_OTHER_NAMES = {"valid": "validation", "val": "validation", "dev": "validation"}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_PREPARED = 2  # raise it when the same files give other examples: they are prepared again


@dataclass(frozen=True)
class Dataset:
    """What `--data` says: our name for it, the paper's dataset it stands for (if any), and where it is."""

    name: str
    paper: str | None
    source: str

    @classmethod
    def parse(cls, given: str, papers: Iterable[str]) -> "Dataset":
        """From `NAME=PATH` or `NAME:PAPER=PATH`, PAPER one of `papers`."""
        how = _how_to_name(papers)
        title, equals, source = given.partition("=")
        name, colon, paper = title.partition(":")
        if not equals or not source or not _NAME.fullmatch(name):
            raise UserError(f"--data {given}: {how}")
        if colon and paper not in papers:
            raise UserError(f"--data {given}: the paper has no dataset {paper!r} here; {how}")
        return cls(name, paper or None, source)

    def __str__(self) -> str:
        return f"{self.name}:{self.paper}={self.source}" if self.paper else f"{self.name}={self.source}"


def _how_to_name(papers: Iterable[str]) -> str:
    return f"write NAME=PATH, or NAME:PAPER=PATH with PAPER one of {', '.join(papers)}"


def parse_data(given: Sequence[str], papers: Iterable[str]) -> list[Dataset]:
    """All `--data` options; names must differ. `papers` are the paper's datasets that they may stand for."""
    datasets = [Dataset.parse(one, papers) for one in given]
    if not datasets:
        raise UserError(f"no --data; {_how_to_name(papers)}")
    names = [dataset.name for dataset in datasets]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--data: two datasets are called {name!r}; give each a name of its own")
    return datasets


@dataclass(frozen=True)
class Prepared:
    """A dataset on disk: a file (or folder) per split, and what a report says of it."""

    dataset: Dataset
    files: dict[str, str]
    about: dict[str, Any]


class Examples:
    """How the examples of a task are found, read and written; one object per preparation."""

    validates_at_random = True  # if validation is missing a tenth of train is set aside; else the task does that

    def __init__(self, text_column: str | None = None, label_column: str | None = None):
        self.columns = text_column, label_column

    def locate(self, dataset: Dataset) -> dict[str, str]:
        """Split -> source; a source without splits is `all`."""
        return locate(dataset.source)

    def read(self, source: str, split: str) -> Iterable[Any]:
        """Examples of a source."""
        raise NotImplementedError

    def keep(self, split: str, example: Any) -> bool:
        """Whether an example that was drawn is used; those of train come first."""
        return True

    def line(self, example: Any) -> str:
        """An example as a line of its file."""
        return json.dumps(example, ensure_ascii=False, default=str)

    def place(self, folder: Path, split: str) -> tuple[Path, Path]:
        """What a training is given of a split, and the file in it that has the lines."""
        return folder / f"{split}.jsonl", folder / f"{split}.jsonl"

    def finish(self, dataset: Dataset, sources: Mapping[str, str], written: Mapping[str, Path]) -> dict[str, Any]:
        """What there is to say once all is written, under `says`, and further entries of about.json."""
        return {"says": []}


def prepare(
    dataset: Dataset, examples: Examples, scale: Scale, folder: Path, *, seed: int = 0, show: bool = True
) -> Prepared:
    """Draw, split and write the examples of a dataset below `folder`, unless they are there from the same files."""
    sources = examples.locate(dataset)
    sample = scale.sample.get(dataset.paper or "")
    stamps = [file_stamp(source) for source in sources.values()]
    kind = type(examples).__name__
    key = digest([_PREPARED, kind, sources, stamps, seed, scale.rows, sample, examples.columns])
    place = folder / "data" / f"{dataset.name}-{key}"
    about_file = place / "about.json"
    places = {split: examples.place(place, split) for split in SPLITS}
    if None in stamps or not about_file.is_file():
        with explain_full_disk(place), progress_bar(f"Reading {dataset.name}", show=show) as advance:
            about = _write(dataset, sources, places, scale.rows, sample, examples, seed, advance)
            with writing_aside(about_file) as aside:  # last: it says that the rest is there
                write_json(aside, about)
    about = json.loads(about_file.read_text(encoding="utf-8"))
    return Prepared(dataset, {split: str(places[split][0].resolve()) for split in about["rows"]}, about)


def validation_as_test(data: Prepared) -> Prepared:
    """The same data with the validation examples in the place of the test examples, which are not used."""
    rows = data.about["rows"]
    about = {
        **data.about,
        "rows": {**rows, "test": rows["validation"]},
        "fingerprint": digest([data.about["fingerprint"], "without test"]),
        "says": [
            *data.about["says"],
            "The validation rows pick the epoch and are scored, so scores are a little too high.",
            "The test rows are not used.",
        ],
    }
    return Prepared(data.dataset, {**data.files, "test": data.files["validation"]}, about)


def _write(
    dataset: Dataset,
    sources: dict[str, str],
    places: dict[str, tuple[Path, Path]],
    limits: dict[str, int],
    sample: int | None,
    examples: Examples,
    seed: int,
    advance: Callable[..., None],
) -> dict[str, Any]:
    """Two readings, the first only to count. What is there then, for about.json."""
    counts = {
        split: sum(1 for _ in counted(examples.read(source, split), advance)) for split, source in sources.items()
    }
    chosen = choose_rows(counts, limits, sample, seed, dataset.source, examples.validates_at_random)
    rows, content = dict.fromkeys(chosen, 0), hashlib.blake2b(digest_size=16)
    for split, (source, numbers) in chosen.items():
        places[split][1].parent.mkdir(parents=True, exist_ok=True)
        drawn = set(numbers.tolist())
        with writing_text(places[split][1]) as file:
            for number, example in enumerate(counted(examples.read(sources[source], source), advance)):
                if number in drawn and examples.keep(split, example):
                    line = examples.line(example) + "\n"
                    content.update(f"{split}\t{line}".encode("utf-8", "replace"))
                    file.write(line)
                    rows[split] += 1
    found = examples.finish(dataset, sources, {split: places[split][0] for split in chosen})
    return {
        "source": dataset.source,
        "split": "80/10/10 at random" if "all" in sources else "as given",
        "rows_in_source": counts,
        "rows": rows,
        "fingerprint": digest([content.hexdigest(), found.pop("fingerprint", None)]),
        **found,
    }


def locate(source: str) -> dict[str, str]:
    """Split -> source; a source without splits is `all`."""
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
        found = splits_in(source, lambda path: path.is_file() and _has_format(path.name))
    found = {split: found[split] for split in SPLITS if split in found}
    if list(found) == ["train"]:
        return {"all": found["train"]}
    if found and not {"train", "test"} <= set(found):
        raise UserError(f"{source}: has {' and '.join(found)}, but a comparison needs train and test files")
    return found or {"all": source}


def splits_in(
    folder: str | Path, accept: Callable[[Path], bool], called: Callable[[str], str] | None = None
) -> dict[str, str]:
    """Split -> path, of what a folder holds; `called` says which split a name means, whatever it is called there."""
    found: dict[str, str] = {}
    for path in sorted(Path(folder).iterdir()):
        stem = path.name.split(".", 1)[0]
        split = called(path.name) if called else _OTHER_NAMES.get(stem, stem)
        if split in SPLITS and accept(path):
            if split in found:
                raise UserError(f"{folder}: {found[split]} and {path} are both {split}; leave one of them there")
            found[split] = str(path)
    return {split: found[split] for split in SPLITS if split in found}


def need_train_and_test(dataset: Dataset, found: dict[str, str], how: str) -> dict[str, str]:
    """Refuse a source that cannot be trained on and scored."""
    if not {"train", "test"} <= set(found):
        raise UserError(f"--data {dataset}: there is no train and test; {how}")
    return found


def choose_rows(
    counts: dict[str, int],
    limits: dict[str, int],
    sample: int | None,
    seed: int,
    where: str,
    validates_at_random: bool = True,
) -> dict[str, tuple[str, np.ndarray]]:
    """Which rows of which source each split gets: split -> source's split and row numbers."""
    # A source's draw does not depend on which others are there.
    order = {name: np.random.default_rng([seed, _place(name)]).permutation(count) for name, count in counts.items()}
    chosen = {split: (split, order[split]) for split in SPLITS if split in order}
    if "all" in counts:
        rows = order["all"][:sample]
        parts = np.split(rows, [round(0.8 * len(rows)), round(0.9 * len(rows))])
        chosen = {split: ("all", part) for split, part in zip(SPLITS, parts, strict=True)}
    elif "validation" not in chosen and validates_at_random:
        rows, tenth = order["train"], round(0.1 * counts["train"])
        chosen = {"train": ("train", rows[tenth:]), "validation": ("train", rows[:tenth]), "test": chosen["test"]}
    chosen = {split: (source, rows[: limits.get(split)]) for split, (source, rows) in chosen.items()}
    for split, (_, rows) in chosen.items():
        if not len(rows):
            raise UserError(f"{where}: too few rows to have {split} rows; give at least ten")
    return chosen


def _place(name: str) -> int:
    return SPLITS.index(name) if name in SPLITS else len(SPLITS)


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
