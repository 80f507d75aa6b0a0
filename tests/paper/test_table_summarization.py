"""The summarization table: made from runs that are made once, with the paper's numbers beside ours."""

import importlib
import json
import shutil
from pathlib import Path

import pytest

from fastformer.errors import Interrupted, UserError
from fastformer.paper import grid, table_summarization
from fastformer.paper.datasets import Dataset
from fastformer.paper.recipes import Claim, Variant, load_recipe
from fastformer.paper.summarization_runs import prepare_summarization, run_job, summarization_scale, training_job
from fastformer.tasks import get_task
from fastformer.tasks.summarization.documents import Document, read_documents
from fastformer.tasks.summarization.predictor import SummaryPredictor

from ..tasks.conftest import write_jsonl
from ..tasks.summarization.conftest import TINY, make_documents

SMALL = {
    "says": "Tiny.",
    "seeds": 2,
    "step_length": 48,
    "steps": 1,
    "rows": {"train": 40, "test": 8},
    "preset": {"tokenizer": "word", "vocab_size": 100, "max_length": 24, "max_summary_length": 8, "beams": 2},
    "training": {"batch_size": 16, "learning_rate": 5e-3, "epochs": 1},
    "model": {**TINY.model, "window_size": 8, "pooling_window_size": 16, "block_size": 4},
}
RECIPE = load_recipe("table-summarization")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    for seed, (split, count) in enumerate({"train": 60, "val": 8, "test": 12}.items()):
        write_jsonl(folder / f"{split}.jsonl", make_documents(count, seed))
    return folder


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """A report, its folder, and the names of the jobs that were run, in this process."""
    output, names = tmp_path_factory.mktemp("reports"), []

    def here(train, job, place, show):
        assert train is run_job
        names.append(job.name)
        return train(job, place, show)

    two = {**RECIPE, "variants": [one for one in RECIPE["variants"] if one.name in ("Transformer", "Fastformer")]}
    claims = [Claim("Of PubMed.", ["Fastformer"], ["Transformer"], paper=["pubmed"])]
    claims.append(Claim("Of CNN/DM.", ["Fastformer"], ["Transformer"], paper=["cnn-dailymail"]))
    two |= {"scales": {"small": SMALL}, "claims": claims}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "in_own_process", here)
        module = importlib.import_module("fastformer.paper.table_summarization")  # the package has the function
        patch.setattr(module, "load_recipe", lambda name: two)
        options = {"output": output, "scale": "small", "show_progress": False}
        report = table_summarization([f"things:pubmed={folder}"], **options)
        again = table_summarization([f"things:pubmed={folder}"], **options)
    assert again == report
    return report, output, names


def test_every_run_is_made_once(made):
    _, output, names = made
    assert len(names) == len(set(names)) == 1 + 2 * 2
    assert len(list(output.glob("runs/things/*.json"))) == 4
    assert not list(output.rglob("*.safetensors"))


def test_the_report_has_ours_the_papers_and_the_baselines(made):
    report, output, _ = made
    text = (output / "table-summarization.md").read_text(encoding="utf-8")
    assert json.loads((output / "table-summarization.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(report)
    )
    [ours] = [line for line in text.splitlines() if line.startswith("| Fastformer ") and "38.09" in line]
    found = report["datasets"]["things"]["variants"]["Fastformer"]
    for score in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert f"{found[score]['mean']:.2f} ± {found[score]['std']:.2f}" in ours
    assert all(number in ours for number in ("38.09", "15.44", "34.81"))
    assert all(f"| {name} " in text for name in ("lead 3", "random 3", "lead 1", "random 1"))
    [header] = [line for line in text.splitlines() if line.startswith("| method ") and "ROUGE-1" in line]
    columns = [column.strip() for column in header.split("|")]
    assert [columns[columns.index(f"ROUGE-{one}") + 1] == "paper's" for one in ("1", "2", "L", "Lsum")] == [
        True, True, False, True
    ]  # fmt: skip
    assert ours.split("|")[columns.index("ROUGE-Lsum") + 1].strip() == "34.81"
    assert "so it stands beside Lsum." in text
    assert "> Of PubMed." in text
    assert "Of CNN/DM." not in text  # these documents do not stand for it
    [verdict] = [line for line in text.splitlines() if line.startswith("- things: ")]
    assert [one for one in ("ROUGE-1 F", "ROUGE-2 F", "ROUGE-L F", "ROUGE-Lsum F") if one in verdict] == [
        "ROUGE-1 F", "ROUGE-2 F", "ROUGE-Lsum F"
    ]  # fmt: skip
    assert "stands for the paper's PubMed" in text
    assert "What 48 tokens cost" in text
    assert "40 train, 8 validation, 8 test documents" in text
    step = report["step"]["variants"]
    assert step["Fastformer"]["peak_memory_mb"] > 0
    assert step["Transformer"]["seconds"] > 0


def test_the_recipe_has_the_papers_table():
    paper = {one.name: one.paper for one in RECIPE["variants"]}
    assert len(paper) == 7
    assert paper["Transformer"]["cnn-dailymail"] == {"rouge1": 38.52, "rouge2": 16.04, "rougeLsum": 35.87}
    assert paper["Poolingformer"]["pubmed"] == {"rouge1": 37.82, "rouge2": 15.15, "rougeLsum": 34.63}
    best = max(paper, key=lambda name: paper[name]["pubmed"]["rouge1"])
    assert best == "Fastformer"


@pytest.mark.parametrize("name", ["full", "cpu", "small"])
@pytest.mark.parametrize("mixer", ["fastformer", "transformer", "bigbird"])
def test_every_scale_makes_settings(name, mixer):
    scale, paper_settings = summarization_scale(RECIPE, name), get_task("summarization").settings
    for paper in ("cnn-dailymail", "pubmed"):
        settings = scale.settings(paper, mixer, seed=3)
        assert settings.training.seed == 3
        assert settings.max_length <= paper_settings(f"paper-{paper}", mixer=mixer).max_length
        if name == "full":
            assert settings == paper_settings(f"paper-{paper}", mixer=mixer, seed=3)


def test_few_documents_are_read_more_often():
    scale = summarization_scale(RECIPE, "cpu")
    epochs = {
        count: scale.settings(None, "linear", documents=count).training.epochs for count in (40, 1000, 3000, 90_000)
    }
    assert epochs == {40: 15, 1000: 6, 3000: 2, 90_000: 1}


def test_splits_may_be_folders_of_stories(tmp_path):
    for split in ("train", "validation", "test"):
        (tmp_path / "cnn" / split).mkdir(parents=True)
        for number in range(3):
            story = f"Story {number} of {split}.\n\n@highlight\n\nA {number}\n"
            (tmp_path / "cnn" / split / f"{number}.story").write_text(story, encoding="utf-8")
    scale = summarization_scale({"scales": {"tiny": {**SMALL, "rows": {"train": 2}}}}, "tiny")
    dataset = Dataset("cnn", "cnn-dailymail", str(tmp_path / "cnn"))
    found = prepare_summarization(dataset, scale, tmp_path, show_progress=False)
    assert found.about["rows"] == {"train": 2, "validation": 3, "test": 3}
    assert found.about["rows_in_source"]["train"] == 3
    assert next(read_documents(found.files["test"])) == Document("Story 0 of test.", "A 0 .")
    assert prepare_summarization(dataset, scale, tmp_path, show_progress=False) == found
    shutil.move(tmp_path / "data", tmp_path / "moved" / "data")
    moved = prepare_summarization(dataset, scale, tmp_path / "moved", show_progress=False)
    assert moved.about == found.about
    assert all(Path(file).is_file() for file in moved.files.values())


def test_test_rows_do_not_depend_on_a_validation_file(folder, tmp_path):
    scale = summarization_scale({"scales": {"tiny": {**SMALL, "rows": {"test": 4}}}}, "tiny")
    without = tmp_path / "without"
    without.mkdir()
    for split in ("train", "test"):
        shutil.copy(folder / f"{split}.jsonl", without)
    found = [
        prepare_summarization(Dataset("things", None, str(place)), scale, tmp_path / place.name, show_progress=False)
        for place in (folder, without)
    ]
    given = list(read_documents(str(folder / "train.jsonl")))
    training, validating = (list(read_documents(found[1].files[split])) for split in ("train", "validation"))
    assert sorted(training + validating) == sorted(given)
    assert len(validating) == found[1].about["rows"]["validation"] == round(len(given) / 10)
    assert len({Path(one.files["test"]).read_text(encoding="utf-8") for one in found}) == 1


def test_a_run_that_was_stopped_while_it_was_scored_is_scored(folder, tmp_path, monkeypatch):
    scale = summarization_scale({"scales": {"tiny": SMALL}}, "tiny")
    data = prepare_summarization(Dataset("things", "pubmed", str(folder)), scale, tmp_path, show_progress=False)
    job = training_job(data, Variant("Fastformer"), scale, 0, None, 1)

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(SummaryPredictor, "evaluate", stopped)
        run_job(job, tmp_path / "run", False)
    trained = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    assert "model" in run_job(job, tmp_path / "run", False)["test"]["summaries"]
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == trained


def test_mistakes_are_one_line(folder, tmp_path):
    options = {"output": tmp_path, "show_progress": False}
    with pytest.raises(UserError, match="the paper has no dataset 'imdb'; write NAME=PATH.*cnn-dailymail, pubmed"):
        table_summarization([f"things:imdb={folder}"], **options)
    with pytest.raises(UserError, match="there is no train and test; give a folder"):
        table_summarization([f"things={tmp_path}"], **options)
    with pytest.raises(UserError, match="unknown --scale 'huge'; choose from full, cpu, small"):
        table_summarization([f"things={folder}"], scale="huge", **options)
    with pytest.raises(UserError, match=r"say which one it stands for, as in --data things:pubmed="):
        table_summarization([f"things={folder}"], scale="full", **options)
    with pytest.raises(UserError, match="none.txt: no such GloVe file"):
        table_summarization([f"things={folder}"], glove="none.txt", **options)
