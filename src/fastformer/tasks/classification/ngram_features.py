"""Features of the n-gram channel: words, word pairs, characters and what words mean, as sparse rows per text.

They are those that `modeling.ngrams` computes from token ids, so the model later answers exactly as it was fitted.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from fastformer.data.batches import Joined, Subset
from fastformer.data.tokenizers import CONTINUED
from fastformer.modeling.ngrams import NgramChannel, count_rows, pair_rows

MAX_VALUES = 120_000_000  # feature values held at once: 4 GB with what the solver needs; with more, texts are drawn
LARGEST_TABLE = 2**25  # numbers: 128 MB
SMALLEST, LARGEST = 2, 5  # characters of an n-gram
MANY_TEXTS = 5000  # from here on features that only one text has are left out
LONG_TEXTS = 1000  # tokens: if half of the texts are longer, features are not scaled (`ngrams._feature_scales`)
MOST_UNLABELLED = 20_000
_PART = 1 << 22  # tokens read at once


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
