"""Text classification: the main table and the two ablation figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.published import bodies_of
from fastformer.data.tables import Row, read_rows
from fastformer.errors import UserError
from fastformer.paper.datasets import Dataset, Examples, Prepared
from fastformer.paper.grid import Grid, Job, Measurement, Metrics
from fastformer.paper.study import Study, chosen
from fastformer.paper.verdicts import Resampled
from fastformer.surroundings.progress import how_many, say

STEP_BATCHES, STEP_REPETITIONS = 20, 3
SAYS_STEP = (
    "*Training* is a whole run, beside whatever else ran at the time; *step* is one training step, averaged over "
    "batches from short texts to long ones; the methods take turns, and the median of their turns is shown."
)


class Rows(Examples):
    """Texts with labels. Rows whose label no training row has are left out and counted."""

    def __init__(self, text_column: str | None = None, label_column: str | None = None):
        super().__init__(text_column, label_column)
        self.labels: set[str] = set()
        self.unseen = 0

    def read(self, source: str, split: str) -> Iterator[Row]:
        """Rows of any source."""
        text_column, label_column = self.columns
        return read_rows(source, text_column=text_column, label_column=label_column)

    def keep(self, split: str, example: Row) -> bool:
        """Whether the label is one that can be learned."""
        if split == "train":
            self.labels.add(str(example.label))
        self.unseen += example.label not in self.labels
        return example.label in self.labels

    def line(self, example: Row) -> str:
        """A JSON object."""
        return super().line(example._asdict())

    def finish(self, dataset: Dataset, sources: Mapping[str, str], written: Mapping[str, Path]) -> dict[str, Any]:
        """Classes, and what the texts are."""
        if len(self.labels) < 2:
            raise UserError(f"{dataset.source}: all training rows have one label; a classifier needs at least two")
        says = [f"There are {len(self.labels)} classes."]
        bodies = bodies_of(dataset.source) if self.columns[0] is None else None
        if bodies is not None:
            says.append(
                "Texts are the bodies of the news, and title and abstract of those that have none."
                if bodies
                else "Texts are titles and abstracts, not the bodies that the paper classifies."
            )
        if self.unseen:
            left_out = f"{how_many(self.unseen, 'rows', 'were')} left out whose label no training row has."
            says.append(left_out)
            say(f"{dataset.name}: {left_out}")
        return {"classes": len(self.labels), "unseen_labels": self.unseen, "says": says}


class Classification(Study):
    """Methods that classify texts."""

    examples = Rows

    def resampled(self, data: Prepared, answers: list[Any]) -> Resampled:
        """Accuracy, and the mean F of all classes that a training row has."""
        rows = read_rows(data.files["test"], text_column="text", label_column="label")
        names, true = np.unique([row.label for row in rows], return_inverse=True)
        given = np.array(answers)
        place = np.searchsorted(names, given).clip(max=len(names) - 1)
        predicted = np.where(names[place] == given, place, -1)  # a class that no test row has
        classes = data.about["classes"]
        is_true, is_given = (np.eye(len(names), dtype=np.float32)[labels] for labels in (true, predicted))
        is_given[predicted < 0] = 0

        def scores(weights: np.ndarray) -> dict[str, np.ndarray]:
            right = weights @ (is_true * is_given)
            sums = np.maximum(weights @ is_true + weights @ is_given, 1e-9)
            return {
                "accuracy": right.sum(axis=1) / weights.sum(axis=1),
                "macro_f": (2 * right / sums).sum(axis=1) / classes,
            }

        return scores

    def measurements(self, prepared: Sequence[Prepared]) -> dict[str, Job]:
        """A training step of every method on texts as long as each dataset's."""
        jobs: dict[str, Job] = {}
        for data in prepared:
            settings = {one.name: self.settings(one, data, 0) for one in self.variants}
            sizes = {"batches": STEP_BATCHES, "repetitions": STEP_REPETITIONS}
            determined_by = {
                "task": self.recipe.task,
                "measured": "step",
                "version": self.recipe.own["measuring_version"],
                "data": data.about["fingerprint"],
                "settings": {name: {**chosen(one), "init": None} for name, one in settings.items()},
                **sizes,
            }
            arguments = {
                "files": {split: data.files[split] for split in ("train", "validation")},
                "settings": {name: asdict(one) for name, one in settings.items()},
                **sizes,
            }
            name = data.dataset.name
            jobs[name] = Measurement(f"{name}/classification-step", determined_by, "classification-step", arguments)
        return jobs

    def add(self, report: dict[str, Any], grid: Grid, measured: dict[str, Metrics]) -> None:
        """The measured steps."""
        for name, found in measured.items():
            for variant, step in found["step"].items():
                report["datasets"][name]["variants"][variant]["step_ms"] = round(1000 * step["seconds"], 1)
        report["says"] = [SAYS_STEP] if measured else []
