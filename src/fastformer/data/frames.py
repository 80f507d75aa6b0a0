"""Data frames and matrices of Python's libraries -> what this package reads: lists, and lists of dictionaries.

A data frame that is taken for a list gives the names of its columns, so one is never taken for a list here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


def as_records(source: Any) -> Any:
    """A data frame (pandas, polars, Arrow) as a list of dictionaries, one per row; anything else as it is."""
    if not _is_frame(source):
        return source
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
        if hasattr(source, method):
            return getattr(source, method)(*arguments)
    return source


def only_column(values: Any, what: str) -> Any:
    """The values of a data frame or matrix of one column; anything else as it is, if it is not wider."""
    if _is_frame(values):
        names = _names(values)
        if len(names) != 1:
            listed = ", ".join(map(str, names[:10]))
            raise ValueError(f"{what}: a data frame with {len(names)} columns ({listed}); give one, as in df['text']")
        records = as_records(values)
        return [record[names[0]] for record in records]
    if getattr(values, "ndim", 1) == 1:
        return values
    if values.ndim == 2 and values.shape[1] == 1:
        return np.asarray(values)[:, 0].tolist()
    raise ValueError(f"{what} must be a list, one per text, not a matrix of {values.ndim} dimensions")


@dataclass
class Indicators:
    """A matrix with a row per text and a column per label: 1 if a text has the label."""

    cells: np.ndarray
    names: list[Any]

    def labels(self) -> list[list[Any]]:
        """The labels of each text."""
        return [[self.names[place] for place in np.flatnonzero(row)] for row in self.cells]


def indicators(labels: Any) -> Indicators | None:
    """Labels as an indicator matrix, if they are one: an array, a sparse one or a data frame of two columns or more."""
    if getattr(labels, "ndim", 1) != 2 or labels.shape[1] < 2:
        return None
    names = _names(labels) if _is_frame(labels) else list(range(labels.shape[1]))
    cells = np.asarray(labels.toarray() if hasattr(labels, "toarray") else labels)
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full(cells.shape, np.nan)
    if not np.isin(numbers, (0, 1)).all():
        raise ValueError("labels: in a matrix, 1 says that a text has the label of the column, and 0 that it has not")
    return Indicators(numbers.astype(np.int64), names)


def _is_frame(value: Any) -> bool:
    """Whether it has named columns: pandas' and polars' data frames and Arrow's tables do."""
    return hasattr(value, "columns") and (hasattr(value, "shape") or hasattr(value, "column_names"))


def _names(frame: Any) -> list[Any]:
    return list(getattr(frame, "column_names", None) or frame.columns)
