"""How our plots look: Okabe and Ito's colours, which the colour-blind can tell apart, and a light grid."""

from collections.abc import Sequence
from typing import Any

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31", "#7F7F7F", "#000000")
OURS = "#D55E00"  # the strongest


def style(axes: Any, grid: str = "both") -> None:
    """Draw the grid of matplotlib's `axes` (along `x`, `y` or `both`) below the data, and no frame around it."""
    axes.grid(axis=grid, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def name_lines(axes: Any, lines: Sequence[tuple[float, str, str]], apart: float = 0.075) -> None:
    """Write each line's name beside its right end: (where it ends, name, colour); names keep a distance.

    `apart` is that distance, as a share of the height. Call it when the limits are settled.
    """
    low, high = axes.get_ylim()
    ends = sorted(((value - low) / (high - low), name, color) for value, name, color in lines)
    heights: list[float] = []
    for place, _, _ in ends:
        heights.append(max(place, heights[-1] + apart) if heights else place)
    above = max(0.0, (heights[-1] if heights else 0.0) - 1.0)  # those that would stand too high move down together
    for (_, name, color), height in zip(ends, heights, strict=True):
        place = {"xy": (1.015, height - above), "xycoords": "axes fraction", "va": "center"}
        axes.annotate(name, **place, color=color, fontsize=9, annotation_clip=False)
