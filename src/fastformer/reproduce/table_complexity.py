"""The paper's complexity table beside what the real modules compute, as `fastformer bench complexity` counts it."""

import shlex
from pathlib import Path
from typing import Any

from fastformer.benchmark.complexity import complexity, counted
from fastformer.benchmark.measuring import result_folder
from fastformer.reproduce.recipes import load_recipe
from fastformer.reproduce.report import write_report

NAME = "table-complexity"


def table_complexity(*, output: str | Path) -> dict[str, Any]:
    """Count parameters and multiply-adds of every method; leave table-complexity.md and .json in `output`."""
    recipe, folder = load_recipe(NAME), result_folder(output)
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "symbols": recipe["symbols"],
        "quote": recipe["quote"],
        **complexity(width=recipe["width"], heads=recipe["heads"], length=recipe["length"]),
        "command": shlex.join(["fastformer", "reproduce", NAME, "--output", str(output)]),
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
            "## What the paper says, and these counts\n",
            f"> {report['quote']}\n",
            f"- Multiply-adds from the fewest: {', '.join(counts)}: {agrees}.",
            f"\n```bash\n{report['command']}\n```\n",
        ]
    )
