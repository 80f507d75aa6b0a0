"""Text classification: one label, several labels or a number for a text."""

from fastformer.tasks.classification.estimator import TextClassifier, TextRegressor
from fastformer.tasks.classification.explain import explain
from fastformer.tasks.classification.verbs import embed, evaluate, predict, train

__all__ = ["TextClassifier", "TextRegressor", "embed", "evaluate", "explain", "predict", "train"]
