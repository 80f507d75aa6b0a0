"""Passages -> the pieces that a teacher reads: short sentences and clauses for the most part, longer ones, passages.

All of it would take a teacher days, so the order matters: whatever part of it is done is a fair mixture. A piece i of
kind c and source s comes at E_i / w_i, where E_i is exponential and w_i = share_c · √n_s / n_sc (n_s pieces of the
source, n_sc of them of the kind): any first part has the kinds by their shares, and of a large source more than of a
small one, but not all. This is sampling without replacement by weight (Efraimidis and Spirakis).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fastformer.data.nltk_words import split_sentences

# A short piece takes a fifth of a long one's time and teaches more of what single words mean (docs/LOG.md).
SHARES = {"short": 0.7, "sentence": 0.15, "few": 0.1, "passage": 0.05}
FEWEST_WORDS = 3  # of a sentence
SHORT_WORDS = 14  # about 20 tokens
RARE = 0.01  # a source without passages has its share in sentences
MOST_WORDS = 90  # about 120 tokens
_CLAUSES = re.compile(r"[,;:()—–]+\s")
_QUOTED = re.compile(r'["“]([^"“”]{12,300})["”]')  # what is said, and examples of a dictionary


class Piece(NamedTuple):
    """A text, where it is from, and what it is."""

    text: str
    source: str
    kind: str


def shuffled_pieces(sources: Mapping[str, Iterable[str]], seed: int) -> list[Piece]:
    """The pieces of all sources in the order described above, none twice."""
    seen: set[str] = set()
    found: list[Piece] = []
    for source, texts in sources.items():
        for text in texts:
            for kind, piece in pieces_of(text):
                if piece not in seen:
                    seen.add(piece)
                    found.append(Piece(piece, source, kind))
    names, of_source = np.unique([piece.source for piece in found], return_inverse=True)
    kinds = list(SHARES)
    of_kind = np.array([kinds.index(piece.kind) for piece in found], dtype=np.int64)
    counts = np.zeros((len(names), len(kinds)))
    np.add.at(counts, (of_source, of_kind), 1)
    shares = np.array(list(SHARES.values())) * (counts > RARE * counts.sum(axis=1, keepdims=True))
    shares = np.where(shares, shares / shares.sum(axis=1, keepdims=True), RARE)
    weights = shares * np.sqrt(counts.sum(axis=1, keepdims=True)) / np.maximum(counts, 1)
    times = np.random.default_rng(seed).exponential(size=len(found)) / weights[of_source, of_kind]
    return [found[index] for index in np.argsort(times, kind="stable")]


def pieces_of(text: str) -> Iterator[tuple[str, str]]:
    """(kind, piece) of one text: sentences, their clauses, what is quoted, two or three sentences in a row, passages.

    A text of one sentence is a piece, however short it is. No piece has more than MOST_WORDS.
    """
    sentences = [" ".join(sentence.split()) for sentence in split_sentences(text)]
    sentences = [sentence for sentence in sentences if sentence]
    for sentence in sentences:
        words = sentence.count(" ") + 1
        if words >= FEWEST_WORDS or len(sentences) == 1:
            yield ("short" if words <= SHORT_WORDS else "sentence"), _cut(sentence)
        if words > SHORT_WORDS:
            yield from (("short", clause) for clause in _CLAUSES.split(sentence) if _is_short(clause))
    yield from (("short", quoted) for quoted in _QUOTED.findall(text) if _is_short(quoted))
    for start, size in _twos_and_threes(len(sentences)):
        yield "few", _cut(" ".join(sentences[start : start + size]))
    yield from (("passage", window) for window in _windows(sentences))


def _is_short(text: str) -> bool:
    return FEWEST_WORDS <= len(text.split()) <= SHORT_WORDS


def _twos_and_threes(count: int) -> Iterator[tuple[int, int]]:
    """Two sentences, then three, and so on, to the end."""
    start, size = 0, 2
    while start + size <= count:
        yield start, size
        start, size = start + size, 5 - size


def _windows(sentences: list[str]) -> Iterator[str]:
    """Sentences in a row, as many as make MOST_WORDS; at least four, or they would be few."""
    window: list[str] = []
    words = 0
    for sentence in [*sentences, None]:
        length = MOST_WORDS if sentence is None else len(sentence.split())
        if words + length > MOST_WORDS:
            if len(window) > 3:
                yield " ".join(window)
            window, words = [], 0
        if sentence is not None:
            window.append(sentence)
            words += length


def _cut(text: str) -> str:
    return " ".join(text.split(" ")[:MOST_WORDS])
