"""Scores that several tasks report."""

import math

from fastformer.errors import diverged


def perplexity(loss: float) -> float:
    """exp of the mean loss of a word: among how many equally likely words the model is left to guess."""
    if not loss < 700:  # nan, or more than a float holds
        raise diverged()
    return math.exp(loss)
