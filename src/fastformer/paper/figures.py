"""The paper's two ablation figures: how global vectors meet tokens, and which parameters are shared.

Its bars have no numbers in the text, so its sentences are quoted and judged by ours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastformer.paper.comparison import compare
from fastformer.paper.plots import plot_bars
from fastformer.paper.report import about_dataset, claims, introduction, scores_table, write_report
from fastformer.surroundings.files import writing_aside


def figure_interaction(data: Sequence[str], *, output: str | Path, **options: Any) -> dict[str, Any]:
    """Product, add and concat; leaves figure-interaction.md, .json and .png in `output`.

    `options` are those of `fastformer.paper.comparison.compare`.
    """
    return _figure("figure-interaction", data, output, options)


def figure_sharing(data: Sequence[str], *, output: str | Path, **options: Any) -> dict[str, Any]:
    """No sharing, and sharing by query and value, head and layer; leaves figure-sharing.md, .json and .png.

    `options` are those of `fastformer.paper.comparison.compare`.
    """
    return _figure("figure-sharing", data, output, options)


def _figure(name: str, data: Sequence[str], output: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    report = compare(name, data, output=output, **options)
    with writing_aside(Path(output) / f"{name}.png") as path:
        plot_bars(report, path)
    write_report(output, report, markdown(report))
    return report


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it: the plot, one table a dataset, the paper's sentences."""
    parts = [*introduction(report), f"![{report['title']}]({report['what']}.png)\n"]
    for name, dataset in report["datasets"].items():
        parts += [about_dataset(name, dataset), scores_table(dataset, "variant")]
    return "\n".join([*parts, claims(report), f"```bash\n{report['command']}\n```\n"])
