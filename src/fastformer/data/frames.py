"""Data frames and matrices of Python's libraries -> what this package reads: lists, and lists of dictionaries.

A data frame that is taken for a list gives the names of its columns, so one is never taken for a list here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastformer.errors import UserError

_SHORT_FLOATS = ("float16", "float32")  # as one of Python's floats, 4.1 in 32 bits would be 4.099999904632568


def as_records(source: Any) -> Any:
    """A data frame (pandas, polars, Arrow) as a list of dictionaries, one per row; anything else as it is.

    Columns that have numbers for names are called as they are written: 0 is "0".
    """
    if not _is_frame(source):
        return source
    names = list(map(str, _names(source)))
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise UserError(f"the data frame has several columns called {twice!r}; rename all but one")
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
        if hasattr(source, method):
            records = getattr(source, method)(*arguments)
            return [{str(name): value for name, value in record.items()} for record in records]
    return source


def check_several(given: Any, what: str = "examples") -> None:
    """Refuse one string or dictionary in place of a list, which would be read letter by letter, or key by key."""
    if isinstance(given, str | bytes | Mapping):
        raise UserError(f"give a list of {what}, not one {'dictionary' if isinstance(given, Mapping) else 'string'}")


def only_column(values: Any, what: str) -> Any:
    """The values of a data frame or matrix of one column; anything else as it is, if it is not wider."""
    check_several(values, what)
    if _is_frame(values):
        names = _names(values)
        if len(names) != 1:
            listed = ", ".join(map(str, names[:10]))
            raise ValueError(f"{what}: a data frame with {len(names)} columns ({listed}); give one, as in df['text']")
        if hasattr(values, "iloc"):  # pandas
            return list(only_column(values.iloc[:, 0], what))
        return [value for record in as_records(values) for value in record.values()]
    if getattr(values, "ndim", 1) == 1:
        return list(np.asarray(values)) if str(getattr(values, "dtype", "")).lower() in _SHORT_FLOATS else values
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

    def ordered(self, names: list[Any]) -> np.ndarray:
        """The cells with the columns in the order of `names`; a matrix whose columns have no names has it already."""
        own = list(map(str, self.names))
        if sorted(own) == sorted(map(str, names)):
            return self.cells[:, [own.index(str(name)) for name in names]]
        if self.names != list(range(len(names))):
            listed = ", ".join(map(str, names[:10]))
            raise ValueError(f"labels: the columns are not those that the model has learned ({listed})")
        return self.cells


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
