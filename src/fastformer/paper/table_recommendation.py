"""The paper's table of news recommendation: its methods and numbers, and rankers that read no text as floors."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import machine_line, result_folder
from fastformer.engine.word_encoder import open_encoder
from fastformer.errors import UserError
from fastformer.paper.datasets import parse_data
from fastformer.paper.recipes import check_glove, load_recipe
from fastformer.paper.recommendation import NAME, compare, load_methods, load_scale
from fastformer.paper.report import claims, start_of_words, with_best_in_bold, write_report
from fastformer.surroundings.markdown import markdown_table
from fastformer.tasks.recommendation.metrics import METRICS


def table_recommendation(
    data: Sequence[str],
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    glove: str | None = None,
    plm: str | None = None,
    keep_models: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train every method on every dataset (`NAME=PATH`, PATH with train and dev folders of MIND) with every seed.

    `plm` is a folder with a transformers encoder, for the methods that start from one; `glove` a file of word vectors
    for the others. Leaves table-recommendation.md and .json in `output`.
    """
    recipe, size, datasets, methods = load_recipe(NAME), load_scale(scale), parse_data(data), load_methods(plm)
    check_glove(glove)
    if plm is not None:
        open_encoder(Path(plm).expanduser())  # what is wrong with it is said now rather than after hours
    for dataset in datasets:
        if dataset.paper not in (None, "mind"):
            raise UserError(
                f"--data {dataset}: the paper recommends on MIND only; write {dataset.name}:mind={dataset.source}"
            )
    folder, seeds = result_folder(output), seeds or size.seeds
    starts = {"plm": plm, "glove": glove}
    found = compare(
        datasets, methods, size, folder, seeds=seeds, **starts, keep_models=keep_models, show_progress=show_progress
    )
    given = [part for dataset in datasets for part in ("--data", str(dataset))]
    options = {"seeds": seeds, "scale": scale, "glove": glove, "plm": plm, "output": output}
    given += [part for option, value in options.items() if value is not None for part in (f"--{option}", str(value))]
    compared = {method.name for method in methods}
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "command": shlex.join(["fastformer", "reproduce", NAME, *given]),
        "scale": scale,
        "reduction": size.says,
        "seeds": seeds,
        "glove": glove,
        "plm": plm,
        "claims": [asdict(claim) for claim in recipe["claims"] if {*claim.better, *claim.than} <= compared],
        **found,
    }
    write_report(folder, report, markdown(report))
    return report


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it: one table a dataset."""
    seeds = f"mean of {report['seeds']} seeds ± sample standard deviation" if report["seeds"] > 1 else "one seed"
    plm = (
        f"The pre-trained encoder is `{Path(report['plm']).name}` (the paper's is UniLM)."
        if report["plm"]
        else "Methods with a pre-trained encoder are left out: `--plm FOLDER` gives one."
    )
    parts = [
        f"# {report['title']}\n",
        f"After {report['source']}. Scale `{report['scale']}`. {report['reduction']} {start_of_words(report)} "
        f"{plm} Scores in percent, averaged over the test impressions, {seeds}; a * is the ensemble of several runs, "
        "which averages their scores. "
        f"{machine_line(report['machine'])}.\n",
    ]
    for name, dataset in report["datasets"].items():
        parts += [_about(name, dataset), _table(dataset), _floors(dataset)]
    return "\n".join([*parts, claims(report, METRICS), f"```bash\n{report['command']}\n```\n"])


def _about(name: str, dataset: dict[str, Any]) -> str:
    about = dataset["about"]
    counts = ", ".join(f"{count:,} {split}" for split, count in about["impressions"].items())
    said = [f"{counts} impressions, {about['news']:,} news, from `{about['source']}`."]
    if "validation" not in about["impressions"]:
        said.append("The latest tenth of the training impressions is set aside to pick the epoch.")
    said += [f"{split}: {quirks}." for split, quirks in about["quirks"].items()]
    if dataset["paper"]:
        said.append("It stands for the paper's MIND, whose numbers are beside ours: not to be compared digit by digit.")
    else:
        said.append("It does not stand for the paper's MIND, so none of its numbers are beside ours.")
    return f"## {name}\n\n{' '.join(said)}\n"


def _table(dataset: dict[str, Any]) -> str:
    variants = dataset["variants"]
    columns = {
        title: with_best_in_bold({name: (one[score]["mean"], one[score]["std"]) for name, one in variants.items()})
        for score, title in METRICS.items()
    }
    if dataset["paper"]:
        printed = {name: one["paper"] for name, one in variants.items() if one["paper"]}
        for place, title in enumerate(METRICS.values()):
            values = {name: (numbers[place], None) for name, numbers in printed.items()}
            columns[f"paper's {title}"] = with_best_in_bold(values)
    rows = []
    for name, one in variants.items():
        cells = [column.get(name, "–") for column in columns.values()]
        seconds, memory, parameters = (one.get(key) for key in ("seconds", "peak_memory_gb", "parameters"))
        cells.append("–" if seconds is None else f"{seconds:,.0f} s")
        cells.append("–" if memory is None else f"{memory:.2f} GB")
        cells.append("–" if parameters is None else f"{parameters:,}")
        rows.append([name, *cells])
    return markdown_table(["method", *columns, "training", "peak memory", "parameters"], rows)


def _floors(dataset: dict[str, Any]) -> str:
    """Which methods are above the rankers that read no text, by AUC."""
    variants = dataset["variants"]
    floors = {name: one["auc"]["mean"] for name, one in variants.items() if one.get("floor")}
    best = max(floors, key=floors.__getitem__)
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name, one in variants.items():
        if name not in floors:
            sides[one["auc"]["mean"] > floors[best]].append(name)
    said = [f"The best ranker without text is {best}, with AUC {floors[best]:.2f}."]
    said += [f"Above it: {', '.join(sides[True])}."] if sides[True] else []
    said += [f"Not above it: {', '.join(sides[False])}."] if sides[False] else []
    return " ".join(said) + "\n"
