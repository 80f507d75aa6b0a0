"""Data frames as the lists and dictionaries that this package reads."""

import pandas as pd
import pyarrow as pa
import pytest

from fastformer.data.frames import as_records, check_several, only_column
from fastformer.data.tables import Row, read_rows
from fastformer.errors import UserError


def test_columns_with_numbers_for_names_are_called_as_they_are_written():
    records = as_records(pd.DataFrame([["a cat", "pets"], ["a car", "cars"]]))
    assert records == [{"0": "a cat", "1": "pets"}, {"0": "a car", "1": "cars"}]
    rows = read_rows(records, text_column="0", label_column="1")
    assert list(rows) == [Row("a cat", "pets"), Row("a car", "cars")]


@pytest.mark.parametrize("name", ["text", 0, ("text", "en")])
def test_one_column_may_have_any_name(name):
    frame = pd.DataFrame({"id": [1, 2], name: ["a", "b"]})
    assert only_column(frame[[name]], "texts") == ["a", "b"]


def test_arrow_tables_are_data_frames():
    table = pa.table({"text": ["a", "b"]})
    assert as_records(table) == [{"text": "a"}, {"text": "b"}]
    assert only_column(table, "texts") == ["a", "b"]


@pytest.mark.parametrize("names", [["x", "x"], [1, "1"]])
def test_a_name_of_two_columns_is_told(names):
    with pytest.raises(UserError, match="the data frame has several columns called '.'; rename all but one"):
        as_records(pd.DataFrame([["a", "b"]], columns=names))
    assert as_records(pd.DataFrame()) == []


@pytest.mark.parametrize(("given", "kind"), [("ab", "string"), (b"ab", "string"), ({"text": "ab"}, "dictionary")])
def test_one_example_is_no_list_of_them(given, kind):
    for check in (check_several, only_column):
        with pytest.raises(UserError, match=f"^give a list of texts, not one {kind}$"):
            check(given, "texts")
