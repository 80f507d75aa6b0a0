"""Variants × datasets × seeds of text classification: what a table and two figures of the paper have in common.

Every run goes through `fastformer train classification`'s own function: validation picks the epoch, test is scored
once. Here the settings are put together from the paper's preset, the scale and the variant, and the results are
brought together: mean and sample standard deviation over the seeds.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from fastformer.bench.measuring import describe_machine, result_folder
from fastformer.paper.datasets import Dataset, Prepared, check_papers, parse_data, prepare, tokenizer_of
from fastformer.paper.grid import Job, Metrics, run_grid, train_or_go_on
from fastformer.paper.recipes import Scale, Variant, check_glove, command, load_recipe, load_scale
from fastformer.surroundings.files import content_hash
from fastformer.tasks import verbs
from fastformer.tasks.base import get_task
from fastformer.tasks.classification.declaration import ClassificationSettings

SCORES = {"accuracy": "accuracy", "macro_f": "macro-F"}  # as in metrics.json, as people write them
_WITHOUT_PAPER = "imdb"  # whose windows and block length a dataset gets that stands for none of the paper's


def compare(
    name: str,
    data: Sequence[str],
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    glove: str | None = None,
    data_seed: int = 0,
    text_column: str | None = None,
    label_column: str | None = None,
    keep_models: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train every variant of the recipe `name` on every dataset (`NAME=PATH`) with every seed, and sum up.

    The report has, for each dataset, `about` (rows, classes, where from) and `variants`: the scores of each as mean,
    standard deviation and all of them, time, memory and parameters, and the paper's numbers where it has some.
    """
    recipe, size, datasets = load_recipe(name), load_scale(scale), parse_data(data)
    _check(datasets, size, glove)
    folder, seeds = result_folder(output), seeds or size.seeds
    columns = {"text_column": text_column, "label_column": label_column}
    prepared = [prepare(one, size, folder, seed=data_seed, **columns, show_progress=show_progress) for one in datasets]
    jobs = {
        (one.dataset.name, variant.name, seed): _job(one, variant, size, seed, glove, show_progress)
        for seed in range(seeds)  # the outer loop: stopped early, fewer seeds are complete
        for one in prepared
        for variant in recipe["variants"]
    }
    results = run_grid(
        list(jobs.values()),
        folder,
        train_run,
        _describe,
        keep_models=keep_models,
        show_progress=show_progress,
        show_runs=size.show_runs,
    )
    found = dict(zip(jobs, results, strict=True))

    def sum_up(one: Prepared, variant: Variant) -> dict[str, Any]:
        runs = [(one.dataset.name, variant.name, seed) for seed in range(seeds)]
        return {
            **_sum_up([found[run]["metrics"] for run in runs]),
            "paper": variant.paper.get(one.dataset.paper),
            "is_fastformer": variant.run_name == "fastformer",
            "runs": [str(jobs[run].file(folder).relative_to(folder)) for run in runs],
        }

    return {
        "what": name,
        "title": recipe["title"],
        "source": recipe["source"],
        "command": command(
            name,
            datasets,
            seeds=seeds,
            scale=scale,
            glove=glove,
            data_seed=data_seed or None,
            output=output,
            text_column=text_column,
            label_column=label_column,
        ),
        "scale": scale,
        "reduction": size.says,
        "seeds": seeds,
        "glove": glove,
        "machine": results[0]["metrics"]["machine"],
        "claims": [asdict(claim) for claim in recipe["claims"]],
        "datasets": {
            one.dataset.name: {
                "paper": one.dataset.paper,
                "about": one.about,
                "variants": {variant.name: sum_up(one, variant) for variant in recipe["variants"]},
            }
            for one in prepared
        },
    }


def _check(datasets: list[Dataset], scale: Scale, glove: str | None) -> None:
    """What is wrong is said now rather than after the data is read."""
    check_glove(glove)
    check_papers(datasets, scale.name, "imdb")


def settings_of(variant: Variant, scale: Scale, paper: str | None, seed: int) -> ClassificationSettings:
    """The paper's settings for a dataset and a method, reduced to a scale, with what is the variant's own."""
    preset = get_task("classification").settings(f"paper-{paper or _WITHOUT_PAPER}", mixer=variant.mixer)
    return preset.with_options(
        tokenizer=scale.tokenizer,
        max_length=min(preset.max_length, scale.max_length or preset.max_length),
        epochs=scale.epochs,
        batch_size=scale.batch_size,
        seed=seed,
        model={**scale.model, **variant.model},
    )


def _job(one: Prepared, variant: Variant, scale: Scale, seed: int, glove: str | None, show: bool) -> Job:
    preset = settings_of(variant, scale, one.dataset.paper, seed)
    tokenizer = tokenizer_of(one, preset.tokenizer, preset.vocab_size, preset.min_frequency, show)
    return Job(
        name=f"{one.dataset.name}/{variant.run_name}-seed{seed}",
        settings={
            "task": "classification",
            "recipe_version": scale.version,
            "data": one.about["fingerprint"],
            "mixer": variant.mixer,
            "seed": seed,
            "glove": glove and content_hash(glove),
            "settings": chosen(preset),
        },
        inputs={
            "preset": replace(preset, tokenizer=str(tokenizer.resolve())),
            "glove": glove,
            **{split: str(one.path(split).resolve()) for split in ("train", "validation", "test")},
        },
    )


def chosen(settings: Any) -> dict[str, Any]:
    """The fields of a settings class that are not at their default.

    These determine a run, so that an option that a later version adds, and that is off, leaves finished runs valid.
    """
    found = {}
    for one in fields(settings):
        value = getattr(settings, one.name)
        if is_dataclass(value):
            found[one.name] = chosen(value)
        elif value != one.default:
            found[one.name] = value
    return found


def train_run(job: Job, folder: Path, show: bool) -> Metrics:
    """One run of the grid; goes on from a checkpoint where `folder` has one."""
    train = partial(
        verbs.train,
        "classification",
        job.inputs["train"],
        job.inputs["validation"],
        job.inputs["test"],
        output=folder,
        preset=job.inputs["preset"],
        init=job.inputs["glove"],
        overwrite=True,
        show_progress=show,
    )
    return {**train_or_go_on(folder, train), "machine": describe_machine(torch.get_num_threads())}


def _describe(metrics: Metrics) -> str:
    return ", ".join(f"{name} {100 * metrics['test'][score]:.1f}" for score, name in SCORES.items())


def _sum_up(metrics: list[Metrics]) -> dict[str, Any]:
    """Scores in percent over the seeds; the mean time, the largest memory."""
    return {
        **{score: spread([100 * one["test"][score] for one in metrics]) for score in SCORES},
        "seconds": round(mean(one["train_seconds"] for one in metrics), 1),
        "peak_memory_gb": max((one["peak_memory_gb"] for one in metrics if one["peak_memory_gb"]), default=None),
        "parameters": metrics[0]["parameters"],
    }


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, sample standard deviation (None of a single value), and all of them."""
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "all": values}
