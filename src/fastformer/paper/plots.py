"""Bars of an ablation figure: one panel per dataset and score, one bar per variant, its deviation on top."""

from pathlib import Path
from typing import Any

from fastformer.errors import extra
from fastformer.paper.report import NONE, mean_of_seeds
from fastformer.surroundings.plotting import COLORS, OURS, style


def plot_bars(report: dict[str, Any], scores: dict[str, str], path: Path) -> None:
    """Write the bars of a comparison as a PNG; `scores` are names and titles."""
    with extra("plots"):
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    datasets = report["datasets"]
    variants = next(iter(datasets.values()))["variants"]
    names = list(variants)
    colors = [OURS if variants[name]["is_fastformer"] else COLORS[place] for place, name in enumerate(names)]
    width = max(6.5, 1.0 + max(2.2, 0.6 * len(names)) * len(datasets))
    room = ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.98, 0.90))  # for title and caption
    figure = Figure(figsize=(width, 6.4), dpi=150, layout=room)
    panels = figure.subplots(len(scores), len(datasets), squeeze=False)
    cut = False
    for row, (score, title) in zip(panels, scores.items(), strict=True):
        for axes, found in zip(row, datasets.values(), strict=True):
            cut |= _panel(axes, [found["variants"][name].get(score) for name in names], colors)
        row[0].set_ylabel(f"{title} (%)")
    for axes, dataset in zip(panels[0], datasets, strict=True):
        axes.set_title(dataset, fontsize=11)
    bars = panels[0][0].patches[: len(names)]
    figure.legend(bars, names, loc="outside lower center", ncols=min(3, len(names)), frameon=False, fontsize=9)
    mean = mean_of_seeds(report)
    seeds = f"{mean}, whiskers are one standard deviation" if mean else "one seed"
    caption = f"{seeds}; scale {report['scale']}"
    caption += "; axes do not start at zero" * cut
    figure.text(0.015, 0.955, report["title"], fontsize=13, fontweight="bold")
    figure.text(0.015, 0.925, caption, fontsize=8.5, color="#555555")
    figure.savefig(path, format="png")


def _panel(axes: Any, spreads: list[dict[str, Any] | None], colors: list[str]) -> bool:
    """Draw one panel, with a dash in place of a bar whose runs are missing; whether its axis begins above zero."""
    above = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
    ends = [(0.0, 0.0) if one is None else (one["mean"], one["std"] or 0.0) for one in spreads]
    there = [end for end, one in zip(ends, spreads, strict=True) if one is not None] or ends
    low, high = min(mean - deviation for mean, deviation in there), max(mean + deviation for mean, deviation in there)
    room = max(high - low, 1.0)
    bottom = max(0.0, low - 0.5 * room)
    axes.bar(range(len(ends)), [mean for mean, _ in ends], color=colors, width=0.7)
    for place, ((mean, deviation), one) in enumerate(zip(ends, spreads, strict=True)):
        if deviation:
            axes.errorbar(place, mean, deviation, fmt="none", ecolor="#333333", capsize=3, linewidth=1)
        top = bottom if one is None else mean + deviation
        axes.annotate(NONE if one is None else f"{mean:.1f}", (place, top), (0, 3), **above)
    axes.set_ylim(bottom, high + 0.25 * room)
    axes.set_xticks([])
    style(axes, grid="y")
    return bottom > 0
