"""Texts that share a source: those of beam search, which are as many as there are beams for each source."""

from torch import Tensor


def by_source(x: Tensor, source: Tensor) -> Tensor:
    """(texts, length, width) -> (sources, tokens of all texts of a source, width).

    Texts of one source stand one after the other, and every source has equally many.
    """
    texts, sources = x.shape[0], source.shape[0]
    if texts % max(1, sources):
        raise ValueError(f"{texts} texts cannot share {sources} sources: give as many, or so many for each source")
    return x.unflatten(0, (sources, texts // max(1, sources))).flatten(1, 2)
