"""The values of a row, checked: one name per label whatever the format, and one idea of what is missing.

CSV has strings only, Parquet and JSON have types. So that a run that was trained on one format also reads the other,

    True, "True", "TRUE" -> "true"       1, 1.0, "1", "1.0" -> "1"        4.5, "4.5" -> "4.5"

and a string that is not how a number is written stays what it is: "007", "1.10". A value is missing if it is null, NaN,
or a string without anything but white space.
"""

import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

LABEL_SEPARATOR = "|"
_TRUTHS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}


class BadValueError(Exception):
    """A value that cannot be used; the reader adds its place to the message."""


class MissingValueError(BadValueError):
    """A value that is not there. `what` is a text, a label, …"""

    def __init__(self, what: str, value: Any = None):
        self.what = what
        super().__init__(f"the {what} is {'NaN' if is_nan(value) else 'missing'}; fill it in or remove the row")


def is_nan(value: Any) -> bool:
    """Whether a value is NaN, of whatever type: it is the only one that differs from itself."""
    return isinstance(value, float | Decimal) and value != value


def is_missing(value: Any) -> bool:
    """Whether there is no value."""
    return value is None or is_nan(value) or (isinstance(value, str) and (not value or value.isspace()))


def kind_of(value: Any) -> str:
    """What errors call the type of a value."""
    kinds = {dict: "an object", list: "a list", tuple: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), f"of type {type(value).__name__}")


def whole_characters(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, which is not a character; JSON can spell one."""
    return text if has_whole_characters(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def has_whole_characters(text: str) -> bool:
    """Whether a text can be written to a file."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def label_of(value: Any) -> str:
    """The name of one label."""
    if isinstance(value, np.floating):
        value = as_written(value)
    value = value.item() if hasattr(value, "item") else value  # NumPy's
    if is_missing(value):
        raise MissingValueError("label", value)
    if isinstance(value, str):
        return _name_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        value = float(value) if value != value.to_integral_value() else int(value)
    if isinstance(value, float) and math.isinf(value):
        raise BadValueError("the label is Infinity, which is not a class; correct it or remove the row")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:  # Python does not write out thousands of digits
            raise BadValueError(
                "the label is a number with thousands of digits; correct it or remove the row"
            ) from None
    raise BadValueError(f"the label is {kind_of(value)}; give every row one string or integer, or every row a list")


def as_written(number: np.floating[Any]) -> float:
    """The number that a shorter float stands for where it is written: 4.1, whose 32 bits are 4.099999904632568."""
    return float(str(number))


def _name_of(label: str) -> str:
    """A string as the label that it is."""
    if label in _TRUTHS:
        return _TRUTHS[label]
    if not has_whole_characters(label):
        raise BadValueError(
            f"the label {ascii(label)[:60]} holds half a character, which no file can store; correct it or remove "
            "the row"
        )
    if label[-1] in "0123456789" and not label.isalnum():
        with suppress(ValueError, OverflowError):
            number = float(label)
            if repr(number) == label and number.is_integer():
                return str(int(number))
    return label


def labels_of(value: Any) -> list[str]:
    """The names of several labels: of a list, or of a string that joins them by `|`. Where nothing is, none is."""
    if is_missing(value):
        return []
    if isinstance(value, str):
        value = [part for part in map(str.strip, value.split(LABEL_SEPARATOR)) if part]
    elif not isinstance(value, list | tuple | set | frozenset):
        value = [value]
    return list(dict.fromkeys(map(label_of, value)))


def number_of(value: Any) -> float:
    """A label that is a number."""
    if is_missing(value):
        raise MissingValueError("label", value)
    try:
        number = math.inf if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isnan(number):
        raise MissingValueError("label", number)
    if math.isinf(number):
        said = "" if isinstance(value, int) and not isinstance(value, bool) else f"{value!r:.60} "  # it may be endless
        raise BadValueError(f"the label {said}is not a finite number; correct it, or drop --regression")
    return number


def is_yes(value: Any) -> bool:
    """What a cell of a column of 0 and 1 says; a missing one says no."""
    if is_missing(value):
        return False
    name = label_of(value)
    if name not in ("0", "1", "true", "false"):
        raise BadValueError(
            f"{name[:60]!r} in a column that stands for a label; write 1 if the text has the label, and 0 if not"
        )
    return name in ("1", "true")


def valid_unicode(text: str) -> str:
    """The text with "?" for each character that UTF-8 cannot hold (half a pair, from a broken JSON escape)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
