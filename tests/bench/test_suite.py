"""`bench suite`: every set, size and method once; what is measured stays; mistakes are one line."""

import gzip
import json

import pytest

from fastformer.bench import comparing
from fastformer.bench.suite import suite
from fastformer.bench.suite_report import markdown, summary
from fastformer.errors import Interrupted, UserError
from fastformer.tasks.classification.methods import FitError, Method

from ..tasks.conftest import make_rows, write_csv, write_jsonl
from ..test_cli import fastformer  # noqa: F401  runs a command

LR, SVC = "TF-IDF(1-2) + LR, C=10", "TF-IDF(1-2) + LinearSVC"
QUICK = {"methods": "commonest,c=10", "show_progress": False}


@pytest.fixture
def data(tmp_path):
    """Two sets, in two formats, and what is no set."""
    folder = tmp_path / "data"
    for name in ("things", "two", "notes", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "README.md").write_text("not a set")
    (folder / "notes" / "todo.txt").write_text("not a set either")
    for role, count, seed in (("train", 90, 0), ("test", 40, 1)):
        write_csv(folder / "things" / f"{role}.csv", make_rows(count, seed))
        rows = [{"text": text, "label": label} for text, label in make_rows(count + 40, seed) if label != "tool"]
        write_jsonl(tmp_path / "rows.jsonl", rows)
        (folder / "two" / f"{role}.jsonl.gz").write_bytes(gzip.compress((tmp_path / "rows.jsonl").read_bytes()))
    return folder


@pytest.fixture
def count(monkeypatch):
    """Counts what is measured, and measures nothing."""
    measured = []

    def pretend(fit, training, testing):
        measured.append((len(training), len(testing)))
        scores = {"accuracy": 0.5, "macro_f": 0.4, "log_loss": None, "calibration_error": None}
        return scores | {"train_seconds": 1.0, "seconds_per_1000": 2.0}

    monkeypatch.setattr(comparing, "measure", pretend)
    return measured


def test_ours_and_others_on_every_set_and_size(data, tmp_path, capsys):
    out = tmp_path / "out"
    result = suite(data, out, rows="60,all", test_rows=30, methods="fastformer,c=10,linearsvc", seed=3)
    sizes = ["60", "all"]
    assert {name: list(parts) for name, parts in result["sets"].items()} == {"things": sizes, "two": sizes}
    part = result["sets"]["things"]["60"]
    assert part["rows"] == {"train": 60, "test": 30}
    assert part["classes"] == 3
    assert part["methods"][SVC]["accuracy"] > 0.9
    assert part["methods"][SVC]["log_loss"] is None
    for method in ("Fastformer", LR):
        assert 0 < part["methods"][method]["log_loss"] < 1.2
        assert 0 <= part["methods"][method]["calibration_error"] <= 1
    assert json.loads((out / "suite.json").read_text()) == result
    text = (out / "suite.md").read_text()
    assert text == markdown(result)
    assert "## 60 training rows" in text
    assert "Over all sets (2)" in text
    assert (out / "suite.png").read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().err
    assert "1 of 20: things, 60 rows: Fastformer …" in told
    assert "20 of 20: two, all rows:" in told


def test_what_is_measured_stays(data, tmp_path, count):
    out = tmp_path / "out"
    first = suite(data, out, rows="50", **QUICK)
    assert len(count) == 4
    assert suite(data, out, rows="50", **QUICK) == first
    assert len(count) == 4
    suite(data, out, rows="50,all", **QUICK)  # another size, then another method: only these
    assert len(count) == 8
    both = suite(data, out, rows="all", methods="c=1,linearsvc", show_progress=False)
    assert len(count) == 8 + 2 * 4
    assert list(both["sets"]["two"]) == ["50", "all"]
    assert {"commonest class", LR, SVC} <= set(both["sets"]["two"]["all"]["methods"])


def test_changed_files_and_other_threads_are_measured_again(data, tmp_path, count):
    out = tmp_path / "out"
    first = suite(data, out, **QUICK)
    write_csv(data / "things" / "test.csv", make_rows(44, 1))
    again = suite(data, out, methods="commonest", show_progress=False)
    assert count[4:] == [(90, 44)]
    assert list(again["sets"]["things"]["all"]["methods"]) == ["commonest class"]  # no others of the old file beside it
    suite(data, out, **QUICK)
    assert count[5:] == [(90, 44)]
    used = first["machine"]["threads"]
    suite(data, out, threads=used, **QUICK)
    assert len(count) == 6
    suite(data, out, threads=used + 1, **QUICK)
    assert len(count) == 10


def test_a_set_that_is_not_there_now_is_kept_and_not_reported(data, tmp_path, count):
    out = tmp_path / "out"
    both = suite(data, out, **QUICK)
    (data / "two").rename(tmp_path / "two")
    one = suite(data, out, **QUICK)
    assert list(one["sets"]) == list(one["summary"]["all"]["sets"]) == ["things"]
    assert (out / "suite.md").read_text() == markdown(one)
    kept = json.loads((out / "suite.json").read_text())
    assert kept["sets"]["two"] == both["sets"]["two"]
    (tmp_path / "two").rename(data / "two")
    assert suite(data, out, **QUICK) == both
    assert len(count) == 4


def test_other_settings_do_not_overwrite(data, tmp_path, count):
    out = tmp_path / "out"
    suite(data, out, **QUICK)
    kept = (out / "suite.json").read_bytes()
    with pytest.raises(UserError, match="another seed; give another --output"):
        suite(data, out, seed=1, **QUICK)
    assert (out / "suite.json").read_bytes() == kept
    (out / "suite.json").write_text("{")
    with pytest.raises(UserError, match="was not written by `bench suite`"):
        suite(data, out, **QUICK)


def test_ctrl_c_keeps_what_was_measured(data, tmp_path, count, monkeypatch):
    pretend = comparing.measure

    def interrupt(fit, training, testing):
        if len(count) == 3:
            raise KeyboardInterrupt
        return pretend(fit, training, testing)

    monkeypatch.setattr(comparing, "measure", interrupt)
    out = tmp_path / "out"
    with pytest.raises(Interrupted, match="the same command continues"):
        suite(data, out, **QUICK)
    assert (out / "suite.png").exists()
    assert "Over the 1 of 2 sets that all methods have" in (out / "suite.md").read_text()
    monkeypatch.setattr(comparing, "measure", pretend)
    suite(data, out, **QUICK)
    assert len(count) == 4


def test_a_method_that_fails_is_missing_there_and_ends_no_other(data, tmp_path, monkeypatch):
    def picky(texts, labels):
        if len(set(labels)) == 2:
            raise FitError("needs three\nclasses")
        return comparing.BASELINES[0].fit(texts, labels)

    monkeypatch.setattr(comparing, "BASELINES", (*comparing.BASELINES, Method("picky", picky, "json", "json")))
    result = suite(data, tmp_path / "out", methods="commonest,c=10,picky", show_progress=False)
    assert result["sets"]["two"]["all"]["missing"] == {"picky": "needs three classes"}
    text = (tmp_path / "out" / "suite.md").read_text()
    assert "- picky on two: needs three classes" in text
    assert result["summary"]["all"]["sets"] == ["things"]
    assert "Over the 1 of 2 sets that all methods have" in text


def test_a_set_with_too_few_rows_is_left_out_at_that_size(data, tmp_path, count, capsys):
    write_csv(data / "things" / "train.csv", make_rows(30, 0))
    result = suite(data, tmp_path / "out", rows="all,31,20", methods="commonest")
    assert "things has 30 training rows and is left out at 31." in capsys.readouterr().err
    assert list(result["sets"]["things"]) == ["20", "all"]
    assert list(result["sets"]["two"]) == ["20", "31", "all"]
    with pytest.raises(UserError, match="every set in .* has fewer"):
        suite(data, tmp_path / "other", rows="5000", **QUICK)


def test_the_summary_adds_up():
    def entry(accuracy, seconds=1.0, loss=None):
        return {
            "accuracy": accuracy,
            "macro_f": accuracy - 0.1,
            "log_loss": loss,
            "calibration_error": loss,
            "train_seconds": seconds,
            "seconds_per_1000": seconds,
        }

    sets = {
        "a": {"all": {"methods": {"Fastformer": entry(0.8, 3, 0.5), LR: entry(0.7), "MiniLM + LR": entry(0.9)}}},
        "b": {"all": {"methods": {"Fastformer": entry(0.6, 1, 0.3), LR: entry(0.7), "MiniLM + LR": entry(0.5)}}},
        "c": {"all": {"methods": {"Fastformer": entry(0.1)}}},
    }
    found = summary(sets)["all"]
    assert found["sets"] == ["a", "b"]
    ours = found["methods"]["Fastformer"]
    assert ours["accuracy"] == pytest.approx(0.7)
    assert ours["to_best_linear"]["accuracy"] == {"difference": pytest.approx(-0.1), "set": "b"}
    assert ours["to_best"]["macro_f"] == {"difference": pytest.approx(-0.1), "set": "a"}
    assert ours["log_loss"] == pytest.approx(0.4)
    assert ours["worst_calibration_error"] == 0.5
    assert (ours["train_seconds"], ours["predictions_per_second"]) == (4, pytest.approx((1000 + 1000 / 3) / 2))
    assert found["methods"][LR]["log_loss"] is None


def test_mistakes_are_one_line(fastformer, data, tmp_path):  # noqa: F811
    def mistake(*arguments):
        code, out, err = fastformer(
            "bench", "suite", *arguments, "--output", tmp_path / "out", "--methods", "commonest"
        )
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert not (tmp_path / "out" / "suite.json").exists()
        return err

    assert "no such folder" in mistake(tmp_path / "nowhere")
    assert "no folder in it has train.* and test.*" in mistake(data / "notes")
    assert "--rows many: give numbers of rows" in mistake(data, "--rows", "many")
    assert "no column 'body'" in mistake(data, "--text-column", "body")
    (data / "half").mkdir()
    empty = data / "half" / "train.csv"
    empty.write_text("text,label\n")
    assert "has train.* but no test.*" in mistake(data)
    write_csv(data / "half" / "test.csv", make_rows(4, 0))
    assert "half/train.csv: no rows" in mistake(data)
    (data / "half" / "train.jsonl").write_text("")
    assert "has train.csv and train.jsonl" in mistake(data)


def test_help_teaches(fastformer):  # noqa: F811
    code, out, _ = fastformer("bench", "suite", "--help")
    assert code == 0
    assert all(word in out for word in ("--rows", "--test-rows", "SetFit", "Ctrl-C"))
