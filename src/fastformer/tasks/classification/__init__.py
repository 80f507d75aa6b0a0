"""Text classification: one label, several labels or a number per text."""

from fastformer.lazy import lazy_names

_PLACES = {
    "TextClassifier": "fastformer.tasks.classification.estimator",
    "TextRegressor": "fastformer.tasks.classification.estimator",
    "explain": "fastformer.tasks.classification.explaining",
}

__all__ = [*_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
