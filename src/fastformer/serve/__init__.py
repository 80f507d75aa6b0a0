"""A run folder as a service: HTTP around its `Predictor`, requests in batches, and a page for people.

No task is known here by name. `predict` and `vectors` of any `Predictor` are served. What else a task
offers, it declares itself (`Predictor.services`).
"""

from fastformer.lazy import lazy_names

_PLACES = {
    "Limits": "fastformer.serve.limits",
    "create_app": "fastformer.serve.app",
    "serve": "fastformer.serve.server",
}

__all__ = [*_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
