"""Text classification: one label, several labels or a number for a text."""

import importlib
from typing import Any

_PLACES = {"TextClassifier": "estimator", "TextRegressor": "estimator", "explain": "explaining"}

__all__ = ["TextClassifier", "TextRegressor", "explain"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
