"""What is held out to validate on, by time."""

import numpy as np
import pytest

from fastformer.data import by_time
from fastformer.data.by_time import hold_out_latest
from fastformer.errors import UserError


def test_the_last_tenth_validates():
    times = -np.arange(20.0)
    training, validating, by = hold_out_latest(times, seed=0)
    assert validating.tolist() == [0, 1]
    assert training.tolist() == [*range(2, 20)]
    assert by == "time"
    assert hold_out_latest(times, seed=0, most=1).validation.tolist() == [0]


def test_some_times_do_not_tell():
    times = np.arange(20.0)
    times[5] = np.nan
    with pytest.raises(UserError, match="1 of 20 training rows have no time.*--validation"):
        hold_out_latest(times, seed=0)


@pytest.mark.parametrize("time", [np.nan, 7])
def test_a_random_tenth_validates_where_no_time_tells_rows_apart(time):
    training, validating, by = hold_out_latest(np.full(20, time), seed=0)
    assert by == "random"
    assert sorted([*training, *validating]) == [*range(20)]
    assert len(validating) == 2
    assert validating.tolist() not in ([0, 1], [18, 19])


def test_rows_of_one_time_are_not_torn_apart():
    times = np.repeat([0.0, 1.0, 2.0], [15, 17, 8])  # a tenth would cut the last day
    training, validating, by = hold_out_latest(times, seed=0)
    assert (len(training), len(validating), by) == (32, 8, "time")


def test_never_most_of_the_data_and_never_without_a_word(monkeypatch):
    said = []
    monkeypatch.setattr(by_time, "say", said.append)
    times = np.repeat([0.0, 1.0, 2.0], [15, 2, 23])
    training, validating, by = hold_out_latest(times, seed=0)
    assert (len(training), len(validating), by) == (36, 4, "last time")
    assert (times[validating] == 2).all()
    assert validating.tolist() != [36, 37, 38, 39]  # drawn, not the last in the file
    assert sorted([*training, *validating]) == [*range(40)]
    assert said.pop() == (
        "23 of 40 training rows have the same time, the last one: 4 of them, drawn at random, are held out to "
        "validate on."
    )
    hold_out_latest(np.repeat([0.0, 1.0], [31, 9]), seed=0)
    assert said.pop().startswith("9 of 40 training rows are held out to validate on, not 4")
    assert len(hold_out_latest(np.repeat([0.0, 1.0], [800, 200]), seed=0, most=10).validation) == 10
    assert said.pop().startswith("200 of 1,000")
    hold_out_latest(np.arange(40.0), seed=0)
    assert not said


def test_one_row_is_too_few():
    with pytest.raises(UserError, match="nothing to validate on"):
        hold_out_latest(np.zeros(1), seed=0)
