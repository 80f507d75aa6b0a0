"""Conversion prediction: the probability that a user converts on an ad, from what the user did before."""

from fastformer.lazy import lazy_names

_PLACES = {
    "BehaviorStore": "fastformer.tasks.conversion.store",
    "ConversionPredictor": "fastformer.tasks.conversion.model",
}

__all__ = [*_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
