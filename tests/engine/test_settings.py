"""Settings and options: what they may be, wherever they come from."""

import numpy as np
import pytest

from fastformer.engine.settings import TrainingSettings, problem_with
from fastformer.errors import UserError
from fastformer.tasks.answering import options_for


@pytest.mark.parametrize(
    ("task", "given", "says"),
    [
        ("classification", {"top": "x"}, '--top is "x", not a whole number or null'),
        ("classification", {"top": True}, "--top is true, not a whole number or null"),
        ("classification", {"threshold": "x"}, '--threshold is "x", not a finite number or null'),
        ("summarization", {"beams": -3}, "--beams is -3; give at least 1"),
        ("summarization", {"beams": 1.5}, "--beams is 1.5, not a whole number or null"),
        ("summarization", {"beams": 10**9}, "--beams is 1000000000; give at most 100"),
        ("recommendation", {"scores": "false"}, '--scores is "false", not true or false or null'),
        ("masked-words", {"top": "x"}, '--top is "x", not a whole number'),
    ],
)
def test_options_of_predicting_are_checked_wherever_they_come_from(task, given, says):
    with pytest.raises(UserError) as caught:
        options_for(task, "predicting", given)
    assert str(caught.value) == says


def test_options_may_be_numbers_of_numpy_and_paths(tmp_path):
    found = options_for("classification", "predicting", {"top": np.int64(2), "threshold": np.float64(0.5)})
    assert (type(found.top), found.threshold) == (int, 0.5)
    for place in (tmp_path, str(tmp_path)):
        assert options_for("classification", "evaluating", {"report": place}).report == place
        assert options_for("conversion", "evaluating", {"plot": place}).plot == place


def test_every_schedule_is_one_of_transformers():
    from transformers import SchedulerType

    for name in SchedulerType:
        wrong = problem_with(name.value, TrainingSettings.__annotations__["schedule"])
        needs_more = name.value.endswith("_min_lr") or name is SchedulerType.WARMUP_STABLE_DECAY
        assert (wrong is not None) == needs_more
