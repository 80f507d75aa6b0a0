"""Fitting the n-gram channel: a linear support vector machine on the words, word pairs and characters of the texts.

How strongly it is regularized is chosen on the user's own texts, by cross-validation on some of them. The features are
those that `modeling.ngrams` computes from token ids, so what is fitted here is what the model answers later.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score
from sklearn.svm import LinearSVC
from sklearn.utils.extmath import randomized_svd

from fastformer.data.batches import Joined, Subset
from fastformer.data.tokenizers import CONTINUED
from fastformer.modeling.ngrams import NgramChannel, count_rows, pair_rows
from fastformer.tasks.classification.metrics import several_labels_f

MAX_CLASSES = 1000  # one machine per class: beyond, the encoder answers alone
MAX_VALUES = 120_000_000  # numbers of the features held at once: 4 GB with what the solver needs; beyond, some texts
LARGEST_TABLE = 2**25  # numbers: 128 MB
SMALLEST, LARGEST = 2, 5  # characters of an n-gram
MANY_TEXTS = 5000  # from here on what a single text has is left out
CHOOSING_TEXTS = 2000
CHOOSING_FOLDS = 3
CROSSED_TEXTS, FOLDS = 3000, 10  # of so few texts all are scored by cross-validation
WORTH = 0.005
GRID = (0.1, 0.3, 1.0, 3.0)  # of C
FEW_CLASSES, FEW_CLASSES_C = 10, 0.3
LONG_TEXTS = 1000  # tokens: in longer ones (half of them) all features are as loud as they are
DIRECTIONS = 30
MOST_UNLABELLED = 20_000
MISSING_CLASS = -2.0  # score of a class that a fold does not have: an outlier's
_PART = 1 << 22  # tokens read at once


@dataclass(frozen=True)
class Choice:
    """A C, and how it did under cross-validation."""

    C: float
    value: float  # mean of accuracy or micro-F, and macro-F
    scores: np.ndarray  # of texts that the machines had not seen
    labels: np.ndarray
    tried: dict[str, float] = field(default_factory=dict)  # the value of every C that was tried


@dataclass
class Weights:
    """A fitted linear model on `Features`: scores = rows @ weights + bias."""

    weights: np.ndarray  # features, classes
    bias: np.ndarray

    def __call__(self, rows: sparse.csr_array) -> np.ndarray:
        """Scores (rows, classes)."""
        return (rows @ self.weights + self.bias).astype(np.float32)


@dataclass(frozen=True)
class Directions:
    """Along which texts differ most, learned from texts without labels: (row @ axes - mean) is a text's place."""

    axes: np.ndarray  # features, directions
    mean: np.ndarray

    def folded(self, fitted: Weights) -> Weights:
        """A model of features and places, as one of the features alone: both are linear."""
        number = len(self.mean)
        of_places = fitted.weights[-number:]
        return Weights(fitted.weights[:-number] + self.axes @ of_places, fitted.bias - self.mean @ of_places)


class Features:
    """TF-IDF features of encoded texts: words and hashed pairs of length 1, and characters of about length 1.

    `rows` has the words, then the pairs, then the n-grams of characters, as far as they occur often enough; and then
    the places along `directions`, where there are any.
    """

    directions: Directions | None = None

    def __init__(self, texts: Subset | Joined, words: Sequence[str], buckets: int):
        self.vocabulary, self.buckets = len(words), buckets
        self.long = len(texts) > 0 and np.median(texts.lengths) > LONG_TEXTS
        least = 2 if len(texts) >= MANY_TEXTS else 1
        tokens = _counts(texts, len(words), buckets)
        self.used, self.idf = _idf(tokens, least)
        block = _scaled(tokens[:, self.used], self.idf)
        by_word = tokens[:, : len(words)]
        by_word = sparse.csr_array((1 + np.log(by_word.data), by_word.indices, by_word.indptr), by_word.shape)
        grams = _character_grams(words)
        found = (by_word @ grams).tocsr()
        kept, idf = _idf(found, 2)
        self.grams = (grams[:, kept] @ sparse.diags_array(idf)).tocsr()  # words, n-grams
        self.squares = np.asarray(self.grams.multiply(self.grams).sum(axis=1), dtype=np.float32).reshape(-1)
        by_word_squared = sparse.csr_array((by_word.data**2, by_word.indices, by_word.indptr), by_word.shape)
        characters = found[:, kept]
        characters.data *= idf[characters.indices]
        # Where all texts point, each counted alike: what is in common to words lies along it.
        mean = (1 / np.sqrt(by_word_squared @ self.squares).clip(1e-6)) @ characters
        self.shared = (self.grams @ (mean / np.linalg.norm(mean).clip(1e-6))).astype(np.float32)
        apart = (self.squares - self.shared**2).clip(0)
        lengths = np.sqrt((by_word @ self.shared) ** 2 + by_word_squared @ apart).clip(1e-6)
        characters.data /= np.repeat(lengths, np.diff(characters.indptr))
        self.rows = sparse.hstack([block, characters], format="csr", dtype=np.float32)
        self.rows.indices = self.rows.indices.astype(np.int32)  # as the solver wants them
        self.rows.indptr = self.rows.indptr.astype(np.int32)

    @cached_property
    def words_and_pairs(self) -> int:
        """Columns before those of characters."""
        return len(self.used)

    def of(self, chosen: np.ndarray) -> "Features":
        """The same features of some of the texts."""
        some = copy.copy(self)
        some.rows = self.rows[chosen]
        return some

    def along(self, number: int, seed: int, texts: int) -> "Features":
        """The same features of the first `texts`, and their places along the `number` directions in which all differ.

        Words that occur together, in texts with labels or without, point the same way. So what is learned of one in a
        few labelled texts holds for others that those texts do not have.
        """
        block = self.rows[:, : self.words_and_pairs]
        number = min(number, *(size - 1 for size in block.shape))
        if number < 1:
            return self.of(np.arange(texts))
        _, _, found = randomized_svd(block, number, n_iter=2, random_state=seed)
        axes = np.zeros((self.rows.shape[1], number), dtype=np.float32)
        axes[: self.words_and_pairs] = found.T
        places = self.rows @ axes
        scale = 1 / np.sqrt((places**2).sum(axis=1).mean().clip(1e-12))  # of length 1, as the other blocks are
        axes, places = axes * scale, places * scale
        mean = places.mean(axis=0)
        more = copy.copy(self)
        more.directions = Directions(axes, mean)
        more.rows = sparse.hstack(
            [self.rows[:texts], sparse.csr_array(places[:texts] - mean)], format="csr", dtype=np.float32
        )
        more.rows.indices = more.rows.indices.astype(np.int32)
        more.rows.indptr = more.rows.indptr.astype(np.int32)
        return more

    def fill(self, channel: NgramChannel, fitted: Weights) -> None:
        """Put a fitted model into the tables of a channel."""
        if self.directions is not None:
            fitted = self.directions.folded(fitted)
        weights = fitted.weights
        of_tokens, of_grams = weights[: self.words_and_pairs], weights[self.words_and_pairs :]
        table = np.zeros((self.vocabulary + self.buckets, weights.shape[1] + 1), dtype=np.float32)
        table[self.used, :-1], table[self.used, -1] = self.idf[:, None] * of_tokens, self.idf**2
        channel.words[:-1].copy_(torch.from_numpy(table[: self.vocabulary]))
        channel.pairs.copy_(torch.from_numpy(table[self.vocabulary :]))
        if len(of_grams):
            channel.characters[:-1, :-2].copy_(torch.from_numpy(self.grams @ of_grams))
            channel.characters[:-1, -2].copy_(torch.from_numpy(self.shared))
            channel.characters[:-1, -1].copy_(torch.from_numpy((self.squares - self.shared**2).clip(0)))
        channel.bias.copy_(torch.from_numpy(fitted.bias))


def pair_buckets(texts: Subset, classes: int) -> int:
    """Rows of the table of word pairs: as many as these texts fill."""
    tokens, most = int(texts.lengths.sum()), LARGEST_TABLE // classes
    return min(2 ** max(8, tokens.bit_length()), 2**18, 2 ** (most.bit_length() - 1))


def that_fit(texts: Subset, seed: int) -> np.ndarray:
    """The texts that are fitted to: all, or as many as MAX_VALUES allow, drawn at random."""
    share = MAX_VALUES / max(1.0, values_of(texts).sum())
    if share >= 1:
        return np.arange(len(texts))
    return np.sort(np.random.default_rng([seed, 4]).permutation(len(texts))[: max(1, int(share * len(texts)))])


def beside(texts: Subset, further: Subset, seed: int) -> Subset:
    """Of texts without labels as many as fit beside `texts`, and at most MOST_UNLABELLED, drawn at random."""
    order = np.random.default_rng([seed, 5]).permutation(len(further))[:MOST_UNLABELLED]
    drawn = Subset(further.texts, further.indices[order])
    fit = np.cumsum(values_of(drawn)) + values_of(texts).sum() <= MAX_VALUES
    return Subset(further.texts, np.sort(drawn.indices[fit]))


def values_of(texts: Subset) -> np.ndarray:
    """About how many features each text has."""
    # Measured on English: a text of n tokens has about 22 n^0.8 features, most of them characters.
    return 22 * texts.lengths.astype(np.float64) ** 0.8


def word_strings(tokens: dict[str, int], size: int, special: Sequence[int]) -> list[str]:
    """What each token id stands for, with a space where a word begins or ends; nothing for special tokens."""
    words = [""] * size
    for token, number in tokens.items():
        words[number] = token[len(CONTINUED) :] if token.startswith(CONTINUED) else f" {token} "
    for number in special:
        words[number] = ""
    return words


def cross_fit(features: Features, labels: np.ndarray, classes: int, C: float, folds: int, seed: int) -> np.ndarray:
    """Scores (texts, classes) of every text, by machines that have not seen it."""
    scores = np.zeros((len(labels), classes), dtype=np.float32)
    for training, held_out in _folds(labels, folds, seed):
        fitted = fit_machines(features, labels, classes, C, training)
        scores[held_out] = fitted(features.rows[held_out])
    return scores


def fit_machines(
    features: Features, labels: np.ndarray, classes: int, C: float, chosen: np.ndarray | None = None
) -> Weights:
    """One linear support vector machine per class, against all others; rare classes weigh as much as frequent ones.

    They read each feature as loud as it tells of a class (`_telling`), which goes into their weights afterwards. But in
    long texts there is enough to tell by, and what tells most in them (who a book is about) is of few: not there.
    Where a text may have several labels, given as rows of 0 and 1, there is one per label, with all texts alike and all
    features as they are.
    """
    rows = features.rows if chosen is None else features.rows[chosen]
    labels = labels if chosen is None else labels[chosen]
    if labels.ndim == 2:
        return _fit_label_machines(rows, labels, C)
    weights = np.zeros((rows.shape[1], classes), dtype=np.float32)
    bias = np.full(classes, MISSING_CLASS, dtype=np.float32)
    known = np.unique(labels)
    if len(known) < 2 or not rows.nnz:
        bias[known] = np.log(np.bincount(labels, minlength=classes)[known] / len(labels))
        return Weights(weights, bias)
    places = 0 if features.directions is None else len(features.directions.mean)
    loud = np.ones(rows.shape[1], np.float32) if features.long else _telling(rows, labels, places)
    louder = sparse.csr_array((rows.data * loud[rows.indices], rows.indices, rows.indptr), rows.shape)
    machines = _machines(louder, labels, C, "balanced")
    coefficients, intercepts = machines.coef_ * loud, machines.intercept_
    if len(known) == 2:  # one machine, for the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients])
        intercepts = np.concatenate([-intercepts, intercepts])
    weights[:, known], bias[known] = coefficients.T, intercepts
    return Weights(weights, bias)


def _telling(rows: sparse.csr_array, labels: np.ndarray, places: int) -> np.ndarray:
    """How loud each feature is, r^⅓, with r how much it tells of some class. Of the n texts that have it n_c are of c:

        r = max_c |log (n_c + 2 p_c) / (n - n_c + 2 (1 - p_c)) - log p_c / (1 - p_c)|

    the largest of its log odds ratios, drawn towards 0 as if by two further texts (p_c: the class's share of all
    features; taken as 0 where n_c is 0). The last `places` columns are no counts and stay as they are. Rows keep their
    length on the whole, so that C means the same.
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
    loud = np.concatenate([np.cbrt(telling), np.ones(places)])
    before, after = (rows.data**2).sum(), ((rows.data * loud[rows.indices]) ** 2).sum()
    return (loud * np.sqrt(before / max(after, 1e-12))).astype(np.float32)


def _fit_label_machines(rows: sparse.csr_array, labels: np.ndarray, C: float) -> Weights:
    weights = np.zeros((rows.shape[1], labels.shape[1]), dtype=np.float32)
    shares = labels.mean(axis=0)
    bias = np.where(shares == 1, -MISSING_CLASS, MISSING_CLASS).astype(np.float32)  # of a label that all or none have
    rows = rows.astype(np.float64)  # once, and not for every machine
    for label in np.flatnonzero((shares > 0) & (shares < 1)) if rows.nnz else ():
        machine = _machines(rows, labels[:, label] > 0.5, C, None)
        weights[:, label], bias[label] = machine.coef_[0], machine.intercept_[0]
    return Weights(weights, bias)


def _machines(rows: sparse.csr_array, labels: np.ndarray, C: float, class_weight: str | None) -> LinearSVC:
    # A looser tolerance than scikit-learn's takes half the time, with the same scores (docs/LOG.md).
    machines = LinearSVC(C=C, class_weight=class_weight, tol=0.1, max_iter=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machines.fit(rows, labels)


def choose(features: Features, labels: np.ndarray, classes: int, seed: int, advance: Callable[[int], None]) -> "Choice":
    """The C with the best mean of accuracy and macro-F under cross-validation, on at most CHOOSING_TEXTS texts.

    Where a text may have several labels, micro-F takes the place of accuracy.
    One that is better by a hair's breadth is so by chance: the usual C stays unless another gains more than WORTH, and
    more than 1 / (2 √n) of n texts: about two standard errors where two C differ on one text in twelve.
    """
    some = next(_folds(labels, max(1, round(len(labels) / CHOOSING_TEXTS)), seed))[1]
    sample, truth = features.of(some), labels[some]
    found: dict[float, Choice] = {}

    def score(C: float) -> float:
        if C not in found:
            scores = cross_fit(sample, truth, classes, C, CHOOSING_FOLDS, seed)
            found[C] = Choice(C, value_of(scores, truth), scores, truth)
            advance(1)
        return found[C].value

    best = FEW_CLASSES_C if classes < FEW_CLASSES else 1.0
    rival = max(GRID, key=score)
    if score(rival) > score(best) + max(WORTH, 0.5 / len(truth) ** 0.5):
        best = rival
    return replace(found[best], tried={str(C): round(one.value, 4) for C, one in found.items()})


def value_of(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean of accuracy and macro-F; of micro-F and macro-F where a text may have several labels."""
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


def _counts(texts: Subset | Joined, vocabulary: int, buckets: int) -> sparse.csr_array:
    """How often each text has each word and each hashed pair of words: (texts, vocabulary + buckets)."""
    lengths = texts.lengths
    parts = []
    for part in np.split(np.arange(len(texts)), np.flatnonzero(np.diff(np.cumsum(lengths) // _PART)) + 1):
        ids = np.concatenate([np.zeros(0, np.int64), *(texts[index]["input_ids"] for index in part)]).astype(np.int64)
        text = np.repeat(np.arange(len(part)), lengths[part])
        neighbours = text[:-1] == text[1:]
        pairs = vocabulary + pair_rows(ids[:-1], ids[1:], buckets)[neighbours]
        rows, numbers = np.concatenate([ids, pairs]), np.concatenate([text, text[1:][neighbours]])
        parts.append(count_rows(rows, numbers, len(part), vocabulary + buckets))
    return sparse.vstack(parts, format="csr")


def _idf(counts: sparse.csr_array, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The columns that `least` texts have, and log((1 + texts) / (1 + those that have it)) + 1 for each."""
    texts = np.bincount(counts.indices, minlength=counts.shape[1])
    used = np.flatnonzero(texts >= least)
    return used, (np.log((1 + counts.shape[0]) / (1 + texts[used])) + 1).astype(np.float32)


def _scaled(counts: sparse.csr_array, idf: np.ndarray) -> sparse.csr_array:
    """(1 + log count) idf, every row of length 1."""
    values = (1 + np.log(counts.data)) * idf[counts.indices]
    rows = sparse.csr_array((values, counts.indices, counts.indptr), counts.shape)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).reshape(-1).clip(1e-6)
    rows.data /= np.repeat(lengths, np.diff(rows.indptr))
    return rows


def _character_grams(words: Sequence[str]) -> sparse.csr_array:
    """How often each word has each n-gram of characters: (words, n-grams)."""
    numbers: dict[str, int] = {}
    columns, ends = [], [0]
    for word in words:
        for size in range(SMALLEST, min(LARGEST, len(word)) + 1):
            for start in range(len(word) - size + 1):
                columns.append(numbers.setdefault(word[start : start + size], len(numbers)))
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    found = sparse.csr_array((ones, np.array(columns, np.int32), np.array(ends)), (len(words), max(1, len(numbers))))
    found.sum_duplicates()
    return found
