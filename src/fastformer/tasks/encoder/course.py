"""A picture of how an encoder learns."""

from pathlib import Path
from typing import Any

from fastformer.errors import extra
from fastformer.surroundings.files import writing_aside
from fastformer.surroundings.plotting import COLORS, OURS, name_lines, style

COURSE_FILE = "course.png"


def plot_course(metrics: dict[str, Any], path: str | Path, title: str) -> None:
    """Write a PNG of the scores after every epoch: `epochs` of metrics.json."""
    with extra("plots"):
        from matplotlib.figure import Figure

    epochs = metrics["epochs"]
    figure = Figure(figsize=(7, 4), dpi=130, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    axes = figure.subplots()
    told = {"agreement": "mean cosine with\nthe teacher\n(held-out pieces)", "spearman": "Spearman\n(validation pairs)"}
    names = []
    for (name, label), color in zip(told.items(), (OURS, COLORS[0]), strict=True):
        if name in epochs[0]:
            numbers = range(1, len(epochs) + 1)
            axes.plot(numbers, [epoch[name] for epoch in epochs], color=color, marker="o")
            names.append((epochs[-1][name], label, color))
    axes.set_xlabel("epoch")
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", parse_math=False)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0.03, y=0.08)
    style(axes)
    name_lines(axes, names, apart=0.2)
    with writing_aside(path) as aside:
        figure.savefig(aside, format="png")
