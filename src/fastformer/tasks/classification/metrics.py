"""Scores of predictions, by scikit-learn, and which of them picks the best epoch."""

from collections.abc import Sequence

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, mean_squared_error, r2_score

from fastformer.errors import diverged
from fastformer.tasks.classification.answers import has_label, probabilities
from fastformer.tasks.classification.data import LabelKind, LabelSpace

FEW = 1000  # held-out texts
LEAST_CHANCE = 1e-15  # the least probability: zero, for what was true, would cost infinitely much


def best_metric(kind: LabelKind, texts: int) -> str:
    """The score that picks the best epoch on this many held-out texts; larger is better.

    Accuracy alone would prefer an epoch that leaves the rare classes out. On a few dozen texts both it and macro-F are
    chance: there the log loss, which judges every probability, is the better judge.
    """
    if kind == "single":
        return "negative_log_loss" if texts < FEW else "accuracy_and_macro_f"
    return {"multi": "micro_f", "number": "negative_mse"}[kind]


def scores(
    space: LabelSpace, logits: np.ndarray, labels: np.ndarray, answers: np.ndarray | None = None
) -> dict[str, float]:
    """Accuracy, macro-F and calibration error; for several labels per text micro-F; for numbers errors and R².

    `answers` are the predicted labels, if they are not those that the thresholds give.
    """
    if space.kind == "number":
        predicted = logits.reshape(-1)
        r2 = r2_score(labels, predicted) if len(labels) > 1 else 0.0  # undefined for one number
        return {
            "mse": float(mean_squared_error(labels, predicted)),
            "mae": float(mean_absolute_error(labels, predicted)),
            "r2": float(r2),
        }
    if space.kind == "single":
        found = single_label_scores(labels, logits.argmax(axis=-1), list(range(space.size)))
        return {**found, "calibration_error": calibration_error(probabilities(space, logits), labels)}
    chances = probabilities(space, logits)
    predicted = (has_label(space, chances) if answers is None else answers).astype(np.int64)
    labels = labels.astype(np.int64)
    known = space.known(labels)
    never = np.zeros((len(labels), labels.shape[1] - known.shape[1]), dtype=np.int64)  # what training did not see
    said = np.concatenate([predicted, never], axis=1)
    chances = chances.reshape(-1)  # each label is a question of its own, yes or no
    return {
        "accuracy": float((said == labels).all(axis=1).mean()),
        "macro_f": several_labels_f(known, predicted, "macro"),
        "micro_f": several_labels_f(labels, said, "micro"),
        "calibration_error": calibration_error(np.stack([1 - chances, chances], axis=1), known.reshape(-1)),
    }


def several_labels_f(labels: np.ndarray, predicted: np.ndarray, average: str) -> float:
    """F of 0/1 rows (texts, labels). Of one label alone it is that of having it; scikit-learn counts lacking it too."""
    if labels.shape[1] == 1:
        return float(f1_score(labels[:, 0], predicted[:, 0], zero_division=0))
    return float(f1_score(labels, predicted, average=average, zero_division=0))


def single_label_scores(
    labels: Sequence | np.ndarray, predicted: Sequence | np.ndarray, classes: Sequence
) -> dict[str, float]:
    """Accuracy, and the mean F over all `classes` of the training, those absent here included."""
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "macro_f": float(f1_score(labels, predicted, labels=classes, average="macro", zero_division=0)),
    }


def calibration_error(chances: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: how far the probability of the predicted class is from how often it is right.

    Texts are put into `bins` equal ranges of that probability; |share right - mean probability| is averaged over texts.
    """
    sure, right = chances.max(axis=1), chances.argmax(axis=1) == labels
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=right - sure, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def log_losses(chances: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log of the probability that what is true had: of each text, or of each label if `labels` are 0/1 rows."""
    several = labels.ndim == 2
    said = np.where(labels > 0.5, chances, 1 - chances) if several else chances[np.arange(len(labels)), labels]
    return -np.log(said.clip(LEAST_CHANCE))


def validation_scores(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`scores`, and the values that may pick the best epoch."""
    if not np.isfinite(logits).all():
        raise diverged()
    found = scores(space, logits, labels)
    if space.kind == "single":
        found["accuracy_and_macro_f"] = (found["accuracy"] + found["macro_f"]) / 2
        found["negative_log_loss"] = -float(log_losses(probabilities(space, logits), labels).mean())
    elif space.kind == "number":
        found["negative_mse"] = -found["mse"]
    return found
