"""The picture of a suite: a panel per number of training rows, a band per set, a dot per method.

Sets differ more than methods do, so a dot is the distance to the best linear method on its set, on an axis that is
linear near zero and logarithmic beyond.
"""

from pathlib import Path
from typing import Any

from fastformer.bench.comparing import LINEAR, in_order
from fastformer.bench.measuring import machine_line
from fastformer.bench.suite_report import Entries, called, entries_of, methods_of, sizes_of
from fastformer.errors import extra
from fastformer.surroundings.plotting import COLORS, OURS, style
from fastformer.tasks.classification.baselines import BASELINES

_MARKERS = "sD^vP<>Xp"
_NEAR = 5  # points up to which the axis is linear
_TICKS = (1, 2, 5, 10, 20, 50, 100)
_GREY = "#555555"


def plot_suite(result: dict[str, Any], path: Path) -> None:
    """Write the picture of a result that has a measurement as a PNG."""
    with extra("plots"):
        from matplotlib.figure import Figure

    panels = {size: entries_of(result["sets"], size) for size in sizes_of(result["sets"])}
    names = [name for name in result["sets"] if any(name in entries for entries in panels.values())]
    methods = in_order({method for entries in panels.values() for method in methods_of(entries)})
    linear = all(LINEAR & set(found) for entries in panels.values() for found in entries.values())
    height = 2.0 + len(names) * max(0.3, 0.09 * len(methods)) + 0.2 * -(-len(methods) // 3)
    figure = Figure(figsize=(2.2 + 4.4 * len(panels), height), dpi=150, layout="constrained")
    handles: dict[str, Any] = {}
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (size, entries) in zip(grid, panels.items(), strict=True):
        _panel(axes, entries, names, methods, linear, handles)
        axes.set_title(f"{called(size).capitalize()} training rows", fontsize=11, fontweight="bold", loc="left")
        axes.set_xlabel(f"points from the best {'linear ' * linear}method, whose accuracy is on the right", fontsize=9)
    grid[0].set_yticks(range(len(names)), names)
    grid[0].set_ylim(len(names) - 0.5, -0.5)
    shown = [method for method in methods if method in handles]
    drawn = [handles[method] for method in shown]
    figure.legend(drawn, shown, loc="outside lower center", ncols=min(3, len(grid) + 1), frameon=False, fontsize=9)
    caption = f"{machine_line(result['machine'])}; seed {result['settings']['seed']}"
    figure.suptitle(f"Test accuracy; {caption}", fontsize=8.5, color=_GREY)
    figure.savefig(path, format="png")


def _panel(
    axes: Any, entries: Entries, names: list[str], methods: list[str], linear: bool, handles: dict[str, Any]
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    best = {
        name: max(entry["accuracy"] for method, entry in found.items() if not linear or method in LINEAR)
        for name, found in entries.items()
    }
    for place, method in enumerate(methods):
        height = 0.7 * ((place + 0.5) / len(methods) - 0.5)  # inside a band the methods stand in the legend's order
        dots = [
            (100 * (found[method]["accuracy"] - best[name]), names.index(name) + height)
            for name, found in entries.items()
            if method in found
        ]
        if dots:
            handles[method] = axes.scatter(*zip(*dots, strict=True), **_look(method))
    for place, name in enumerate(names):
        if place % 2:
            axes.axhspan(place - 0.5, place + 0.5, color="#F5F5F5", zorder=0)
        if name in best:
            right = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5, "color": _GREY}
            axes.text(1.015, place, f"{100 * best[name]:.1f}", **right)
    axes.axvline(0, color=_GREY, linewidth=1, zorder=1)
    axes.set_xscale("symlog", linthresh=_NEAR, linscale=1.2)
    axes.xaxis.set_major_locator(FixedLocator([*(-tick for tick in _TICKS), 0, *_TICKS]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    style(axes, grid="x")
    axes.tick_params(axis="y", length=0)


def _look(method: str) -> dict[str, Any]:
    names = [baseline.name for baseline in BASELINES]  # a method looks the same in every picture
    if method not in names:
        return {"color": OURS, "marker": "o", "s": 62, "zorder": 4}
    place = names.index(method)
    color = COLORS[(place - 1) % len(COLORS)] if place else "#BBBBBB"
    return {"color": color, "marker": _MARKERS[place % len(_MARKERS)], "s": 26, "zorder": 3}
