"""Scores of predictions, by scikit-learn. Larger `BEST_METRIC[kind]` is better."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, softmax
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, mean_squared_error, r2_score

from fastformer.tasks.classification.data import LabelSpace

SCORES = {
    "single": ("accuracy", "macro_f"),
    "multi": ("accuracy", "macro_f", "micro_f"),
    "number": ("mse", "mae", "r2"),
}
# What picks the best epoch. Accuracy alone would prefer an epoch that leaves the rare classes out.
BEST_METRIC = {"single": "accuracy_and_macro_f", "multi": "micro_f", "number": "negative_mse"}


def probabilities(space: LabelSpace, logits: np.ndarray) -> np.ndarray:
    """Class probabilities (texts, classes): they sum to 1 for one label a text, stand alone for several."""
    logits = logits.astype(np.float64)
    return softmax(logits, axis=-1) if space.kind == "single" else expit(logits)


def scores(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy and macro-F; for several labels a text also micro-F; for numbers errors and R²."""
    if space.kind == "number":
        predicted = logits.reshape(-1)
        r2 = r2_score(labels, predicted) if len(labels) > 1 else 0.0  # undefined for one number
        return {
            "mse": float(mean_squared_error(labels, predicted)),
            "mae": float(mean_absolute_error(labels, predicted)),
            "r2": float(r2),
        }
    if space.kind == "single":
        predicted, classes = logits.argmax(axis=-1), list(range(space.size))
        return single_label_scores(labels, predicted, classes)
    predicted = (logits > 0).astype(np.int64)
    labels = labels.astype(np.int64)
    return {
        "accuracy": float((predicted == labels).all(axis=1).mean()),
        "macro_f": float(f1_score(labels, predicted, average="macro", zero_division=0)),
        "micro_f": float(f1_score(labels, predicted, average="micro", zero_division=0)),
    }


def single_label_scores(labels: Sequence, predicted: Sequence, classes: Sequence) -> dict[str, float]:
    """Accuracy, and the mean F over all `classes` of the training, those absent here included."""
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "macro_f": float(f1_score(labels, predicted, labels=classes, average="macro", zero_division=0)),
    }


def validation_scores(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`scores`, and the value that picks the best epoch."""
    found = scores(space, logits, labels)
    if space.kind == "single":
        found["accuracy_and_macro_f"] = (found["accuracy"] + found["macro_f"]) / 2
    elif space.kind == "number":
        found["negative_mse"] = -found["mse"]
    return found
