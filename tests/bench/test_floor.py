"""What the floor is compared with is the same function, and the reports hold what they say."""

import json

import pytest
import torch

from fastformer.bench import floor as floor_module
from fastformer.bench.allocations import peak_bytes
from fastformer.bench.comparators import as_released, unfolded
from fastformer.bench.floor import floor
from fastformer.bench.training import embedding_steps
from fastformer.mixers import build_mixer
from fastformer.mixers.fastformer_reference import reference
from fastformer.modeling import FastformerConfig


@pytest.mark.parametrize(("form", "comparator"), [("headwise", unfolded), ("full", unfolded), ("full", as_released)])
def test_comparators_are_the_same_function(form, comparator):
    torch.manual_seed(0)
    config = FastformerConfig(hidden_size=24, num_attention_heads=4, head_form=form)
    mixer = build_mixer("fastformer", config).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(3, 40, 24, dtype=torch.float64)
    mask = torch.arange(40)[None] < torch.tensor([[40], [17], [1]])
    torch.testing.assert_close(comparator(mixer, x, mask)[mask], reference(mixer, x, mask)[mask])


def test_floor_reports_every_size(tmp_path, monkeypatch):
    monkeypatch.setattr(floor_module, "SIZES", ((2, 300),))
    monkeypatch.setattr(floor_module, "TITLES", (3, 5))
    result = floor(tmp_path / "out", repetitions=1, show_progress=False)
    assert json.loads((tmp_path / "out" / "floor.json").read_text()) == result
    sections = {(section["what"], section["length"]): section["measured"] for section in result["sections"]}
    assert set(sections) == {
        ("mixer, forward", 300),
        ("mixer, forward", 5),
        ("mixer, forward and backward", 300),
        ("mixer, forward and backward", 5),
        ("encoder, forward", 300),
    }
    assert "transformer" in sections["mixer, forward", 5]
    assert all(entry["seconds"] > 0 for measured in sections.values() for entry in measured.values())
    text = (tmp_path / "out" / "floor.md").read_text()
    assert "full, as released" in text
    assert "300 × 2" in text


def test_allocations_are_counted_while_they_live():
    kilobyte = torch.ones(256)
    assert peak_bytes(lambda: kilobyte + 1) == 1024
    assert peak_bytes(lambda: (kilobyte + 1) + 1) == 2048  # both alive while the second is made
    assert peak_bytes(lambda: [kilobyte + 1 for _ in range(3)]) == 3072
    assert peak_bytes(lambda: kilobyte.view(2, 128).add_(1)) == 0


def test_an_update_of_the_rows_met_does_not_depend_on_the_vocabulary(monkeypatch):
    """By counting: dense updates need memory for the whole table, those of the rows met do not."""
    from fastformer.bench.training import _embedding_step

    ids = torch.randint(0, 100, (50,))

    def peak(words, sparse):
        step = _embedding_step(words, ids, sparse)
        step()  # the optimizer's state is made once
        return peak_bytes(step)

    assert peak(40_000, sparse=True) < 1.01 * peak(10_000, sparse=True)
    assert peak(40_000, sparse=False) > 3 * peak(10_000, sparse=False)


def test_embedding_steps_are_timed_for_every_vocabulary(monkeypatch):
    monkeypatch.setattr("fastformer.bench.training.VOCABULARIES", (100, 1000))
    monkeypatch.setattr("fastformer.bench.training._BATCH", 64)
    found = embedding_steps()
    assert list(found) == ["100", "1,000"]
    assert all(set(entry) == {"all rows", "rows met"} for entry in found.values())
