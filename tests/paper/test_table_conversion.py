"""The conversion table: made from runs that are made once, with the paper's numbers beside ours."""

import importlib
import json

import pytest

from fastformer.bench.conversion import _percentiles, measure_latency, measure_lists
from fastformer.errors import UserError
from fastformer.paper import grid, table_conversion
from fastformer.paper.conversion_runs import conversion_scale, describe, prepare_conversion, run_job, training_job
from fastformer.paper.datasets import Dataset
from fastformer.paper.recipes import load_recipe
from fastformer.runs.folder import open_run
from fastformer.tasks.conversion.declaration import CONVERSION
from fastformer.tasks.conversion.events import Columns, event_of

from ..tasks.conftest import write_jsonl
from ..tasks.conversions import TINY, make_events

SMALL = {
    "says": "Tiny.",
    "seeds": 2,
    "list_events": 40,
    "requests": 3,
    "list_requests": 2,
    "steps": 1,
    "rows": {"train": 120, "test": 40},
    "training": {"batch_size": 32, "learning_rate": 5e-3, "epochs": 1},
    "preset": {"tokenizer": "word", "max_length": 6, "max_behaviors": 5},
    "model": TINY.model,
}
RECIPE = {**load_recipe("table-conversion"), "lists": [4, 40], "scales": {"small": SMALL}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conversions")
    for seed, (split, count) in enumerate({"train": 200, "validation": 30, "test": 60}.items()):
        write_jsonl(folder / f"{split}.jsonl", make_events(count, seed))
    return folder


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """A report, its folder, and the names of the jobs that were run, in this process."""
    output, names = tmp_path_factory.mktemp("reports"), []

    def here(train, job, place, show):
        assert train is run_job
        names.append(job.name)
        return train(job, place, show)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "in_own_process", here)
        module = importlib.import_module("fastformer.paper.table_conversion")  # the package has the function
        patch.setattr(module, "load_recipe", lambda name: RECIPE)
        options = {"output": output, "scale": "small", "show_progress": False}
        report = table_conversion([f"things={folder}"], **options)
        again = table_conversion([f"things={folder}"], **options)
    assert again == report
    return report, output, names


def test_every_run_is_made_once(made):
    _, output, names = made
    expected = ["simulated/conversion-lists-4", "simulated/conversion-lists-40"]
    expected += ["things/conversion-floors", "things/conversion-latency"]
    expected += [f"things/conversion-{mixer}-seed{seed}" for seed in (0, 1) for mixer in ("transformer", "fastformer")]
    assert names == expected
    files = [path.relative_to(output / "runs").as_posix() for path in (output / "runs").rglob("*.json")]
    assert sorted(file.rsplit("-", 1)[0] for file in files) == sorted(expected)


def test_the_report_has_our_numbers_and_the_papers(made):
    report, output, _ = made
    things = report["datasets"]["things"]
    assert things["about"]["rows"] == {"train": 120, "validation": 30, "test": 40}
    assert things["about"]["rows_in_source"] == {"train": 200, "validation": 30, "test": 60}
    for name, paper in (("Transformer", 0.7299), ("Fastformer", 0.7394)):
        one = things["variants"][name]
        assert one["paper"]["auc"] == paper
        assert 0 < one["auc"]["mean"] < 1
        assert len(one["auc"]["all"]) == 2
        for batch in ("1", "64"):
            for kind in ("whole", "stored"):
                assert 0 < one["latency"][batch][kind]["p50_ms"] <= one["latency"][batch][kind]["max_ms"]
        assert report["lists"]["40"][name]["step"]["peak_memory_mb"] > 0
    text = (output / "table-conversion.md").read_text()
    assert json.loads((output / "table-conversion.json").read_text()) == json.loads(json.dumps(report))
    for part in ("0.7299", "0.7394", "30 GB", "163 ms (-7.2%)", "the ad's own rate", "40 × 1", "--scale small"):
        assert part in text
    assert "effectiveness and efficiency" in text
    assert "p50 / maximum of 3 requests" in text


def test_the_scales_of_the_recipe():
    recipe = load_recipe("table-conversion")
    full = conversion_scale(recipe, "full").settings(3)
    assert full.training.seed == 3
    assert full.model == CONVERSION.presets["paper"]["model"]
    assert (full.max_length, full.max_behaviors, full.training.batch_size) == (48, 50, 64)
    assert conversion_scale(recipe, "cpu").settings().model["hidden_size"] < 256
    with pytest.raises(UserError, match="unknown --scale 'x'; choose from full, cpu, small"):
        conversion_scale(recipe, "x")


def test_the_same_rows_are_drawn_and_other_files_are_other_data(folder, tmp_path):
    scale = conversion_scale(RECIPE, "small")
    dataset = Dataset("things", None, str(folder))
    first, again = (prepare_conversion(dataset, scale, tmp_path / name, 0, False) for name in "ab")
    assert first.about == again.about
    with open(first.files["train"]) as one, open(again.files["train"]) as other:
        assert one.read() == other.read()
    assert first.files["validation"] == str(folder / "validation.jsonl")
    assert (
        prepare_conversion(dataset, scale, tmp_path / "a", 1, False).about["fingerprint"] != first.about["fingerprint"]
    )


def test_a_folder_without_splits_is_refused(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", make_events(5, 0))
    with pytest.raises(UserError, match="no train and test file"):
        prepare_conversion(Dataset("x", None, str(tmp_path)), conversion_scale(RECIPE, "small"), tmp_path, 0, False)


def test_glove_is_part_of_what_determines_a_run(made, folder, tmp_path):
    report, output, _ = made
    assert report["glove"] is None
    assert "Word vectors start at random" in (output / "table-conversion.md").read_text()
    scale, [variant, *_] = conversion_scale(RECIPE, "small"), RECIPE["variants"]
    data = prepare_conversion(Dataset("things", None, str(folder)), scale, tmp_path / "out", 0, False)
    for name, numbers in (("one", "1 2"), ("two", "3 4"), ("copy", "1 2")):
        (tmp_path / name).write_text(f"cat {numbers}\ndog 5 7\n")
    without, one, two, copy = (
        training_job(data, variant, scale, 0, glove and str(tmp_path / glove), 1)
        for glove in (None, "one", "two", "copy")
    )
    assert "glove" not in without.settings
    assert one.settings == copy.settings != two.settings
    metrics = run_job(one, tmp_path / "run", False)
    assert open_run(tmp_path / "run").record["init"] == str(tmp_path / "one")
    assert 0 <= metrics["test"]["auc"] <= 1
    with pytest.raises(UserError, match="none.txt: no such GloVe file"):
        table_conversion([f"things={folder}"], output=tmp_path / "out", glove="none.txt", show_progress=False)


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_label_is_no_data(folder, tmp_path, split):
    for name in ("train", "test"):
        rows = make_events(60, 0)
        if name == split:
            rows = [{**row, "label": 0} for row in rows]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    dataset, scale = Dataset("x", None, str(tmp_path)), conversion_scale(RECIPE, "small")
    for _ in range(2):  # nothing is left behind that hides it
        with pytest.raises(UserError, match=rf"{split}.jsonl: the \d+ {split} rows have one label only"):
            prepare_conversion(dataset, scale, tmp_path / "out", 0, False)


def test_of_few_requests_the_maximum_is_told():
    assert _percentiles([0.001] * 99) == {"p50_ms": 1.0, "max_ms": 1.0}
    assert _percentiles([0.001] * 99 + [1.0] * 2) == {"p50_ms": 1.0, "p99_ms": 1000.0}


def test_measurements_of_any_mixer():
    events = [event_of("", row, Columns(), labelled=True) for row in make_events(20, 0)]
    found = measure_latency(events, TINY, ["linear"], requests=2)
    assert set(found) == {"1", "64"}
    lists = measure_lists(20, TINY, ["linear"], behaviors=60, requests=2, steps=1)
    assert lists["rows"] == 3
    assert lists["step"]["linear"]["seconds"] > 0


def test_results_in_a_few_words():
    assert describe({"test": {"auc": 0.71239}}) == "AUC 0.7124"
    assert describe({"floors": {"ad": {"auc": 0.6}}}) == "ad 0.6000"
    assert describe({"latency": {}}) == "measured"
