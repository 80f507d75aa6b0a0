"""Fitting the linear n-gram channel: logistic regression on the words and word pairs of the training texts.

The encoder is trained on top of the channel, to learn what it misses. For that it must see the channel as it is on new
texts, not on those it was fitted to: every training text gets its logits from a channel fitted without it
(cross-fitting), and these say how sure the channel may be. The one that the model keeps is fitted to all of them.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from fastformer.data.batches import Subset
from fastformer.modeling import FastformerConfig
from fastformer.modeling.ngrams import NgramChannel, pair_rows
from fastformer.progress import progress_bar
from fastformer.tasks.classification.calibration import temperature
from fastformer.tasks.classification.data import LabelSpace

MAX_TOKENS = 4_000_000  # of training texts: with more the encoder by itself was better, and the fit grows long
INVERSE_REGULARIZATION = 10.0
ITERATIONS = 30
MAX_CLASSES = 100  # beyond, the tables would outgrow the model
MISSING_CLASS = -6.0  # logit of a class that a fold does not have


def can_fit_channel(space: LabelSpace, texts: int, tokens: int) -> bool:
    """Whether a channel is made: one of not too many classes for a text, texts to cross-fit on, and not too long."""
    return space.kind == "single" and space.size <= MAX_CLASSES and texts >= 2 and tokens <= MAX_TOKENS


@dataclass
class ChannelSize:
    """How large the channel's tables are."""

    classes: int
    vocab_size: int
    buckets: int

    @classmethod
    def of(cls, config: FastformerConfig) -> "ChannelSize":
        """The tables of a model."""
        return cls(config.num_labels, config.vocab_size, config.bigram_buckets)


def cross_fit(texts: Subset, size: ChannelSize, seed: int, show_progress: bool = False) -> tuple[np.ndarray, float]:
    """Logits (texts, classes) of every text, by a channel that has not seen it; and how loud a channel should be.

    Regularized weights are too modest, by a factor that these logits tell. Left so, the encoder would first of all
    learn to speak louder.
    """
    order = np.random.default_rng([seed, 2]).permutation(len(texts))
    features, labels = _Features.of(texts, order, size), texts.labels[order]
    logits = np.zeros((len(texts), size.classes), dtype=np.float32)
    folds = min(len(texts), 5 if len(texts) < 2000 else 2)
    with progress_bar("Fitting n-grams", total=folds, show=show_progress) as advance:
        for training, held_out in KFold(folds).split(labels):
            weights, bias = _regress(features.rows[training], labels[training], size.classes)
            logits[order[held_out]] = features.rows[held_out] @ weights + bias
            advance(1)
    space = LabelSpace("single", tuple(map(str, range(size.classes))))
    loudness = 1 / temperature(space, logits, texts.labels)
    return loudness * logits, loudness


def fit_channel(channel: NgramChannel, texts: Subset, size: ChannelSize, loudness: float) -> None:
    """Fill the tables of `channel` with what logistic regression finds in encoded texts with one label each."""
    features = _Features.of(texts, np.arange(len(texts)), size)
    weights, bias = _regress(features.rows, texts.labels, size.classes)
    table = np.zeros((size.vocab_size + 1 + size.buckets, size.classes + 1), dtype=np.float32)
    table[features.used, :-1], table[features.used, -1] = features.idf[:, None] * weights, features.idf**2
    with torch.no_grad():
        channel.words.copy_(torch.from_numpy(table[: size.vocab_size + 1]))
        channel.pairs.copy_(torch.from_numpy(table[size.vocab_size + 1 :]))
        channel.bias.copy_(torch.from_numpy(bias))
        channel.scale(loudness)


@dataclass
class _Features:
    """TF-IDF without the TF: idf where a word is present, every row of length 1."""

    rows: sparse.csr_matrix
    used: np.ndarray  # columns that occur in two texts or more: what occurs once teaches one text by heart
    idf: np.ndarray

    @classmethod
    def of(cls, texts: Subset, order: np.ndarray, size: ChannelSize) -> "_Features":
        found = present(texts, order, size)
        documents = np.bincount(found.indices, minlength=found.shape[1])
        used = np.flatnonzero(documents >= 2)
        idf = np.log((1 + len(order)) / (1 + documents[used])) + 1
        rows = found[:, used]
        rows.data = idf[rows.indices].astype(np.float32)
        lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1.clip(1e-6)
        return cls(sparse.diags_array((1 / lengths).astype(np.float32)).dot(rows).tocsr(), used, idf)


def present(texts: Subset, chosen: np.ndarray, size: ChannelSize) -> sparse.csr_matrix:
    """Which words and hashed word pairs the chosen texts contain: 1 at (text, column), a column a row of the tables."""
    columns, ends = [], [0]
    for index in chosen:
        ids = texts[index]["input_ids"].astype(np.int64)
        found = np.unique(np.concatenate([ids, size.vocab_size + 1 + pair_rows(ids[:-1], ids[1:], size.buckets)]))
        columns.append(found.astype(np.int32))
        ends.append(ends[-1] + len(found))
    indices = np.concatenate([np.zeros(0, np.int32), *columns])
    shape = (len(chosen), size.vocab_size + 1 + size.buckets)
    return sparse.csr_matrix((np.ones(len(indices), np.float32), indices, np.array(ends)), shape)


def _regress(features: sparse.csr_matrix, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (columns, classes) and bias of a logistic regression."""
    weights = np.zeros((features.shape[1], classes), dtype=np.float32)
    bias = np.full(classes, MISSING_CLASS, dtype=np.float32)
    known = np.unique(labels)
    if len(known) == 1 or not features.shape[1]:
        bias[known] = np.log(np.bincount(labels, minlength=classes)[known] / len(labels))
        return weights, bias
    model = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=ITERATIONS, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # to stop early is meant: the scores no longer change
        model.fit(features, labels)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(known) == 2:  # one row, for the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    weights[:, known], bias[known] = coefficients.T, intercepts
    return weights, bias
