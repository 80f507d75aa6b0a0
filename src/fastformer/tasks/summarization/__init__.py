"""Summarization: a text from a longer one."""

from typing import Any

__all__ = ["Summarizer", "summarize"]


def __getattr__(name: str) -> Any:
    """The model brings torch along: it is loaded when it is asked for."""
    if name in __all__:
        from fastformer.tasks.summarization import summarizer

        return getattr(summarizer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
