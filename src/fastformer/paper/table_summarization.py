"""The paper's summarization table: ROUGE of the seven methods, its numbers beside ours.

Beside it the first sentences of the articles and random ones, and what a training step on one long article costs.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from fastformer.bench.measuring import result_folder
from fastformer.paper.comparison import spread
from fastformer.paper.datasets import check_papers, parse_data
from fastformer.paper.grid import Metrics, run_grid
from fastformer.paper.recipes import check_glove, command, load_recipe
from fastformer.paper.report import claims, introduction, percent, write_report
from fastformer.paper.summarization_runs import (
    PAPER_DATASETS,
    describe,
    prepare_summarization,
    run_job,
    step_job,
    summarization_scale,
    training_job,
)
from fastformer.surroundings.markdown import markdown_table
from fastformer.tasks.summarization.metrics import ROUGE

NAME = "table-summarization"
PAPER_SCORES = ("rouge1", "rouge2", "rougeLsum")  # and R-L of the paper
WHICH_L = (
    "The paper does not say which L its R-L is; it is about nine tenths of its R-1, as Lsum is, which goes sentence by "
    "sentence (L over a whole text is about two thirds), so it stands beside Lsum.\n"
)


def table_summarization(
    data: Sequence[str],
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    glove: str | None = None,
    article_column: str | None = None,
    summary_column: str | None = None,
    data_seed: int = 0,
    keep_models: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train the seven methods on every dataset (`NAME[:PAPER]=FOLDER`); leave table-summarization.md and .json."""
    recipe = load_recipe(NAME)
    size, datasets = summarization_scale(recipe, scale), parse_data(data, tuple(PAPER_DATASETS))
    check_papers(datasets, scale, "pubmed")
    check_glove(glove)
    folder, seeds, version, variants = result_folder(output), seeds or size.seeds, recipe["version"], recipe["variants"]
    columns = {"article_column": article_column, "summary_column": summary_column}
    prepared = [
        prepare_summarization(one, size, folder, seed=data_seed, **columns, show_progress=show_progress)
        for one in datasets
    ]
    jobs = {"step": step_job([variant.mixer for variant in variants], size, version)}
    jobs |= {
        (one.dataset.name, variant.name, seed): training_job(one, variant, size, seed, glove, version)
        for seed in range(seeds)  # the outer loop: stopped early, fewer seeds are complete
        for one in prepared
        for variant in variants
    }
    results = run_grid(
        list(jobs.values()),
        folder,
        run_job,
        describe,
        keep_models=keep_models,
        show_progress=show_progress,
        show_runs=size.show_runs,
    )
    found = {key: result["metrics"] for key, result in zip(jobs, results, strict=True)}
    options = {"seeds": seeds, "scale": scale, "glove": glove, "data_seed": data_seed or None, "output": output}
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "command": command(NAME, datasets, **options, **columns),
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
                "language": found[one.dataset.name, variants[0].name, 0]["test"]["language"],
                "baselines": _baselines(found[one.dataset.name, variants[0].name, 0]),
                "variants": {
                    variant.name: {
                        **_sum_up([found[one.dataset.name, variant.name, seed] for seed in range(seeds)]),
                        "paper": variant.paper.get(one.dataset.paper),
                    }
                    for variant in variants
                },
            }
            for one in prepared
        },
        "step": {
            "length": found["step"]["length"],
            "summary_length": found["step"]["summary_length"],
            "variants": {variant.name: found["step"]["step"][variant.mixer] for variant in variants},
        },
    }
    write_report(folder, report, markdown(report))
    return report


def _sum_up(metrics: list[Metrics]) -> dict[str, Any]:
    """ROUGE over the seeds; the mean time, the largest memory."""
    return {
        **{score: spread([one["test"]["summaries"]["model"][score] for one in metrics]) for score in ROUGE},
        "intervals": metrics[0]["test"]["summaries"]["model"]["intervals"],  # of the first seed
        "perplexity": spread([one["validation"]["perplexity"] for one in metrics]),
        "documents_per_second": round(mean(one["test"]["documents_per_second"] for one in metrics), 2),
        "seconds": round(mean(one["train_seconds"] for one in metrics), 1),
        "peak_memory_gb": max((one["peak_memory_gb"] for one in metrics if one["peak_memory_gb"]), default=None),
        "parameters": metrics[0]["parameters"],
    }


def _baselines(metrics: Metrics) -> dict[str, Any]:
    return {name: found for name, found in metrics["test"]["summaries"].items() if name != "model"}


# ---- the report in words ---------------------------------------------------------------------------------------------


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it."""
    parts = introduction(report, "ROUGE of the test documents")
    if any(dataset["paper"] for dataset in report["datasets"].values()):
        parts.append(WHICH_L)
    for name, dataset in report["datasets"].items():
        parts += [_about(name, dataset), _scores(dataset)]
    judged = claims(report, {score: ROUGE[score] for score in PAPER_SCORES})
    return "\n".join([*parts, _step(report["step"]), judged, f"```bash\n{report['command']}\n```\n"])


def _about(name: str, dataset: dict[str, Any]) -> str:
    about = dataset["about"]
    rows = ", ".join(f"{count:,} {split}" for split, count in about["rows"].items())
    words = "stemmed English words" if dataset["language"] == "en" else "words as they are, not stemmed"
    if dataset["paper"] is None:
        paper = "It stands for none of the paper's datasets, so none of its numbers are beside ours."
    else:
        paper = (
            f"It stands for the paper's {PAPER_DATASETS[dataset['paper']]}, whose numbers are beside ours: other rows, "
            "other splits, other settings, not to be compared digit by digit."
        )
    return f"## {name}\n\n{rows} documents from `{about['source']}`; ROUGE of {words}. {paper}\n"


def _scores(dataset: dict[str, Any]) -> str:
    """One row a method, then the baselines; the paper's numbers beside ours where it has some."""
    variants = dataset["variants"]
    with_paper = any(one["paper"] for one in variants.values())
    header, rows = ["method"], {name: [name] for name in (*variants, *dataset["baselines"])}
    for score, title in ROUGE.items():
        header.append(title)
        for name, one in variants.items():
            rows[name].append(percent(one[score]["mean"], one[score]["std"]))
        for name, one in dataset["baselines"].items():
            rows[name].append(f"{one[score]:.2f}")
        if with_paper and score in PAPER_SCORES:
            header.append("paper's")
            for name in rows:
                rows[name].append(f"{variants[name]['paper'][score]:.2f}" if name in variants else "–")
    header += ["perplexity", "training", "peak memory", "documents a second", "parameters"]
    for name, one in variants.items():
        rows[name] += [
            f"{one['perplexity']['mean']:.1f}",
            f"{one['seconds']:,.0f} s",
            "–" if one["peak_memory_gb"] is None else f"{one['peak_memory_gb']:.2f} GB",
            f"{one['documents_per_second']:.1f}",
            f"{one['parameters']:,}",
        ]
    for name in dataset["baselines"]:
        rows[name] += ["–"] * 5
    low, high = variants["Fastformer"]["intervals"]["rouge1"]
    note = f"The 95% interval of Fastformer's ROUGE-1 over the documents is {low:.2f} to {high:.2f} (first seed).\n"
    return f"{markdown_table(header, list(rows.values()))}\n{note}"


def _step(step: dict[str, Any]) -> str:
    rows = [
        [name, f"{1000 * one['seconds']:,.0f} ms", f"{one['peak_memory_mb']:,.0f} MB"]
        for name, one in step["variants"].items()
    ]
    return (
        f"## What {step['length']:,} tokens cost\n\n"
        f"A training step, forward and backward, on one article of {step['length']:,} tokens with a summary of "
        f"{step['summary_length']:,}, the Transformer uncut; the methods in turns, median. Memory is the most bytes of "
        f"tensors alive at once.\n\n{markdown_table(['method', 'time', 'memory'], rows)}"
    )
