"""Our classifier against the baselines on every dataset of a folder, trained on few rows and on many.

`DIR/NAME/train.*` and `DIR/NAME/test.*` are a set. Test files score and decide nothing.
"""

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastformer.bench.comparing import (
    choose_methods,
    compare,
    drawn,
    measured_before,
    ours,
    pending,
    still_true,
    write_json_aside,
)
from fastformer.bench.measuring import describe_machine, measuring, numbers, result_folder
from fastformer.bench.suite_plot import plot_suite
from fastformer.bench.suite_report import ALL, called, markdown, summary
from fastformer.data.opening import is_table
from fastformer.data.published import file_stamp
from fastformer.data.tables import Row, read_rows
from fastformer.errors import Interrupted, UserError
from fastformer.surroundings.files import writing_aside, writing_text
from fastformer.surroundings.progress import say

_FILE = "suite.json"


def suite(
    data: str | Path,
    output: str | Path,
    *,
    rows: str = ALL,
    test_rows: int | None = None,
    methods: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train every method on every set of `data`, on each number of rows; score it on the set's test file.

    Args:
        data: folder of sets.
        output: folder for suite.json, written after each measurement, suite.md and suite.png. What is measured there
            with the same settings, files and threads is not measured again; what is measured there of sets that are
            not in `data` any more stays in suite.json.
        rows: numbers of training rows, drawn by `seed`, with commas between them; `all` is one of them. A set with
            fewer rows is left out there.
        test_rows: score on at most this many test rows, drawn by `seed`.
        methods: parts of names, with commas between them; default all.
        text_column, label_column: columns of all files.
        seed: of the samples and of our training.
        threads: threads of torch and of fastText.
        show_progress: say what is measured.

    Returns what suite.json holds of the sets in `data`. Ctrl-C raises `Interrupted`; files hold all that was measured.
    """
    sizes = _sizes(rows)
    columns = {"text_column": text_column, "label_column": label_column}
    chosen, missing = choose_methods([ours(random_state=seed)], methods)
    files = _find_sets(Path(data))
    folder = result_folder(output)
    settings = {"data": os.path.realpath(data), "test_rows": test_rows, "seed": seed, **columns}
    before = measured_before(folder / _FILE, settings, "sets")
    absent = {name: parts for name, parts in before.items() if name not in files}
    with measuring(threads) as used:
        sets = [_Set.read(name, *pair, columns, used) for name, pair in files.items()]
        parts = [
            _Part(one.name, label, drawn(one.train, size, seed), drawn(one.test, test_rows, seed), one.given)
            for one in sets
            for label, size in sizes.items()
            if size is None or size <= len(one.train)
        ]
        if not parts:
            raise UserError(f"--rows {rows}: every set in {data} has fewer; give a smaller number")
        result = {
            "settings": settings,
            "machine": describe_machine(used),
            "sets": _kept(before, sets),
            "missing": missing,
        }
        for part in parts:
            part.join(result["sets"])
        total = sum(len(pending(chosen, part.found, part.given)) for part in parts)
        progress = _Progress(total, show_progress)
        progress.left_out(sets, sizes)

        def save() -> None:
            progress.done += 1
            _write(folder, result, absent)

        try:
            for part in parts:
                tell = partial(progress.tell, part)
                compare(chosen, part.train, part.test, part.found, part.given, tell, save)
        except KeyboardInterrupt:
            _report(folder, result, absent)
            raise Interrupted(f"stopped; what is measured is in {folder}, and the same command continues") from None
        return _report(folder, result, absent)


@dataclass
class _Set:
    """The files of one set, read."""

    name: str
    train: list[Row]
    test: list[Row]
    given: dict[str, Any]  # what its measurements depend on besides the settings

    @classmethod
    def read(cls, name: str, train: Path, test: Path, columns: dict[str, Any], threads: int) -> "_Set":
        stamps = [file_stamp(str(path.resolve())) for path in (train, test)]
        training, testing = (list(read_rows(path, **columns)) for path in (train, test))
        return cls(name, training, testing, {"files": stamps, "threads": threads})


@dataclass
class _Part:
    """A set with one number of training rows: what all methods are measured on."""

    set: str
    size: str
    train: list[Row]
    test: list[Row]
    given: dict[str, Any]
    found: dict[str, Any] = field(default_factory=dict)

    def join(self, sets: dict[str, Any]) -> None:
        """Take a place in the result, with what was measured before."""
        before = sets.setdefault(self.set, {}).get(self.size, {})
        self.found = sets[self.set][self.size] = {
            "rows": {"train": len(self.train), "test": len(self.test)},
            "classes": len({row.label for row in self.train}),
            "methods": before.get("methods", {}),
            "missing": before.get("missing", {}),
        }


@dataclass
class _Progress:
    """Says what is measured, and how far all is."""

    total: int
    show: bool
    done: int = 0

    def tell(self, part: _Part, line: str) -> None:
        if self.show:
            say(f"{self.done + 1} of {self.total}: {part.set}, {called(part.size)} rows: {line}")

    def left_out(self, sets: list[_Set], sizes: dict[str, int | None]) -> None:
        for one in sets:
            larger = [called(label) for label, size in sizes.items() if size is not None and size > len(one.train)]
            if larger and self.show:
                say(f"{one.name} has {len(one.train):,} training rows and is left out at {', '.join(larger)}.")


def _sizes(given: str) -> dict[str, int | None]:
    """`300,1000,all` -> how many training rows, by name; None is all."""
    parts = [part.strip() for part in given.split(",")]
    counted = [part for part in parts if part != ALL]
    try:
        sizes: dict[str, int | None] = {str(size): size for size in numbers(counted, "--rows")} if counted else {}
    except UserError:
        raise UserError(
            f"--rows {given}: give numbers of rows, or all, with commas between them: 300,1000,all"
        ) from None
    return sizes | ({ALL: None} if ALL in parts else {})


def _find_sets(data: Path) -> dict[str, tuple[Path, Path]]:
    """The training and the test file of every set, by name."""
    if not data.is_dir():
        raise UserError(f"{data}: no such folder; give one with NAME/train.* and NAME/test.* in it")
    sets = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir() and not path.name.startswith(".")):
        train, test = (_only_file(folder, role) for role in ("train", "test"))
        if train and test:
            sets[folder.name] = (train, test)
        elif train or test:
            there, lacking = ("train", "test") if train else ("test", "train")
            raise UserError(f"{folder}: has {there}.* but no {lacking}.*; add the file, or move the folder away")
    if not sets:
        raise UserError(f"{data}: no folder in it has train.* and test.* (CSV, TSV, JSONL or Parquet, plain or .gz)")
    return sets


def _only_file(folder: Path, role: str) -> Path | None:
    found = sorted(path for path in folder.glob(f"{role}.*") if path.is_file() and is_table(path.name))
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise UserError(f"{folder}: has {names}; leave one of them there")
    return found[0] if found else None


def _kept(before: dict[str, Any], sets: list[_Set]) -> dict[str, Any]:
    """What was measured before on files that are still the same, by set and size; other methods and sizes included."""
    kept: dict[str, Any] = {}
    for one in sets:
        parts = {
            size: part | {"methods": still_true(part["methods"], one.given)}
            for size, part in before.get(one.name, {}).items()
        }
        kept[one.name] = {size: part for size, part in parts.items() if part["methods"]}
    return kept


def _write(folder: Path, result: dict[str, Any], absent: dict[str, Any]) -> dict[str, Any]:
    """Write suite.json, which keeps the sets that are absent now; give the result with its summary, without them."""
    result = result | {"summary": summary(result["sets"])}
    write_json_aside(folder / _FILE, result | {"sets": absent | result["sets"]})
    return result


def _report(folder: Path, result: dict[str, Any], absent: dict[str, Any]) -> dict[str, Any]:
    """Write all three files; without any measurement there is nothing to draw."""
    result = _write(folder, result, absent)
    with writing_text(folder / "suite.md") as file:
        file.write(markdown(result))
    if result["summary"]:
        with writing_aside(folder / "suite.png") as aside:
            plot_suite(result, aside)
    return result
