"""Numbers are learned at mean 0 and variance 1, and predicted in their own units."""

from dataclasses import dataclass

import numpy as np
import torch

from fastformer.modeling import FastformerForSequenceClassification
from fastformer.tasks.classification.data import LabelSpace


@dataclass(frozen=True)
class Standardizer:
    """Mean and deviation of the numbers of a training; labels that are not numbers stay as they are."""

    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, space: LabelSpace, labels: np.ndarray) -> "Standardizer":
        """That of the labels to train on."""
        if space.kind != "number":
            return cls()
        return cls(float(labels.mean()), float(labels.std()) or 1.0)

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return (self.mean, self.deviation) != (0.0, 1.0)

    def apply(self, labels: np.ndarray) -> np.ndarray:
        """Labels to train on."""
        if not self.changes:
            return labels if labels.dtype.kind == "i" else labels.astype(np.float32)
        return ((labels - self.mean) / self.deviation).astype(np.float32)

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Values in the units of the data."""
        return values * self.deviation + self.mean if self.changes else values

    @torch.no_grad()
    def fold_into(self, model: FastformerForSequenceClassification) -> None:
        """Build the two numbers into the last layer, so that loading the model does not need them."""
        if self.changes:
            model.classifier.weight.mul_(self.deviation)
            model.classifier.bias.mul_(self.deviation).add_(self.mean)
