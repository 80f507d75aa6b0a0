"""What holds for a fixed number of threads, and what for any: the table of docs/guide/runs.md."""

import pytest
import torch
from safetensors.torch import load_file

from fastformer.tasks.base import register
from fastformer.tasks.verbs import load, train

from ..tasks.samples import SAMPLES
from ..tasks.toy import LOUDNESS

register(LOUDNESS)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("task", SAMPLES)
def test_two_threads_give_the_same_weights_each_time_and_one_gives_the_same_answers(task, threads, tmp_path):
    sample = SAMPLES[task](tmp_path)
    weights = []
    for name in ("one", "two"):
        threads(2)
        train(task, sample.train, output=tmp_path / name, show_progress=False, **sample.options | {"epochs": 1})
        weights.append(load_file(tmp_path / name / "model.safetensors"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    answers = []
    for count in (2, 2, 1):
        threads(count)
        answers.append(list(load(tmp_path / "one").predict(sample.examples)))
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(answers[2])
    assert all(map(close, answers[0], answers[2]))


def close(one, other) -> bool:
    """Whether two answers are the same but for the last digits of their numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, abs=2e-5) if isinstance(one, float) else one == other
