"""The runs behind the conversion table: trainings, the floors, latency of requests, and simulated lists.

Each is a job of the grid (`grid.py`): made once, in a process of its own, and kept as a JSON file.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fastformer.bench.conversion import measure_latency, measure_lists
from fastformer.bench.measuring import describe_machine
from fastformer.data.objects import read_objects
from fastformer.data.published import file_stamp
from fastformer.errors import UserError
from fastformer.paper.comparison import chosen
from fastformer.paper.datasets import Dataset, locate
from fastformer.paper.grid import Job, Metrics, train_or_go_on
from fastformer.paper.recipes import Variant, scale_fields, start_settings
from fastformer.surroundings.files import digest, explain_full_disk, write_json, writing_text
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks import verbs
from fastformer.tasks.conversion.baselines import floor_scores
from fastformer.tasks.conversion.data import EventsWriter, collect
from fastformer.tasks.conversion.declaration import CONVERSION, ConversionSettings
from fastformer.tasks.conversion.events import Columns, EventSource
from fastformer.tasks.conversion.simulate import builtin_objects

LATENCY_EVENTS = 512  # test rows that requests are drawn from
_HOW = "give a folder with train, validation and test files (.jsonl or .parquet, or .gz), or builtin"


@dataclass(frozen=True)
class ConversionScale:
    """How large the experiment is; what is empty is as in the preset `paper`."""

    name: str
    says: str
    seeds: int
    list_events: int  # behaviours to a training step of the simulated lists
    requests: int  # measured at each batch size
    list_requests: int  # of the simulated lists, which may take a second each
    steps: int  # measured training steps
    rows: dict[str, int] = field(default_factory=dict)  # at most so many, by split
    training: dict[str, Any] = field(default_factory=dict)
    preset: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)

    def settings(self, seed: int = 0) -> ConversionSettings:
        """The paper's settings, reduced to this scale."""
        given = {**self.training, **self.preset, "model": self.model, "seed": seed}
        return CONVERSION.presets.get_settings("paper", **given)


@dataclass(frozen=True)
class ConversionData:
    """A dataset: its files by split, and what they hold."""

    dataset: Dataset
    files: dict[str, str]
    about: dict[str, Any]


def conversion_scale(recipe: dict[str, Any], name: str) -> ConversionScale:
    """The scale called `name`."""
    return ConversionScale(name=name, **scale_fields(recipe, name))


def prepare_conversion(dataset: Dataset, scale: ConversionScale, folder: Path, seed: int, show: bool) -> ConversionData:
    """Count the rows and draw as many as the scale has, unless that was done before with the same files."""
    sources = locate(dataset.source)
    if "train" not in sources or "test" not in sources:
        raise UserError(f"--data {dataset}: there is no train and test file; {_HOW}")
    stamps = [file_stamp(source) for source in sources.values()]
    place = folder / "data" / f"{dataset.name}-{digest([sources, stamps, scale.rows, seed])}"
    about_file = place / "about.json"
    if None not in stamps and about_file.is_file():
        return ConversionData(dataset, **json.loads(about_file.read_text(encoding="utf-8")))
    files, counts, rows, content = {}, {}, {}, hashlib.blake2b(digest_size=16)
    with explain_full_disk(place), progress_bar(f"Reading {dataset.name}", show=show) as advance:
        place.mkdir(parents=True, exist_ok=True)
        for number, (split, source) in enumerate(sources.items()):
            converted = []
            for record in _records(source):
                converted.append(record["label"] == 1)
                content.update(f"{split}\t{json.dumps(record, default=str)}\n".encode())
                advance(1)
            counts[split] = len(converted)
            rows[split] = min(counts[split], scale.rows.get(split, counts[split]))
            files[split], drawn = source, np.arange(counts[split])
            if rows[split] < counts[split]:
                files[split] = str((place / f"{split}.jsonl").resolve())
                drawn = np.random.default_rng([seed, number]).permutation(counts[split])[: rows[split]]
                _copy(source, set(drawn.tolist()), Path(files[split]))
            if split != "validation" and len(np.unique(np.array(converted)[drawn])) < 2:
                raise UserError(f"{source}: the {rows[split]:,} {split} rows have one label only; AUC needs 0 and 1")
        about = {
            "source": dataset.source,
            "rows_in_source": counts,
            "rows": rows,
            "fingerprint": digest([content.hexdigest(), rows, seed]),
        }
        write_json(about_file, {"files": files, "about": about})
    return ConversionData(dataset, files, about)


def _records(source: str) -> Iterator[dict[str, Any]]:
    if source.startswith("builtin:"):
        return (record for _, record in builtin_objects(source.partition(":")[2]))
    return (record for _, record in read_objects(source, ["behaviors", "ad", "label"], ["time"]))


def _copy(source: str, kept: set[int], path: Path) -> None:
    with writing_text(path) as file:
        for number, record in enumerate(_records(source)):
            if number in kept:
                file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


# ---- jobs ------------------------------------------------------------------------------------------------------------


def training_job(
    data: ConversionData, variant: Variant, scale: ConversionScale, seed: int, glove: str | None, version: int
) -> Job:
    """Train one method with one seed, and score it on the test rows."""
    preset = scale.settings(seed)
    settings = {"data": data.about["fingerprint"], "mixer": variant.mixer, "seed": seed}
    settings |= start_settings(chosen(preset), glove)
    inputs = {"preset": preset, "glove": glove, **data.files}
    return _job("training", f"{data.dataset.name}/conversion-{variant.mixer}-seed{seed}", settings, inputs, version)


def floors_job(data: ConversionData, version: int) -> Job:
    """Score what needs no neural network."""
    settings = {"data": data.about["fingerprint"]}
    return _job("floors", f"{data.dataset.name}/conversion-floors", settings, data.files, version)


def latency_job(data: ConversionData, mixers: list[str], scale: ConversionScale, version: int) -> Job:
    """Measure requests drawn from the test rows, all methods in turns."""
    preset = scale.settings()
    settings = {"data": data.about["fingerprint"], "mixers": mixers, **start_settings(chosen(preset), None)}
    settings["requests"] = scale.requests
    inputs = {"preset": preset, "test": data.files["test"]}
    return _job("latency", f"{data.dataset.name}/conversion-latency", settings, inputs, version)


def lists_job(length: int, mixers: list[str], scale: ConversionScale, version: int) -> Job:
    """Measure simulated lists of one length, all methods in turns."""
    preset = scale.settings()
    size = {"behaviors": scale.list_events, "requests": scale.list_requests, "steps": scale.steps}
    settings = {"length": length, "mixers": mixers, **start_settings(chosen(preset), None), **size}
    return _job("lists", f"simulated/conversion-lists-{length}", settings, {"preset": preset, "size": size}, version)


def _job(kind: str, name: str, settings: dict[str, Any], inputs: dict[str, Any], version: int) -> Job:
    return Job(name, {"task": "conversion", "kind": kind, "recipe_version": version, **settings}, inputs)


def run_job(job: Job, folder: Path, show: bool) -> Metrics:
    """Any of the jobs above, in the process it is called in."""
    found = _KINDS[job.settings["kind"]](job, folder, show)
    return {**found, "machine": describe_machine(torch.get_num_threads())}


def describe(metrics: Metrics) -> str:
    """A result in a few words."""
    if "test" in metrics:
        return f"AUC {metrics['test']['auc']:.4f}"
    if "floors" in metrics:
        return ", ".join(f"{name} {found['auc']:.4f}" for name, found in metrics["floors"].items())
    return "measured"


def _train(job: Job, folder: Path, show: bool) -> Metrics:
    train = partial(
        verbs.train,
        "conversion",
        job.inputs["train"],
        job.inputs.get("validation"),
        job.inputs["test"],
        output=folder,
        mixer=job.settings["mixer"],
        preset=job.inputs["preset"],
        init=job.inputs["glove"],
        seed=job.settings["seed"],
        overwrite=True,
        show_progress=show,
    )
    return train_or_go_on(folder, train)


def _floors(job: Job, folder: Path, show: bool) -> Metrics:
    with TemporaryDirectory() as place, EventsWriter(Path(place), Columns(), 10**6) as writer:
        rows = [collect(EventSource(job.inputs[split]), writer) for split in ("train", "test")]
        return {"floors": floor_scores(writer.finish(), *rows)}


def _latency(job: Job, folder: Path, show: bool) -> Metrics:
    events = islice(EventSource(job.inputs["test"]), LATENCY_EVENTS)
    mixers, requests = job.settings["mixers"], job.settings["requests"]
    return {"latency": measure_latency(events, job.inputs["preset"], mixers, requests)}


def _lists(job: Job, folder: Path, show: bool) -> Metrics:
    return measure_lists(job.settings["length"], job.inputs["preset"], job.settings["mixers"], **job.inputs["size"])


_KINDS = {"training": _train, "floors": _floors, "latency": _latency, "lists": _lists}
