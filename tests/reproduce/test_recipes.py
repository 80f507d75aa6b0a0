"""Recipes hold what the paper says: its numbers and sentences, compared with its LaTeX where that is at hand."""

import re
from dataclasses import dataclass

import pytest

from fastformer.benchmark.complexity import complexity
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.reproduce.comparison import chosen, settings_of
from fastformer.reproduce.recipes import PAPER_DATASETS, load_recipe, load_scale
from fastformer.training import TrainingSettings

RECIPES = ("table-classification", "figure-interaction", "figure-sharing", "table-complexity", "table-datasets")


@pytest.fixture(scope="module")
def latex(shared) -> str:
    [path] = (shared / "paper").glob("*.txt")
    return path.read_text(encoding="utf-8")


def plain(latex: str) -> str:
    return " ".join(re.sub(r"\\textit\{(.*?)\}|\\textbf\{(.*?)\}", r"\1\2", latex).split())


def cells(latex: str, start: str, label: str) -> list[str]:
    """The cells of the last table line before `label` that begins with `start`."""
    table = latex[: latex.index(label)]
    line = [line for line in table.splitlines() if line.startswith(start)][-1]
    line = re.sub(r"\\textbf\{(.*?)\}", r"\1", line.partition("\\\\")[0])
    return [cell.strip(" $") for cell in line.split("&")][1:]


def test_numbers_of_the_main_table_are_the_papers(latex):
    for variant in load_recipe("table-classification")["variants"]:
        printed = [cell.split(r"$\pm$") for cell in cells(latex, variant.name, "table.performance} ")]
        ours = [variant.paper[dataset][score] for dataset in PAPER_DATASETS for score in ("accuracy", "macro_f")]
        assert ours == [[float(part) for part in cell] for cell in printed]


def test_every_quoted_sentence_is_in_the_paper(latex):
    quotes = [claim.quote for name in RECIPES for claim in load_recipe(name)["claims"]]
    quotes.append(load_recipe("table-complexity")["quote"])
    assert len(quotes) == 8
    for quote in quotes:
        assert quote in plain(latex)


def test_statistics_are_the_papers(latex):
    recipe = load_recipe("table-datasets")
    for title, *numbers in recipe["classification"].values():
        assert numbers == cells(latex, title, r"\label{dataset}")
    for title, *numbers in recipe["summarization"]["rows"]:
        assert numbers == cells(latex, title, r"\label{dataset3}")
    table = plain(latex[: latex.index(r"\label{dataset2}")].replace("\\", ""))
    for title, number in recipe["recommendation"].items():
        assert re.search(rf"{re.escape(title)}\s*&\s*{number}", table)


def test_orders_of_complexity_are_the_papers(latex):
    written = {"N^2": "N²", r"\cdot": "·", "d^2": "d²", r"\epsilon^2": "ε²", " ": ""}
    names = {
        "transformer": "Transformer",
        "linear": "Linear Transformer",
        "bigbird": "BigBird",
        **{name: name.capitalize() for name in ("longformer", "linformer", "poolingformer", "fastformer")},
    }
    counted = complexity(width=32, heads=2, length=16)["methods"]
    for mixer, title in names.items():
        [order] = cells(latex, f"{title} ", r"\label{complexity}")
        for tex, ours in written.items():
            order = order.replace(tex, ours)
        assert f"O({counted[mixer]['paper_order']})" == order


@pytest.mark.parametrize(("dataset", "column"), [("amazon", 0), ("imdb", 1), ("mind", 2)])
def test_full_scale_is_the_papers_table_to_the_letter(latex, dataset, column):
    def printed(row: str) -> str:
        return cells(latex, row, r"\label{hyper}")[column].replace(",", "")

    rows = {
        "num_hidden_layers": r"\# Encoder Layer",
        "num_global_tokens": r"\# Global Token",
        "num_random_tokens": r"\# Random Token",
        "window_size": "Window size (Longformer, BigBird)",
        "pooling_window_size": "Window size (Poolingformer)",
        "block_size": "Block length (BigBird)",
        "projection_size": "Projection dimension (Linformer)",
        "num_attention_heads": r"\# Attention Head",
        "hidden_size": "Hidden dimension",
    }
    for variant in load_recipe("table-classification")["variants"]:
        settings = settings_of(variant, load_scale("full"), dataset, seed=3)
        assert {name: settings.model[name] for name in rows} == {name: int(printed(row)) for name, row in rows.items()}
        method = "Transformer" if variant.mixer == "transformer" else "others"
        assert settings.max_length == int(printed(f"Maximum Text Length ({method})"))
        assert settings.model["hidden_dropout_prob"] == float(printed("Dropout"))
        training = settings.training
        assert (training.batch_size, training.epochs) == (int(printed("Batch Size")), int(printed("Max Epochs")))
        assert training.learning_rate == float(printed("Learning Rate"))
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
