"""Conversion prediction: the probability that a user converts on an ad, from what the user did before."""

from fastformer.tasks.conversion.store import BehaviorStore
from fastformer.tasks.conversion.verbs import embed, evaluate, predict, train

__all__ = ["BehaviorStore", "embed", "evaluate", "predict", "train"]
