"""Methods × datasets × seeds of news recommendation: the runs behind the paper's table, and what they sum up to.

Every run goes through `fastformer train recommendation`'s own function and leaves the scores of all test candidates
beside its JSON file, from which ensembles are made: the average of the scores of several runs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from fastformer.bench.measuring import describe_machine
from fastformer.engine.word_encoder import encoder_hash, open_encoder
from fastformer.errors import UserError
from fastformer.paper.comparison import chosen, spread
from fastformer.paper.datasets import Dataset
from fastformer.paper.grid import Job, Metrics, run_grid, train_or_go_on
from fastformer.paper.recipes import load_recipe, scale_fields, start_settings
from fastformer.surroundings.files import writing_aside
from fastformer.tasks.base import get_task
from fastformer.tasks.recommendation.architectures import MODELS
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.floors import floor_scores
from fastformer.tasks.recommendation.metrics import METRICS, format_metrics, impression_metrics
from fastformer.tasks.recommendation.mind import content_key, format_quirks, has_labels, read_mind
from fastformer.tasks.verbs import load
from fastformer.tasks.verbs import train as train_task

NAME = "table-recommendation"
_SPLIT = re.compile(r"(?:^|.*[_-])(?:(train)|(dev|valid|validation)|(test))", re.IGNORECASE)  # MINDlarge_train too


@dataclass(frozen=True)
class Method:
    """One row of the table: a floor, a model, a mixer at both levels, or an ensemble of another method's runs."""

    name: str
    floor: str | None = None
    model: str = "fastformer"
    mixer: str | None = None
    average: str | None = None
    paper: list[float] | None = None  # in the order of METRICS

    @property
    def trains(self) -> bool:
        """Whether it has runs of its own."""
        return self.floor is None and self.average is None

    @property
    def run_name(self) -> str:
        """A name for files."""
        return self.mixer or self.model


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    says: str  # the reduction in words, for reports
    seeds: int  # as many as the command does not say otherwise
    ensemble: int  # runs
    preset: str
    impressions: dict[str, int] = field(default_factory=dict)  # at most so many, by split
    settings: dict[str, Any] = field(default_factory=dict)  # other than the preset's
    show_runs: bool = False


def load_scale(name: str) -> Scale:
    """The scale called `name`."""
    return Scale(**scale_fields(load_recipe(NAME), name))


def load_methods(plm: str | None) -> list[Method]:
    """The rows of the table; those that need a pre-trained encoder only if there is one."""
    methods = {fields["name"]: Method(**fields) for fields in load_recipe(NAME)["methods"]}

    def needs_plm(method: Method) -> bool:
        method = methods.get(method.average, method)
        return MODELS[method.model].needs_plm

    return [method for method in methods.values() if plm is not None or not needs_plm(method)]


def locate(dataset: Dataset) -> dict[str, str]:
    """Split -> folder: train, test, and validation where both dev and test have labels."""
    if dataset.source == "builtin":
        return {"train": "builtin:train", "test": "builtin:dev"}
    if not Path(dataset.source).is_dir():
        raise UserError(f"--data {dataset}: no such folder; give one with MIND's train and dev folders in it")
    found: dict[str, str] = {}
    for path in sorted(Path(dataset.source).glob("*/behaviors.tsv")):
        if matched := _SPLIT.fullmatch(path.parent.name):
            split = ("train", "validation", "test")[matched.lastindex - 1]
            if split in found:
                raise UserError(f"--data {dataset}: {found[split]} and {path.parent} are both {split}; leave one there")
            found[split] = str(path.parent)
    if "test" in found and not has_labels(found["test"]):
        del found["test"]  # the leaderboard has its labels
    if "test" not in found and "validation" in found:
        found["test"] = found.pop("validation")
    if not {"train", "test"} <= set(found):
        raise UserError(f"--data {dataset}: needs folders train and dev, each with news.tsv and behaviors.tsv")
    return found


@dataclass(frozen=True)
class Prepared:
    """A dataset whose folders are found and read."""

    dataset: Dataset
    places: dict[str, str]  # split -> folder
    contents: dict[str, str]  # split -> what tells whether it has changed
    clicks: dict[str, Clicks]  # split -> the impressions that are used
    about: dict[str, Any]


def prepare(dataset: Dataset, scale: Scale, show_progress: bool = False) -> Prepared:
    """Find and read the folders of a dataset, and draw the impressions of a scale."""
    places = locate(dataset)
    whole = {split: read_mind(place, labels="required", show_progress=show_progress) for split, place in places.items()}
    clicks = {split: draw(part, scale.impressions.get(split)) for split, part in whole.items()}
    about = {
        "source": dataset.source,
        "folders": places,
        "impressions": {split: len(part) for split, part in clicks.items()},
        "impressions_in_source": {split: len(part) for split, part in whole.items()},
        "news": whole["train"].news.num_rows,
        "quirks": {split: format_quirks(part.quirks) for split, part in whole.items() if part.quirks},
    }
    return Prepared(dataset, places, {split: content_key(place) for split, place in places.items()}, clicks, about)


def draw(clicks: Clicks, limit: int | None) -> Clicks:
    """At most `limit` impressions, drawn at random, always the same."""
    if limit is None or len(clicks) <= limit:
        return clicks
    return clicks.take(np.sort(np.random.default_rng(0).permutation(len(clicks))[:limit]))


def compare(
    datasets: Sequence[Dataset],
    methods: Sequence[Method],
    scale: Scale,
    folder: Path,
    *,
    seeds: int,
    plm: str | None,
    glove: str | None,
    keep_models: bool,
    show_progress: bool,
) -> dict[str, Any]:
    """For each dataset `about` and, by name, `variants`: scores in percent over the seeds, time, memory, parameters."""
    prepared = [prepare(dataset, scale, show_progress) for dataset in datasets]
    averaged = {method.average for method in methods}
    jobs = {
        (one.dataset.name, method.name, seed): _job(one, method, scale, seed, plm, glove)
        for seed in range(max(seeds, scale.ensemble))  # the outer loop: stopped early, fewer seeds are complete
        for one in prepared
        for method in methods
        if method.trains and (seed < seeds or (method.name in averaged and seed < scale.ensemble))
    }
    for job in jobs.values():
        if not _scores_file(job, folder).is_file():  # half a result is none
            job.file(folder).unlink(missing_ok=True)
    options = {"keep_models": keep_models, "show_progress": show_progress, "show_runs": scale.show_runs}
    results = run_grid(list(jobs.values()), folder, train_run, _describe, **options)
    found = dict(zip(jobs, results, strict=True))

    def sum_up(one: Prepared, method: Method) -> dict[str, Any]:
        name, train, test = one.dataset.name, one.clicks["train"], one.clicks["test"]
        if method.floor is not None:
            draws = range(seeds if method.floor == "random" else 1)
            metrics = [_metrics(floor_scores(method.floor, train, test, seed), test) for seed in draws]
            return {**_spreads(metrics), "floor": True}
        if method.average is not None:
            runs = [jobs[name, method.average, seed] for seed in range(scale.ensemble)]
            scores = np.mean([np.load(_scores_file(run, folder), allow_pickle=False) for run in runs], axis=0)
            return {**_spreads([_metrics(scores, test)]), "ensemble": scale.ensemble}
        runs = [(name, method.name, seed) for seed in range(seeds)]
        metrics = [found[run]["metrics"] for run in runs]
        memory = (run["peak_memory_gb"] for run in metrics if run["peak_memory_gb"])
        return {
            **_spreads([run["test"] for run in metrics]),
            "seconds": round(mean(run["train_seconds"] for run in metrics), 1),
            "peak_memory_gb": max(memory, default=None),
            "parameters": metrics[0]["parameters"],
            "runs": [str(jobs[run].file(folder).relative_to(folder)) for run in runs],
        }

    return {
        "machine": results[0]["metrics"]["machine"],
        "datasets": {
            one.dataset.name: {
                "paper": one.dataset.paper,
                "about": one.about,
                "variants": {method.name: {**sum_up(one, method), "paper": method.paper} for method in methods},
            }
            for one in prepared
        },
    }


def _job(one: Prepared, method: Method, scale: Scale, seed: int, plm: str | None, glove: str | None = None) -> Job:
    needs_plm = MODELS[method.model].needs_plm
    glove = None if needs_plm else glove  # a pre-trained encoder has vectors of its own
    settings = {
        **scale.settings,
        "recommender": method.model,
        "news_mixer": method.mixer,
        "user_mixer": method.mixer,
        "plm": plm if needs_plm else None,
        "init": glove,
        "seed": seed,
    }
    if method.model == "fim":  # the sizes of its parts are its own
        settings.pop("model", None)
    preset = chosen(get_task("recommendation").settings(scale.preset, **settings))
    for name in ("recommender", "news_mixer", "user_mixer", "plm", "init"):  # told apart by what follows
        preset.pop(name, None)
    preset["title_length"] = preset.pop("max_length")  # as it is called in runs that are finished
    return Job(
        name=f"{one.dataset.name}/{method.run_name}-seed{seed}",
        settings={
            "task": "recommendation",
            "recipe_version": load_recipe(NAME)["version"],
            "data": one.contents,
            "impressions": scale.impressions,
            "model": method.model,
            "mixer": method.mixer,
            **start_settings(preset, glove),
            "plm": encoder_hash(open_encoder(Path(plm).expanduser())) if needs_plm else {},
            "seed": seed,
        },
        inputs={
            "places": one.places,
            "preset": scale.preset,
            "settings": settings,
        },
    )


def train_run(job: Job, folder: Path, show: bool) -> Metrics:
    """One run of the grid; goes on from a checkpoint where `folder` has one."""
    limits = job.settings["impressions"]
    clicks = {split: draw(read_mind(place), limits.get(split)) for split, place in job.inputs["places"].items()}
    train = partial(
        train_task,
        "recommendation",
        clicks["train"],
        clicks.get("validation"),
        output=folder,
        preset=job.inputs["preset"],
        overwrite=True,
        show_progress=show,
        **job.inputs["settings"],
    )
    metrics = train_or_go_on(folder, train)
    scores = load(folder).score(clicks["test"])
    with writing_aside(_beside(folder)) as aside, aside.open("wb") as file:
        np.save(file, scores, allow_pickle=False)
    kept = {name: metrics[name] for name in ("train_seconds", "peak_memory_gb", "parameters", "rows", "validation")}
    return {**kept, "test": _metrics(scores, clicks["test"]), "machine": describe_machine(torch.get_num_threads())}


def _scores_file(job: Job, folder: Path) -> Path:
    return _beside(job.file(folder).with_suffix(""))


def _beside(run: Path) -> Path:
    """Where the scores of a run are kept."""
    return run.with_name(f"{run.name}.npy")


def _metrics(scores: np.ndarray, clicks: Clicks) -> dict[str, Any]:
    found = impression_metrics(scores, clicks.labels, clicks.candidates.offsets)
    if "auc" not in found:
        raise UserError("no test impression has both a clicked and an unclicked candidate, and the table needs AUC")
    return found


def _describe(metrics: Metrics) -> str:
    return format_metrics(metrics["test"])


def _spreads(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: spread([100 * one[name] for one in metrics]) for name in METRICS}
