"""Lists of different lengths as two arrays: a million click histories without a million Python objects."""

from typing import NamedTuple, Self

import numpy as np


class Ragged(NamedTuple):
    """Row i is `values[offsets[i] : offsets[i + 1]]`."""

    values: np.ndarray
    offsets: np.ndarray  # int64, one more than there are rows

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> Self:
        """Rows that stand one after the other in `values`."""
        return cls(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def lengths(self) -> np.ndarray:
        """Number of values of each row."""
        return np.diff(self.offsets)

    def row(self, index: int) -> np.ndarray:
        """The values of one row."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: np.ndarray) -> "Ragged":
        """Some rows, in the order given."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.offsets[rows] - ends + lengths, lengths)
        return Ragged.from_lengths(self.values[places], lengths)

    def last(self, limit: int) -> "Ragged":
        """At most the last `limit` values of each row."""
        lengths = np.minimum(self.lengths, limit)
        starts = np.repeat(self.offsets[1:] - np.cumsum(lengths), lengths)
        return Ragged.from_lengths(self.values[np.arange(lengths.sum()) + starts], lengths)

    def padded(self, fill: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """A matrix with a row's values first and `fill` after them, and which of its entries are values."""
        lengths = self.lengths
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        matrix = np.full(mask.shape, fill, dtype=self.values.dtype)
        matrix[mask] = self.values[self.offsets[0] : self.offsets[-1]]
        return matrix, mask
