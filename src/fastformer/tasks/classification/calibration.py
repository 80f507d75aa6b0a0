"""Calibrated probabilities: one temperature, fitted on held-out texts."""

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from fastformer.modeling import FastformerForSequenceClassification
from fastformer.tasks.classification.answers import probabilities
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import log_losses

PRIOR_TEXTS = 20  # the prior for a temperature of 1 weighs as much as this many texts


def temperature(space: LabelSpace, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The T that minimizes the log loss of softmax(logits / T), or of the sigmoid for several labels per text.

    The penalty PRIOR_TEXTS · (log T)² keeps it near 1 if there are few texts. Texts may have weights, 1 on average.
    """

    def loss(log_t: float) -> float:
        chances = probabilities(space, logits / np.exp(log_t))
        losses = log_losses(chances, labels).reshape(len(labels), -1).mean(axis=1)
        return (losses if weights is None else losses * weights).sum() + PRIOR_TEXTS * log_t**2

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 2), method="bounded").x))


def cross_calibrated(
    space: LabelSpace, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Logits over a temperature fitted on other texts: every second text has that of the rest.

    Scores of a model on the very texts that its temperature was fitted on would flatter it.
    """
    if len(labels) < 2:
        return logits
    found = np.empty_like(logits)
    for half in (0, 1):
        rest = slice(1 - half, None, 2)
        of_rest = None if weights is None else weights[rest]
        found[half::2] = logits[half::2] / temperature(space, logits[rest], labels[rest], of_rest)
    return found


@torch.no_grad()
def divide_logits(model: FastformerForSequenceClassification, by: float) -> None:
    """Build a temperature into the weights, so that loading the model does not need it."""
    model.classifier.weight /= by
    model.classifier.bias /= by
    if model.ngrams is not None:
        model.ngrams.scale(1 / by)
