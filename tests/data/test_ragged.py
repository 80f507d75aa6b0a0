import numpy as np
import pytest

from fastformer.data.ragged import Ragged

ROWS = [[3, 1, 4], [], [1, 5], [9], []]


@pytest.fixture
def ragged():
    return Ragged.from_lengths(np.array([value for row in ROWS for value in row]), np.array([len(row) for row in ROWS]))


def as_lists(ragged):
    return [ragged.row(index).tolist() for index in range(len(ragged.lengths))]


def test_rows(ragged):
    assert as_lists(ragged) == ROWS


@pytest.mark.parametrize("rows", [[2, 0], [1], [], [4, 4, 3, 2, 2]])
def test_take(ragged, rows):
    assert as_lists(ragged.take(np.array(rows, dtype=int))) == [ROWS[row] for row in rows]


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_last(ragged, limit):
    assert as_lists(ragged.last(limit)) == [row[-limit:] for row in ROWS]


def test_last_after_take(ragged):
    assert as_lists(ragged.take(np.array([2, 0])).last(1)) == [[5], [4]]


def test_padded(ragged):
    matrix, mask = ragged.padded(fill=-1)
    assert matrix.tolist() == [[3, 1, 4], [-1, -1, -1], [1, 5, -1], [9, -1, -1], [-1, -1, -1]]
    assert (mask == (matrix != -1)).all()


def test_no_rows():
    empty = Ragged.from_lengths(np.zeros(0, dtype=int), np.zeros(0, dtype=int))
    assert as_lists(empty) == []
    assert empty.padded()[0].shape == (0, 0)
    assert as_lists(empty.take(np.zeros(0, dtype=int))) == as_lists(empty.last(3)) == []
