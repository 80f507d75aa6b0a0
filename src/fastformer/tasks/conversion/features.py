"""Side features: numbers are standardised, categories numbered, as the training rows say."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fastformer.data.values import label_of
from fastformer.tasks.conversion.events import Columns, Event

_NOTHING = 1e-9  # a deviation of at most this share of the mean counts as none
_FARTHEST = 100.0  # deviations from the mean


@dataclass(frozen=True)
class SideFeatures:
    """How side features become numbers, learned from the training rows: what run.json says under `features`."""

    numeric: dict[str, tuple[float, float]]  # column -> mean, deviation
    categorical: dict[str, list[str]]  # column -> its values; value i has the number i + 1, any other 0

    @property
    def columns(self) -> Columns:
        """Names of the columns."""
        return Columns(tuple(self.numeric), tuple(self.categorical))

    @classmethod
    def learn(cls, columns: Columns, numbers: np.ndarray, values: list[list[str]], counts: list[np.ndarray]):
        """From the numbers (rows, columns) and, for each category, its values and how often each occurs.

        A value that occurs once becomes unknown, so that the model knows what unknown is like.
        """
        numeric = {}
        for name, column in zip(columns.numeric, numbers.T, strict=True):
            known = column[~np.isnan(column)]
            mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
            # A constant column has a deviation too, by rounding: what is next to nothing would blow up noise.
            numeric[name] = (mean, deviation if deviation > _NOTHING * max(1.0, abs(mean)) else 1.0)
        categorical = {
            name: sorted(value for value, often in zip(found, seen, strict=True) if value and often > 1)
            for name, found, seen in zip(columns.categorical, values, counts, strict=True)
        }
        return cls(numeric, categorical)

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers (rows, columns) with mean 0 and deviation 1, cut at 100; 0 if one is missing."""
        means, deviations = np.array([*self.numeric.values()], dtype=np.float64).reshape(-1, 2).T
        return np.nan_to_num((numbers - means) / deviations).clip(-_FARTHEST, _FARTHEST).astype(np.float32)

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        """Column -> value -> number."""
        return {
            column: {value and label_of(value): number for number, value in enumerate(values, 1)}  # older runs: "True"
            for column, values in self.categorical.items()
        }

    def numbers_of(self, column: str, values: Sequence[str]) -> np.ndarray:
        """The number of each value of a category."""
        known = self._numbers[column]
        return np.array([known.get(value, 0) for value in values], dtype=np.int64)

    def of_events(self, events: Sequence[Event]) -> dict[str, Tensor]:
        """Model inputs: `numeric` and `categories`, if there are any."""
        inputs = {}
        if self.numeric:
            inputs["numeric"] = torch.from_numpy(self.standardised(np.array([event.numbers for event in events])))
        if self.categorical:
            columns = zip(*(event.values for event in events), strict=True)
            numbers = [self.numbers_of(name, column) for name, column in zip(self.categorical, columns, strict=True)]
            inputs["categories"] = torch.from_numpy(np.stack(numbers, axis=1))
        return inputs
