"""What holds for a fixed number of threads, and what for any: the table of docs/guide/runs.md."""

import pytest
import torch
from safetensors.torch import load_file

from fastformer.tasks.verbs import load, train

from ..tasks.samples import SAMPLES


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_two_threads_give_the_same_weights_each_time_and_one_gives_the_same_answers(threads, tmp_path):
    sample = SAMPLES["conversion"](tmp_path)
    weights = []
    for name in ("one", "two"):
        threads(2)
        train("conversion", sample.train, output=tmp_path / name, show_progress=False, **sample.options | {"epochs": 1})
        weights.append(load_file(tmp_path / name / "model.safetensors"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    answers = []
    for count in (2, 2, 1):
        threads(count)
        answers.append([answer["probability"] for answer in load(tmp_path / "one").predict(sample.examples)])
    assert answers[0] == answers[1]
    assert answers[0] == pytest.approx(answers[2], abs=1e-5)
