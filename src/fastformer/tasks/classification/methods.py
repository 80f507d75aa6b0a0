"""What is compared with our classifier, and how: a method is `fit(texts, labels) -> Fitted`, measured by one call each.

`Fitted` answers with labels, and with probabilities if the method has them.
"""

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastformer.data.tables import Row
from fastformer.engine.settings import settled
from fastformer.tasks.classification.metrics import calibration_error, log_losses, single_label_scores


class FitError(RuntimeError):
    """A method that cannot learn from these texts."""


@dataclass(frozen=True)
class Fitted:
    """A trained method. It has `probabilities` (texts, classes), or else `labels`; never both."""

    classes: Sequence[str]
    probabilities: Callable[[Sequence[str]], np.ndarray] | None = None
    labels: Callable[[Sequence[str]], Sequence[str]] | None = None
    train_seconds: float | None = None  # seconds of training, if a clock around `fit` would count more than that

    def answer(self, texts: Sequence[str]) -> tuple[list[str], np.ndarray | None]:
        """A label for each text, and the probabilities if there are some, from one pass over the texts."""
        if self.probabilities is None:
            return list(settled(self.labels)(texts)), None
        chances = self.probabilities(texts)
        return [self.classes[place] for place in chances.argmax(axis=1)], chances

    def predict(self, texts: Sequence[str]) -> list[str]:
        """A label for each text."""
        return self.answer(texts)[0]


Fit = Callable[[Sequence[str], Sequence[str]], Fitted]


@dataclass(frozen=True)
class Method:
    """A method and what must be installed for it."""

    name: str
    fit: Fit
    module: str | None = None
    package: str | None = None
    linear: bool = False  # on counted n-grams: the family that a classifier for a CPU has to beat
    init: str | None = None  # what it starts from
    prepare: Callable[[], Any] | None = None  # what others download ready-made: not part of the training

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if self.module is None or importlib.util.find_spec(self.module) is not None:
            return None
        return f"not installed: pip install {self.package}"


def measure(fit: Fit, train: Sequence[Row], test: Sequence[Row]) -> dict[str, float | None]:
    """Scores on `test`, seconds to train, and seconds to predict 1,000 texts.

    The log loss is that of the texts whose label the training had: all others have the probability zero, whatever the
    method. It and the calibration error are None if the method has no probabilities.
    """
    texts, labels = zip(*train, strict=True)
    test_texts, test_labels = zip(*test, strict=True)
    start = time.perf_counter()
    fitted = fit(texts, labels)
    trained = time.perf_counter()
    predicted, chances = fitted.answer(test_texts)
    ended = time.perf_counter()
    return {
        **single_label_scores(test_labels, predicted, sorted(set(labels))),
        **_probability_scores(test_labels, fitted.classes, chances),
        "train_seconds": round(trained - start if fitted.train_seconds is None else fitted.train_seconds, 2),
        "seconds_per_1000": float(f"{1000 * (ended - trained) / len(test_texts):.4g}"),
    }


def _probability_scores(
    labels: Sequence[str], classes: Sequence[str], chances: np.ndarray | None
) -> dict[str, float | None]:
    if chances is None:
        return {"log_loss": None, "calibration_error": None}
    if not np.isfinite(chances).all():
        raise FitError("its probabilities are not finite numbers")
    column = {label: place for place, label in enumerate(classes)}
    places = np.array([column.get(label, -1) for label in labels])
    known = np.flatnonzero(places >= 0)
    losses = log_losses(chances[known].astype(np.float64), places[known])
    return {
        "log_loss": float(losses.mean()) if len(known) else None,
        "calibration_error": calibration_error(chances, places),
    }
