"""What is held out to validate on, by time."""

import numpy as np
import pytest

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
    times = np.repeat([0.0, 1.0, 2.0], [15, 2, 23])  # a tenth would cut the last day
    training, validating, by = hold_out_latest(times, seed=0)
    assert (len(training), len(validating), by) == (17, 23, "time")


def test_one_row_is_too_few():
    with pytest.raises(UserError, match="nothing to validate on"):
        hold_out_latest(np.zeros(1), seed=0)
