"""Recipes hold what the paper says: its numbers, its sentences and its settings."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fastformer.bench.complexity import complexity
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.paper.datasets import Dataset, Prepared
from fastformer.paper.recipes import NAMES, Options, load_recipe
from fastformer.paper.studies import STUDIES
from fastformer.paper.study import chosen
from fastformer.tasks.base import get_task

from ..tasks.recommendation.conftest import cache, clicks, folders, plm  # noqa: F401  fixtures

CLASSIFICATION = ("table-classification", "figure-interaction", "figure-sharing")


@pytest.fixture(scope="module")
def paper(fixtures) -> dict[str, Any]:
    """The paper's tables, read off its LaTeX: table -> row -> cells; of the sentences that we quote, digests."""
    return json.loads((fixtures / "paper.json").read_text(encoding="utf-8"))


def settings_of(recipe, scale, variant, folder, paper=None, seed=3, rows=1000, encoder=None):
    """The settings of a run."""
    options = Options(data=(f"x:{paper}=x" if paper else "x=x",), scale=scale, output=folder, plm=encoder)
    study = STUDIES[recipe.task](recipe, options, show=False)
    about = {"rows": {"train": rows}, "language": "en"}
    return study.settings(variant, Prepared(Dataset("x", paper, "x"), {}, about), seed)


def test_numbers_are_the_papers(paper):
    recipe = load_recipe("table-classification")
    ours = {
        one.name: [one.paper[dataset][score] for dataset in recipe.papers for score in recipe.scores]
        for one in recipe.variants
    }
    assert ours == paper["performance"]
    news = load_recipe("table-recommendation")
    ours = {one.name: [one.paper["mind"][score] for score in news.scores] for one in news.variants if one.paper}
    assert ours == paper["recommendation"]
    ours = {one.name: one.paper["bing-ads"]["auc"] for one in load_recipe("table-conversion").variants}
    assert ours == {"Transformer": 0.7299, "Fastformer": 0.7394}
    summaries = {one.name: one.paper for one in load_recipe("table-summarization").variants}
    assert len(summaries) == 7
    assert summaries["Transformer"]["cnn-dailymail"] == {"rouge1": 38.52, "rouge2": 16.04, "rougeLsum": 35.87}
    assert summaries["Poolingformer"]["pubmed"] == {"rouge1": 37.82, "rouge2": 15.15, "rougeLsum": 34.63}
    assert max(summaries, key=lambda name: summaries[name]["pubmed"]["rouge1"]) == "Fastformer"


def test_every_quoted_sentence_is_in_the_paper(paper):
    quotes = [claim.quote for name in CLASSIFICATION for claim in load_recipe(name).claims]
    quotes.append(load_recipe("table-complexity").own["quote"])
    assert sorted(map(_digest, quotes)) == paper["quotes"]["digests"]
    quotes = [claim.quote for claim in load_recipe("table-recommendation").claims]
    assert sorted(map(_digest, quotes)) == paper["recommendation quotes"]


def _digest(quote: str) -> str:
    return hashlib.sha256(quote.encode()).hexdigest()[:16]


def test_statistics_are_the_papers(paper):
    own = load_recipe("table-datasets").own
    assert {title: numbers for title, *numbers in own["classification"].values()} == paper["datasets"]
    assert {title: numbers for title, *numbers in own["summarization"]["rows"]} == paper["summarization datasets"]
    assert own["recommendation"] == paper["recommendation dataset"]


def test_orders_of_complexity_are_the_papers(paper):
    counted = complexity(width=32, heads=2, length=16)["methods"]
    assert {mixer: f"O({counted[mixer]['paper_order']})" for mixer in paper["complexity"]} == paper["complexity"]


ROWS = {
    "num_hidden_layers": "# Encoder Layer",
    "window_size": "Window size (Longformer, BigBird)",
    "pooling_window_size": "Window size (Poolingformer)",
    "block_size": "Block length (BigBird)",
    "projection_size": "Projection dimension (Linformer)",
    "num_attention_heads": "# Attention Head",
    "hidden_size": "Hidden dimension",
    "hidden_dropout_prob": "Dropout",
}


@pytest.mark.parametrize(("dataset", "column"), [("amazon", 0), ("imdb", 1), ("mind", 2)])
def test_full_scale_is_the_papers_table_to_the_letter(paper, dataset, column, tmp_path):
    printed = {row: cells[column] for row, cells in paper["hyper"].items()}
    rows = ROWS | {"num_global_tokens": "# Global Token", "num_random_tokens": "# Random Token"}
    recipe = load_recipe("table-classification")
    for variant in recipe.variants:
        settings = settings_of(recipe, "full", variant, tmp_path, dataset)
        assert {name: settings.model[name] for name in rows} == {name: printed[row] for name, row in rows.items()}
        method = "Transformer" if variant.settings["mixer"] == "transformer" else "others"
        assert settings.max_length == printed[f"Maximum Text Length ({method})"]
        training = settings.training
        assert (training.batch_size, training.epochs) == (printed["Batch Size"], printed["Max Epochs"])
        assert training.learning_rate == printed["Learning Rate"]
        assert (training.weight_decay, training.schedule, training.seed) == (0.0, "constant", 3)
        assert settings.tokenizer == "nltk"
        assert settings.mixer == variant.settings["mixer"]
        assert "interaction" not in settings.model  # Fastformer's is the product


def test_full_scale_of_recommendation_too(paper, plm, tmp_path):  # noqa: F811
    printed, recipe = paper["recommendation hyper"].__getitem__, load_recipe("table-recommendation")
    for variant in recipe.variants:
        if variant.trains and not variant.own_sizes:
            settings = settings_of(recipe, "full", variant, tmp_path, "mind", encoder=str(plm))
            assert settings.max_length == printed("Maximum Text Length (others)")
            assert settings.history_length == printed("Maximum User Behaviors")
            assert settings.training.batch_size == printed("Batch Size")
            assert settings.training.epochs == printed("Max Epochs")
            assert {name: settings.model[name] for name in ROWS} == {name: printed(row) for name, row in ROWS.items()}
            assert settings.training.learning_rate == 1e-4
            assert settings.training.learning_rate * settings.training.pretrained_rate == pytest.approx(3e-6)


def test_the_main_table_has_every_method():
    mixers = [one.settings["mixer"] for one in load_recipe("table-classification").variants]
    assert len(mixers) == len(set(mixers)) == 7
    assert set(mixers) <= set(available_mixers())


def test_scales_reduce_all_methods_alike(tmp_path):
    for name in ("table-classification", "table-summarization"):
        recipe = load_recipe(name)
        for scale in ("cpu", "small"):
            for dataset in (*recipe.papers, None):
                settings = [settings_of(recipe, scale, one, tmp_path, dataset) for one in recipe.variants]
                sizes = {(one.max_length, one.training, one.tokenizer, one.model["hidden_size"]) for one in settings}
                assert len(sizes) == 1
    with pytest.raises(UserError, match="choose from full, cpu, small"):
        load_recipe("table-classification").scale("version")


def test_full_summaries_are_the_presets(tmp_path):
    recipe, preset = load_recipe("table-summarization"), get_task("summarization").settings
    for variant in recipe.variants:
        for paper in recipe.papers:
            found = settings_of(recipe, "full", variant, tmp_path, paper)
            own = {"text_column": "article", "label_column": "summary", "follow": False, "language": "en"}
            assert found == preset(f"paper-{paper}", **variant.settings, **own, seed=3)


def test_few_documents_are_read_more_often(tmp_path):
    recipe = load_recipe("table-summarization")
    epochs = {
        rows: settings_of(recipe, "cpu", recipe.variants[0], tmp_path, rows=rows).training.epochs
        for rows in (40, 1000, 3000, 90_000)
    }
    assert epochs == {40: 15, 1000: 6, 3000: 2, 90_000: 1}


def test_the_same_model_has_the_same_name_everywhere():
    names = {
        name: [one.run_name for one in load_recipe(name).variants] for name in (*CLASSIFICATION, "table-recommendation")
    }
    assert names["table-classification"][-1] == names["figure-interaction"][0] == names["figure-sharing"][3]
    assert names["figure-interaction"][1] == "fastformer,interaction=add"
    assert "fastformer+plm-nr" in names["table-recommendation"]
    assert "linformer" in names["table-recommendation"]


def test_a_variation_changes_one_setting(tmp_path):
    recipe = load_recipe("table-variations")
    first, *others = [chosen(settings_of(recipe, "full", one, tmp_path, "amazon")) for one in recipe.variants]
    table = load_recipe("table-classification")
    assert first == chosen(settings_of(table, "full", table.variants[-1], tmp_path, "amazon"))
    flat = [{**one, **one["model"], **one["training"], "model": None, "training": None} for one in (first, *others)]
    changes = [{name for name in {*flat[0], *one} if flat[0].get(name) != one.get(name)} for one in flat[1:]]
    assert all(len(one) == 1 for one in changes)
    assert len({one.run_name for one in recipe.variants}) == len(recipe.variants)
    names = [one.run_name for one in recipe.variants]
    assert names[1:4] == ["fastformer,learning_rate=0.0003", "fastformer,schedule=linear", "fastformer,epochs=6"]
    assert not {*names[1:]} & {one.run_name for one in table.variants}


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_about_variants_of_their_recipe(name):
    recipe = load_recipe(name)
    for claim in recipe.claims:
        assert {*claim.better, *claim.than} <= {variant.name for variant in recipe.variants}
        assert set(claim.paper) <= set(recipe.papers)
    assert recipe.answer_column or not recipe.variants


def test_a_command_with_a_name_that_is_not_utf8_can_be_written_down():
    line = Options(output=Path("caf\udce9")).command("table-complexity", ["output"])
    assert line.encode().decode() == line
    assert "caf\\udce9" in line
