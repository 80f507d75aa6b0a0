"""How much of the encoder goes beside the n-gram channel: two numbers, fitted on texts that neither has learned from.

    logits = s · channel + w · encoder

How loud each is beside the other minimizes the log loss of the held-out texts, in which a rare class weighs more than
its share (`class_weights`): a blend that is good for the frequent classes alone is not what macro-F asks for. How loud
both are together, and how much doubt remains where both are sure (`modeling.heads.with_doubt`), then minimizes the
plain log loss, so that probabilities mean what they say.

The encoder is heard only if the first loss is clearly lower with it: by more than GAIN nats in all, what it might gain
by chance. So it does not make the channel worse. What s would be alone is known from cross-validation on the training
texts: so many as PRIOR_TEXTS further texts speak for that.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from fastformer.modeling.heads import with_doubt
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import probabilities

GAIN = 2.0
PRIOR_TEXTS = 5
USUAL = 4.0  # s, before any text has been seen
USUAL_DOUBT, MOST_DOUBT = 0.02, 0.3


@dataclass(frozen=True)
class Blend:
    """Weights of the two parts, and the doubt that remains."""

    channel: float
    encoder: float
    doubt: float = 0.0

    def __call__(self, channel: np.ndarray, encoder: np.ndarray) -> np.ndarray:
        """Logits of the two together."""
        return _doubtful(self.channel * channel + self.encoder * encoder, self.doubt)


def _doubtful(logits: np.ndarray, doubt: float) -> np.ndarray:
    return with_doubt(torch.from_numpy(logits), doubt).numpy()


def class_weights(labels: np.ndarray, classes: int, power: float = 0.5) -> np.ndarray:
    """(texts of the class)^-power for each class, 1 on average over the texts: 0 is all alike, 1 balanced."""
    counts = np.bincount(labels, minlength=classes).clip(1)
    weights = (1 / counts) ** power
    return weights * len(labels) / weights[labels].sum()


def loudness(space: LabelSpace, channel: np.ndarray, labels: np.ndarray) -> float:
    """The s of the least log loss for the channel alone."""
    return _least(lambda s: _loss(space, s * channel, labels) + _prior(s, USUAL), (USUAL,))[1][0]


def losses_of_both(
    space: LabelSpace, one: np.ndarray, other: np.ndarray, labels: np.ndarray
) -> tuple[tuple[float, float], float]:
    """Mean log loss of two channels alone, each at its best loudness, and by how much they may differ by chance."""
    losses = [_losses(space, loudness(space, scores, labels) * scores, labels) for scores in (one, other)]
    chance = max(GAIN, float((losses[0] - losses[1]).std()) * len(labels) ** 0.5) / len(labels)
    return (float(losses[0].mean()), float(losses[1].mean())), chance


def blend(space: LabelSpace, channel: np.ndarray, encoder: np.ndarray, labels: np.ndarray, usual: float) -> Blend:
    """The blend of the least log loss, or the channel alone; `usual` is the s that is expected."""
    weights = class_weights(labels, space.size)

    def weighted(s: float, w: float = 0.0) -> float:
        return _loss(space, Blend(s, w)(channel, encoder), labels, weights) + _prior(s, usual)

    alone, [loud] = _least(weighted, (usual,))
    together, [s, w] = _least(weighted, (loud / 2, 0.3))
    if together >= alone - GAIN:
        s, w = loud, 0.0
    logits = Blend(s, w)(channel, encoder)

    def plain(louder: float, doubt: float) -> float:
        guess = _prior(louder, 1.0) + _prior(doubt, USUAL_DOUBT) / 10
        return _loss(space, _doubtful(louder * logits, min(doubt, MOST_DOUBT)), labels) + guess

    _, [louder, doubt] = _least(plain, (1.0, USUAL_DOUBT))
    return Blend(s * louder, w * louder, min(doubt, MOST_DOUBT))


def _prior(found: float, expected: float) -> float:
    """What PRIOR_TEXTS further texts say against a number that is not as expected."""
    return PRIOR_TEXTS * np.log(found / expected) ** 2


def _loss(space: LabelSpace, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Log loss in nats, over all texts."""
    return float((_losses(space, logits, labels) * (1 if weights is None else weights[labels])).sum())


def _losses(space: LabelSpace, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log loss of each text."""
    return -np.log(probabilities(space, logits)[np.arange(len(labels)), labels].clip(1e-12))


def _least(loss: Callable[..., float], start: tuple[float, ...]) -> tuple[float, list[float]]:
    """The least value of a function of positive numbers, and these numbers."""

    def numbers(logs: np.ndarray) -> list[float]:
        return [float(number) for number in np.exp(np.clip(logs, -7, 7))]

    options = {"xatol": 0.01, "fatol": 0.01}
    found = minimize(lambda logs: loss(*numbers(logs)), np.log(start), method="Nelder-Mead", options=options)
    return float(found.fun), numbers(found.x)


def cross_blended(
    space: LabelSpace, channel: np.ndarray, encoder: np.ndarray, labels: np.ndarray, usual: float
) -> np.ndarray:
    """Logits by a blend that other texts gave: every second text has that of the rest.

    Scores of a model on the very texts that its blend was fitted on would flatter it.
    """
    if len(labels) < 2:
        return blend(space, channel, encoder, labels, usual)(channel, encoder)
    logits = np.empty_like(channel)
    for half in (0, 1):
        rest = slice(1 - half, None, 2)
        fitted = blend(space, channel[rest], encoder[rest], labels[rest], usual)
        logits[half::2] = fitted(channel[half::2], encoder[half::2])
    return logits
