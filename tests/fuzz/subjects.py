"""What is damaged: a small run of every task, an export and an ensemble, and rows that they read."""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastformer.export.exporting import export
from fastformer.tasks.recommendation import ensemble
from fastformer.tasks.verbs import train

from ..tasks.conftest import make_rows
from ..tasks.samples import SAMPLES

ROWS = 8  # of what is answered


@dataclass
class Subject:
    """A task: a run of it, what it is trained on, and rows to answer. `folders`: it reads folders in MIND's layout."""

    task: str
    run: str
    train: str
    rows: list[dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def folders(self) -> bool:
        return Path(self.train).is_dir()

    @property
    def labelled(self) -> bool:
        return self.task != "masked-words"


def subjects(folder: Path, tasks: list[str] | None = None) -> list[Subject]:
    """The subjects in `folder`, made where they are not there yet."""
    found = []
    for task in tasks or [name for name in SAMPLES if name != "loudness"]:
        kept = folder / task / "subject.json"
        if not kept.is_file():
            shutil.rmtree(folder / task, ignore_errors=True)
            (folder / task).mkdir(parents=True)
            _write(task, folder / task, kept)
        found += [Subject(**one) for one in json.loads(kept.read_text())]
    return found


def _write(task: str, folder: Path, kept: Path) -> None:
    sample = SAMPLES[task](folder)
    options = {**sample.options, "epochs": 1}
    train(task, sample.train, output=folder / "run", show_progress=False, **options)
    subject = {"task": task, "train": sample.train, "rows": _rows(task, sample), "options": options}
    runs = [folder / "run"]
    if task == "classification":
        export(folder / "run", folder / "export", show_progress=False)
        runs.append(folder / "export")
    if task == "recommendation":
        shutil.copytree(folder / "run", folder / "second")
        runs.append(ensemble([folder / "run", folder / "second"], folder / "ensemble"))
    kept.write_text(json.dumps([{**subject, "run": os.fspath(run)} for run in runs]))


def _rows(task: str, sample: Any) -> list[dict[str, Any]]:
    """Rows with labels, as `predict` and `evaluate` read them."""
    if task == "recommendation":
        return [
            {"history": [f"N{place}", "N3"], "candidates": ["N5", "N25", f"N{place + 10}"]} for place in range(ROWS)
        ]
    if sample.test is None or not sample.test.endswith(".jsonl"):
        return [{"text": text, "label": label} for text, label in make_rows(ROWS, 5)]
    return [json.loads(line) for line in Path(sample.test).read_text().splitlines()[:ROWS]]
