"""Several labels per text: above which probability a text has a label, chosen on held-out texts.

A threshold of 0.5 makes the fewest mistakes. F1 asks for something else: a rare label, of which the model is seldom
sure, is better named too often than never. Each label has the threshold of its best F1 on the held-out texts. What a
few texts say of it is chance, so with n texts that have the label it is

    (n · own + SHRINK · common) / (n + SHRINK)

on the scale of logits, where the common threshold, that of the best micro-F, is drawn towards 0.5 in the same way. A
label of fewer than FEW texts has the common one.
"""

import numpy as np
from scipy.special import expit

FEW = 10
SHRINK = 10
FARTHEST = 4.0  # from 0, of a logit: no threshold is below 0.02 or above 0.98


def label_thresholds(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probabilities (labels,) above which a text has each label, by held-out texts (texts, labels)."""
    labels = labels.astype(bool)
    counts = labels.sum(axis=0)
    whole = _best(logits.reshape(-1), labels.reshape(-1)) * counts.sum() / (counts.sum() + SHRINK)
    found = np.full(labels.shape[1], whole)
    for label in np.flatnonzero(counts >= FEW):
        own = _best(logits[:, label], labels[:, label])
        found[label] = (counts[label] * own + SHRINK * whole) / (counts[label] + SHRINK)
    return expit(found)


def cross_answers(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The labels that texts have by thresholds of other texts: every second text has those of the rest.

    Scores on the very texts that the thresholds were chosen on would flatter them.
    """
    chances = expit(logits.astype(np.float64))
    if len(labels) < 2:
        return chances > 0.5
    found = np.empty(labels.shape, dtype=bool)
    for half in (0, 1):
        rest = slice(1 - half, None, 2)
        found[half::2] = chances[half::2] > label_thresholds(logits[rest], labels[rest])
    return found


def _best(logits: np.ndarray, truth: np.ndarray) -> float:
    """The logit above which naming the label has the best F1: the middle between two, or 0 if none is better."""
    order = np.argsort(-logits, kind="stable")
    logits, hits = logits[order].astype(np.float64), np.cumsum(truth[order])
    named = np.arange(1, len(logits) + 1)
    f = 2 * hits / (named + truth.sum()).clip(1)
    f[:-1][logits[:-1] == logits[1:]] = -1.0  # nothing lies between the two
    best = int(f.argmax()) if len(f) else 0
    at_0 = int((logits > 0).sum())
    if not len(f) or f[best] <= (f[at_0 - 1] if at_0 else 0.0):
        return 0.0
    below = logits[best + 1] if best + 1 < len(logits) else logits[best] - 1.0
    return float(np.clip((logits[best] + below) / 2, -FARTHEST, FARTHEST))
