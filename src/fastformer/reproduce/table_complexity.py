"""The paper's complexity table beside what the real modules compute, by `fastformer bench complexity`'s counting."""

import shlex
from pathlib import Path
from typing import Any

from fastformer.benchmark.complexity import complexity
from fastformer.benchmark.complexity import markdown as counted_markdown
from fastformer.benchmark.measuring import result_folder
from fastformer.reproduce.recipes import load_recipe
from fastformer.reproduce.report import write_report

NAME = "table-complexity"


def table_complexity(*, output: str | Path) -> dict[str, Any]:
    """Count parameters and multiply-adds of the seven methods; leave table-complexity.md and .json in `output`."""
    recipe, folder = load_recipe(NAME), result_folder(output)
    counted = complexity(width=recipe["width"], heads=recipe["heads"], length=recipe["length"])
    report = {
        "what": NAME,
        "title": recipe["title"],
        "source": recipe["source"],
        "command": shlex.join(["fastformer", "reproduce", NAME, "--output", str(output)]),
        "paper_orders": recipe["orders"],
        "paper_symbols": recipe["symbols"],
        "quote": recipe["quote"],
        "counted": counted,
    }
    write_report(folder, report, markdown(report))
    return report


def markdown(report: dict[str, Any]) -> str:
    """The counted table with the paper's orders in it, its sentence, and whether the counts say the same."""
    methods = {name: report["counted"]["methods"][name] for name in report["paper_orders"]}
    least = min(methods, key=lambda name: methods[name]["multiply_adds"])
    times = methods["transformer"]["multiply_adds"] / methods["fastformer"]["multiply_adds"]
    linear = [name for name, one in methods.items() if one["growth_at_twice_the_length"] < 2.05]
    verdict = "agrees" if least == "fastformer" else f"does not agree: {least} has the least"
    orders = "; ".join(f"{name} {order}" for name, order in report["paper_orders"].items())
    counted = counted_markdown(report["counted"]).split("\n", 1)[1]
    return "\n".join(
        [
            f"# {report['title']}\n",
            f"After {report['source']}: {orders}. {report['paper_symbols']}\n",
            "## Counted from the real modules",
            counted,
            "## What the paper says, and these counts\n",
            f"> {report['quote']}\n",
            f"- Fewest multiply-adds at {report['counted']['length']:,} tokens: {least}. This {verdict}. The "
            f"transformer needs {times:.1f} times those of fastformer.",
            f"- Twice the length is at most 2.05 times the count for {len(linear)} of {len(methods)}: "
            f"{', '.join(linear)}.",
            f"\n```bash\n{report['command']}\n```\n",
        ]
    )
