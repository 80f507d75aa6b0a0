"""`fastformer evaluate --report DIR`: where a classifier errs, as `report.md`, `report.json` and a picture.

For one label per text the picture is the confusion matrix, `confusion.png`; for numbers it is predictions against
truths, `scatter.png`. Several labels per text have none: nobody can tell which wrong label
stands for which missing one.
"""

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from fastformer.errors import UserError, extra
from fastformer.surroundings.files import write_json, writing_aside, writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.plotting import OURS, style
from fastformer.tasks.classification.answers import has_label, probabilities
from fastformer.tasks.classification.data import LabelSpace

SCORES = ("precision", "recall", "f1")
DETAILS = ("classes", "residuals")  # what `details` may add to the scores of a run
CONFUSION, SCATTER = "confusion.png", "scatter.png"

_QUANTILES = {"smallest": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "largest": 1.0}
_MOST_CLASSES = 60  # that a picture shows; of more only the most confused:
_MOST_CONFUSED = 40
_PAIRS = 20  # mistakes that report.md lists
_POINTS = 10_000  # that a scatter plot shows


# ---- numbers ---------------------------------------------------------------------------------------------------------


def class_scores(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and support (true texts) of each class; what would be 0/0 is 0."""
    found = _precision_recall_f1(space, logits, labels, average=None)
    columns = (*SCORES, "support")
    return {
        name: {column: value.item() for column, value in zip(columns, values, strict=True)}
        for name, *values in zip(space.names, *found, strict=True)
    }


def residual_quantiles(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Quantiles of how far predictions lie above the truth."""
    found = np.quantile(logits.reshape(-1) - labels, list(_QUANTILES.values()))
    return dict(zip(_QUANTILES, found.tolist(), strict=True))


def details(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """What a report adds to the scores of a run: `classes`, or for numbers `residuals`."""
    if space.kind == "number":
        return {"residuals": residual_quantiles(logits, labels)}
    return {"classes": class_scores(space, logits, labels)}


def confusion(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Texts by true class (rows) and predicted class (columns)."""
    return confusion_matrix(labels, logits.argmax(axis=-1), labels=np.arange(space.size))


def most_confused(counts: np.ndarray, most: int) -> np.ndarray:
    """The classes with the most mistakes, made on their texts or by their name, in their own order."""
    mistakes = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
    return np.sort(np.argsort(-mistakes, kind="stable")[:most])


def _averages(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    kinds = ("macro", "weighted") if space.kind == "single" else ("micro", "macro", "weighted")
    found = {kind: _precision_recall_f1(space, logits, labels, average=kind)[:3] for kind in kinds}
    return {kind: dict(zip(SCORES, map(float, values), strict=True)) for kind, values in found.items()}


def _precision_recall_f1(space: LabelSpace, logits: np.ndarray, labels: np.ndarray, average: str | None) -> tuple:
    """scikit-learn's four values over all classes, those absent here included."""
    predicted = logits.argmax(axis=-1) if space.kind == "single" else has_label(space, probabilities(space, logits))
    labels, predicted, classes = labels.astype(np.int64), predicted.astype(np.int64), np.arange(space.size)
    if space.kind == "multi" and space.size == 1:  # one label that a text has or has not
        labels, predicted, classes = labels[:, 0], predicted[:, 0], np.ones(1, dtype=np.int64)
    return precision_recall_fscore_support(labels, predicted, labels=classes, average=average, zero_division=0)


def _pairs(names: Sequence[str], counts: np.ndarray) -> list[dict[str, Any]]:
    """The confusion matrix as a list, without its zeros: its length is never more than the texts."""
    cells = zip(*np.nonzero(counts), strict=True)
    return [{"true": names[i], "predicted": names[j], "count": int(counts[i, j])} for i, j in cells]


# ---- files -----------------------------------------------------------------------------------------------------------


@contextmanager
def report_folder(folder: str | Path) -> Iterator[Path]:
    """Make a folder for a report, before the work; if that fails, nothing is left behind."""
    folder = Path(folder)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{folder}: is a file; give --report the name of a folder") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); give --report another place") from None
    try:
        yield folder
    except BaseException:
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise


def write_report(
    folder: Path,
    space: LabelSpace,
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    run: str,
    source: str,
    result: dict[str, Any],
) -> None:
    """Write the files of a report; `result` is what `evaluate` says, `details` included."""
    found: dict[str, Any] = {
        "run": run,
        "data": source,
        "label_kind": space.kind,
        "scores": {name: value for name, value in result.items() if name not in DETAILS},
        **{name: result[name] for name in DETAILS if name in result},
    }
    texts = f"{len(labels):,} texts of {Path(source).name or source}"
    if space.kind == "number":
        plot_scatter(logits.reshape(-1), labels, folder / SCATTER, texts)
    else:
        found["averages"] = _averages(space, logits, labels)
    if space.kind == "single":
        counts = confusion(space, logits, labels)
        found["confusion"] = _pairs(space.names, counts)
        plot_confusion(space.names, counts, folder / CONFUSION, texts)
    with writing_aside(folder / "report.json") as aside:
        write_json(aside, found)
    with writing_text(folder / "report.md") as file:
        file.write(_markdown(found))


def _markdown(found: dict[str, Any]) -> str:
    scores = found["scores"]
    header = [name.replace("_", " ") for name in scores]
    lines = [
        f"# {found['run']} on {found['data']}\n",
        markdown_table(header, [[_cell(value) for value in scores.values()]]),
    ]
    if "residuals" in found:
        quantiles = found["residuals"]
        lines += ["## Residuals\n", "Prediction minus truth: a tenth of the texts lies outside 5% to 95%.\n"]
        lines += [markdown_table(list(quantiles), [[_cell(value) for value in quantiles.values()]])]
        lines += [f"![Predicted against true]({SCATTER})\n"]
        return "\n".join(lines)
    classes = found["classes"]
    rows = [[_escape(name), *map(_cell, one.values())] for name, one in classes.items()]
    rows += [[f"*{kind} average*", *map(_cell, one.values()), ""] for kind, one in found["averages"].items()]
    lines += ["## Classes\n", markdown_table(["", "precision", "recall", "F1", "support"], rows)]
    lines += ["Support is the number of texts that have the label. A score that no text decides is 0.\n"]
    lines += ["## Confusion\n"]
    if "confusion" not in found:
        return "\n".join([*lines, "A text may have several labels here, so there is no confusion matrix.\n"])
    if len(classes) > _MOST_CLASSES:
        shown = f"The picture shows the {_MOST_CONFUSED} most confused of {len(classes):,} classes"
        lines += [f"{shown}; report.json has them all.\n"]
    lines += [f"![Confusion matrix]({CONFUSION})\n"]
    mistakes = [pair for pair in found["confusion"] if pair["true"] != pair["predicted"]]
    mistakes.sort(key=lambda pair: -pair["count"])
    rows = [
        [
            _escape(pair["true"]),
            _escape(pair["predicted"]),
            _cell(pair["count"]),
            f"{pair['count'] / classes[pair['true']]['support']:.0%}",
        ]
        for pair in mistakes[:_PAIRS]
    ]
    if rows:
        which = f"The {_PAIRS} most frequent of {len(mistakes):,} kinds of mistake" if mistakes[_PAIRS:] else "Mistakes"
        lines += [f"{which}:\n", markdown_table(["true", "predicted", "texts", "share of the true class"], rows)]
    else:
        lines += ["There are no mistakes.\n"]
    return "\n".join(lines)


def _cell(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def _escape(name: str) -> str:
    """A label that does not break a table."""
    return " ".join(name.split()).replace("|", r"\|")


# ---- pictures --------------------------------------------------------------------------------------------------------


def plot_confusion(names: Sequence[str], counts: np.ndarray, path: Path, texts: str) -> None:
    """Write a PNG of the confusion matrix: true classes down, predicted ones across, in percent of the true class."""
    with extra("plots"):
        from matplotlib.colors import PowerNorm

    caption = f"{texts}; a row shows as what the texts of a class were predicted, in percent"
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    if len(names) > _MOST_CLASSES:
        shown = most_confused(counts, _MOST_CONFUSED)
        caption += f"; only the {len(shown)} most confused of {len(names):,} classes are shown"
        names, counts, shares = [names[place] for place in shown], counts[shown][:, shown], shares[shown][:, shown]
    size, ticks = len(names), [_short(name) for name in names]
    cell, font = (0.85, 9) if size <= 8 else (0.42, 8) if size <= 25 else (0.2, 7)  # inches, points
    longest = 0.0085 * font * max(map(len, ticks))  # inches
    flat = longest < cell  # names fit under their columns
    below = 0.3 if flat else longest if size > 25 else 0.75 * longest
    figure = _figure(
        max(5.0, size * cell + longest + (1.6 if size > 25 else 0.9)),
        size * cell + below + 0.5,
        "Confusion matrix",
        caption,
    )
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.6, 0, 100))  # a few percent are to be seen too
    axes.set_anchor("N")
    turn = {} if flat else {"rotation": 90} if size > 25 else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(size), ticks, fontsize=font, parse_math=False, **turn)
    axes.set_yticks(range(size), ticks, fontsize=font, parse_math=False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(np.arange(size + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#E4E4E4", linewidth=0.8 if size <= 25 else 0.4)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    if size > 25:
        bar = figure.colorbar(image, ax=axes, shrink=0.5, aspect=25, label="% of the true class")
        bar.outline.set_visible(False)
    else:
        for row, column in zip(*np.nonzero(counts), strict=True):
            share = shares[row, column]
            said = f"{share:.0f}" if share >= 1 else "<1"
            said = f"{said}%\n{counts[row, column]:,}" if size <= 8 else said
            color = "white" if share > 38 else "#222222"
            axes.text(column, row, said, ha="center", va="center", fontsize=font - 0.5, color=color)
    _save(figure, path)


def plot_scatter(predicted: np.ndarray, true: np.ndarray, path: Path, texts: str) -> None:
    """Write a PNG of predictions against truths; if truths are few values, points are spread sideways."""
    caption, random = texts, np.random.default_rng(0)
    if len(true) > _POINTS:
        shown = random.choice(len(true), _POINTS, replace=False)
        predicted, true = predicted[shown], true[shown]
        caption += f", of which {_POINTS:,} are shown, drawn at random"
    caption += "; on the line a prediction is right"
    values = np.unique(true)
    if 1 < len(values) <= 20 and len(true) > 5 * len(values):
        true = true + random.uniform(-0.2, 0.2, len(true)) * np.diff(values).min()
        caption += "; points are spread sideways, to be seen"
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    figure = _figure(6, 5.6, "Predicted against true", caption)
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color="#555555", linewidth=1, linestyle="--", zorder=3)
    alpha = float(np.clip(20 / np.sqrt(len(true)), 0.2, 0.8))
    axes.scatter(true, predicted, s=12, color=OURS, alpha=alpha, linewidths=0)
    margin = 0.05 * (high - low) or 1.0
    axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), aspect="equal", anchor="N")
    axes.set(xlabel="true", ylabel="predicted")
    style(axes)
    _save(figure, path)


def _figure(width: float, height: float, title: str, caption: str) -> Any:
    """An empty figure with axes of `width` × `height` inches below a title and a caption."""
    with extra("plots"):
        from matplotlib.figure import Figure

    lines = textwrap.wrap(caption, int(width / 0.066))
    whole = height + 0.55 + 0.16 * len(lines)
    figure = Figure(figsize=(width, whole), dpi=150, layout="constrained")
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, height / whole - 0.01))
    figure.text(0.15 / width, 1 - 0.32 / whole, title, fontsize=13, fontweight="bold")
    said = {"fontsize": 8.5, "color": "#555555", "va": "top", "parse_math": False}
    figure.text(0.15 / width, 1 - 0.42 / whole, "\n".join(lines), **said)
    return figure


def _short(name: str) -> str:
    """A label of at most 30 characters: its beginning and its end, which tell it from others."""
    name = " ".join(name.split())
    return name if len(name) <= 30 else f"{name[:18]}…{name[-11:]}"


def _save(figure: Any, path: Path) -> None:
    with writing_aside(path) as aside, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it
        figure.savefig(aside, format="png")
