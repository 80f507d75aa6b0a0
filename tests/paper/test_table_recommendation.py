"""The table of news recommendation: the paper's numbers, every method on tiny simulated clicks, and its mistakes."""

import hashlib
import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from fastformer.cli import main
from fastformer.errors import UserError
from fastformer.paper import grid, recommendation, table_recommendation
from fastformer.paper.datasets import Dataset
from fastformer.paper.recipes import load_recipe
from fastformer.paper.recommendation import Method, load_methods, load_scale, locate
from fastformer.runs.folder import open_run
from fastformer.tasks import declared
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics
from fastformer.tasks.recommendation.mind import read_mind

from ..tasks.recommendation.conftest import cache, clicks, folders, plm  # noqa: F401  fixtures
from .test_recipes import paper  # noqa: F401  a fixture

METHODS = [Method(**fields) for fields in load_recipe("table-recommendation")["methods"]]
PAPERS = [method for method in METHODS if method.paper]


def test_numbers_are_the_papers(paper):  # noqa: F811
    assert {method.name: method.paper for method in PAPERS} == paper["recommendation"]


def test_quotes_are_the_papers(paper):  # noqa: F811
    claims = load_recipe("table-recommendation")["claims"]
    digests = [hashlib.sha256(claim.quote.encode()).hexdigest()[:16] for claim in claims]
    assert sorted(digests) == paper["recommendation quotes"]
    for claim in claims:
        assert {*claim.better, *claim.than} <= {method.name for method in METHODS}


def test_full_scale_is_the_papers_table_to_the_letter(paper):  # noqa: F811
    printed = paper["recommendation hyper"].__getitem__
    assert load_scale("full").settings == {}
    for method in METHODS:
        if method.trains and method.model != "fim":
            presets = declared()["recommendation"].presets
            preset = presets.get_settings(load_scale("full").preset, recommender=method.model)
            assert preset.max_length == printed("Maximum Text Length (others)")
            assert preset.history_length == printed("Maximum User Behaviors")
            assert preset.training.batch_size == printed("Batch Size")
            assert preset.training.epochs == printed("Max Epochs")
            assert preset.model["num_hidden_layers"] == printed("# Encoder Layer")
            assert preset.model["num_attention_heads"] == printed("# Attention Head")
            assert preset.model["hidden_size"] == printed("Hidden dimension")
            assert preset.model["hidden_dropout_prob"] == printed("Dropout")
            assert preset.model["window_size"] == printed("Window size (Longformer, BigBird)")
            assert preset.model["pooling_window_size"] == printed("Window size (Poolingformer)")
            assert preset.model["block_size"] == printed("Block length (BigBird)")
            assert preset.model["projection_size"] == printed("Projection dimension (Linformer)")
            assert preset.training.learning_rate == 1e-4
            assert preset.training.learning_rate * preset.training.pretrained_rate == pytest.approx(3e-6)


def test_methods_with_a_pre_trained_encoder_need_one():
    without = [method.name for method in load_methods(None)]
    assert without == [method.name for method in METHODS if "PLM" not in method.name]
    assert load_methods("folder") == METHODS


@pytest.fixture(scope="module")
def trainings():
    """The names of the runs that were made, all in this process."""
    names = []

    def here(train, job, folder, show):
        assert train is recommendation.train_run
        names.append(job.name)
        return train(job, folder, show)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "in_own_process", here)
        yield names


TINY_SIZES = {"hidden_size": 16, "num_attention_heads": 2}
TINY_SCALE = {"max_length": 8, "history_length": 6, "epochs": 1, "model": TINY_SIZES}
COMPARED = [
    *("random order", "popularity", "co-occurrence", "NRMS", "FIM", "Linformer", "Fastformer", "Fastformer*"),
    "Fastformer+PLM-NR",
]  # one of each kind: the other mixers differ by a name only


@pytest.fixture(scope="module")
def table(folders, plm, trainings, tmp_path_factory):  # noqa: F811
    """The folder and the report of some methods, on 30 simulated users."""
    output = tmp_path_factory.mktemp("reproduce")
    options = {"output": output, "scale": "small", "seeds": 1, "plm": str(plm), "show_progress": False}
    module = sys.modules["fastformer.paper.table_recommendation"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_scale", lambda name: replace(load_scale(name), settings=TINY_SCALE))
        patch.setattr(module, "load_methods", lambda plm: [one for one in load_methods(plm) if one.name in COMPARED])
        yield output, table_recommendation([f"toys:mind={folders}"], **options), options


def test_every_method_has_its_row_and_the_papers_numbers(table):
    output, report, _ = table
    text = (output / "table-recommendation.md").read_text(encoding="utf-8")
    variants = report["datasets"]["toys"]["variants"]
    assert list(variants) == COMPARED
    for method in METHODS:
        if method.name not in COMPARED:
            continue
        [line] = [line for line in text.splitlines() if line.startswith(f"| {method.name} ")]
        for score in METRICS:
            assert 0 < variants[method.name][score]["mean"] <= 100
            assert f"{variants[method.name][score]['mean']:.2f}" in line
        for number in method.paper or []:
            assert f"{number:.2f}" in line
    assert "**71.04**" in text
    assert [claim["than"] for claim in report["claims"]] == [["NRMS"]]  # the others are of methods left out
    assert "It stands for the paper's MIND" in text
    assert "The best ranker without text is " in text
    assert json.loads((output / "table-recommendation.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(report)
    )
    assert not list(output.rglob("*.safetensors"))


def test_scores_are_those_of_the_runs_on_dev(table, folders):  # noqa: F811
    output, report, _ = table
    dev = read_mind(folders / "dev")
    variants = report["datasets"]["toys"]["variants"]
    [run] = variants["Linformer"]["runs"]
    scores = np.load(output / run.replace(".json", ".npy"))
    found = impression_metrics(scores, dev.labels, dev.candidates.offsets)
    metrics = json.loads((output / run).read_text(encoding="utf-8"))["metrics"]
    assert metrics["test"] == found
    assert variants["Linformer"]["auc"]["mean"] == 100 * found["auc"]


def test_an_ensemble_averages_scores(table, folders):  # noqa: F811
    output, report, _ = table
    dev = read_mind(folders / "dev")
    files = sorted((output / "runs" / "toys").glob("fastformer-seed*.npy"))
    assert len(files) == load_scale("small").ensemble == 2  # one more than --seeds
    average = np.mean([np.load(file) for file in files], axis=0)
    found = impression_metrics(average, dev.labels, dev.candidates.offsets)
    ensemble = report["datasets"]["toys"]["variants"]["Fastformer*"]
    assert ensemble["mrr"] == {"mean": pytest.approx(100 * found["mrr"]), "std": None, "all": [ensemble["mrr"]["mean"]]}


def test_a_run_is_made_once_and_again_when_its_scores_are_gone(table, trainings, folders):  # noqa: F811
    output, report, options = table
    before = len(trainings)
    assert before == len(set(trainings)) == 5 + 1
    data = [f"toys:mind={folders}"]
    assert table_recommendation(data, **options) == report
    assert len(trainings) == before
    next((output / "runs" / "toys").glob("nrms-seed0-*.npy")).unlink()
    again = table_recommendation(data, **options)["datasets"]["toys"]["variants"]["NRMS"]
    assert trainings[before:] == ["toys/nrms-seed0"]
    assert again["auc"] == report["datasets"]["toys"]["variants"]["NRMS"]["auc"]


def test_another_encoder_of_the_same_size_is_another_run(plm, folders, tmp_path):  # noqa: F811
    other = shutil.copytree(plm, tmp_path / "other")
    weights = {name: weight + 1 for name, weight in load_file(plm / "model.safetensors").items()}
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    assert (other / "model.safetensors").stat().st_size == (plm / "model.safetensors").stat().st_size
    scale = load_scale("small")
    prepared = recommendation.prepare(Dataset.parse(f"x={folders}"), scale)
    [method] = [method for method in METHODS if method.name == "PLM-NR"]
    shutil.copytree(plm, tmp_path / "copy")
    first, same, another = (
        recommendation._job(prepared, method, scale, 0, str(place)) for place in (plm, tmp_path / "copy", other)
    )
    assert first.settings == same.settings
    assert first.settings != another.settings


def test_glove_is_for_methods_without_an_encoder_of_their_own(table, plm, folders, tmp_path):  # noqa: F811
    output, report, _ = table
    assert report["glove"] is None
    assert "Word vectors start at random" in (output / "table-recommendation.md").read_text(encoding="utf-8")
    (tmp_path / "glove.txt").write_text("the 1 2\nof 3 5\na 2 1\n")
    scale = replace(load_scale("small"), settings=TINY_SCALE)
    prepared = recommendation.prepare(Dataset.parse(f"x={folders}"), scale)
    nrms, plm_nr = (next(one for one in METHODS if one.name == name) for name in ("NRMS", "PLM-NR"))
    starts = str(plm), str(tmp_path / "glove.txt")
    without, with_glove = (recommendation._job(prepared, nrms, scale, 0, *one) for one in (starts[:1], starts))
    assert without.settings.keys() == with_glove.settings.keys() - {"glove"}
    assert "glove" not in recommendation._job(prepared, plm_nr, scale, 0, *starts).settings
    recommendation.train_run(with_glove, tmp_path / "run", False)
    assert open_run(tmp_path / "run").record["init"] == starts[1]


class TestData:
    def test_builtin_and_folders_of_any_case(self, folders, tmp_path):  # noqa: F811
        assert locate(Dataset.parse("x=builtin")) == {"train": "builtin:train", "test": "builtin:dev"}
        for name, split in (("MINDlarge_train", "train"), ("MINDlarge_dev", "dev"), ("MINDlarge_test", "test")):
            (tmp_path / name).symlink_to(folders / split)
        found = locate(Dataset.parse(f"x={tmp_path}"))
        assert found == {"train": str(tmp_path / "MINDlarge_train"), "test": str(tmp_path / "MINDlarge_dev")}

    def test_dev_picks_the_epoch_where_test_has_labels(self, folders, tmp_path):  # noqa: F811
        for name, split in (("train", "train"), ("valid", "dev"), ("test", "dev")):
            (tmp_path / name).symlink_to(folders / split)
        found = locate(Dataset.parse(f"x={tmp_path}"))
        assert {split: path[len(str(tmp_path)) + 1 :] for split, path in found.items()} == {
            "train": "train",
            "validation": "valid",
            "test": "test",
        }

    def test_mistakes(self, folders, tmp_path):  # noqa: F811
        with pytest.raises(UserError, match="needs folders train and dev"):
            locate(Dataset.parse(f"x={tmp_path}"))
        for name in ("train", "old-train"):
            (tmp_path / name).symlink_to(folders / "train")
        with pytest.raises(UserError, match="are both train"):
            locate(Dataset.parse(f"x={tmp_path}"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--data", "x=no/such"), ("--data x=no/such", "no such folder")),
        (("--data", "x:imdb=builtin"), ("MIND only", "x:mind=builtin")),
        (("--scale", "huge"), ("--scale 'huge'", "full, cpu, small")),
        (("--plm", "no/such"), ("no/such",)),
        (("--glove", "no-such-file"), ("no-such-file", "no such GloVe file")),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, arguments, parts):
    command = ["fastformer", "reproduce", "table-recommendation", *arguments, "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fastformer: ")]
    assert all(part in line for part in parts)
