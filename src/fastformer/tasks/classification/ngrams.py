"""Fitting the n-gram channel: a linear support vector machine on the words, word pairs and characters of the texts.

Its regularization is chosen by cross-validation on some of the user's own texts. The features are those that
`modeling.ngrams` computes from token ids, so the model later answers exactly as it was fitted here.
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

MAX_CLASSES = 1000  # one SVM per class: with more classes the encoder answers alone
MAX_VALUES = 120_000_000  # feature values held at once: 4 GB with what the solver needs; with more, texts are drawn
LARGEST_TABLE = 2**25  # numbers: 128 MB
SMALLEST, LARGEST = 2, 5  # characters of an n-gram
MANY_TEXTS = 5000  # from here on features that only one text has are left out
CHOOSING_TEXTS = 2000
CHOOSING_FOLDS = 3
CROSSED_TEXTS, FOLDS = 3000, 10  # up to this many texts, all are scored by cross-validation
WORTH = 0.005
GRID = (0.1, 0.3, 1.0, 3.0)  # of C
MEANING_SCALES = (0.5, 0.0, 1.0, 2.0)  # of the pre-trained word vectors; the first is the usual one
FEW_CLASSES, FEW_CLASSES_C = 10, 0.3
LONG_TEXTS = 1000  # tokens: if half of the texts are longer, features are not scaled (`_feature_scales`)
DIRECTIONS = 30
MOST_UNLABELLED = 20_000
MISSING_CLASS = -2.0  # score of a class that a fold does not have: that of an outlier
_PART = 1 << 22  # tokens read at once


@dataclass(frozen=True)
class Choice:
    """A C, the scale of the word vectors beside the other features, and how they scored in cross-validation."""

    C: float
    meaning_scale: float
    value: float  # mean of accuracy or micro-F, and macro-F
    scores: np.ndarray  # of texts that the SVMs had not seen
    labels: np.ndarray
    tried: dict[str, float] = field(default_factory=dict)  # the value of every C, and then of every scale


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


class OfWords:
    """A block of features that a text has through its words, x_w of each: its rows Σ_w φ_w x_w are of about length 1.

    How long such a sum is, `modeling.ngrams.NgramChannel` says: most of it lies along the mean of all texts.
    """

    def __init__(self, by_word: sparse.csr_array, of_words: sparse.csr_array, of_texts: sparse.csr_array):
        self.of_words = of_words  # words, features
        self.squares = np.asarray(of_words.multiply(of_words).sum(axis=1), dtype=np.float32).reshape(-1)
        by_word_squared = sparse.csr_array((by_word.data**2, by_word.indices, by_word.indptr), by_word.shape)
        # Where all texts point, each counted alike: what is in common to words lies along it.
        mean = (1 / np.sqrt(by_word_squared @ self.squares).clip(1e-6)) @ of_texts
        self.shared = (of_words @ (mean / np.linalg.norm(mean).clip(1e-6))).astype(np.float32)
        self.apart = (self.squares - self.shared**2).clip(0)
        lengths = np.sqrt((by_word @ self.shared) ** 2 + by_word_squared @ self.apart).clip(1e-6)
        self.rows = sparse.csr_array(
            (of_texts.data / np.repeat(lengths, np.diff(of_texts.indptr)), of_texts.indices, of_texts.indptr),
            of_texts.shape,
        )

    def fill(self, table: torch.Tensor, weights: np.ndarray) -> None:
        """Put the weights of this block into a table of words."""
        table[:-1, :-2].copy_(torch.from_numpy(self.of_words @ weights))
        table[:-1, -2].copy_(torch.from_numpy(self.shared))
        table[:-1, -1].copy_(torch.from_numpy(self.apart))


class Features:
    """TF-IDF features of encoded texts: words and hashed pairs of length 1, and characters of about length 1.

    `rows` has the words, then the pairs, then the n-grams of characters, if they occur often enough; then, if
    `meanings` (words, width) are given, the word vectors times `meaning_scale`; and then the places along `directions`,
    if any.
    """

    directions: Directions | None = None
    weights: np.ndarray | None = None  # how much each row counts in a fit; None: all the same

    def __init__(self, texts: Subset | Joined, words: Sequence[str], buckets: int, meanings: np.ndarray | None = None):
        self.vocabulary, self.buckets = len(words), buckets
        self.long = are_long(texts)
        least = 2 if len(texts) >= MANY_TEXTS else 1
        tokens = _counts(texts, len(words), buckets)
        self.used, self.idf = _idf(tokens, least)
        block = _scaled(tokens[:, self.used], self.idf)
        by_word = tokens[:, : len(words)]
        by_word = sparse.csr_array((1 + np.log(by_word.data), by_word.indices, by_word.indptr), by_word.shape)
        grams = _character_grams(words)
        found = (by_word @ grams).tocsr()
        kept, idf = _idf(found, 2)
        of_texts = found[:, kept]
        of_texts.data *= idf[of_texts.indices]
        self.characters = OfWords(by_word, (grams[:, kept] @ sparse.diags_array(idf)).tocsr(), of_texts)
        blocks = [block, self.characters.rows]
        self.meanings: OfWords | None = None
        self.meaning_scale = 1.0
        if meanings is not None:
            self.meanings = OfWords(by_word, sparse.csr_array(meanings), sparse.csr_array(by_word @ meanings))
            # What all texts have in common tells nothing about a class, and would outweigh the rest.
            self.usual = self.meanings.rows.mean(axis=0)
            blocks.append(sparse.csr_array(self.meanings.rows.toarray() - self.usual))
        self.rows = _for_the_solver(sparse.hstack(blocks, format="csr", dtype=np.float32))

    @cached_property
    def words_and_pairs(self) -> int:
        """Columns before those of characters."""
        return len(self.used)

    @property
    def counted(self) -> int:
        """Columns of things that a text has or does not have; after them come coordinates in vector spaces."""
        return len(self.used) + self.characters.rows.shape[1]

    def with_meanings_at(self, scale: float) -> "Features":
        """The same features, with the word vectors multiplied by `scale`; 0 leaves them out."""
        if self.meanings is None or scale == 1:
            return self
        some = copy.copy(self)
        some.meaning_scale = self.meaning_scale * scale
        meant = slice(self.counted, self.counted + self.meanings.rows.shape[1])
        if scale:
            factors = np.ones(self.rows.shape[1], np.float32)
            factors[meant] = scale
            some.rows = self.rows.copy()
            some.rows.data *= factors[some.rows.indices]
        else:
            some.meanings = None
            columns = np.delete(np.arange(self.rows.shape[1]), meant)
            some.rows = _for_the_solver(self.rows[:, columns])
            if self.directions is not None:
                some.directions = replace(self.directions, axes=np.delete(self.directions.axes, meant, axis=0))
        return some

    def of(self, chosen: np.ndarray) -> "Features":
        """The same features of some of the texts."""
        some = copy.copy(self)
        some.rows = self.rows[chosen]
        some.weights = None if self.weights is None else self.weights[chosen]
        return some

    def along(self, number: int, seed: int, texts: int) -> "Features":
        """The same features of the first `texts`, and their places along the `number` directions in which all differ.

        Words that occur together, in texts with labels or without, point in the same direction. So what is learned
        about one word from a few labelled texts also holds for related words that those texts do not contain.
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
        blocks = [self.rows[:texts], sparse.csr_array(places[:texts] - mean)]
        more.rows = _for_the_solver(sparse.hstack(blocks, format="csr", dtype=np.float32))
        return more

    def fill(self, channel: NgramChannel, fitted: Weights) -> None:
        """Put a fitted model into the tables of a channel."""
        if self.directions is not None:
            fitted = self.directions.folded(fitted)
        weights = fitted.weights
        of_tokens, of_grams, of_meanings = np.split(weights, [self.words_and_pairs, self.counted])
        table = np.zeros((self.vocabulary + self.buckets, weights.shape[1] + 1), dtype=np.float32)
        table[self.used, :-1], table[self.used, -1] = self.idf[:, None] * of_tokens, self.idf**2
        channel.words[:-1].copy_(torch.from_numpy(table[: self.vocabulary]))
        channel.pairs.copy_(torch.from_numpy(table[self.vocabulary :]))
        self.characters.fill(channel.characters, of_grams)
        bias = fitted.bias
        if self.meanings is not None:
            of_meanings = self.meaning_scale * of_meanings
            self.meanings.fill(channel.meanings, of_meanings)
            bias = bias - self.usual @ of_meanings
        channel.bias.copy_(torch.from_numpy(bias))


def are_long(texts: Subset | Joined) -> bool:
    """Whether half of the texts or more are long. Long texts need no help from pre-trained word vectors."""
    return len(texts) > 0 and bool(np.median(texts.lengths) > LONG_TEXTS)


def pair_buckets(texts: Subset, classes: int) -> int:
    """Rows of the table of word pairs: as many as these texts fill."""
    tokens, most = int(texts.lengths.sum()), LARGEST_TABLE // classes
    return min(2 ** max(8, tokens.bit_length()), 2**18, 2 ** (most.bit_length() - 1))


def within_memory(texts: Subset, seed: int) -> np.ndarray:
    """Which texts to fit to: all, or as many as MAX_VALUES allow, drawn at random."""
    share = MAX_VALUES / max(1.0, values_of(texts).sum())
    if share >= 1:
        return np.arange(len(texts))
    return np.sort(np.random.default_rng([seed, 4]).permutation(len(texts))[: max(1, int(share * len(texts)))])


def beside(texts: Subset, further: Subset, seed: int) -> Subset:
    """As many unlabelled texts as fit into memory beside `texts`, at most MOST_UNLABELLED, drawn at random."""
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


def _for_the_solver(rows: sparse.csr_array) -> sparse.csr_array:
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
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
