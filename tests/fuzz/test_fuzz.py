"""A small slice of the fuzzer, the same every time: no damage ends in a traceback, a hang or a wrong answer."""

import os

import pytest

from .cases import KINDS, make
from .outcomes import GOOD, Runner
from .subjects import subjects

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of forks where there are threads
]
CASES = {"inputs": 30, "folders": 30, "arguments": 15, "tools": 12}


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    return subjects(tmp_path_factory.mktemp("subjects"), ["masked-words", "recommendation"])


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_answered_or_refused_in_a_line(kind, some, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "1000")
    ended = []
    with Runner(some, tmp_path) as runner:
        for number in range(CASES[kind]):
            runner.place = tmp_path / str(number)
            runner.place.mkdir()
            case = make(kind, number, 20, some, runner.place)
            outcome = runner.run(case)
            told = f"{kind}:{number} {case.arguments}: {outcome.kind}, {outcome.why}\n{outcome.said}"
            assert outcome.kind in GOOD, told
            ended.append(outcome.kind)
    assert {*ended} == {*GOOD} or kind in ("arguments", "tools")  # damage of both sorts
