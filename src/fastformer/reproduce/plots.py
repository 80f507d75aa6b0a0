"""Bars of an ablation figure: one panel a dataset and score, one bar a variant, its deviation on top."""

from pathlib import Path
from typing import Any

from fastformer.benchmark.plots import COLORS, OURS
from fastformer.reproduce.comparison import SCORES


def plot_bars(report: dict[str, Any], path: Path) -> None:
    """Write the bars of a comparison as a PNG."""
    from matplotlib.figure import Figure

    datasets = report["datasets"]
    variants = next(iter(datasets.values()))["variants"]
    names = list(variants)
    colors = [OURS if variants[name]["is_fastformer"] else COLORS[place] for place, name in enumerate(names)]
    figure = Figure(figsize=(1.6 + max(2.6, 0.75 * len(names)) * len(datasets), 6.4), dpi=150, layout="constrained")
    panels = figure.subplots(len(SCORES), len(datasets), squeeze=False)
    for row, (score, title) in zip(panels, SCORES.items(), strict=True):
        for axes, (dataset, found) in zip(row, datasets.items(), strict=True):
            _panel(axes, [found["variants"][name][score] for name in names], colors)
            if axes is row[0]:
                axes.set_ylabel(f"{title} (%)")
            if row is panels[0]:
                axes.set_title(dataset, fontsize=11)
    handles = [figure.axes[0].patches[place] for place in range(len(names))]
    figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)), frameon=False, fontsize=9)
    seeds = f"{report['seeds']} seed{'s' * (report['seeds'] > 1)}"
    whiskers = ", whiskers are one standard deviation" if report["seeds"] > 1 else ""
    figure.suptitle(f"{report['title']}\n", x=0.01, ha="left", fontsize=13, fontweight="bold")
    caption = f"mean of {seeds}{whiskers}; scale {report['scale']}; the axes do not start at zero"
    figure.text(0.01, 0.945, caption, fontsize=8.5, color="#555555")
    figure.savefig(path, format="png")


def _panel(axes: Any, spreads: list[dict[str, Any]], colors: list[str]) -> None:
    heights = [one["mean"] for one in spreads]
    deviations = [one["std"] or 0.0 for one in spreads]
    axes.bar(range(len(heights)), heights, color=colors, width=0.7)
    axes.errorbar(range(len(heights)), heights, deviations, fmt="none", ecolor="#333333", capsize=3, linewidth=1)
    low = min(mean - deviation for mean, deviation in zip(heights, deviations, strict=True))
    high = max(mean + deviation for mean, deviation in zip(heights, deviations, strict=True))
    room = max(high - low, 1.0)
    axes.set_ylim(max(0.0, low - 0.5 * room), high + 0.25 * room)
    for place, (mean, deviation) in enumerate(zip(heights, deviations, strict=True)):
        axes.annotate(
            f"{mean:.1f}", (place, mean + deviation), (0, 3), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_xticks([])
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
