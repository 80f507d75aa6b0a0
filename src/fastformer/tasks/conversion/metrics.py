"""AUC, log loss and calibration of conversion probabilities, and a plot of the last."""

from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from fastformer.errors import diverged, extra
from fastformer.surroundings.files import writing_aside
from fastformer.surroundings.plotting import OURS, style
from fastformer.tasks.classification.metrics import calibration_error

GROUPS = 15


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """AUC (if both labels occur), log loss, and the expected calibration error of the conversion's probability.

    The latter: events are put into 15 equal ranges of the probability; |share converted - mean probability| is averaged
    over events.
    """
    if not np.isfinite(probabilities).all():
        raise diverged()
    found = {} if labels.min() == labels.max() else {"auc": float(roc_auc_score(labels, probabilities))}
    # One class, "converted", which is predicted always and right if the label is 1.
    error = calibration_error(probabilities[:, None], 1 - labels)
    chances = np.clip(probabilities, 1e-12, 1 - 1e-12)
    return {**found, "log_loss": float(log_loss(labels, chances, labels=[0, 1])), "calibration_error": error}


def validation_scores(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`scores`, and if there is no AUC to pick the best epoch, the log loss with its sign changed."""
    found = scores(expit(logits.astype(np.float64)), labels.astype(np.int64))
    return found if "auc" in found else {**found, "negative_log_loss": -found["log_loss"]}


def best_metric(labels: np.ndarray) -> str:
    """What picks the epoch: AUC, or the log loss if the validation rows have one label only."""
    return "negative_log_loss" if labels.min() == labels.max() else "auc"


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Events in at most 15 groups of about equally many, by rising probability: (groups, 3).

    The columns are mean probability, share converted, and number of events.
    """
    order = np.argsort(probabilities, kind="stable")
    groups = np.array_split(order, min(GROUPS, len(order)))
    return np.array([[probabilities[rows].mean(), labels[rows].mean(), len(rows)] for rows in groups])


def plot_reliability(probabilities: np.ndarray, labels: np.ndarray, path: str | Path, title: str) -> None:
    """Write a PNG: how often events convert, against the probability they were given.

    Points are groups of equally many events, so that a rare conversion is seen as well as a common one; whiskers are
    two standard errors of the share.
    """
    with extra("plots"):
        from matplotlib.figure import Figure

    given, happened, count = reliability(probabilities, labels).T
    errors = 2 * np.sqrt(np.clip(happened * (1 - happened), 1e-12, None) / count)
    found = scores(probabilities, labels)
    highest = min(1.0, 1.1 * float(max(given.max(), (happened + errors).max(), 0.01)))

    figure = Figure(figsize=(6, 6), dpi=150, layout="constrained")
    axes, below = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--", label="as often as said")
    axes.errorbar(
        given, happened, errors, fmt="o-", color=OURS, markersize=5, capsize=2, linewidth=1.6, label="this model"
    )
    axes.set_xlim(0, highest)
    axes.set_ylim(0, highest)
    axes.set_ylabel("share that converted")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=24)
    said = ", ".join(f"{name} {found[key]:.4f}" for key, name in _NAMES.items() if key in found)
    axes.text(0, 1.025, f"{len(labels):,} events; {said}", transform=axes.transAxes, fontsize=8.5, color="#555555")
    below.hist(probabilities, bins=np.linspace(0, highest, 41), color=OURS, alpha=0.6)
    below.set_ylabel("events")
    below.set_xlabel("probability of a conversion")
    for panel in (axes, below):
        style(panel)
    with writing_aside(path) as aside:
        figure.savefig(aside, format="png")


_NAMES = {"auc": "AUC", "log_loss": "log loss", "calibration_error": "calibration error"}
