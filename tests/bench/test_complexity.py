"""Counted costs equal those worked out by hand."""

import json

import pytest

from fastformer.bench.complexity import complexity, markdown
from fastformer.errors import UserError
from fastformer.mixers import available_mixers

WIDTH, HEADS, LENGTH = 32, 4, 48
HEAD = WIDTH // HEADS


@pytest.fixture(scope="module")
def methods():
    return complexity(width=WIDTH, heads=HEADS, length=LENGTH)["methods"]


def test_the_transformer_has_four_maps_and_two_products_of_all_pairs(methods):
    assert methods["transformer"]["parameters"] == 4 * (WIDTH**2 + WIDTH)
    assert methods["transformer"]["multiply_adds"] == 4 * LENGTH * WIDTH**2 + 2 * LENGTH**2 * WIDTH


def test_the_linear_transformer_has_four_maps_a_state_and_a_normalizer(methods):
    expected = 4 * LENGTH * WIDTH**2 + 2 * LENGTH * WIDTH * HEAD + LENGTH * WIDTH
    assert methods["linear"]["multiply_adds"] == expected
    assert methods["linear"]["growth_at_twice_the_length"] == 2


def test_fastformer_has_fewer_parameters_than_four_maps_and_more_than_the_formula(methods):
    fastformer = methods["fastformer"]
    query_and_key, transform, scores, biases = 2 * WIDTH**2, HEADS * HEAD**2, 2 * WIDTH, 3 * WIDTH
    assert fastformer["parameters"] == query_and_key + transform + scores + biases
    assert fastformer["paper_parameters"] == 3 * HEADS * HEAD**2 + 2 * HEADS * HEAD
    assert LENGTH * WIDTH**2 < fastformer["multiply_adds"] < methods["transformer"]["multiply_adds"]


def test_only_the_transformer_grows_faster_than_the_text(methods):
    growth = {name: one["growth_at_twice_the_length"] for name, one in methods.items()}
    assert growth.pop("transformer") > 2.1
    assert all(factor < 2.1 for factor in growth.values()), growth


def test_a_new_mixer_appears_by_itself(toy, tmp_path):
    report = complexity(width=WIDTH, heads=HEADS, length=LENGTH, output=tmp_path)
    assert list(report["methods"]) == available_mixers()
    assert report["methods"][toy]["multiply_adds"] == LENGTH * WIDTH**2
    assert report["methods"][toy]["paper_order"] is None
    assert json.loads((tmp_path / "complexity.json").read_text()) == report
    assert (tmp_path / "complexity.md").read_text() == markdown(report)
    assert "| toy " in markdown(report)


def test_heads_must_divide_the_width():
    with pytest.raises(UserError, match="not divisible"):
        complexity(width=10, heads=4)
