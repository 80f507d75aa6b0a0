"""Summaries that need no model: the first sentences of an article, and random ones.

Three sentences, as everybody reports, and one, which is harder to beat if summaries are titles.
"""

from collections.abc import Sequence

import numpy as np

from fastformer.tasks.summarization.documents import sentences

SENTENCES = (3, 1)


def lead(article: str, count: int) -> str:
    """The first sentences."""
    return "\n".join(sentences(article)[:count])


def random_sentences(article: str, count: int, seed: Sequence[int]) -> str:
    """Random sentences, in the order of the article."""
    found = sentences(article)
    chosen = np.random.default_rng(seed).permutation(len(found))[:count]
    return "\n".join(found[place] for place in sorted(chosen))


def baseline_summaries(article: str, seed: Sequence[int]) -> dict[str, str]:
    """Every baseline's summary of an article."""
    found = {}
    for count in SENTENCES:
        found[f"lead {count}"] = lead(article, count)
        found[f"random {count}"] = random_sentences(article, count, seed)
    return found
