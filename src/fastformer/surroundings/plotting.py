"""How our plots look: Okabe and Ito's colours, which the colour-blind can tell apart, and a light grid."""

from typing import Any

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31", "#7F7F7F", "#000000")
OURS = "#D55E00"  # the strongest


def style(axes: Any, grid: str = "both") -> None:
    """Draw the grid of matplotlib's `axes` (along `x`, `y` or `both`) below the data, and no frame around it."""
    axes.grid(axis=grid, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
