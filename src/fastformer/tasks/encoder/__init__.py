"""Text vectors: a small encoder that learns to say what a large one says."""

from fastformer.lazy import lazy_names

_PLACES = {"TextEncoder": "fastformer.tasks.encoder.text_encoder"}

__all__ = ["TextEncoder"]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
