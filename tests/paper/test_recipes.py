"""Recipes hold what the paper says: its numbers and its sentences."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pytest

from fastformer.bench.complexity import complexity
from fastformer.engine.training import TrainingSettings
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.paper.comparison import chosen, settings_of
from fastformer.paper.recipes import PAPER_DATASETS, load_recipe, load_scale

RECIPES = ("table-classification", "figure-interaction", "figure-sharing", "table-complexity", "table-datasets")


@pytest.fixture(scope="module")
def paper(fixtures) -> dict[str, Any]:
    """The paper's tables, read off its LaTeX: table -> row -> cells; of the sentences that we quote, digests."""
    return json.loads((fixtures / "paper.json").read_text(encoding="utf-8"))


def test_numbers_of_the_main_table_are_the_papers(paper):
    ours = {
        variant.name: [variant.paper[dataset][score] for dataset in PAPER_DATASETS for score in ("accuracy", "macro_f")]
        for variant in load_recipe("table-classification")["variants"]
    }
    assert ours == paper["performance"]


def test_every_quoted_sentence_is_in_the_paper(paper):
    quotes = [claim.quote for name in RECIPES for claim in load_recipe(name)["claims"]]
    quotes.append(load_recipe("table-complexity")["quote"])
    digests = [hashlib.sha256(quote.encode()).hexdigest()[:16] for quote in quotes]
    assert sorted(digests) == paper["quotes"]["digests"]


def test_statistics_are_the_papers(paper):
    recipe = load_recipe("table-datasets")
    assert {title: numbers for title, *numbers in recipe["classification"].values()} == paper["datasets"]
    assert {title: numbers for title, *numbers in recipe["summarization"]["rows"]} == paper["summarization datasets"]
    assert recipe["recommendation"] == paper["recommendation dataset"]


def test_orders_of_complexity_are_the_papers(paper):
    counted = complexity(width=32, heads=2, length=16)["methods"]
    assert {mixer: f"O({counted[mixer]['paper_order']})" for mixer in paper["complexity"]} == paper["complexity"]


@pytest.mark.parametrize(("dataset", "column"), [("amazon", 0), ("imdb", 1), ("mind", 2)])
def test_full_scale_is_the_papers_table_to_the_letter(paper, dataset, column):
    printed = {row: cells[column] for row, cells in paper["hyper"].items()}
    rows = {
        "num_hidden_layers": "# Encoder Layer",
        "num_global_tokens": "# Global Token",
        "num_random_tokens": "# Random Token",
        "window_size": "Window size (Longformer, BigBird)",
        "pooling_window_size": "Window size (Poolingformer)",
        "block_size": "Block length (BigBird)",
        "projection_size": "Projection dimension (Linformer)",
        "num_attention_heads": "# Attention Head",
        "hidden_size": "Hidden dimension",
        "hidden_dropout_prob": "Dropout",
    }
    for variant in load_recipe("table-classification")["variants"]:
        settings = settings_of(variant, load_scale("full"), dataset, seed=3)
        assert {name: settings.model[name] for name in rows} == {name: printed[row] for name, row in rows.items()}
        method = "Transformer" if variant.mixer == "transformer" else "others"
        assert settings.max_length == printed[f"Maximum Text Length ({method})"]
        training = settings.training
        assert (training.batch_size, training.epochs) == (printed["Batch Size"], printed["Max Epochs"])
        assert training.learning_rate == printed["Learning Rate"]
        assert (training.weight_decay, training.schedule, training.seed) == (0.0, "constant", 3)
        assert settings.tokenizer == "nltk"
        assert "interaction" not in settings.model  # Fastformer's is the product


def test_the_main_table_has_every_method():
    assert [one.mixer for one in load_recipe("table-classification")["variants"]] == [
        "transformer",
        "longformer",
        "bigbird",
        "linformer",
        "linear",
        "poolingformer",
        "fastformer",
    ]
    assert {one.mixer for one in load_recipe("table-classification")["variants"]} <= set(available_mixers())


def test_scales_reduce_all_methods_alike():
    for name in ("cpu", "small"):
        scale = load_scale(name)
        for dataset in (*PAPER_DATASETS, None):
            settings = [
                settings_of(variant, scale, dataset, 0) for variant in load_recipe("table-classification")["variants"]
            ]
            assert (
                len({(one.max_length, one.training, one.tokenizer, one.model["hidden_size"]) for one in settings}) == 1
            )
    with pytest.raises(UserError, match="choose from full, cpu, small"):
        load_scale("version")


def test_an_option_that_a_later_version_adds_leaves_finished_runs_valid():
    @dataclass(frozen=True)
    class Later(TrainingSettings):
        new_option: bool = False

    now, later = (kind(epochs=3, learning_rate=1e-3, seed=2) for kind in (TrainingSettings, Later))
    assert chosen(now) == chosen(later) == {"epochs": 3, "learning_rate": 1e-3, "seed": 2}
    assert chosen(Later(new_option=True)) == {"new_option": True}


def test_claims_are_about_variants_of_their_recipe():
    for name in RECIPES:
        recipe = load_recipe(name)
        names = {variant.name for variant in recipe["variants"]}
        for claim in recipe["claims"]:
            assert {*claim.better, *claim.than} <= names
