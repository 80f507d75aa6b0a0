"""The answers to many texts at a time are those to each of them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastformer.tasks.classification.answers import _rounded, describe, describe_all
from fastformer.tasks.classification.data import LabelSpace

NAMES = ("a", 'quo"te', "50%", "{x}", "größer", "\u2028", "line\nbreak", "8", "9", "10", "\\")
SPACES = [LabelSpace("number"), *(LabelSpace(kind, NAMES[:size]) for kind in ("single", "multi") for size in (2, 11))]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.kind} {space.size}")
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_together_as_one_by_one(space, data):
    logits = data.draw(arrays(np.float32, (3, space.size), elements=st.floats(width=32, allow_subnormal=False)))
    top = None if space.kind == "number" else data.draw(st.sampled_from([None, 1, 3, 20]))
    with np.errstate(all="ignore"):
        threshold = data.draw(st.sampled_from([None, 0.0, 0.4, 1.0]))
        together = describe_all(space, logits, top, threshold)
        alone = [describe(space, row, top, threshold) for row in logits]
    assert [json.dumps(answer) for answer in together] == [json.dumps(answer) for answer in alone]  # NaN is NaN


@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.kind} {space.size}")
def test_many_usual_answers(space):
    logits = np.random.default_rng(0).normal(0, 4, (5000, space.size)).astype(np.float32)
    assert describe_all(space, logits) == [describe(space, row) for row in logits]


def test_rounding_is_that_of_python_near_the_middle_of_two_numbers():
    halves = (np.arange(100_000) + 0.5) / 1e6
    for chances in (halves, np.nextafter(halves, 0), np.nextafter(halves, 1), np.linspace(0, 1, 50_001)):
        assert _rounded(chances[None]) == [[round(chance, 6) for chance in chances.tolist()]]
