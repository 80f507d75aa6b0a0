"""CSV and its kin: which character separates fields, and whether the first line names the columns.

The name of a file says comma or tab. If its first lines do not fit that, semicolon, tab, comma and vertical bar are
tried: a separator fits if it gives the first line two fields or more, and every other line as many.
"""

import csv
import re
from collections.abc import Iterator

from fastformer.data.columns import numbered_columns
from fastformer.data.opening import BUFFER, decode
from fastformer.data.standard_input import Bytes
from fastformer.errors import UserError

USUAL = {"csv": ",", "tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}  # on the command line
_SAMPLE = 200  # lines

csv.field_size_limit(2**31 - 1)  # a whole book may stand in one field


def separator_named(given: str | None) -> str | None:
    """The character that somebody means by `;`, `tab` or `\\t`; None stays what it is."""
    if given is None:
        return None
    found = NAMES.get(given, given)
    if len(found) != 1 or found in '"\r\n':
        raise UserError(f"--separator {given!r}: give one character, such as ';', or tab")
    return found


def read_fields(
    file: Bytes, name: str, format: str, separator: str | None = None, header: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """The line each row begins at, and its fields; the first row names the columns.

    Without a `header` the columns are called by their numbers, from "1". Blank lines are left out.
    """
    delimiter = separator or _sniffed(file, USUAL[format])
    reader = csv.reader(decode(file, name), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    start = 1  # the first line of the row at hand, which may span several
    try:
        for fields in reader:
            if fields and columns is None:
                columns = [field.strip() for field in fields]
                if not header:
                    columns = numbered_columns(fields, f"{name}, line {start}")
                elif len(columns) == 1 and re.search(r"[;\t]", columns[0]):
                    raise UserError(
                        f"{name}, line {start}: one column named {columns[0]!r}; separate fields by {delimiter!r}, or "
                        "name the character with --separator"
                    )
                yield start, columns
                if header:
                    start = reader.line_num + 1
                    continue
            if columns is not None and fields and len(fields) != len(columns):
                first = "header" if header else "first line"
                raise UserError(
                    f"{name}, line {start}: {len(fields)} fields where the {first} has {len(columns)}; "
                    f"put a field that holds {delimiter!r} or a new line in double quotes"
                )
            if fields:
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{name}, line {start}: broken CSV ({error}); close every double quote, and double those inside a field"
        ) from None


def _sniffed(file: Bytes, usual: str) -> str:
    """The separator that the first lines agree on: the usual one if they do, and if they agree on none."""
    text = file.peek(BUFFER).decode("utf-8-sig", "replace")
    whole, end, _ = text.rpartition("\n")  # the last line may be cut off
    lines = [f"{line}\n" for line in (whole if end else text).split("\n", _SAMPLE)[:_SAMPLE]]
    for separator in dict.fromkeys((usual, *SEPARATORS)):
        rows: list[list[str]] = []
        try:
            rows.extend(fields for fields in csv.reader(lines, delimiter=separator, strict=True) if fields)
        except csv.Error as error:
            if "end of data" not in str(error):  # but for a field in quotes that the sample cuts off
                continue
        if rows and len(rows[0]) > 1 and all(len(fields) == len(rows[0]) for fields in rows):
            return separator
    return usual
