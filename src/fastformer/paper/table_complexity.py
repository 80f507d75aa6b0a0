"""The paper's complexity table beside what the real modules compute, as `fastformer bench complexity` counts it."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fastformer.bench.complexity import complexity, counted
from fastformer.bench.measuring import result_folder
from fastformer.paper.datasets import parse_data
from fastformer.paper.recipes import command, load_recipe, load_scale
from fastformer.paper.report import write_report
from fastformer.paper.table_datasets import average_length, draw
from fastformer.surroundings.markdown import markdown_table

NAME = "table-complexity"


def table_complexity(
    data: Sequence[str] = (),
    *,
    output: str | Path,
    scale: str = "cpu",
    seeds: int | None = None,
    data_seed: int = 0,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Count parameters and multiply-adds of every method; leave table-complexity.md and .json in `output`.

    With `data`, also of a text as long as the average one of each dataset, in the rows that `scale` draws, `seeds`
    times (once unless given).
    """
    recipe, size, folder = load_recipe(NAME), load_scale(scale), result_folder(output)
    datasets = parse_data(data) if data else []
    columns = {"text_column": text_column, "label_column": label_column}
    sizes = {"width": recipe["width"], "heads": recipe["heads"]}
    of_data = {}
    for dataset in datasets:
        draws = draw(dataset, size, folder, seeds or 1, data_seed, **columns, show_progress=show_progress)
        length = max(1, round(mean(average_length(one, show_progress) for one in draws)))
        counts = complexity(**sizes, length=length)["methods"]
        of_data[dataset.name] = {"length": length, "multiply_adds": {n: counts[n]["multiply_adds"] for n in counts}}
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "symbols": recipe["symbols"],
        "quote": recipe["quote"],
        **complexity(**sizes, length=recipe["length"]),
        "datasets": of_data,
        "command": command(
            NAME,
            datasets,
            scale=scale if datasets else None,
            seeds=seeds,
            data_seed=data_seed or None,
            output=output,
            **columns,
        ),
    }
    write_report(folder, report, markdown(report))
    return report


def markdown(report: dict[str, Any]) -> str:
    """The counted table with the paper's orders in it, its sentence, and whether the counts say the same."""
    methods = report["methods"]
    ranked = sorted(methods, key=lambda name: methods[name]["multiply_adds"])
    agrees = "agrees" if ranked[0] == "fastformer" else "does not agree"
    counts = [f"{name} {methods[name]['multiply_adds'] / 1e6:,.0f} M" for name in ranked]
    return "\n".join(
        [
            f"# {report['title']}\n",
            f"After {report['source']}. {report['symbols']} Here: one text of {report['length']:,} tokens, width "
            f"{report['width']}, {report['heads']} heads.\n",
            counted(report),
            *_of_data(report),
            "## What the paper says, and these counts\n",
            f"> {report['quote']}\n",
            f"- Multiply-adds from the fewest: {', '.join(counts)}: {agrees}.",
            f"\n```bash\n{report['command']}\n```\n",
        ]
    )


def _of_data(report: dict[str, Any]) -> list[str]:
    """What an average text of each dataset costs, if there are any."""
    datasets = report["datasets"]
    if not datasets:
        return []
    rows = [
        [name, *(f"{one['multiply_adds'][name] / 1e6:,.1f} M" for one in datasets.values())]
        for name in report["methods"]
    ]
    header = ["mixer", *(f"{name}, {one['length']:,} words" for name, one in datasets.items())]
    return [
        "## A text of average length\n",
        "Multiply-adds of one text as long as the average of the data.\n",
        markdown_table(header, rows),
    ]
