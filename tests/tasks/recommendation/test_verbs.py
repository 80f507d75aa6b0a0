"""The verbs on the command line: MIND's leaderboard file, recommendations, and one line for each mistake."""

import io
import json
import re
import shutil
import sys
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from fastformer.cli import main
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks.recommendation import recommend
from fastformer.tasks.recommendation.scoring import _CUBES_AT_ONCE
from fastformer.tasks.verbs import load


@pytest.fixture
def fastformer(monkeypatch, capsys):
    """Run a command: (exit code, standard output, standard error)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fastformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def mistake(fastformer):
    """Run a command that cannot work: it says so in one line and exits with 2."""

    def run(says, *arguments):
        code, _, err = fastformer(*arguments)
        assert code == 2
        assert re.search(says, err), err
        assert err.startswith("fastformer: ")
        assert err.count("\n") == 1

    return run


def test_train_then_evaluate(fastformer, folders, tmp_path):
    parts = ["--train", folders / "train", "--validation", folders / "dev", "--output", tmp_path / "run"]
    size = ["--epochs", 1, "--title-length", 8, "--history-length", 5, "--negatives", 2, "--fields", "category,title"]
    code, out, err = fastformer("train", "recommendation", *parts, *size, "--user-mixer", "linear", "--json")
    assert (code, err) == (0, "")
    trained = json.loads(out)["validation"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["title_length"] == 8
    code, out, err = fastformer("evaluate", tmp_path / "run", folders / "dev", "--json")
    assert code == 0
    counts = {"impressions": 30, "without_positive": 0, "one_class": 0}
    scored = json.loads(out)
    assert set(scored.pop("floors")) == {"popularity", "co-occurrence"}
    assert scored == {**counts, **{name: pytest.approx(one) for name, one in trained.items()}}
    code, out, err = fastformer("evaluate", tmp_path / "run", folders / "train")
    assert "nDCG@10" in out
    assert "titles were cut after 8 tokens" in err


def test_impressions_that_cannot_be_scored_are_counted(fastformer, runs, folders, tmp_path):
    shutil.copytree(folders / "dev", tmp_path / "odd")
    lines = (tmp_path / "odd" / "behaviors.tsv").read_text().splitlines(keepends=True)
    lines[:3] = [lines[0].replace("-1", "-0"), lines[1].replace("-1", "-0"), lines[2].replace("-0", "-1")]
    (tmp_path / "odd" / "behaviors.tsv").write_text("".join(lines))
    (tmp_path / "rest").mkdir()
    shutil.copy(folders / "dev" / "news.tsv", tmp_path / "rest")
    (tmp_path / "rest" / "behaviors.tsv").write_text("".join(lines[3:]))
    found, rest = (
        json.loads(fastformer("evaluate", runs["nrms"], tmp_path / name, "--json")[1]) for name in ("odd", "rest")
    )
    assert [found[name] for name in ("impressions", "without_positive", "one_class")] == [30, 2, 3]
    assert [rest[name] for name in ("impressions", "without_positive", "one_class")] == [27, 0, 0]
    assert found["auc"] == pytest.approx(rest["auc"])
    assert found["mrr"] == pytest.approx((27 * rest["mrr"] + _mean_of_reciprocals(lines[2])) / 28)
    _, out, err = fastformer("evaluate", runs["nrms"], tmp_path / "odd")
    assert "3 of 30 impressions have one class only and no AUC; 2 of them have no click" in err
    assert "AUC" in out


def _mean_of_reciprocals(line):
    """MRR of an impression whose candidates were all clicked."""
    count = len(line.split("\t")[4].split())
    return np.mean(1 / np.arange(1, count + 1))


def test_predict_writes_the_leaderboard_file_and_its_zip(fastformer, runs, folders, clicks, tmp_path):
    code, _, _ = fastformer("predict", runs["nrms"], folders / "test", "--output", tmp_path / "prediction.txt")
    assert code == 0
    lines = (tmp_path / "prediction.txt").read_text().splitlines()
    test = clicks["test"]
    assert [line.split(" ")[0] for line in lines] == [str(one) for one in test.impression_ids]
    scores = load(runs["nrms"]).score(test)
    for number in (0, 17):
        assert re.fullmatch(r"\d+ \[\d+(,\d+)*\]", lines[number])
        ranks = json.loads(lines[number].split(" ")[1])
        own = scores[slice(*test.candidates.offsets[number : number + 2])]
        assert sorted(ranks) == list(range(1, len(own) + 1))
        assert np.argmin(ranks) == np.argmax(own)
    with zipfile.ZipFile(tmp_path / "prediction.zip") as archive:
        assert archive.namelist() == ["prediction.txt"]
        assert archive.read("prediction.txt").decode().splitlines() == lines
    for name, options in (("table.csv", ()), ("kept.txt", ("--keep", "candidates"))):  # are no leaderboard's files
        assert fastformer("predict", runs["nrms"], folders / "test", "--output", tmp_path / name, *options)[0] == 0
        assert not (tmp_path / name).with_suffix(".zip").exists()
    assert list(json.loads((tmp_path / "kept.txt").read_text().splitlines()[0])) == [
        "candidates",
        "impression",
        "ranks",
    ]


def test_recommend_from_the_run_alone(fastformer, runs, clicks):
    ids, titles = (clicks["train"].news[name].to_pylist() for name in ("id", "title"))
    code, out, _ = fastformer("recommend", runs["fastformer"], "--history", f"{ids[4]}, {ids[9]}", "--top", 3, "--json")
    assert code == 0
    found = json.loads(out)
    assert len(found) == 3
    assert all(titles[ids.index(one["id"])] == one["title"] for one in found)
    assert not {one["id"] for one in found} & {ids[4], ids[9]}
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    code, out, _ = fastformer("recommend", runs["fastformer"], "--history", f"{ids[4]},{ids[9]}", "--top", 3)
    assert all(one["title"] in line for one, line in zip(found, out.splitlines(), strict=True))


def test_recommend_other_news_to_somebody_new(runs, folders, clicks, tmp_path):
    fresh = set(clicks["dev"].news["id"].to_pylist()) - set(clicks["train"].news["id"].to_pylist())
    everything = recommend(open_run(runs["fim"]), "", top=10_000, news=str(folders / "dev"), show_progress=False)
    assert len(everything) == clicks["dev"].news.num_rows > _CUBES_AT_ONCE  # in several pieces
    assert fresh <= {one["id"] for one in everything}


def test_news_without_a_title_are_not_recommended(runs, folders, clicks, tmp_path):
    shutil.copytree(folders / "dev", tmp_path / "dev")
    with (tmp_path / "dev" / "behaviors.tsv").open("a") as file:
        file.write("999\tU1\tnow\t\tMISSING-1 N1-0\n")
    found = recommend(open_run(runs["nrms"]), "", top=10_000, news=str(tmp_path / "dev"), show_progress=False)
    assert len(found) == clicks["dev"].news.num_rows
    assert "MISSING" not in {one["id"] for one in found}


def test_an_ensemble_is_a_run_for_every_verb(fastformer, runs, folders, clicks, tmp_path):
    code, out, _ = fastformer("ensemble", runs["nrms"], runs["fastformer"], "--output", tmp_path / "both")
    assert code == 0
    assert str(tmp_path / "both") in out
    code, out, _ = fastformer("evaluate", tmp_path / "both", folders / "dev", "--json")
    assert json.loads(out)["impressions"] == 30
    code, out, _ = fastformer("recommend", tmp_path / "both", "--top", 2, "--json")
    assert len(json.loads(out)) == 2
    code, _, _ = fastformer("predict", tmp_path / "both", folders / "test", "--output", tmp_path / "prediction.txt")
    assert code == 0


def test_embed_writes_news_vectors(fastformer, runs, folders, clicks, tmp_path):
    code, _, _ = fastformer("embed", runs["plm-nr"], folders / "dev", "--output", tmp_path / "news.npy")
    assert code == 0
    vectors, ids = np.load(tmp_path / "news.npy"), clicks["dev"].news["id"].to_pylist()
    assert vectors.shape == (len(ids), 16)
    assert (tmp_path / "news.ids.txt").read_text().splitlines() == ids
    code, _, _ = fastformer("embed", runs["plm-nr"], folders / "dev", "--output", tmp_path / "news.parquet")
    assert code == 0
    table = pq.read_table(tmp_path / "news.parquet")
    assert table.column_names == ["row", "id", "vector"]
    assert table["id"].to_pylist() == ids
    np.testing.assert_array_equal(np.stack(table["vector"].to_pylist()), vectors)
    with pytest.raises(UserError, match="give a list of articles, not one string"):
        load(runs["plm-nr"]).vectors("a title")


def test_mistakes_are_one_line_and_exit_code_2(mistake, runs, folders, tmp_path):
    run, dev = runs["fastformer"], folders / "dev"
    known = recommend(open_run(run), "", top=1, show_progress=False)[0]["id"]
    mistake("history: N0, X7 not among the articles of", "recommend", run, "--history", f"N0,{known},X7", "--json")
    mistake("each one of --users has a history", "recommend", run, "--users", tmp_path / "x.csv", "--history", known)
    mistake("is recommended to --users", "recommend", run, "--output", tmp_path / "out.jsonl")
    mistake("no labels.*such as dev", "evaluate", run, folders / "test", "--json")
    mistake("no such folder", "evaluate", run, tmp_path / "nowhere", "--json")
    mistake("fixed columns", "evaluate", run, dev, "--text-column", "title", "--json")
    mistake("fim has no vector of an article", "embed", runs["fim"], dev, "--json")
    mistake("cannot be exported", "export", run, "--json")
    mistake("only classifiers can be explained", "explain", run, "a title")
    mistake("not a run folder", "recommend", tmp_path, "--json")
    train = ["train", "recommendation", "--train", folders / "train", "--output", tmp_path / "run", "--json"]
    mistake("unknown mixer 'mamba'; choose from", *train, "--news-mixer", "mamba")
    mistake("no such folder", *train, "--model", "plm-nr", "--plm", tmp_path / "nowhere")
    mistake("no labels", *train[:3], folders / "test", *train[4:])
    assert not (tmp_path / "run").exists()
    mistake("holds a finished run", *train[:3], tmp_path / "nowhere", "--output", run, "--json")  # before data is read
    mistake("not finite numbers: .* lower --learning-rate", *train, "--learning-rate", "1e30", "--epochs", 1)
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_task_is_refused(mistake, tmp_path):
    (tmp_path / "run.json").write_text('{"task": "classification"}')
    mistake("a run for classification; give one of `fastformer train recommendation`", "recommend", tmp_path, "--json")
    mistake("a run for classification", "ensemble", tmp_path, tmp_path, "--output", tmp_path / "both")


def test_a_damaged_run_says_so(mistake, runs, folders, tmp_path):
    shutil.copytree(runs["nrms"], tmp_path / "run")
    (tmp_path / "run" / "news.parquet").write_bytes(b"no table")
    mistake("news.parquet: cannot be read", "recommend", tmp_path / "run", "--json")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"no weights")
    mistake("the model cannot be loaded", "evaluate", tmp_path / "run", folders / "dev", "--json")
