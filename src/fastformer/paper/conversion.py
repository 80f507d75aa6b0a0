"""Conversion prediction: AUC, memory and latency of two methods, floors, and lists of 50 to 5,000 behaviours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.bench.conversion import BATCHES, ENOUGH_FOR_P99
from fastformer.data.objects import read_objects
from fastformer.data.values import is_nan
from fastformer.errors import UserError
from fastformer.paper.datasets import Dataset, Examples, Prepared, need_train_and_test
from fastformer.paper.grid import Grid, Job, Measurement, Metrics
from fastformer.paper.report import cell
from fastformer.paper.study import Entry, Study, spread
from fastformer.paper.verdicts import Resampled
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import how_many
from fastformer.tasks.base import get_task
from fastformer.tasks.conversion.simulate import builtin_objects

FLOORS = {"ad": "the ad's own rate", "words": "words, logistic regression"}
_HOW = "give a folder with train, validation and test files (.jsonl or .parquet, or .gz), or builtin"


class Events(Examples):
    """Events with behaviours, an ad and a label. If validation is missing, the last of the training events by time
    validate.
    """

    validates_at_random = False

    def __init__(self, text_column: str | None = None, label_column: str | None = None):
        super().__init__(text_column, label_column)
        self.labels: dict[str, set[bool]] = {}
        self.left_out = 0

    def locate(self, dataset: Dataset) -> dict[str, str]:
        """Train, test and perhaps validation."""
        return need_train_and_test(dataset, super().locate(dataset), _HOW)

    def read(self, source: str, split: str) -> Iterator[dict[str, Any]]:
        """Whole records."""
        if source.startswith("builtin:"):
            return (record for _, record in builtin_objects(source.partition(":")[2]))
        return (record for _, record in read_objects(source, ["behaviors", "ad", "label"], ["time"]))

    def keep(self, split: str, example: dict[str, Any]) -> bool:
        """Whether it has an ad and a label, as what is trained on and scored must. Both labels are needed."""
        if any(example[name] is None or is_nan(example[name]) for name in ("ad", "label")):
            self.left_out += 1
            return False
        self.labels.setdefault(split, set()).add(example["label"] == 1)
        return True

    def finish(self, dataset: Dataset, sources: Mapping[str, str], written: Mapping[str, Path]) -> dict[str, Any]:
        """Whether they are simulated, and how many do not count."""
        for split in ("train", "test"):
            if len(self.labels.get(split, ())) < 2:
                raise UserError(f"{sources[split]}: the {split} rows have one label only; AUC needs 0 and 1")
        says = ["They are simulated."] if dataset.source == "builtin" else []
        if self.left_out:
            says.append(f"{how_many(self.left_out, 'rows', 'were')} left out without an ad or a label.")
        return {"says": says}


class Conversion(Study):
    """Two methods, what they cost, and two floors."""

    examples = Events

    def resampled(self, data: Prepared, answers: list[Any]) -> Resampled:
        """AUC: the share of pairs (converted, not) in the right order, equal probabilities counting one half."""
        chances = np.array(answers)
        converted = np.array([event["label"] == 1 for event in Events().read(data.files["test"], "test")])
        order = np.argsort(chances, kind="stable")
        starts = np.flatnonzero(np.diff(chances[order], prepend=-1.0))  # of runs of equal probabilities

        def scores(weights: np.ndarray) -> dict[str, np.ndarray]:
            sides = (np.where(side, weights, 0)[:, order] for side in (converted, ~converted))
            yes, no = (np.add.reduceat(side.astype(np.float64), starts, axis=1) for side in sides)
            below = np.cumsum(no, axis=1) - no / 2
            with np.errstate(invalid="ignore"):  # a draw of one label only has no AUC
                return {"auc": (yes * below).sum(axis=1) / (yes.sum(axis=1) * no.sum(axis=1))}

        return scores

    def measurements(self, prepared: Sequence[Prepared]) -> dict[str, Job]:
        """Floors of each dataset, latency on its test rows, and simulated lists of every length."""
        own, mixers = self.scale.own, [one.settings["mixer"] for one in self.variants]
        settings = get_task("conversion").settings(self.scale.preset or self.recipe.preset)
        shared = {"settings": asdict(settings.with_options(**self.scale.settings)), "mixers": mixers}
        jobs: dict[str, Job] = {}
        for length in self.recipe.own["lists"]:
            sizes = {"behaviors": own["list_events"], "requests": own["list_requests"], "steps": own["steps"]}
            arguments = {"length": length, **shared, **sizes}
            jobs[f"lists {length}"] = self._measure(
                "lists", f"simulated/conversion-lists-{length}", arguments, arguments
            )
        for data in prepared:
            name, of_data = data.dataset.name, {"data": data.about["fingerprint"]}
            files = {split: data.files[split] for split in ("train", "test")}
            jobs[f"floors {name}"] = self._measure("floors", f"{name}/conversion-floors", of_data, files)
            measured = {**shared, "requests": own["requests"]}
            arguments = {**measured, "test": data.files["test"]}
            jobs[f"latency {name}"] = self._measure(
                "latency", f"{name}/conversion-latency", {**of_data, **measured}, arguments
            )
        return jobs

    def _measure(self, what: str, name: str, by: dict[str, Any], arguments: dict[str, Any]) -> Measurement:
        determined_by = {"task": "conversion", "measured": what, "version": self.recipe.own["measuring_version"], **by}
        return Measurement(name, determined_by, f"conversion-{what}", arguments)

    def other_rows(self, data: Prepared, grid: Grid, measured: dict[str, Metrics]) -> Iterator[tuple[str, Entry]]:
        """The floors."""
        for name, found in measured.get(f"floors {data.dataset.name}", {}).items():
            yield FLOORS[name], {**{score: spread([found[score]]) for score in self.recipe.scores}, "floor": True}

    def add(self, report: dict[str, Any], grid: Grid, measured: dict[str, Metrics]) -> None:
        """Latency of every variant, and the lists."""
        mixers = {one.name: one.settings["mixer"] for one in self.variants}
        report |= {name: self.scale.own[name] for name in ("requests", "list_requests")}
        for name, dataset in report["datasets"].items():
            latency = measured.get(f"latency {name}", {})
            for variant, mixer in mixers.items():
                dataset["variants"][variant]["latency"] = {batch: found[mixer] for batch, found in latency.items()}
        report["lists"] = {}
        for length in self.recipe.own["lists"]:
            if found := measured.get(f"lists {length}"):
                of_each = {
                    name: {part: found[part][mixer] for part in ("step", "latency")} for name, mixer in mixers.items()
                }
                report["lists"][str(length)] = {"rows": found["rows"], **of_each}


# ---- the report in words ---------------------------------------------------------------------------------------------


def costs(dataset: dict[str, Any], report: dict[str, Any]) -> list[str]:
    """Memory and latency of a dataset's methods."""
    rows = []
    for method, one in dataset["variants"].items():
        if one.get("latency"):
            times = [_latency(one["latency"][str(batch)][kind]) for kind in ("whole", "stored") for batch in BATCHES]
            memory = cell(one.get("peak_memory_gb"), "{:.2f} GB")
            rows.append([method, memory, one["paper"]["memory"], *times, one["paper"]["latency"]])
    if not rows:
        return []
    batches = [f"batch {batch}{kept}" for kept in ("", ", vectors stored") for batch in BATCHES]
    return [
        f"Memory is the peak of a training process, the libraries in it; latency is {_of_requests(report['requests'])} "
        "in milliseconds, from token ids to probabilities, the methods in turns. With stored vectors, as a "
        "`BehaviorStore` keeps them, no text is encoded.\n",
        markdown_table(["method", "peak memory", "paper's", *batches, "paper's"], rows),
    ]


def lists(report: dict[str, Any]) -> list[str]:
    """What longer lists cost."""
    rows, said = [], []
    for length, found in report["lists"].items():
        for method in filter(lambda name: name != "rows", found):
            step, latency = found[method]["step"], found[method]["latency"]
            costs = [f"{1000 * step['seconds']:,.0f} ms", f"{step['peak_memory_mb']:,.0f} MB"]
            times = [_latency(latency[kind]) for kind in ("whole", "stored")]
            rows.append([f"{int(length):,} × {found['rows']:,}", method, *costs, *times])
        first, second = (found[name]["step"] for name in ("Fastformer", "Transformer"))
        time, memory = (first[cost] / second[cost] for cost in ("seconds", "peak_memory_mb"))
        said = [f"At {int(length):,} Fastformer's step takes {time:.2f} of the time and {memory:.2f} of the memory.\n"]
    header = ["behaviours × lists", "method", "training step", "its memory", "latency", "vectors stored"]
    return (
        []
        if not rows
        else [
            "## Longer lists of behaviours\n",
            "Simulated. A training step is forward and backward through so many lists; its memory is the most bytes of "
            f"tensors alive at once. Latency is {_of_requests(report['list_requests'])} of one list, in milliseconds. "
            "Texts repeat and each distinct one is encoded once, so that the user encoder is what grows.\n",
            markdown_table(header, rows),
            *said,
        ]
    )


def _of_requests(count: int) -> str:
    return f"p50 / {'p99' if count >= ENOUGH_FOR_P99 else 'maximum'} of {count} requests"


def _latency(found: dict[str, float]) -> str:
    return " / ".join(f"{time:,.0f}" if time >= 100 else f"{time:.3g}" for time in found.values())
