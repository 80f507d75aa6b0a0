"""The tables of recommendation, conversion and summarization on tiny data: rows without a model, measurements, data."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import fastformer.paper
from fastformer.bench.conversion import _percentiles, measure_latency, measure_lists
from fastformer.cli import main
from fastformer.errors import UserError
from fastformer.paper import reproduce
from fastformer.paper.conversion import Events
from fastformer.paper.datasets import Dataset, prepare
from fastformer.paper.recipes import Options, Scale, load_recipe
from fastformer.paper.recommendation import Impressions, answered_scores
from fastformer.paper.studies import STUDIES
from fastformer.paper.summarization import Articles
from fastformer.tasks.conversion.events import Columns, event_of
from fastformer.tasks.recommendation.metrics import impression_metrics
from fastformer.tasks.recommendation.mind import read_mind
from fastformer.tasks.summarization.documents import Document, read_documents

from ..tasks.conftest import write_jsonl
from ..tasks.conversions import TINY as TINY_CONVERSION
from ..tasks.conversions import make_events
from ..tasks.recommendation.conftest import cache, clicks, folders, plm  # noqa: F401  fixtures
from ..tasks.summarization.conftest import TINY as TINY_SUMMARY
from ..tasks.summarization.conftest import make_documents

small = {"scale": "small", "show_progress": False}


def tiny(name: str, scale: Scale, **changed):
    """A recipe with a scale that takes seconds."""
    return replace(load_recipe(name), scales={"small": scale}, **changed)


def reproduced(recipe, *data, **options):
    """A report, made by a recipe of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastformer.paper, "load_recipe", lambda name: recipe)
        return reproduce(recipe.name, data, **small, **options)


def study(recipe, *data, output, **options):
    return STUDIES[recipe.task](recipe, Options(data=data, scale="small", output=output, **options), show=False)


def text_of(output: Path, name: str) -> str:
    return (output / f"{name}.md").read_text(encoding="utf-8")


# ---- recommendation --------------------------------------------------------------------------------------------------

COMPARED = [
    *("random order", "popularity", "co-occurrence", "NRMS", "FIM", "Linformer", "Fastformer", "Fastformer*"),
    "Fastformer+PLM-NR",
]  # one of each kind: the other mixers differ by a name only


@pytest.fixture(scope="module")
def recommendation():
    whole = load_recipe("table-recommendation")
    settings = {
        "max_length": 8,
        "history_length": 6,
        "epochs": 1,
        "model": {"hidden_size": 16, "num_attention_heads": 2},
    }
    scale = replace(whole.scale("small"), settings=settings)
    variants = [one for one in whole.variants if one.name in COMPARED]
    return tiny("table-recommendation", scale, variants=variants)


@pytest.fixture(scope="module")
def table(recommendation, folders, plm, commands, tmp_path_factory):  # noqa: F811
    """The folder and the report of some methods, on 30 simulated users."""
    output = tmp_path_factory.mktemp("reproduce")
    return output, reproduced(recommendation, f"toys:mind={folders}", output=output, seeds=1, plm=str(plm))


class TestRecommendation:
    def test_every_method_has_its_row_and_the_papers_numbers(self, table, recommendation):
        output, report = table
        text, variants = text_of(output, recommendation.name), report["datasets"]["toys"]["variants"]
        assert list(variants) == COMPARED
        for method in recommendation.variants:
            line = next(line for line in text.splitlines() if line.startswith(f"| {method.name} "))
            for score in recommendation.scores:
                assert 0 < variants[method.name][score]["mean"] <= 100
                assert f"{variants[method.name][score]['mean']:.2f}" in line
            for number in method.paper.get("mind", {}).values():
                assert f"{number:.2f}" in line
        assert [claim["than"] for claim in report["claims"]] == [["NRMS"]]  # the others are of methods left out
        assert "The best ranker without text is " in text
        assert json.loads((output / f"{recommendation.name}.json").read_text()) == json.loads(json.dumps(report))

    def test_scores_are_those_of_the_runs_on_dev_and_ensembles_average_them(self, table, recommendation, folders):  # noqa: F811
        output, report = table
        dev, variants = read_mind(folders / "dev"), report["datasets"]["toys"]["variants"]
        [run] = variants["Linformer"]["runs"]
        found = impression_metrics(
            answered_scores(output / run.replace(".json", ".parquet")), dev.labels, dev.candidates.offsets
        )
        assert variants["Linformer"]["auc"]["mean"] == pytest.approx(100 * found["auc"])
        files = sorted((output / "runs" / "toys").glob("recommendation-fastformer-seed*.parquet"))
        assert len(files) == recommendation.scale("small").own["ensemble"] == 2  # one more than --seeds
        average = np.mean([answered_scores(file) for file in files], axis=0)
        found = impression_metrics(average, dev.labels, dev.candidates.offsets)
        assert variants["Fastformer*"]["mrr"]["all"] == [pytest.approx(100 * found["mrr"])]

    def test_methods_with_a_pre_trained_encoder_need_one(self, recommendation, folders, tmp_path):  # noqa: F811
        without = study(recommendation, f"toys={folders}", output=tmp_path)
        assert [one.name for one in without.variants] == COMPARED[:-1]

    def test_starts_are_part_of_what_determines_a_run(self, recommendation, plm, folders, tmp_path):  # noqa: F811
        other = shutil.copytree(plm, tmp_path / "other")
        weights = {name: weight + 1 for name, weight in load_file(plm / "model.safetensors").items()}
        save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
        copy, glove = shutil.copytree(plm, tmp_path / "copy"), tmp_path / "glove.txt"
        glove.write_text("the 1 2\nof 3 5\na 2 1\n")

        def job(name, plm=plm, glove=None):
            made = study(recommendation, f"toys={folders}", output=tmp_path / "out", plm=str(plm), glove=glove)
            [variant] = [one for one in made.variants if one.name == name]
            return made.training(made.prepare(made.datasets[0]), variant, 0)

        first, same, another = (job("Fastformer+PLM-NR", place) for place in (plm, copy, other))
        assert first.determined_by == same.determined_by != another.determined_by
        assert "init" not in job("Fastformer+PLM-NR", glove=str(glove)).determined_by["settings"]
        assert job("NRMS", glove=str(glove)).settings.init == str(glove)
        assert job("NRMS", glove=str(glove)).determined_by != job("NRMS").determined_by

    @pytest.mark.parametrize(
        ("only", "given", "seeds"),
        [
            (["NRMS"], 1, {"nrms": 1}),
            (["Fastformer"], 1, {"fastformer": 1}),
            (["Fastformer*"], 1, {"fastformer": 2}),
            (["Fastformer*"], 3, {"fastformer": 2}),
        ],
    )
    def test_only_the_runs_that_a_row_needs_are_made(
        self,
        recommendation,
        folders,  # noqa: F811
        tmp_path,
        commands,
        only,
        given,
        seeds,
    ):
        before = len(commands.trained)
        report = reproduced(recommendation, f"toys:mind={folders}", output=tmp_path, seeds=given, only=only)
        made = [f"toys/recommendation-{name}-seed{seed}" for name, count in seeds.items() for seed in range(count)]
        assert commands.trained[before:] == made
        variants = report["datasets"]["toys"]["variants"]
        assert [name for name, one in variants.items() if "auc" in one and not one.get("floor")] == (
            ["Fastformer", *only] if only == ["Fastformer*"] else only
        )
        assert "--only" not in report["command"]  # it makes the whole table

    def locate(self, source):
        return Impressions().locate(Dataset("x", None, str(source)))

    def test_folders_of_any_case(self, folders, tmp_path):  # noqa: F811
        for name, split in (("MINDlarge_train", "train"), ("MINDlarge_dev", "dev"), ("MINDlarge_test", "test")):
            (tmp_path / name).symlink_to(folders / split)
        found = {"train": str(tmp_path / "MINDlarge_train"), "test": str(tmp_path / "MINDlarge_dev")}
        assert self.locate(tmp_path) == found

    def test_dev_picks_the_epoch_where_test_has_labels(self, folders, tmp_path):  # noqa: F811
        for name, split in (("train", "train"), ("valid", "dev"), ("test", "dev")):
            (tmp_path / name).symlink_to(folders / split)
        found = {split: Path(path).name for split, path in self.locate(tmp_path).items()}
        assert found == {"train": "train", "validation": "valid", "test": "test"}

    def test_drawn_impressions_are_a_folder_of_mind(self, folders, tmp_path):  # noqa: F811
        scale = replace(load_recipe("table-recommendation").scale("small"), rows={"train": 10})
        found = prepare(Dataset("x", None, str(folders)), Impressions(), scale, tmp_path, show=False)
        assert list(found.files) == ["train", "test"]
        whole, drawn = read_mind(folders / "train"), read_mind(found.files["train"])
        assert len(drawn) == found.about["rows"]["train"] == 10
        assert set(drawn.impression_ids.tolist()) <= set(whole.impression_ids.tolist())
        assert drawn.news.num_rows == whole.news.num_rows

    def test_mistakes(self, folders, tmp_path):  # noqa: F811
        with pytest.raises(UserError, match="needs folders train and dev"):
            self.locate(tmp_path)
        for name in ("train", "old-train"):
            (tmp_path / name).symlink_to(folders / "train")
        with pytest.raises(UserError, match="are both train"):
            self.locate(tmp_path)

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            (("--data", "x=no/such"), ("--data x=no/such", "no such folder")),
            (("--data", "x:imdb=builtin"), ("no dataset 'imdb'", "PAPER one of mind")),
            (("--scale", "huge"), ("--scale 'huge'", "full, cpu, small")),
            (("--plm", "no/such"), ("no/such",)),
            (("--only", "NRSM"), ("--only 'NRSM'", "did you mean 'NRMS'?")),
            (("--only", "PLM-NR"), ("--only PLM-NR", "--plm FOLDER")),
            (("--only", "popularity"), ("--only 'popularity'", "choose from NRMS")),
            (("--glove", "no-such-file"), ("no-such-file", "no such GloVe file")),
        ],
    )
    def test_a_mistake_is_one_line(self, tmp_path, monkeypatch, capsys, arguments, parts):
        command = ["fastformer", "reproduce", "table-recommendation", *arguments, "--output", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as exited:
            main()
        assert exited.value.code == 2
        [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fastformer: ")]
        assert all(part in line for part in parts)


# ---- conversion ------------------------------------------------------------------------------------------------------

CONVERSION = Scale(
    name="small",
    says="Tiny.",
    seeds=2,
    rows={"train": 120, "test": 40},
    settings={"batch_size": 32, "learning_rate": 5e-3, "epochs": 1, "tokenizer": "word", "max_length": 6}
    | {"max_behaviors": 5, "model": TINY_CONVERSION.model},
    own={"list_events": 40, "requests": 3, "list_requests": 2, "steps": 1},
)


@pytest.fixture(scope="module")
def conversion():
    return tiny("table-conversion", CONVERSION, own={"lists": [4, 40], "measuring_version": 1})


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conversions")
    for seed, (split, count) in enumerate({"train": 200, "validation": 30, "test": 60}.items()):
        write_jsonl(folder / f"{split}.jsonl", make_events(count, seed))
    return folder


@pytest.fixture(scope="module")
def conversions_made(conversion, events, commands, tmp_path_factory):
    output, before = tmp_path_factory.mktemp("reports"), len(commands.trained)
    report = reproduced(conversion, f"things={events}", output=output)
    assert reproduced(conversion, f"things={events}", output=output) == report
    return report, output, commands.trained[before:]


class TestConversion:
    def test_every_run_is_made_once(self, conversions_made):
        _, output, trained = conversions_made
        mixers = ("transformer", "fastformer")
        runs = [f"things/conversion-{mixer}-seed{seed}" for seed in (0, 1) for mixer in mixers]
        assert trained == runs
        measured = ["things/conversion-floors", "things/conversion-latency"]
        measured += [f"simulated/conversion-lists-{length}" for length in (4, 40)]
        files = [path.relative_to(output / "runs").as_posix() for path in (output / "runs").rglob("*.json")]
        assert sorted(file.rsplit("-", 1)[0] for file in files) == sorted([*runs, *measured])

    def test_the_report_has_our_numbers_and_the_papers(self, conversions_made):
        report, output, _ = conversions_made
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
        text = text_of(output, "table-conversion")
        for part in ("0.7299", "0.7394", "30 GB", "163 ms (-7.2%)", "the ad's own rate", "40 × 1", "--scale small"):
            assert part in text
        assert "effectiveness and efficiency" in text
        assert "p50 / maximum of 3 requests" in text
        [verdict] = report["verdicts"]
        assert (verdict["score"], verdict["seeds"]) == ("auc", 2)
        assert verdict["rows_own_std"] > 0

    def test_rows_without_an_ad_or_a_label_are_left_out_and_counted(self, events, tmp_path):
        rows = make_events(60, 0)
        rows[3]["label"], rows[5]["ad"], rows[8]["label"] = None, None, float("nan")
        shutil.copytree(events, tmp_path / "data")
        write_jsonl(tmp_path / "data" / "test.jsonl", rows)
        whole = replace(CONVERSION, rows={})
        found = prepare(Dataset("things", None, str(tmp_path / "data")), Events(), whole, tmp_path, show=False)
        assert found.about["rows"]["test"] == 57
        assert found.about["says"] == ["3 rows were left out without an ad or a label."]

    def test_the_same_rows_are_drawn_and_other_files_are_other_data(self, events, tmp_path):
        dataset = Dataset("things", None, str(events))
        first, again, other = (
            prepare(dataset, Events(), CONVERSION, tmp_path / name, seed=seed, show=False)
            for name, seed in (("a", 0), ("b", 0), ("a", 1))
        )
        assert first.about == again.about
        assert Path(first.files["train"]).read_text() == Path(again.files["train"]).read_text()
        assert other.about["fingerprint"] != first.about["fingerprint"]

    def test_without_validation_the_task_sets_some_aside(self, events, tmp_path):
        for split in ("train", "test"):
            shutil.copy(events / f"{split}.jsonl", tmp_path)
        found = prepare(Dataset("x", None, str(tmp_path)), Events(), CONVERSION, tmp_path / "out", show=False)
        assert list(found.files) == ["train", "test"]

    def test_a_folder_without_splits_is_refused(self, tmp_path):
        write_jsonl(tmp_path / "train.jsonl", make_events(5, 0))
        with pytest.raises(UserError, match="no train and test"):
            prepare(Dataset("x", None, str(tmp_path)), Events(), CONVERSION, tmp_path, show=False)

    @pytest.mark.parametrize("split", ["train", "test"])
    def test_one_label_is_no_data(self, tmp_path, split):
        for name in ("train", "test"):
            rows = make_events(60, 0)
            write_jsonl(tmp_path / f"{name}.jsonl", [{**row, "label": 0} for row in rows] if name == split else rows)
        for _ in range(2):  # nothing is left behind that hides it
            with pytest.raises(UserError, match=rf"{split}.jsonl: the {split} rows have one label only"):
                prepare(Dataset("x", None, str(tmp_path)), Events(), CONVERSION, tmp_path / "out", show=False)

    def test_of_few_requests_the_maximum_is_told(self):
        assert _percentiles([0.001] * 99) == {"p50_ms": 1.0, "max_ms": 1.0}
        assert _percentiles([0.001] * 99 + [1.0] * 2) == {"p50_ms": 1.0, "p99_ms": 1000.0}

    def test_measurements_of_any_mixer(self):
        events = [event_of("", row, Columns(), labelled=True) for row in make_events(20, 0)]
        found = measure_latency(events, TINY_CONVERSION, ["linear"], requests=2)
        assert set(found) == {"1", "64"}
        lists = measure_lists(20, TINY_CONVERSION, ["linear"], behaviors=60, requests=2, steps=1)
        assert lists["rows"] == 3
        assert lists["step"]["linear"]["seconds"] > 0


# ---- summarization ---------------------------------------------------------------------------------------------------

SUMMARIZATION = Scale(
    name="small",
    says="Tiny.",
    seeds=2,
    rows={"train": 40, "test": 8},
    at_most={"max_length": 24},
    settings={"tokenizer": "word", "vocab_size": 100, "max_summary_length": 8, "beams": 2, "batch_size": 16}
    | {"learning_rate": 5e-3, "epochs": 1}
    | {"model": {**TINY_SUMMARY.model, "window_size": 8, "pooling_window_size": 16, "block_size": 4}},
    own={"step_length": 48, "steps": 1},
)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    for seed, (split, count) in enumerate({"train": 60, "val": 8, "test": 12}.items()):
        write_jsonl(folder / f"{split}.jsonl", make_documents(count, seed))
    return folder


@pytest.fixture(scope="module")
def summaries_made(documents, commands, tmp_path_factory):
    whole, output = load_recipe("table-summarization"), tmp_path_factory.mktemp("reports")
    claims = [
        replace(whole.claims[0], quote=f"Of {paper}.", better=["Fastformer"], than=["Transformer"], paper=[paper])
        for paper in whole.papers
    ]
    variants = [one for one in whole.variants if one.name in ("Transformer", "Fastformer")]
    recipe = tiny(whole.name, SUMMARIZATION, variants=variants, claims=claims)
    before = len(commands.given)
    report = reproduced(recipe, f"things:pubmed={documents}", output=output)
    assert reproduced(recipe, f"things:pubmed={documents}", output=output) == report
    return report, output, [one[0] for one in commands.given[before:]]


class TestSummarization:
    def test_every_run_is_made_once(self, summaries_made):
        _, output, verbs = summaries_made
        assert [verbs.count(one) for one in ("reproduce", "train", "predict", "evaluate")] == [1, 4, 4, 0]
        assert len(list(output.glob("runs/things/*.json"))) == 4
        assert not list(output.rglob("*.safetensors"))

    def test_the_report_has_ours_the_papers_and_the_baselines(self, summaries_made):
        report, output, _ = summaries_made
        text = text_of(output, "table-summarization")
        ours = next(line for line in text.splitlines() if line.startswith("| Fastformer "))
        found = report["datasets"]["things"]["variants"]["Fastformer"]
        for score in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
            assert f"{found[score]['mean']:.2f} ± {found[score]['std']:.2f}" in ours
        header = next(line for line in text.splitlines() if line.startswith("| method "))
        columns = [column.strip() for column in header.split("|")]
        cells = dict(zip(columns, (cell.strip(" *") for cell in ours.split("|")), strict=True))
        assert (cells["paper's ROUGE-1"], cells["paper's ROUGE-Lsum"]) == ("38.09", "34.81")
        assert "paper's ROUGE-L" not in cells
        assert float(cells["documents a second"].split(" ")[0]) > 0
        assert all(f"| {name} " in text for name in ("lead 3", "random 3", "lead 1", "random 1"))
        assert "so it stands beside Lsum." in text
        assert "> Of pubmed." in text
        assert "Of cnn-dailymail." not in text  # these documents do not stand for it
        judged = [one["score"] for one in report["verdicts"]]
        assert judged == ["rouge1", "rouge2", "rougeLsum"]
        assert "What 48 tokens cost" in text
        assert "40 train, 8 validation, 8 test documents" in text
        assert report["step"]["variants"]["Fastformer"]["peak_memory_mb"] > 0
        assert report["step"]["variants"]["Transformer"]["seconds"] > 0

    def test_splits_may_be_folders_of_stories(self, tmp_path):
        for split in ("train", "validation", "test"):
            (tmp_path / "cnn" / split).mkdir(parents=True)
            for number in range(3):
                story = f"Story {number} of {split}.\n\n@highlight\n\nA {number}\n"
                (tmp_path / "cnn" / split / f"{number}.story").write_text(story, encoding="utf-8")
        scale, dataset = replace(SUMMARIZATION, rows={"train": 2}), Dataset("cnn", None, str(tmp_path / "cnn"))
        found = prepare(dataset, Articles(), scale, tmp_path, show=False)
        assert found.about["rows"] == {"train": 2, "validation": 3, "test": 3}
        assert found.about["rows_in_source"]["train"] == 3
        assert next(read_documents(found.files["test"])) == Document("Story 0 of test.", "A 0 .")
        assert prepare(dataset, Articles(), scale, tmp_path, show=False) == found
        shutil.move(tmp_path / "data", tmp_path / "moved" / "data")
        moved = prepare(dataset, Articles(), scale, tmp_path / "moved", show=False)
        assert moved.about == found.about
        assert all(Path(file).is_file() for file in moved.files.values())

    def test_test_rows_do_not_depend_on_a_validation_file(self, documents, tmp_path):
        scale, without = replace(SUMMARIZATION, rows={"test": 4}), tmp_path / "without"
        without.mkdir()
        for split in ("train", "test"):
            shutil.copy(documents / f"{split}.jsonl", without)
        found = [
            prepare(Dataset("things", None, str(place)), Articles(), scale, tmp_path / place.name, show=False)
            for place in (documents, without)
        ]
        given = list(read_documents(str(documents / "train.jsonl")))
        training, validating = (list(read_documents(found[1].files[split])) for split in ("train", "validation"))
        assert sorted(training + validating) == sorted(given)
        assert len(validating) == found[1].about["rows"]["validation"] == round(len(given) / 10)
        assert len({Path(one.files["test"]).read_text(encoding="utf-8") for one in found}) == 1

    def test_mistakes_are_one_line(self, documents, tmp_path):
        options, name = {"output": tmp_path, "show_progress": False}, "table-summarization"
        with pytest.raises(UserError, match="the paper has no dataset 'imdb' here; write .*cnn-dailymail, pubmed"):
            reproduce(name, [f"things:imdb={documents}"], **options)
        with pytest.raises(UserError, match="there is no train and test; give a folder"):
            reproduce(name, [f"things={tmp_path}"], **options)
        with pytest.raises(UserError, match=r"say which one it stands for, as in --data things:cnn-dailymail="):
            reproduce(name, [f"things={documents}"], scale="full", **options)
        with pytest.raises(UserError, match="--plm: table-summarization has no use for it"):
            reproduce(name, [f"things={documents}"], plm="folder", **options)
        with pytest.raises(UserError, match="unknown table or figure 'table-sumarization'; did you mean"):
            reproduce("table-sumarization", **options)
