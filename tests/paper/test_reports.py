"""Every table and figure on tiny data, end to end: reports say what the runs' own files say."""

import json
import re
import shutil
import signal
import sys
from statistics import mean, stdev

import pytest
from PIL import Image

import fastformer.engine.training
from fastformer.cli import main
from fastformer.errors import Interrupted, UserError
from fastformer.paper import (
    comparison,
    figure_interaction,
    recipes,
    reproduce_all,
    table_classification,
    table_complexity,
    table_datasets,
)
from fastformer.paper.report import AGREES, DISAGREES, UNDECIDED, WITHIN, claims, compare_two

small = {"scale": "small", "show_progress": False}


@pytest.fixture(scope="module")
def everything(things, trainings, tmp_path_factory):
    """The folder and the reports of `reproduce all` with one seed, then of one figure with a second seed."""
    folder = tmp_path_factory.mktemp("reproduce")
    reports = reproduce_all([things], output=folder, seeds=1, **small)
    reports["figure-interaction"] = figure_interaction([things], output=folder, seeds=2, **small)
    return folder, reports, list(trainings.names)


def test_runs_that_tables_and_figures_share_are_made_once(everything):
    _, reports, names = everything
    assert len(names) == len(set(names)) == (7 + 2 + 4) + 3
    runs = [
        reports[what]["datasets"]["things"]["variants"][variant]["runs"][0]
        for what, variant in (
            ("table-classification", "Fastformer"),
            ("figure-interaction", "product"),
            ("figure-sharing", "query-value + layer"),
        )
    ]
    assert runs[0] == runs[1] == runs[2]


def test_the_same_command_again_trains_nothing(everything, things, trainings):
    folder, reports, _ = everything
    before = len(trainings.names)
    assert table_classification([things], output=folder, seeds=1, **small) == reports["table-classification"]
    assert len(trainings.names) == before


def test_tables_have_the_numbers_of_the_runs(everything):
    folder, reports, _ = everything
    for what in ("table-classification", "figure-interaction", "figure-sharing"):
        text = (folder / f"{what}.md").read_text(encoding="utf-8")
        assert json.loads((folder / f"{what}.json").read_text(encoding="utf-8")) == json.loads(
            json.dumps(reports[what])
        )
        for variant, found in reports[what]["datasets"]["things"]["variants"].items():
            runs = [json.loads((folder / run).read_text(encoding="utf-8"))["metrics"] for run in found["runs"]]
            [line] = [line for line in text.splitlines() if re.match(rf"\| {re.escape(variant)} +\|", line)]
            for score in ("accuracy", "macro_f"):
                values = [100 * run["test"][score] for run in runs]
                assert f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "") in line
            assert f"{round(mean(run['train_seconds'] for run in runs), 1):,.0f} s" in line
            assert f"{runs[0]['parameters']:,}" in line
    assert not list(folder.rglob("*.safetensors"))


def test_the_papers_numbers_stand_beside(everything):
    folder, _, _ = everything
    text = (folder / "table-classification.md").read_text(encoding="utf-8")
    [line] = [line for line in text.splitlines() if line.startswith("| Fastformer ")]
    assert "**54.10 ± 0.42**" in line
    assert "**44.65 ± 0.44**" in line
    assert "It stands for the paper's IMDB" in text
    assert "Word vectors start at random" in text
    assert "fastformer reproduce table-classification --data things:imdb=" in text


def test_figures_are_pictures(everything):
    folder, _, _ = everything
    for what in ("figure-interaction", "figure-sharing"):
        with Image.open(folder / f"{what}.png") as picture:
            assert picture.width > 400
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
        assert f"({what}.png)" in (folder / f"{what}.md").read_text(encoding="utf-8")


def test_statistics_of_the_data(everything):
    folder, reports, _ = everything
    about = reports["table-datasets"]["datasets"]["things"]
    assert about["about"]["rows"] == {"train": 120, "validation": 15, "test": 15}
    assert about["about"]["classes"] == 3
    assert 6 <= about["average_length"]["mean"] <= 16  # every text has 6 to 16 words
    text = (folder / "table-datasets.md").read_text(encoding="utf-8")
    assert re.search(r"\| paper's IMDB +\| +108.5k +\| +13.6k +\| +13.6k +\| +385.7 +\| +10 ", text)
    assert "digit for digit" in text


def test_complexity_agrees_with_the_paper(everything):
    folder, reports, _ = everything
    assert set(reports["table-complexity"]["methods"]) >= {"fastformer", "transformer"}
    assert "Multiply-adds from the fewest: fastformer" in (folder / "table-complexity.md").read_text(encoding="utf-8")


def test_a_changed_recipe_makes_again_only_what_it_changes(everything, things, trainings, tmp_path, monkeypatch):
    folder = tmp_path / "reproduce"
    shutil.copytree(everything[0], folder)
    load = recipes.load_recipe

    def changed(name):
        recipe = load(name)
        variants = [
            recipes.Variant("add", model={"interaction": "add", "pooling": "mean"}) if one.name == "add" else one
            for one in recipe["variants"]
        ]
        return {**recipe, "variants": variants}

    monkeypatch.setattr(comparison, "load_recipe", changed)
    before = len(trainings.names)
    figure_interaction([things], output=folder, seeds=2, **small)
    assert trainings.names[before:] == [f"things/fastformer,interaction=add,pooling=mean-seed{seed}" for seed in (0, 1)]


def test_an_interrupted_run_goes_on_where_it_was(things, trainings, tmp_path, monkeypatch):
    steps: list[int] = []
    original = fastformer.engine.training._Watch.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        steps.append(state.global_step)
        if len(steps) == 12:  # within the second epoch
            signal.raise_signal(signal.SIGINT)
        original(self, args, state, control, **kwargs)

    monkeypatch.setattr(fastformer.engine.training._Watch, "on_step_end", on_step_end)
    options = {"output": tmp_path, "seeds": 1, **small}
    with pytest.raises(Interrupted, match=r"run 1 of 3 \(things/fastformer-seed0\); the same command goes on"):
        figure_interaction([things], **options)
    report = figure_interaction([things], **options)
    assert steps == 3 * list(range(1, 25))  # 8 steps an epoch: none was made twice
    assert report["datasets"]["things"]["variants"]["product"]["accuracy"]["std"] is None
    assert "one seed, no verdict" in (tmp_path / "figure-interaction.md").read_text(encoding="utf-8")


def spread(mean: float, std: float | None) -> dict:
    return {"mean": mean, "std": std, "all": [mean]}


@pytest.mark.parametrize(
    ("better", "than", "similar", "verdict"),
    [
        (spread(50, 1), spread(48, 1), False, AGREES),
        (spread(50, 1), spread(49.5, 1), False, WITHIN),
        (spread(49.5, 1), spread(50, 1), True, AGREES),
        (spread(48, 1), spread(50, 1), True, DISAGREES),
        (spread(48, 1), spread(50, 1), False, DISAGREES),
        (spread(50, None), spread(48, None), False, UNDECIDED),
    ],
)
def test_a_verdict_comes_from_the_numbers(better, than, similar, verdict):
    assert compare_two(better, than, similar) == verdict


def test_a_claim_about_several_names_who_agrees():
    variants = {
        name: {"accuracy": spread(value, 0.5), "macro_f": spread(value, 0.5)}
        for name, value in {"A": 50.0, "B": 47.0, "C": 50.2, "D": 53.0}.items()
    }
    claim = {"quote": "A is best", "better": ["A"], "than": ["B", "C", "D"], "similar": False}
    text = claims({"claims": [claim], "datasets": {"toys": {"variants": variants}}})
    assert "accuracy agrees for 1 of 3 (B), within one deviation for 1 of 3 (C), does not agree for 1 of 3 (D)" in text


class TestCommandLine:
    def run(self, monkeypatch, capsys, *arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fastformer", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    def test_a_table_is_printed_and_as_json(self, everything, things, trainings, monkeypatch, capsys):
        folder, reports, _ = everything
        arguments = ("figure-sharing", "--data", things, "--scale", "small", "--seeds", 1, "--output", folder)
        code, out, _ = self.run(monkeypatch, capsys, *arguments)
        assert code == 0
        assert "| query-value + layer " in out
        code, out, err = self.run(monkeypatch, capsys, *arguments, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["datasets"] == json.loads(json.dumps(reports["figure-sharing"]["datasets"]))

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            (("--data", "imdb"), ("--data imdb", "NAME=PATH")),
            (("--data", "imdb:yelp=x"), ("no dataset 'yelp'", "amazon, imdb, mind")),
            (("--data", "imdb=no/such/file.csv"), ("no/such/file.csv", "no such file")),
            (("--scale", "huge"), ("--scale 'huge'", "full, cpu, small")),
            (("--scale", "full"), ("--scale full", "builtin:imdb=builtin")),
            (("--glove", "no-such-file"), ("no-such-file", "no such GloVe file")),
        ],
    )
    def test_a_mistake_is_one_line(self, tmp_path, monkeypatch, capsys, arguments, parts):
        code, _, err = self.run(monkeypatch, capsys, "table-classification", *arguments, "--output", tmp_path / "out")
        assert code == 2
        [line] = [line for line in err.splitlines() if line.startswith("fastformer: ")]
        assert all(part in line for part in parts)


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps({"a": f"text {n}", "b": f"c{n % 2}", "c": 0}) + "\n" for n in range(40)))
    with pytest.raises(UserError, match="--text-column"):
        table_datasets([f"odd={path}"], output=tmp_path / "out", **small)
    report = table_datasets([f"odd={path}"], output=tmp_path / "out", text_column="a", label_column="b", **small)
    assert report["datasets"]["odd"]["average_length"] == {"mean": 2, "std": None, "all": [2]}


def test_complexity_at_the_length_of_the_data(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "word " * (n % 19 + 1), "label": f"c{n % 2}"} for n in range(4000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"output": tmp_path / "out", "scale": "small", "seeds": 2, "show_progress": False}
    lengths = table_datasets([f"rows={path}"], **options)["datasets"]["rows"]["average_length"]
    assert lengths["all"] == [pytest.approx(10, abs=0.5), pytest.approx(10, abs=0.5)]
    assert lengths["std"] > 0
    report = table_complexity([f"rows={path}"], **options)
    assert report["datasets"]["rows"]["length"] == 10
    width = report["width"]  # four maps of every word, and each word with each, twice
    assert report["datasets"]["rows"]["multiply_adds"]["transformer"] == 4 * 10 * width**2 + 2 * 10**2 * width
    text = (tmp_path / "out" / "table-complexity.md").read_text(encoding="utf-8")
    assert "rows, 10 words" in text
    assert "--seeds 2" in text
