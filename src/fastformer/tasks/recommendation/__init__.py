"""News recommendation: rank articles for a user by what the user clicked before, on data in MIND's layout."""

import importlib
from typing import Any

_PLACES = {
    "Recommender": "model",
    "recommend": "model",
    "recommend_to_all": "model",
    "ensemble": "ensembles",
    "import_clicks": "tables",
}

__all__ = ["Recommender", "ensemble", "import_clicks", "recommend", "recommend_to_all"]


def __getattr__(name: str) -> Any:
    """What users import: it brings torch along, so it is loaded only when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
