"""Summarization: a text from a longer one."""

from fastformer.lazy import lazy_names

_PLACES = {
    "Summarizer": "fastformer.tasks.summarization.summarizer",
    "summarize": "fastformer.tasks.summarization.summarizer",
}

__all__ = [*_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
