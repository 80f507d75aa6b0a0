"""The paper's speed figure: cost of a token against the length of its text, both axes logarithmic."""

from pathlib import Path
from typing import Any

from fastformer.bench.measuring import machine_line
from fastformer.errors import extra
from fastformer.surroundings.plotting import COLORS, OURS, style

_MARKERS = "os^Dv<>P"


def plot_speed(report: dict[str, Any], mode: str, path: Path) -> None:
    """Write the plot of one mode, `training` or `inference`, as a PNG."""
    with extra("plots"):
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullLocator

    lines = _lines(report, mode)
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for place, (mixer, points) in enumerate(lines.items()):
        ours = mixer == "fastformer"
        axes.plot(
            *zip(*points, strict=True),
            color=_color(mixer, place),
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=5,
            linewidth=2.6 if ours else 1.5,
            zorder=3 if ours else 2,
        )
    lengths = sorted({length for points in lines.values() for length, _ in points})
    if lengths:
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(_minor_label))
    style(axes)
    axes.grid(which="minor", axis="y", color="#EEEEEE", linewidth=0.6)
    axes.margins(y=0.08)
    axes.set_xlabel("length of a text (tokens)")
    axes.set_ylabel("time per token (µs)")
    what = "forward and backward" if mode == "training" else "forward"
    axes.set_title(f"{mode.capitalize()} ({what})", loc="left", fontsize=13, fontweight="bold", pad=24)
    caption = f"{report['settings']['tokens']:,} tokens per batch; {machine_line(report['machine'])}"
    if any("skipped" in one for one in report["results"] if one["mode"] == mode):
        caption += "; a line that ends early met a budget"
    axes.text(0, 1.025, caption, transform=axes.transAxes, fontsize=8.5, color="#555555")
    _label_ends(figure, axes, lines)
    figure.savefig(path, format="png")


def _lines(report: dict[str, Any], mode: str) -> dict[str, list[tuple[int, float]]]:
    lines: dict[str, list[tuple[int, float]]] = {}
    for one in report["results"]:
        if one["mode"] == mode and "seconds" in one:
            lines.setdefault(one["mixer"], []).append((one["length"], one["microseconds_per_token"]))
    return {mixer: sorted(points) for mixer, points in lines.items()}


def _color(mixer: str, place: int) -> str:
    return OURS if mixer == "fastformer" else COLORS[place % len(COLORS)]


def _minor_label(value: float, _: int) -> str:
    """Label 2, 3 and 5 between powers of ten: enough to read a value, not too many to read at all."""
    return f"{value:g}" if f"{value:.0e}"[0] in "235" else ""


def _label_ends(figure: Any, axes: Any, lines: dict[str, list[tuple[int, float]]]) -> None:
    """Name each line right of its last point, moved up if names of lines that end together would overlap."""
    figure.draw_without_rendering()  # fixes the scale of the axes
    to_points = 72 / figure.dpi
    ends = []
    for place, (mixer, points) in enumerate(lines.items()):
        height = axes.transData.transform(points[-1])[1] * to_points
        ends.append((points[-1][0], height, mixer, points[-1], _color(mixer, place)))
    last, taken = None, 0.0
    for length, height, mixer, point, color in sorted(ends):
        lowest = taken + 12 if length == last else height
        last, taken = length, max(height, lowest)
        weight = "bold" if mixer == "fastformer" else "normal"
        style = {"color": color, "fontsize": 10, "fontweight": weight, "annotation_clip": False}
        axes.annotate(mixer, point, (10, taken - height), textcoords="offset points", va="center", **style)
