"""How channel and encoder are blended: two weights, fitted on texts that neither has learned from.

    logits = s · channel + w · encoder (+ c)

1. The ratio of s and w minimizes the log loss of the held-out texts, in which a rare class weighs more than its share
   (`class_weights`): macro-F needs a blend that is good for rare classes too.
2. The scale of both together, and the doubt that remains when both are sure (`modeling.heads.with_doubt`), minimize the
   log loss of the question whether the answer is right, so that its probability can be trusted. If the channel answers
   alone, all texts of which it has unseen scores count.

With `balanced` every class counts the same in both losses.

The encoder is used only if it is clear, by SURE standard errors, that the first loss is lower with it or that more
answers are right, and if on n texts the mean of accuracy and macro-F is higher by more than WORTH / √n, which is one
standard error if the two differ on one text in 64. If the held-out texts are too similar to the training texts
(chapters of one book), both parts are right nearly always, and the simpler one answers. The s of the channel alone is
expected to be that of cross-validation on the training texts; this expectation weighs as much as PRIOR_TEXTS further
texts.

If a text may have several labels, each label of each text is a question of its own: the loss is the binary one, and c,
one number for all labels, is fitted with s and w. There is no doubt then.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit

from fastformer.modeling.heads import with_doubt
from fastformer.tasks.classification.answers import probabilities
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import log_losses
from fastformer.tasks.classification.ngrams import value_of

SURE = 3.0  # standard errors
WORTH = 1 / 8
PRIOR_TEXTS = 0.3
USUAL = 4.0  # s, before any text has been seen
USUAL_DOUBT, MOST_DOUBT = 0.02, 0.5


@dataclass(frozen=True)
class Blend:
    """Weights of the two parts, and the doubt that remains."""

    channel: float
    encoder: float
    doubt: float = 0.0
    bias: float = 0.0  # several labels per text: added to the logits of all labels

    def __call__(self, channel: np.ndarray, encoder: np.ndarray) -> np.ndarray:
        """Logits of the two together."""
        return _doubtful(self.channel * channel + self.encoder * encoder + self.bias, self.doubt)


def _doubtful(logits: np.ndarray, doubt: float) -> np.ndarray:
    return with_doubt(torch.from_numpy(logits), doubt).numpy()


def class_weights(labels: np.ndarray, classes: int, power: float = 0.5) -> np.ndarray:
    """(texts of the class)^-power for each class, 1 on average over the texts: power 0 is equal, 1 balanced."""
    counts = np.bincount(labels, minlength=classes).clip(1)
    weights = (1 / counts) ** power
    return weights * len(labels) / weights[labels].sum()


def best_scale(space: LabelSpace, channel: np.ndarray, labels: np.ndarray) -> float:
    """The s that minimizes the log loss of the channel alone."""
    if space.kind == "multi":
        return _least_binary(channel, None, labels, USUAL).channel
    return _least(lambda s: _loss(space, s * channel, labels) + _prior(s, USUAL), (USUAL,))[0]


def losses_of_both(
    space: LabelSpace, one: np.ndarray, other: np.ndarray, labels: np.ndarray
) -> tuple[tuple[float, float], float]:
    """Mean log loss of two channels, each at its best scale, and by how much the two may differ by chance."""
    losses = [
        log_losses(probabilities(space, best_scale(space, scores, labels) * scores), labels) for scores in (one, other)
    ]
    return (float(losses[0].mean()), float(losses[1].mean())), _error(losses[0] - losses[1]) / len(labels)


def _error(differences: np.ndarray) -> float:
    """The standard error of their sum."""
    return float(differences.std()) * differences.size**0.5


@dataclass(frozen=True)
class Unseen:
    """Scores of the two parts on texts that they have not learned from.

    The channel has scores of all these texts, the encoder of the first ones only. The channel is cheap enough for
    cross-validation, so it also has unseen scores of texts that the encoder was trained on.
    """

    space: LabelSpace
    channel: np.ndarray  # texts, classes
    encoder: np.ndarray  # the first texts, classes
    labels: np.ndarray
    usual: float  # the s that is expected
    balanced: bool = False  # every class weighs the same in both losses
    counts: np.ndarray | None = None  # how much each text counts in them; None: all the same

    def of(self, first: slice) -> "Unseen":
        """The same with some of the first texts, and all texts after them."""

        def some(rows: np.ndarray) -> np.ndarray:
            return np.concatenate([rows[: len(self.encoder)][first], rows[len(self.encoder) :]])

        counts = None if self.counts is None else some(self.counts)
        channel, labels = some(self.channel), some(self.labels)
        return replace(self, channel=channel, encoder=self.encoder[first], labels=labels, counts=counts)

    def blend(self) -> Blend:
        """The blend that minimizes the log loss, or the channel alone."""
        every = np.ones(len(self.labels), np.float32) if self.counts is None else self.counts
        first, labels, counts = (rows[: len(self.encoder)] for rows in (self.channel, self.labels, every))
        if self.space.kind == "multi":
            alone, both = (_least_binary(first, part, labels, self.usual, counts) for part in (None, self.encoder))
            weights = np.ones_like(labels) * counts[:, None]
        else:
            weights = counts * class_weights(labels, self.space.size, 1.0 if self.balanced else 0.5)[labels]

            def weighted(s: float, w: float = 0.0) -> float:
                return _loss(self.space, Blend(s, w)(first, self.encoder), labels, weights) + _prior(s, self.usual)

            [channel] = _least(weighted, (self.usual,))
            alone = Blend(channel, 0.0)
            both = Blend(*_least(weighted, (alone.channel / 2, 0.3)))
        said = [found(first, self.encoder) for found in (alone, both)]
        losses = [weights * log_losses(probabilities(self.space, logits), labels) for logits in said]
        gained = losses[0] - losses[1]
        right = [(logits > 0) == (labels > 0.5) if labels.ndim == 2 else logits.argmax(1) == labels for logits in said]
        surely = any(more.sum() > SURE * _error(more) for more in (gained, right[1].astype(int) - right[0]))
        worth = value_of(said[1], labels) - value_of(said[0], labels)
        use_encoder = surely and gained.sum() > 0 and worth > WORTH / len(labels) ** 0.5
        if self.space.kind == "multi":
            return both if use_encoder else _least_binary(self.channel, None, self.labels, self.usual, every)
        if use_encoder:
            return self._calibrated(both, said[1], labels, counts)
        return self._calibrated(alone, alone.channel * self.channel, self.labels, every)

    def _calibrated(self, found: Blend, logits: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> Blend:
        """The same blend, with the scale and the doubt that fit texts with these logits and labels.

        They minimize the log loss of the question whether the answer is right, yes or no.
        """
        right = logits.argmax(axis=1) == labels
        weights = counts * (class_weights(labels, self.space.size, 1.0)[labels] if self.balanced else 1.0)

        def loss(scale: float, doubt: float) -> float:
            sure = probabilities(self.space, _doubtful(scale * logits, min(doubt, MOST_DOUBT))).max(axis=1)
            guess = _prior(scale, 1.0) + _prior(doubt, USUAL_DOUBT) / 10
            return float((weights * log_losses(sure[:, None], right[:, None])[:, 0]).sum()) + guess

        scale, doubt = _least(loss, (1.0, USUAL_DOUBT))
        return Blend(found.channel * scale, found.encoder * scale, min(doubt, MOST_DOUBT))

    def cross_blended(self) -> np.ndarray:
        """Logits of the first texts, each by a blend fitted on other texts: every second text on the rest.

        Scores of a model on the very texts that its blend was fitted on would flatter it.
        """
        first = self.channel[: len(self.encoder)]
        if len(first) < 2:
            return self.blend()(first, self.encoder)
        logits = np.empty_like(first)
        for half in (0, 1):
            fitted = self.of(slice(1 - half, None, 2)).blend()
            logits[half::2] = fitted(first[half::2], self.encoder[half::2])
        return logits


def _prior(found: float, expected: float) -> float:
    """The penalty for a number that is not as expected, as if PRIOR_TEXTS further texts spoke against it."""
    return PRIOR_TEXTS * np.log(found / expected) ** 2


def _loss(space: LabelSpace, logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Log loss in nats, over all texts, each of which may have a weight."""
    losses = log_losses(probabilities(space, logits), labels)
    return float((losses if weights is None else losses * weights).sum())


def _least_binary(
    channel: np.ndarray,
    encoder: np.ndarray | None,
    labels: np.ndarray,
    usual: float,
    counts: np.ndarray | None = None,
) -> Blend:
    """The blend that minimizes the loss if texts may have several labels; `encoder` may be left out."""
    parts = [channel.reshape(-1).astype(np.float64)]
    parts += [] if encoder is None else [encoder.reshape(-1).astype(np.float64)]
    truth = labels.reshape(-1) > 0.5
    weights = 1.0 if counts is None else np.repeat(counts, labels.shape[1])

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient at (log s, [log w,] c)."""
        factors, bias = np.exp(numbers[:-1]).tolist(), float(numbers[-1])
        logits = sum(factor * part for factor, part in zip(factors, parts, strict=True)) + bias
        wrong = weights * (expit(logits) - truth)
        value = (weights * np.logaddexp(0, np.where(truth, -logits, logits))).sum()
        slope = np.array([*(f * (wrong @ part) for f, part in zip(factors, parts, strict=True)), wrong.sum()])
        slope[0] += 2 * PRIOR_TEXTS * (numbers[0] - np.log(usual))
        slope[-1] += 2 * PRIOR_TEXTS * bias
        return value + _prior(factors[0], usual) + PRIOR_TEXTS * bias**2, slope

    start = np.array([np.log(usual), 0.0] if encoder is None else [np.log(usual / 2), np.log(0.3), 0.0])
    bounds = [(-7, 7)] * (len(start) - 1) + [(-20, 20)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    s, *w = np.exp(found.x[:-1]).tolist()
    return Blend(s, w[0] if w else 0.0, bias=float(found.x[-1]))


def _least(loss: Callable[..., float], start: tuple[float, ...]) -> list[float]:
    """The positive numbers that minimize a function."""

    def numbers(logs: np.ndarray) -> list[float]:
        return [float(number) for number in np.exp(np.clip(logs, -7, 7))]

    options = {"xatol": 0.01, "fatol": 0.01}
    found = minimize(lambda logs: loss(*numbers(logs)), np.log(start), method="Nelder-Mead", options=options)
    return numbers(found.x)
