"""A long text in passages: what is searched for is in one of them, and hardly shows in the vector of the whole text."""

from collections.abc import Iterator, Sequence

import numpy as np

PASSAGE_WORDS = 100  # a mean over more says what a text is about, not what one of its paragraphs says


def passages_of(text: str) -> list[str]:
    """A text in windows of PASSAGE_WORDS words, each with half of the one before; as it is if it has no more words."""
    words = text.split()
    if len(words) <= PASSAGE_WORDS:
        return [text]
    half = PASSAGE_WORDS // 2
    return [" ".join(words[start : start + PASSAGE_WORDS]) for start in range(0, len(words) - half, half)]


def best_passages(passages: Sequence[Sequence[str]], scores: np.ndarray) -> Iterator[tuple[float, str]]:
    """The best score and the passage that has it, of each text; `scores` are of all passages of all texts, in order."""
    for some in passages:
        here, scores = scores[: len(some)], scores[len(some) :]
        best = int(here.argmax())
        yield float(here[best]), some[best]
