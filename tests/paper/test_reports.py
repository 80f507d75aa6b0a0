"""Tables and figures of classification on tiny data, end to end: reports say what the runs' own files say."""

import json
import re
import shutil
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pyarrow.parquet as pq
import pytest
from PIL import Image

import fastformer.paper
from fastformer.cli import main
from fastformer.errors import UserError
from fastformer.paper import plots, reproduce
from fastformer.paper.claims import called, compare
from fastformer.paper.grid import read_answers
from fastformer.paper.overview import write_overview
from fastformer.paper.plots import plot_bars
from fastformer.paper.recipes import NAMES, load_recipe
from fastformer.paper.report import markdown
from fastformer.paper.study import at
from fastformer.paper.verdicts import rows_of
from fastformer.runs.checkpoints import last_complete_checkpoint
from fastformer.surroundings.files import digest

small = {"scale": "small", "show_progress": False}
TRAINED = ("table-classification", "figure-interaction", "figure-sharing")


@pytest.fixture(scope="module")
def everything(things, commands, tmp_path_factory):
    """The folder and the reports of all tables of classification with one seed, of one figure with a second seed."""
    folder = tmp_path_factory.mktemp("reproduce")
    seeds = {name: {"seeds": 2 if name == "figure-interaction" else 1} for name in TRAINED}
    names = [*TRAINED, "table-datasets", "table-complexity"]
    reports = {name: reproduce(name, [things], output=folder, **seeds.get(name, {}), **small) for name in names}
    return folder, reports, commands.trained


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


def test_the_same_command_again_trains_nothing(everything, things, commands):
    folder, reports, names = everything
    again = reproduce("table-classification", [things], output=folder, seeds=1, **small)
    assert again == reports["table-classification"]
    assert commands.trained == names


def test_tables_have_the_numbers_of_the_runs(everything):
    folder, reports, _ = everything
    for what in TRAINED:
        text = (folder / f"{what}.md").read_text(encoding="utf-8")
        kept = json.loads((folder / f"{what}.json").read_text(encoding="utf-8"))
        assert kept == json.loads(json.dumps(reports[what]))
        for variant, found in reports[what]["datasets"]["things"]["variants"].items():
            runs = [json.loads((folder / run).read_text(encoding="utf-8"))["metrics"] for run in found["runs"]]
            line = next(line for line in text.splitlines() if re.match(rf"\| {re.escape(variant)} +\|", line))
            for score in ("accuracy", "macro_f"):
                values = [100 * run["test"][score] for run in runs]
                assert f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "") in line
            assert f"{round(mean(run['train_seconds'] for run in runs), 1):,.0f} s" in line
            assert f"{runs[0]['parameters']:,}" in line
            assert found["step_ms"] > 0
            assert f"| {found['step_ms']:,.0f} ms |" in re.sub(" +", " ", line)
    assert not list(folder.rglob("*.safetensors"))
    assert all(pq.read_schema(file).names == ["label"] for file in folder.rglob("*.parquet"))


def test_the_papers_numbers_stand_beside(everything):
    folder, _, _ = everything
    text = (folder / "table-classification.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| Fastformer "))
    assert "**54.10 ± 0.42**" in line
    assert "**44.65 ± 0.44**" in line
    assert "It stands for the paper's IMDB" in text
    assert "Word vectors start at random" in text
    assert "fastformer reproduce table-classification --data things:imdb=" in text
    assert "one seed" in text


def test_verdicts_come_from_seeds_and_rows(everything):
    folder, reports, _ = everything
    [first, *_] = found = reports["figure-interaction"]["verdicts"]
    assert len(found) == 2 * 2
    assert (first["better"], first["than"], first["seeds"]) == ("product", "concat", 2)
    variants = reports["figure-interaction"]["datasets"]["things"]["variants"]
    both = (variants[name]["accuracy"]["all"] for name in ("product", "concat"))
    differences = [a - b for a, b in zip(*both, strict=True)]
    assert first["difference"] == pytest.approx(mean(differences))
    assert 0 < first["rows_own_std"] < 20  # of 15 test rows
    assert {one["verdict"] for one in reports["figure-sharing"]["verdicts"]} == {"not decided"}  # one seed
    text = (folder / "figure-interaction.md").read_text(encoding="utf-8")
    assert "| product − concat |" in text
    assert "what would decide" in text


def test_one_page_has_the_verdict_on_every_claim_of_the_folder(everything):
    folder, reports, _ = everything
    text = (folder / "verdicts.md").read_text(encoding="utf-8")
    claims = [one["quote"] for name in TRAINED for one in reports[name]["claims"]]
    assert [line[2:] for line in text.splitlines() if line.startswith("> ")] == claims
    tables = text.split("\n> ")[1:]
    for table in tables:
        rows = [line for line in table.splitlines() if line.startswith("| things")]
        assert [row.split("|")[2].strip() for row in rows] == ["accuracy", "macro-F"]
    first, *singles = reports["table-classification"]["verdicts"][::2]  # of accuracy
    above = sum(one["difference"] > 0 for one in singles[:6])
    assert f"mean of 6 − Transformer: {first['difference']:+.2f}, above in {above} of 6" in tables[0]
    assert "more seeds" in tables[0]
    assert re.search(r"\| [+-]\d+\.\d\d to [+-]\d+\.\d\d, above in \d of 5 \|", tables[1])
    interval = reports["figure-interaction"]["verdicts"][0]
    assert f"({interval['low']:+.2f} to {interval['high']:+.2f})" in tables[2]


@pytest.mark.parametrize("damage", ["[1", "a key"])
def test_a_damaged_report_is_left_out_of_the_page(everything, tmp_path, capsys, damage):
    for name in ("figure-interaction", "figure-sharing"):
        shutil.copy(everything[0] / f"{name}.json", tmp_path)
    report = json.loads((tmp_path / "figure-sharing.json").read_text(encoding="utf-8"))
    del report["verdicts"][-1]["difference"]
    (tmp_path / "figure-sharing.json").write_text(damage if damage == "[1" else json.dumps(report))
    write_overview(tmp_path)
    text = (tmp_path / "verdicts.md").read_text(encoding="utf-8")
    assert "concatenating is not a good option" in text
    assert "sharing" not in text
    assert "figure-sharing.json: is not a report" in capsys.readouterr().err
    for file in tmp_path.glob("*.json"):
        file.unlink()
    write_overview(tmp_path)
    assert not (tmp_path / "verdicts.md").exists()


def test_figures_are_pictures(everything):
    folder, _, _ = everything
    for what in ("figure-interaction", "figure-sharing"):
        with Image.open(folder / f"{what}.png") as picture:
            assert picture.width > 400
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
        assert f"({what}.png)" in (folder / f"{what}.md").read_text(encoding="utf-8")


def test_a_bar_whose_runs_are_missing_is_a_dash(everything, tmp_path, monkeypatch):
    _, reports, _ = everything
    report = deepcopy(reports["figure-interaction"])
    [variants] = (one["variants"] for one in report["datasets"].values())
    for name, score in (("product", 70.0), ("add", 71.0), ("concat", 72.0)):
        variants[name]["accuracy"] = {"mean": score, "std": 0.5, "all": [score]}
    del variants["add"]["accuracy"]
    drawn = []
    monkeypatch.setattr(plots, "style", lambda axes, **given: drawn.append(axes))
    plot_bars(report, {"accuracy": "Accuracy"}, tmp_path / "bars.png")
    [axes] = drawn
    assert [text.get_text() for text in axes.texts] == ["70.0", "–", "72.0"]
    assert 60 < axes.get_ylim()[0] < 70  # a missing bar is not a score of zero
    assert 72 < axes.get_ylim()[1] < 75


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
    text = (folder / "table-complexity.md").read_text(encoding="utf-8")
    assert "Multiply-adds from the fewest: fastformer" in text
    assert "fastformer reproduce table-complexity --data things" in text


def changed_recipes(monkeypatch, **changed):
    """Recipes in which some variants are others."""
    load = load_recipe

    def found(name):
        recipe = load(name)
        return replace(recipe, variants=[changed.get(one.name, one) for one in recipe.variants])

    monkeypatch.setattr(fastformer.paper, "load_recipe", found)


def test_a_changed_recipe_makes_again_only_what_it_changes(everything, things, commands, tmp_path, monkeypatch):
    folder, before = tmp_path / "reproduce", len(commands.trained)
    shutil.copytree(everything[0], folder)
    add = replace(load_recipe("figure-interaction").variants[1], settings={"model": {"pooling": "mean"}})
    changed_recipes(monkeypatch, add=add)
    reproduce("figure-interaction", [things], output=folder, seeds=2, **small)
    made = [f"things/classification-fastformer,pooling=mean-seed{seed}" for seed in (0, 1)]
    assert commands.trained[before:] == made


def test_a_run_that_fails_is_told_and_the_others_are_reported(everything, things, tmp_path, monkeypatch):
    folder = tmp_path / "reproduce"
    shutil.copytree(everything[0], folder)
    wrong = replace(load_recipe("figure-interaction").variants[1], settings={"model": {"num_attention_heads": 7}})
    changed_recipes(monkeypatch, add=wrong)
    with pytest.raises(UserError, match=r"figure-interaction: 3 of 7 runs failed \(things/.*seed0: .*tries again"):
        reproduce("figure-interaction", [things], output=folder, seeds=2, **small)
    text = (folder / "figure-interaction.md").read_text(encoding="utf-8")
    assert "**2 runs are missing.**" in text
    assert "| product − concat |" in text
    assert "product − add" not in text
    assert re.search(r"\| add +\| +– \| +– \|", text)
    assert "| step |" not in text  # the measurement of all of them needs each


def test_rows_trained_by_one_command_stay_in_the_report_of_another(things, commands, tmp_path):
    names = ("Linformer", "Fastformer")
    reports = [
        reproduce("table-classification", [things], output=tmp_path, seeds=1, only=[one], **small) for one in names
    ]
    rows = [
        [name for name, one in report["datasets"]["things"]["variants"].items() if "accuracy" in one]
        for report in reports
    ]
    assert rows == [["Linformer"], ["Linformer", "Fastformer"]]
    assert len(reports[1]["missing"]) == 5
    reproduce("table-classification", [things], output=tmp_path, seeds=2, only=["Fastformer"], **small)
    text = (tmp_path / "table-classification.md").read_text(encoding="utf-8")
    assert "mean of 1 to 2 seeds" in text
    assert re.search(r"\| method .*\| seeds +\|", text)
    assert [(one["better"], one["than"]) for one in reports[1]["verdicts"]] == [("Fastformer", "Linformer")] * 2


def test_variations_of_settings_leave_the_test_rows_alone(everything, things, commands):
    folder, _, _ = everything
    before = len(commands.given)
    options = {"seeds": 1, "only": ["Fastformer"], **small}
    report = reproduce("table-variations", [things], output=folder, **options)
    train, predict = commands.given[before:]  # the run of table-classification, which answers the test rows, is another
    given = {flag: train[train.index(flag) + 1] for flag in ("--validation", "--test")}
    assert given["--test"] == given["--validation"] == predict[2]
    assert report["datasets"]["things"]["variants"]["Fastformer"]["accuracy"]["all"]
    text = (folder / "table-variations.md").read_text(encoding="utf-8")
    assert "Validation scores in percent" in text
    assert "120 train, 15 validation rows" in text
    assert "The test rows are not used." in text


def test_so_far_trains_nothing(everything, things, commands):
    folder, _, _ = everything
    before = len(commands.given)
    report = reproduce("figure-sharing", [things], output=folder, seeds=2, so_far=True, **small)
    assert len(commands.given) == before
    assert len(report["missing"]) == 4
    assert report["datasets"]["things"]["variants"]["query-value + layer"]["trained_seeds"] == [0, 1]
    reproduce("figure-sharing", [things], output=folder, seeds=1, **small)


def test_another_glove_file_of_the_same_name_and_size_is_another_run(things, tmp_path):
    from fastformer.paper.recipes import Options
    from fastformer.paper.studies import STUDIES

    recipe = load_recipe("table-classification")
    keys = []
    for place, numbers in (("one", "1 2"), ("two", "3 4"), ("copy", "1 2"), (None, "")):
        glove = None
        if place:
            (tmp_path / place).mkdir()
            glove = str(tmp_path / place / "glove.txt")
            Path(glove).write_text(f"cat {numbers}\n")
        study = STUDIES["classification"](recipe, Options(data=(things,), glove=glove, output=tmp_path / "out"), False)
        job = study.training(study.prepare(study.datasets[0]), recipe.variants[0], 0)
        keys.append(job.place(tmp_path))
        assert job.settings.init == glove
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


@pytest.mark.slow
def test_stopped_it_goes_on_to_the_same_result(everything, things, tmp_path):
    """The real thing: our commands in processes of their own, stopped in a training."""
    _, reports, _ = everything
    command = [sys.executable, "-m", "fastformer", "reproduce", "figure-interaction", "--data", things, "--processes"]
    command += ["1", "--scale", "small", "--seeds", "1", "--output", str(tmp_path)]

    def stop_in_a_training() -> int:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + 500  # a machine may be busy
        while not any(last_complete_checkpoint(path) for path in tmp_path.glob("runs/things/*/checkpoints")):
            assert time.monotonic() < ends
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
        return process.wait()

    assert stop_in_a_training() == 130
    assert last_complete_checkpoint(next(tmp_path.glob("runs/things/*/checkpoints")))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    found = json.loads((tmp_path / "figure-interaction.json").read_text(encoding="utf-8"))
    for name, one in found["datasets"]["things"]["variants"].items():
        whole = reports["figure-interaction"]["datasets"]["things"]["variants"][name]
        assert [Path(run).name for run in one["runs"]] == [Path(run).name for run in whole["runs"][:1]]
        for score in ("accuracy", "macro_f"):
            assert one[score]["all"][0] == pytest.approx(whole[score]["all"][0])


PUBLISHED = Path(__file__).parents[2] / "docs" / "reproduce"


def test_every_table_that_is_trained_is_published():
    assert {file.stem for file in PUBLISHED.glob("*.json")} == {
        name for name in NAMES if load_recipe(name).variants and load_recipe(name).in_paper
    }


@pytest.mark.parametrize("file", sorted(map(str, [*PUBLISHED.glob("*.json"), *PUBLISHED.glob("full/*.json")])))
def test_published_reports_are_what_their_numbers_say(file):
    report = json.loads(Path(file).read_text(encoding="utf-8"))
    recipe = load_recipe(report["what"])
    assert Path(file).with_suffix(".md").read_text(encoding="utf-8") == markdown(recipe, report)
    told = {(one["dataset"], one["better"], one["than"], one["score"]): rows_of(one) for one in report["verdicts"]}

    def variances(name, better, than, seeds):
        sides = called(better), called(than)
        return {score: told[name, *sides, score] for score in recipe.judged}

    again = compare(report, recipe.judged, variances)
    for found, kept in zip(again, report["verdicts"], strict=True):
        rows = {name: kept[name] or 0 for name in ("rows_shared_std", "rows_own_std")}
        assert found == pytest.approx({**kept, **rows})


@pytest.mark.parametrize("folder", [PUBLISHED, PUBLISHED / "full"], ids=["cpu", "full"])
def test_the_published_page_of_verdicts_is_that_of_its_reports(folder, tmp_path):
    for file in folder.glob("*.json"):
        shutil.copy(file, tmp_path)
    write_overview(tmp_path)
    assert (tmp_path / "verdicts.md").read_text(encoding="utf-8") == (folder / "verdicts.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("full/*.json")), ids=lambda file: file.stem)
def test_runs_of_the_published_study_are_those_of_its_report_and_can_be_continued(file):
    report, folder = json.loads(file.read_text(encoding="utf-8")), file.parent
    recipe = load_recipe(report["what"])
    for dataset in report["datasets"].values():
        for name, one in dataset["variants"].items():
            assert one["runs"], name
            for number, run in enumerate(one["runs"]):
                kept = json.loads((folder / run).read_text(encoding="utf-8"))
                for score in recipe.scores:
                    assert 100 * at(kept["metrics"], recipe.scores_at)[score] == pytest.approx(
                        one[score]["all"][number]
                    )
                answers = read_answers((folder / run).with_suffix(".parquet"), recipe.answer_column)
                assert len(answers) == kept["metrics"]["test"]["rows"]
                determined_by = {key: kept[key] for key in ("task", "version", "data", "settings")}
                assert determined_by["version"] == recipe.version
                assert run.endswith(f"-{digest(determined_by)}.json")


# ---- the command line ------------------------------------------------------------------------------------------------


def run(monkeypatch, capsys, *arguments) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fastformer", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as exited:
        main()
    captured = capsys.readouterr()
    return exited.value.code or 0, captured.out, captured.err


def test_a_table_is_printed_and_as_json(everything, things, monkeypatch, capsys):
    folder, reports, _ = everything
    arguments = ("figure-sharing", "--data", things, "--scale", "small", "--seeds", 1, "--output", folder)
    code, out, _ = run(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "| query-value + layer " in out
    code, out, err = run(monkeypatch, capsys, *arguments, "--json")
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
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, arguments, parts):
    code, _, err = run(monkeypatch, capsys, "table-classification", *arguments, "--output", tmp_path / "out")
    assert code == 2
    [line] = [line for line in err.splitlines() if line.startswith("fastformer: ")]
    assert all(part in line for part in parts)


def test_all_is_every_table_and_figure_each_with_its_data(monkeypatch, capsys, tmp_path):
    made = {}

    def noted(name, data=None, *, output, show_progress, **given):
        made[name] = data, given
        Path(output, f"{name}.md").write_text(f"# {name}\n")
        if name == "figure-interaction":
            raise UserError("figure-interaction: 1 of 6 runs failed")

    monkeypatch.setattr(fastformer.paper, "reproduce", noted)
    arguments = ["--data", "a=x", "--data", "b=y", "--conversion-data", "c=z", "--seeds", "3", "--glove", "g"]
    code, _, err = run(monkeypatch, capsys, "all", *arguments, "--output", tmp_path)
    assert tuple(made) == tuple(name for name in NAMES if name != "table-variations")  # no table of the paper
    assert code == 2  # at the end: the others were made
    assert "1 of 6 runs failed" in err
    assert made["table-classification"][0] == made["figure-sharing"][0] == ["a=x", "b=y"]
    assert made["table-conversion"][0] == ["c=z"]
    assert made["table-recommendation"][0] is None
    assert made["table-recommendation"][1]["seeds"] == 3
    assert "seeds" not in made["table-datasets"][1]
    assert "glove" not in made["table-complexity"][1]


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps({"a": f"text {n}", "b": f"c{n % 2}", "c": 0}) + "\n" for n in range(40)))
    with pytest.raises(UserError, match="--text-column"):
        reproduce("table-datasets", [f"odd={path}"], output=tmp_path / "out", **small)
    columns = {"text_column": "a", "label_column": "b"}
    report = reproduce("table-datasets", [f"odd={path}"], output=tmp_path / "out", **columns, **small)
    assert report["datasets"]["odd"]["average_length"] == {"mean": 2, "std": None, "all": [2]}


def test_complexity_at_the_length_of_the_data(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "word " * (n % 19 + 1), "label": f"c{n % 2}"} for n in range(4000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"output": tmp_path / "out", "seeds": 2, **small}
    lengths = reproduce("table-datasets", [f"rows={path}"], **options)["datasets"]["rows"]["average_length"]
    assert lengths["all"] == [pytest.approx(10, abs=0.5), pytest.approx(10, abs=0.5)]
    assert lengths["std"] > 0
    report = reproduce("table-complexity", [f"rows={path}"], **options)
    assert report["datasets"]["rows"]["length"] == 10
    width = report["width"]  # four maps of every word, and each word with each, twice
    assert report["datasets"]["rows"]["multiply_adds"]["transformer"] == 4 * 10 * width**2 + 2 * 10**2 * width
    text = (tmp_path / "out" / "table-complexity.md").read_text(encoding="utf-8")
    assert "rows, 10 words" in text
    assert "--seeds 2" in text
