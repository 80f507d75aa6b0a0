"""Why a classifier answered as it did: the weights and effects of the tokens of a text, as arrays and as a page."""

from fastformer.explain.explanation import Explanation

__all__ = ["Explanation"]
