"""Fitting the n-gram channel: a linear support vector machine on the words, word pairs and characters of the texts.

Its regularization is chosen by cross-validation on some of the user's own texts.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score
from sklearn.svm import LinearSVC

from fastformer.tasks.classification.metrics import several_labels_f
from fastformer.tasks.classification.ngram_features import Features, Weights

MAX_CLASSES = 1000  # one SVM per class: with more classes the encoder answers alone
CHOOSING_TEXTS = 2000
CHOOSING_FOLDS = 3
CROSSED_TEXTS, FOLDS = 3000, 10  # up to this many texts, all are scored by cross-validation
WORTH = 0.005
GRID = (0.1, 0.3, 1.0, 3.0)  # of C
MEANING_SCALES = (0.5, 0.0, 1.0, 2.0)  # of the pre-trained word vectors; the first is the usual one
FEW_CLASSES, FEW_CLASSES_C = 10, 0.3
DIRECTIONS = 30
MISSING_CLASS = -2.0  # score of a class that a fold does not have: that of an outlier


@dataclass(frozen=True)
class Choice:
    """A C, the scale of the word vectors beside the other features, and how they scored in cross-validation."""

    C: float
    meaning_scale: float
    value: float  # mean of accuracy or micro-F, and macro-F
    scores: np.ndarray  # of texts that the SVMs had not seen
    labels: np.ndarray
    tried: dict[str, float] = field(default_factory=dict)  # the value of every C, and then of every scale


def cross_fit(features: Features, labels: np.ndarray, classes: int, C: float, folds: int, seed: int) -> np.ndarray:
    """Scores (texts, classes) of every text, by SVMs that have not seen it."""
    scores = np.zeros((len(labels), classes), dtype=np.float32)
    for training, held_out in _folds(labels, folds, seed):
        fitted = fit_machines(features, labels, classes, C, training)
        scores[held_out] = fitted(features.rows[held_out])
    return scores


def fit_machines(
    features: Features, labels: np.ndarray, classes: int, C: float, chosen: np.ndarray | None = None
) -> Weights:
    """One linear support vector machine per class, against all others; rare classes weigh as much as frequent ones.

    Each feature is scaled by how strongly it indicates a class (`_feature_scales`); afterwards the scale is folded into
    the weights. Not so in long texts: what indicates most there (who a book is about) holds for few other texts. If a
    text may have several labels, given as rows of 0 and 1, there is one SVM per label, without weights of classes and
    without scales.
    """
    features = features if chosen is None else features.of(chosen)
    rows, counts = features.rows, features.weights
    labels = labels if chosen is None else labels[chosen]
    if labels.ndim == 2:
        return _fit_label_machines(rows, labels, C, counts)
    weights = np.zeros((rows.shape[1], classes), dtype=np.float32)
    bias = np.full(classes, MISSING_CLASS, dtype=np.float32)
    known = np.unique(labels)
    if len(known) < 2 or not rows.nnz:
        bias[known] = np.log(np.bincount(labels, minlength=classes)[known] / len(labels))
        return Weights(weights, bias)
    places = rows.shape[1] - features.counted
    scales = np.ones(rows.shape[1], np.float32) if features.long else _feature_scales(rows, labels, places)
    scaled = sparse.csr_array((rows.data * scales[rows.indices], rows.indices, rows.indptr), rows.shape)
    machines = _machines(scaled, labels, C, "balanced", counts)
    coefficients, intercepts = machines.coef_ * scales, machines.intercept_
    if len(known) == 2:  # one SVM, for the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients])
        intercepts = np.concatenate([-intercepts, intercepts])
    weights[:, known], bias[known] = coefficients.T, intercepts
    return Weights(weights, bias)


def _feature_scales(rows: sparse.csr_array, labels: np.ndarray, places: int) -> np.ndarray:
    """The scale of each feature, r^⅓, with r how strongly it indicates a class. Of n texts that have it n_c are of c:

        r = max_c |log (n_c + 2 p_c) / (n - n_c + 2 (1 - p_c)) - log p_c / (1 - p_c)|

    the largest of its log odds ratios, drawn towards 0 as if by two further texts (p_c: the class's share of all
    features; taken as 0 if n_c is 0). The last `places` columns are not counts and keep their size relative to the
    rest. The sum of squares over all rows stays the same, so that C means the same.
    """
    counted = rows.shape[1] - places
    texts = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))  # classes, texts
    has = sparse.csr_array((np.ones_like(rows.data), rows.indices, rows.indptr), rows.shape)[:, :counted]
    found = (texts @ has).tocoo()
    of_class, feature = found.coords
    share = np.bincount(of_class, found.data)[of_class] / max(1.0, found.data.sum())
    number = np.bincount(feature, found.data, counted)
    odds = np.log((found.data + 2 * share) / (number[feature] - found.data + 2 * (1 - share)))
    some_lack_it = np.bincount(feature, minlength=counted) < len(np.unique(labels))
    telling = np.where(some_lack_it, np.log1p(number / 2), 0.0)
    np.maximum.at(telling, feature, np.abs(odds - np.log(share / (1 - share))))
    scales = np.concatenate([np.cbrt(telling), np.ones(places)])
    before, after = (rows.data**2).sum(), ((rows.data * scales[rows.indices]) ** 2).sum()
    return (scales * np.sqrt(before / max(after, 1e-12))).astype(np.float32)


def _fit_label_machines(rows: sparse.csr_array, labels: np.ndarray, C: float, counts: np.ndarray | None) -> Weights:
    weights = np.zeros((rows.shape[1], labels.shape[1]), dtype=np.float32)
    shares = labels.mean(axis=0)
    bias = np.where(shares == 1, -MISSING_CLASS, MISSING_CLASS).astype(np.float32)  # of a label that all or none have
    rows = rows.astype(np.float64)  # once, and not for every SVM
    for label in np.flatnonzero((shares > 0) & (shares < 1)) if rows.nnz else ():
        machine = _machines(rows, labels[:, label] > 0.5, C, None, counts)
        weights[:, label], bias[label] = machine.coef_[0], machine.intercept_[0]
    return Weights(weights, bias)


def _machines(
    rows: sparse.csr_array, labels: np.ndarray, C: float, class_weight: str | None, counts: np.ndarray | None
) -> LinearSVC:
    # A looser tolerance than scikit-learn's takes half the time, with the same scores (docs/LOG.md).
    machines = LinearSVC(C=C, class_weight=class_weight, tol=0.1, max_iter=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machines.fit(rows, labels, counts)


def choose(features: Features, labels: np.ndarray, classes: int, seed: int, advance: Callable[[int], None]) -> "Choice":
    """Choose C, and then the scale of the word vectors, by cross-validation on at most CHOOSING_TEXTS texts.

    The best has the highest mean of accuracy and macro-F (if a text may have several labels, of micro-F and macro-F). A
    small gain may be chance, so the usual value stays unless another gains more than WORTH and more than 1 / (2 √n) of
    n texts, which is about two standard errors if two C differ on one text in twelve. For the scale half of that is
    enough (docs/LOG.md).
    """
    some = next(_folds(labels, max(1, round(len(labels) / CHOOSING_TEXTS)), seed))[1]
    sample, truth = features.of(some), labels[some]

    def attempt(C: float, scale: float) -> Choice:
        scores = cross_fit(sample.with_meanings_at(scale), truth, classes, C, CHOOSING_FOLDS, seed)
        advance(1)
        return Choice(C, scale, value_of(scores, truth), scores, truth)

    def best(usual: Choice, others: list[Choice], errors: float) -> Choice:
        rival = max(others, key=lambda one: one.value)
        return rival if rival.value > usual.value + max(WORTH, errors / 4 / len(truth) ** 0.5) else usual

    usual_C = FEW_CLASSES_C if classes < FEW_CLASSES else 1.0
    by_C = {C: attempt(C, 0.0 if features.meanings is None else MEANING_SCALES[0]) for C in GRID}
    chosen = best(by_C[usual_C], list(by_C.values()), 2)
    tried = {str(C): round(one.value, 4) for C, one in by_C.items()}
    if features.meanings is not None:
        others = [attempt(chosen.C, scale) for scale in MEANING_SCALES[1:]]
        tried |= {f"meanings {one.meaning_scale:g}": round(one.value, 4) for one in others}
        chosen = best(chosen, others, 1)
    return replace(chosen, tried=tried)


def value_of(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean of accuracy and macro-F; of micro-F and macro-F if a text may have several labels."""
    if labels.ndim == 2:
        labels, predicted = labels.astype(np.int64), (scores > 0).astype(np.int64)
        return (several_labels_f(labels, predicted, "micro") + several_labels_f(labels, predicted, "macro")) / 2
    predicted = scores.argmax(axis=1)
    macro_f = f1_score(labels, predicted, average="macro", zero_division=0)
    return float(accuracy_score(labels, predicted) + macro_f) / 2


def _folds(labels: np.ndarray, number: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and held-out texts of each fold; every class is spread over as many folds as it has texts.

    Texts of several labels are drawn at random.
    """
    order = np.random.default_rng([seed, 2]).permutation(len(labels))
    if labels.ndim == 1:
        order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % number
    for one in range(number):
        yield np.flatnonzero(fold != one), np.flatnonzero(fold == one)
