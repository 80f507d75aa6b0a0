"""Summarization: a text from a longer one."""

from fastformer.tasks.summarization.verbs import embed, evaluate, predict, summarize, train

__all__ = ["embed", "evaluate", "predict", "summarize", "train"]
