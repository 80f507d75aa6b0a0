"""Masked words: learn from text without labels by filling in words that were hidden; a start for other tasks."""

from fastformer.tasks.masked_words.verbs import embed, evaluate, predict, train

__all__ = ["embed", "evaluate", "predict", "train"]
