"""The paper's last table: AUC, training memory and latency of conversion models, its numbers beside ours.

Beside it two floors, and what a training step and a request cost when the list of behaviours has 50, 500 and 5,000.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from fastformer.bench.conversion import BATCHES, ENOUGH_FOR_P99
from fastformer.bench.measuring import machine_line, result_folder
from fastformer.paper.comparison import spread
from fastformer.paper.conversion_runs import (
    conversion_scale,
    describe,
    floors_job,
    latency_job,
    lists_job,
    prepare_conversion,
    run_job,
    training_job,
)
from fastformer.paper.datasets import parse_data
from fastformer.paper.grid import Metrics, run_grid
from fastformer.paper.recipes import Variant, check_glove, load_recipe
from fastformer.paper.report import compare_two, start_of_words, write_report
from fastformer.surroundings.markdown import markdown_table

NAME = "table-conversion"
SCORES = ("auc", "log_loss", "calibration_error")
_FLOORS = {"ad": "the ad's own rate", "words": "words, logistic regression"}


def table_conversion(
    data: Sequence[str],
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    glove: str | None = None,
    data_seed: int = 0,
    keep_models: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train and measure both methods on every dataset (`NAME=FOLDER`); leave table-conversion.md and .json."""
    recipe = load_recipe(NAME)
    check_glove(glove)
    size, datasets, folder = conversion_scale(recipe, scale), parse_data(data), result_folder(output)
    seeds, variants = seeds or size.seeds, recipe["variants"]
    version, measuring_version = recipe["version"], recipe["measuring_version"]
    mixers = [variant.mixer for variant in variants]
    prepared = [prepare_conversion(one, size, folder, data_seed, show_progress) for one in datasets]
    jobs = {("lists", length): lists_job(length, mixers, size, measuring_version) for length in recipe["lists"]}
    for one in prepared:
        jobs["floors", one.dataset.name] = floors_job(one, version)
        jobs["latency", one.dataset.name] = latency_job(one, mixers, size, measuring_version)
    jobs |= {
        (one.dataset.name, variant.name, seed): training_job(one, variant, size, seed, glove, version)
        for seed in range(seeds)  # the outer loop: stopped early, fewer seeds are complete
        for one in prepared
        for variant in variants
    }
    results = run_grid(
        list(jobs.values()), folder, run_job, describe, keep_models=keep_models, show_progress=show_progress
    )
    found = {key: result["metrics"] for key, result in zip(jobs, results, strict=True)}
    options = {"seeds": seeds, "scale": scale, "glove": glove, "data-seed": data_seed or None, "output": output}
    given = [part for dataset in datasets for part in ("--data", str(dataset))]
    given += [part for option, value in options.items() if value is not None for part in (f"--{option}", str(value))]
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "paper_data": recipe["data"],
        "command": shlex.join(["fastformer", "reproduce", NAME, *given]),
        "scale": scale,
        "reduction": size.says,
        "seeds": seeds,
        "glove": glove,
        "requests": size.requests,
        "list_requests": size.list_requests,
        "machine": results[0]["metrics"]["machine"],
        "claims": [asdict(claim) for claim in recipe["claims"]],
        "datasets": {
            one.dataset.name: {
                "about": one.about,
                "floors": found["floors", one.dataset.name]["floors"],
                "variants": {
                    variant.name: {
                        **_sum_up([found[one.dataset.name, variant.name, seed] for seed in range(seeds)]),
                        "latency": _of_mixer(found["latency", one.dataset.name]["latency"], variant),
                        "paper": variant.paper,
                    }
                    for variant in variants
                },
            }
            for one in prepared
        },
        "lists": {
            str(length): {
                "rows": found["lists", length]["rows"],
                **{
                    variant.name: {part: found["lists", length][part][variant.mixer] for part in ("step", "latency")}
                    for variant in variants
                },
            }
            for length in recipe["lists"]
        },
    }
    write_report(folder, report, markdown(report))
    return report


def _sum_up(metrics: list[Metrics]) -> dict[str, Any]:
    return {
        **{score: spread([one["test"][score] for one in metrics]) for score in SCORES},
        "seconds": round(mean(one["train_seconds"] for one in metrics), 1),
        "peak_memory_gb": max((one["peak_memory_gb"] for one in metrics if one["peak_memory_gb"]), default=None),
        "parameters": metrics[0]["parameters"],
    }


def _of_mixer(latency: dict[str, Any], variant: Variant) -> dict[str, Any]:
    return {batch: found[variant.mixer] for batch, found in latency.items()}


# ---- the report in words ---------------------------------------------------------------------------------------------


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it."""
    seeds = f"mean of {report['seeds']} seeds ± sample standard deviation" if report["seeds"] > 1 else "one seed"
    parts = [
        f"# {report['title']}\n",
        f"After {report['source']}. Scale `{report['scale']}`. {report['reduction']} {start_of_words(report)} Test "
        f"scores, {seeds}; validation picks the epoch. {machine_line(report['machine'])}.\n",
    ]
    for name, dataset in report["datasets"].items():
        parts += _dataset(name, dataset, report)
    parts += _lists(report)
    return "\n".join([*parts, _claims(report), f"```bash\n{report['command']}\n```\n"])


def _dataset(name: str, dataset: dict[str, Any], report: dict[str, Any]) -> list[str]:
    about = dataset["about"]
    simulated = " (simulated)" if about["source"] == "builtin" else ""
    rows = ", ".join(f"{count:,} {split}" for split, count in about["rows"].items())
    scores = []
    for method, one in dataset["variants"].items():
        numbers = [_spread(one[score]) for score in SCORES]
        paper = f"{one['paper']['auc']:.4f}"
        scores.append([method, numbers[0], paper, *numbers[1:], f"{one['seconds']:,.0f} s", f"{one['parameters']:,}"])
    for floor, one in dataset["floors"].items():
        numbers = [f"{one[score]:.4f}" for score in SCORES]
        scores.append([_FLOORS[floor], numbers[0], "–", *numbers[1:], "–", "–"])
    costs = []
    for method, one in dataset["variants"].items():
        memory = "–" if one["peak_memory_gb"] is None else f"{one['peak_memory_gb']:.2f} GB"
        times = [_latency(one["latency"][str(batch)][kind]) for kind in ("whole", "stored") for batch in BATCHES]
        costs.append([method, memory, one["paper"]["memory"], *times, one["paper"]["latency"]])
    batches = [f"batch {batch}{kept}" for kept in ("", ", vectors stored") for batch in BATCHES]
    return [
        f"## {name}\n",
        f"{rows} rows from `{about['source']}`{simulated}. It stands for the paper's data, {report['paper_data']}, "
        "which is not public: its numbers are beside ours, not to be compared digit by digit.\n",
        markdown_table(
            ["method", "AUC", "paper's AUC", "log loss", "calibration error", "training", "parameters"], scores
        ),
        f"Memory is the peak of a training process, the libraries in it; latency is {_of_requests(report['requests'])} "
        "in milliseconds, from token ids to probabilities, the methods in turns. With stored vectors, as a "
        "`BehaviorStore` keeps them, no text is encoded.\n",
        markdown_table(["method", "peak memory", "paper's", *batches, "paper's"], costs),
    ]


def _lists(report: dict[str, Any]) -> list[str]:
    rows = []
    for length, found in report["lists"].items():
        methods = [name for name in found if name != "rows"]
        for method in methods:
            one = found[method]
            rows.append(
                [
                    f"{int(length):,} × {found['rows']:,}",
                    method,
                    f"{1000 * one['step']['seconds']:,.0f} ms",
                    f"{one['step']['peak_memory_mb']:,.0f} MB",
                    _latency(one["latency"]["whole"]),
                    _latency(one["latency"]["stored"]),
                ]
            )
    header = ["behaviours × lists", "method", "training step", "its memory", "latency", "vectors stored"]
    return [
        "## Longer lists of behaviours\n",
        "Simulated. A training step is forward and backward through so many lists; its memory is the most bytes of "
        f"tensors alive at once. Latency is {_of_requests(report['list_requests'])} of one list, in milliseconds. "
        "Texts repeat and each distinct one is encoded once, so that the user encoder is what grows.\n",
        markdown_table(header, rows),
    ]


def _claims(report: dict[str, Any]) -> str:
    lines = ["## What the paper says, and these runs\n"]
    for claim in report["claims"]:
        lines.append(f"> {claim['quote']}\n")
        [better], [than] = claim["better"], claim["than"]
        for name, dataset in report["datasets"].items():
            one, other = dataset["variants"][better], dataset["variants"][than]
            verdict = compare_two(one["auc"], other["auc"], similar=False)
            said = [f"AUC {better} {_spread(one['auc'])}, {than} {_spread(other['auc'])}: {verdict}"]
            for batch in BATCHES:
                times = [side["latency"][str(batch)]["whole"]["p50_ms"] for side in (one, other)]
                said.append(f"latency at batch {batch} {times[0] / times[1]:.2f} of {than}'s")
            if one["peak_memory_gb"] and other["peak_memory_gb"]:
                said.append(f"peak memory {one['peak_memory_gb'] / other['peak_memory_gb']:.2f} of {than}'s")
            lines.append(f"- {name}: {'; '.join(said)}.")
        longest, found = list(report["lists"].items())[-1]
        step = [found[method]["step"] for method in (better, than)]
        time, memory = (step[0][cost] / step[1][cost] for cost in ("seconds", "peak_memory_mb"))
        of_both = f"{time:.2f} of the time and {memory:.2f} of the memory of {than}'s"
        lines.append(f"- lists of {int(longest):,}: a training step takes {of_both}.")
    return "\n".join([*lines, ""])


def _spread(found: dict[str, Any]) -> str:
    return f"{found['mean']:.4f}" if found["std"] is None else f"{found['mean']:.4f} ± {found['std']:.4f}"


def _of_requests(count: int) -> str:
    return f"p50 / {'p99' if count >= ENOUGH_FOR_P99 else 'maximum'} of {count} requests"


def _latency(found: dict[str, float]) -> str:
    return " / ".join(f"{time:,.0f}" if time >= 100 else f"{time:.3g}" for time in found.values())
