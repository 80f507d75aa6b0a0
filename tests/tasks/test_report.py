"""`evaluate --report`: its numbers are scikit-learn's, its files say what they show, its pictures can be read."""

import json
from functools import partial

import matplotlib.image
import numpy as np
import pytest
from sklearn.metrics import classification_report

from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks import verbs
from fastformer.tasks.classification import report as reports
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.report import class_scores, confusion, details, most_confused, write_report

from .conftest import make_rows, write_csv, write_jsonl

train, evaluate = partial(verbs.train, "classification"), verbs.evaluate

quiet = {"show_progress": False}


def answers(classes: int, texts: int = 400, right: float = 0.7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a classifier that is right so often."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, texts)
    predicted = np.where(random.random(texts) < right, labels, random.integers(0, classes, texts))
    return np.eye(classes)[predicted], labels


def write(folder, space, logits, labels) -> tuple[dict, str]:
    result = {"rows": len(labels), **details(space, logits, labels)}
    write_report(folder, space, logits, labels, run="runs/x", source="test.csv", result=result)
    return json.loads((folder / "report.json").read_text()), (folder / "report.md").read_text()


@pytest.fixture
def figure(monkeypatch):
    """The figure that was drawn last."""
    drawn, save = [], reports._save

    def keep(figure, path):
        drawn.append(figure)
        save(figure, path)

    monkeypatch.setattr(reports, "_save", keep)
    return lambda: drawn[-1]


def said(figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_scores_of_classes_are_those_of_scikit_learn():
    names = ("a", "b", "c", "absent")
    logits, labels = answers(3)
    logits = np.hstack([logits, np.zeros((400, 1))])
    expected = classification_report(
        labels, logits.argmax(1), labels=range(4), target_names=names, output_dict=True, zero_division=0
    )
    found = class_scores(LabelSpace("single", names), logits, labels)
    assert list(found) == list(names)
    for name in names:
        assert list(found[name].values()) == [
            expected[name][key] for key in ("precision", "recall", "f1-score", "support")
        ]
    assert found["absent"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}


def test_scores_of_several_labels_stand_by_themselves():
    labels = np.array([[1, 0], [1, 1], [0, 0], [1, 0]], dtype=np.float32)
    logits = np.array([[2.0, -1], [-2, 3], [-1, -1], [1, 1]])
    found = class_scores(LabelSpace("multi", ("a", "b")), logits, labels)
    assert found["a"] == {"precision": 1.0, "recall": pytest.approx(2 / 3), "f1": pytest.approx(0.8), "support": 3}
    assert found["b"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert class_scores(LabelSpace("multi", ("a",)), logits[:, :1], labels[:, :1]) == {"a": found["a"]}


def test_a_report_of_classes(tmp_path):
    logits, labels = answers(3)
    space = LabelSpace("single", ("a|b", "two\nlines", "c"))
    found, page = write(tmp_path, space, logits, labels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confusion.png", "report.json", "report.md"]
    counts = confusion(space, logits, labels)
    cells = {(cell["true"], cell["predicted"]): cell["count"] for cell in found["confusion"]}
    assert cells == {
        (one, other): counts[i, j] for i, one in enumerate(space.names) for j, other in enumerate(space.names)
    }
    recall = counts[2, 2] / counts[2].sum()
    assert found["classes"]["c"]["recall"] == pytest.approx(recall)
    assert found["averages"]["macro"]["f1"] == pytest.approx(np.mean([one["f1"] for one in found["classes"].values()]))
    assert f"{recall:.4f}" in page
    assert r"a\|b" in page
    assert "two lines" in page
    assert "![Confusion matrix](confusion.png)" in page
    [line] = [line for line in page.splitlines() if line.startswith(r"| a\|b") and line.count(".") == 3]
    assert line.replace(r"\|", "").count("|") == 6  # still one cell


def test_a_report_of_several_labels_says_why_there_is_no_matrix(tmp_path):
    random = np.random.default_rng(0)
    labels, logits = random.integers(0, 2, (50, 3)).astype(np.float32), random.normal(size=(50, 3))
    found, page = write(tmp_path, LabelSpace("multi", ("a", "b", "c")), logits, labels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]
    assert list(found["averages"]) == ["micro", "macro", "weighted"]
    assert "confusion" not in found
    assert "there is no confusion matrix" in page


def test_a_report_of_numbers(tmp_path, figure):
    random = np.random.default_rng(0)
    labels = random.normal(5000, 100, 300)
    found, page = write(tmp_path, LabelSpace("number"), (labels + 7)[:, None], labels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md", "scatter.png"]
    assert found["residuals"] == pytest.approx(dict.fromkeys(found["residuals"], 7.0))
    assert list(found["residuals"]) == ["smallest", "5%", "25%", "median", "75%", "95%", "largest"]
    assert "7.0000" in page
    [points] = figure().axes[0].collections
    np.testing.assert_allclose(points.get_offsets()[:, 1] - points.get_offsets()[:, 0], 7)
    ratings = random.integers(1, 6, 12_000).astype(float)
    write(tmp_path, LabelSpace("number"), ratings[:, None], ratings)
    assert "10,000 are shown" in said(figure())
    assert "spread sideways" in said(figure())
    write(tmp_path, LabelSpace("number"), np.ones((1, 1)), np.ones(1))  # one text, one point


@pytest.mark.parametrize("classes", [2, 5, 20, 52])
def test_cells_of_few_classes_bear_numbers(tmp_path, figure, classes):
    logits, labels = answers(classes)
    names = tuple(f"the label that has the number {place} of all of them" for place in range(classes))
    write(tmp_path, LabelSpace("single", names), logits, labels)
    counts = confusion(LabelSpace("single", names), logits, labels)
    axes = figure().axes[0]
    assert len(axes.texts) == (np.count_nonzero(counts) if classes <= 25 else 0)
    assert len(figure().axes) == (1 if classes <= 25 else 2)  # where there are no numbers, colours are explained
    np.testing.assert_allclose(axes.images[0].get_array().sum(axis=1), 100)
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert len(ticks) == classes
    assert max(map(len, ticks)) <= 30
    if classes == 2:
        assert axes.texts[0].get_text() == f"{100 * counts[0, 0] / counts[0].sum():.0f}%\n{counts[0, 0]}"
    height, width, _ = matplotlib.image.imread(tmp_path / "confusion.png").shape
    assert 500 < height < 2500
    assert 500 < width < 2500


def test_of_many_classes_the_most_confused_are_shown_and_said_to_be(tmp_path, figure):
    names = tuple(f"class {place}" for place in range(80))
    labels = np.repeat(np.arange(80), 3)
    predicted = labels.copy()
    predicted[3 * 70] = 75  # one mistake in all
    logits = np.eye(80)[predicted]
    _, page = write(tmp_path, LabelSpace("single", names), logits, labels)
    counts = confusion(LabelSpace("single", names), logits, labels)
    assert most_confused(counts, 2).tolist() == [70, 75]
    assert "the 40 most confused of 80 classes" in page
    assert "the 40 most confused of 80 classes are shown" in said(figure())
    ticks = [tick.get_text() for tick in figure().axes[0].get_yticklabels()]
    assert len(ticks) == 40
    assert ticks[-2:] == ["class 70", "class 75"]


def test_evaluate_writes_a_report_and_says_the_classes(run_folder, files, tmp_path):
    plain = evaluate(open_run(run_folder), files["test"], by_class=False, **quiet)
    assert "classes" not in plain
    result = evaluate(open_run(run_folder), files["test"], report=str(tmp_path / "a" / "report"), **quiet)
    assert {name: result[name] for name in plain} == plain
    assert list(result["classes"]) == ["animal", "food", "tool"]
    assert np.mean([one["f1"] for one in result["classes"].values()]) == pytest.approx(plain["macro_f"])
    found = json.loads((tmp_path / "a" / "report" / "report.json").read_text())
    assert (found["scores"], found["classes"]) == (plain, result["classes"])
    assert sum(cell["count"] for cell in found["confusion"]) == 60
    assert evaluate(open_run(run_folder), files["test"], **quiet) == result


def test_evaluate_reports_numbers_and_several_labels(tmp_path):
    rows = make_rows(60, 2)
    numbers = write_csv(tmp_path / "numbers.csv", [(text, len(text)) for text, _ in rows])
    several = write_jsonl(tmp_path / "several.jsonl", [{"text": text, "label": [label, "x"]} for text, label in rows])
    for source, regression, key in ((numbers, True, "residuals"), (several, False, "classes")):
        train(source, output=tmp_path / key, regression=regression, epochs=1, **quiet)
        assert key in evaluate(open_run(tmp_path / key), source, report=tmp_path / f"report-{key}", **quiet)
        assert (tmp_path / f"report-{key}" / "report.md").is_file()


def test_mistakes_are_named_and_leave_nothing_behind(run_folder, files, tmp_path):
    with pytest.raises(UserError, match=r"test.csv: is a file; give --report the name of a folder"):
        evaluate(open_run(run_folder), files["test"], report=files["test"], **quiet)
    bad = write_csv(tmp_path / "bad.csv", [("a planet", "star")])
    with pytest.raises(UserError, match="none of its labels was seen in training"):
        evaluate(open_run(run_folder), bad, report=tmp_path / "report", **quiet)
    assert not (tmp_path / "report").exists()
