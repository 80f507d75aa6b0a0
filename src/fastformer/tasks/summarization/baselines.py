"""Summaries that need no model: the first sentences of an article, and random ones."""

from collections.abc import Sequence

import numpy as np

from fastformer.tasks.summarization.documents import sentences


def sentences_to_take(references: Sequence[str]) -> int:
    """How many sentences the baselines take: one where summaries mostly are one sentence, else the usual three."""
    return 1 if np.mean([len(sentences(reference)) for reference in references]) < 2 else 3


def lead(article: str, count: int) -> str:
    """The first sentences."""
    return "\n".join(sentences(article)[:count])


def random_sentences(article: str, count: int, seed: Sequence[int]) -> str:
    """Random sentences, in the order of the article."""
    found = sentences(article)
    chosen = np.random.default_rng(seed).permutation(len(found))[:count]
    return "\n".join(found[place] for place in sorted(chosen))


def baseline_summaries(articles: Sequence[str], count: int, seed: int) -> dict[str, list[str]]:
    """Every baseline's summary of every article."""
    return {
        f"lead {count}": [lead(article, count) for article in articles],
        f"random {count}": [random_sentences(article, count, (seed, row)) for row, article in enumerate(articles)],
    }
