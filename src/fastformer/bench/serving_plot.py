"""The picture of `bench serving`: by the number of clients what is answered, and how long an answer takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import machine_line
from fastformer.errors import extra
from fastformer.surroundings.plotting import COLORS, OURS, style

_LATENCIES = {"p50": "-", "p95": "--", "p99": ":"}


def plot_serving(report: dict[str, Any], path: Path) -> None:
    """A column per length of texts: requests per second above, latencies of the server with batches below."""
    with extra("plots"):
        from matplotlib.figure import Figure

    rows: Sequence[dict[str, Any]] = report["rows"]
    lengths = sorted({row["words"] for row in rows})
    clients = sorted({row["clients"] for row in rows if "clients" in row})
    figure = Figure(figsize=(4.6 * len(lengths), 6.4), dpi=150, layout="constrained")
    grid = figure.subplots(2, len(lengths), squeeze=False)
    for (above, below), words in zip(grid.T, lengths, strict=True):
        here = [row for row in rows if row["words"] == words]
        for how, color, width in (("batches", OURS, 2.6), ("one at a time", COLORS[0], 1.5)):
            served = [row for row in here if row["how"] == how]
            above.plot(clients, [row["requests_per_second"] for row in served], "o-", color=color, lw=width, label=how)
        for row, color in zip((row for row in here if "clients" not in row), COLORS[1:], strict=False):
            above.axhline(row["requests_per_second"], color=color, linestyle="--", linewidth=1.5, label=row["how"])
        batches = [row for row in here if row["how"] == "batches"]
        for name, line in _LATENCIES.items():
            below.plot(clients, [row[name] for row in batches], f"o{line}", color=OURS, label=name)
        for axes, what in ((above, "requests per second"), (below, "milliseconds, in batches")):
            axes.set_xscale("log", base=2)
            axes.set_xticks(clients, list(map(str, clients)))
            axes.set_xlabel("clients")
            axes.set_ylabel(what)
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False, fontsize=8.5)
            style(axes)
        above.set_title(f"Texts of {words} words", loc="left", fontsize=12, fontweight="bold")
    figure.supxlabel(
        f"{report['route']}, {report['seconds']:g} s each; {machine_line(report['machine'])}", fontsize=8.5
    )
    figure.savefig(path, format="png")
