"""`TextClassifier` and `TextRegressor` keep scikit-learn's promises."""

import doctest
import pickle
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fastformer import TextClassifier, TextRegressor
from fastformer.data.frames import indicators
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.tasks.verbs import evaluate, train

from .conftest import make_rows, write_csv


@pytest.fixture(scope="module")
def data():
    texts, labels = zip(*make_rows(240, 0), strict=True)
    return list(texts), list(labels)


@pytest.fixture(scope="module")
def fitted(data):
    return TextClassifier().fit(*data)


def test_learns(fitted):
    texts, labels = zip(*make_rows(60, 1), strict=True)
    assert fitted.classes_.tolist() == ["animal", "food", "tool"]
    assert fitted.score(texts, labels) > 0.9
    chances = fitted.predict_proba(texts)
    assert chances.shape == (60, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (fitted.classes_[chances.argmax(axis=1)] == fitted.predict(texts)).all()


def test_predict_top_gives_the_most_probable_labels_first(fitted, data):
    texts = data[0][:20]
    chances = fitted.predict_proba(texts)
    for k in (1, 2, 3, 9):
        top = fitted.predict_top(texts, k)
        assert [len(one) for one in top] == [min(k, 3)] * 20
        for row, one in zip(chances, top, strict=True):
            assert [chance for _, chance in one] == sorted(row, reverse=True)[:k]
            assert all(row[fitted.classes_.tolist().index(label)] == chance for label, chance in one)
    assert [one[0][0] for one in top] == fitted.predict(texts).tolist()
    assert fitted.predict_top([], 2) == []
    with pytest.raises(ValueError, match="k is 0"):
        fitted.predict_top(texts, 0)


def test_clone_copies_settings_not_weights(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(["a cat"])


def test_same_random_state_same_model(data, fitted):
    again = clone(fitted).fit(*data)
    np.testing.assert_array_equal(again.predict_proba(data[0]), fitted.predict_proba(data[0]))


def test_pickled_and_back_is_the_same(fitted, data):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(data[0]), fitted.predict_proba(data[0]))


def test_saved_and_loaded_is_the_same(fitted, data, tmp_path):
    fitted.save(tmp_path / "run")
    loaded = TextClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict_proba(data[0]), fitted.predict_proba(data[0]))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    source = write_csv(tmp_path / "test.csv", list(zip(*data, strict=True)))
    scores = evaluate(open_run(tmp_path / "run"), source, show_progress=False)
    assert scores["accuracy"] == fitted.score(*data)
    loaded.save(tmp_path / "again")  # what was loaded can be saved
    assert TextClassifier.load(tmp_path / "again").score(*data) == scores["accuracy"]


def test_a_finished_run_is_kept_unless_told(fitted, data, tmp_path):
    fitted.save(tmp_path / "run")
    before = (tmp_path / "run" / "run.json").stat().st_mtime_ns
    with pytest.raises(UserError, match="run: holds a finished run"):
        fitted.save(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").stat().st_mtime_ns == before
    fitted.save(tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "run.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
def test_the_examples_print_what_they_say(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestFinder(recurse=False).find(kind, globs={kind.__name__: kind})[0]
    assert doctest.DocTestRunner().run(example).failed == 0


def test_cross_validation_and_grid_search(data):
    texts, labels = np.array(data[0]), np.array(data[1])
    quick = TextClassifier(preset="encoder", learning_rate=0.01)
    scores = cross_val_score(clone(quick).set_params(epochs=6), texts, labels, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.4
    search = GridSearchCV(quick.set_params(epochs=4), {"max_length": [1, 64]}, cv=2).fit(texts, labels)
    assert search.best_params_ == {"max_length": 64}


def test_ends_a_pipeline(data):
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipe = make_pipeline(lower, TextClassifier(epochs=2)).fit(*data)
    assert pipe.predict(["CAT OTTER HORSE", "BREAD SOUP"]).tolist() == ["animal", "food"]


def test_is_a_step_that_gives_features(data):
    """Text vectors go on to the next step; what they are made from was learned with the labels."""
    pipeline = make_pipeline(TextClassifier(preset="encoder", epochs=4), LogisticRegression()).fit(*data)
    texts, labels = zip(*make_rows(60, 1), strict=True)
    assert pipeline.score(texts, labels) > 0.9
    step = pipeline[0]
    vectors = step.transform(texts)
    assert (vectors.shape, vectors.dtype) == ((60, 128), np.float32)
    np.testing.assert_array_equal(step.embed(texts), vectors)
    assert step.transform([]).shape == (0, 128)
    assert step.get_feature_names_out()[:2].tolist() == ["textclassifier0", "textclassifier1"]


def test_large_tables_are_stored_in_half_precision(data, tmp_path, all_known_words):
    fitted = TextClassifier(epochs=1).fit(*data)
    fitted.save(tmp_path / "run")
    weights = load_file(tmp_path / "run" / "model.safetensors")
    tables = {name for name, weight in weights.items() if weight.numel() > 100_000}
    assert any("embeddings" in name for name in tables)
    assert any("ngrams" in name for name in tables)
    assert sum(path.stat().st_size for path in (tmp_path / "run").iterdir()) < 15_000_000
    assert {weights[name].dtype for name in tables} == {torch.float16}
    loaded = TextClassifier.load(tmp_path / "run")
    assert {weight.dtype for weight in loaded.model_.parameters()} == {torch.float32}
    np.testing.assert_array_equal(loaded.transform(data[0][:20]), fitted.transform(data[0][:20]))
    np.testing.assert_array_equal(loaded.predict_proba(data[0][:20]), fitted.predict_proba(data[0][:20]))


@pytest.mark.slow  # a number of milliseconds holds for one machine, not for every one
@pytest.mark.parametrize("channel_alone", [True, False])
def test_a_short_text_is_answered_within_two_milliseconds_of_cpu(fitted, channel_alone, monkeypatch):
    monkeypatch.setattr(fitted.model_.config, "ngram_only", channel_alone)
    took = []
    for _ in range(100):  # the first of them warm up
        start = time.process_time()
        fitted.predict(["The otter and the horse met a cat."])
        took.append(time.process_time() - start)
    assert min(took) < 0.002


def test_integer_labels_come_back_as_integers(data, tmp_path):
    numbers = [{"animal": 10, "food": 2, "tool": 30}[label] for label in data[1]]
    model = TextClassifier(epochs=2).fit(data[0], numbers)
    assert model.classes_.tolist() == [2, 10, 30]
    assert model.predict(["cat dog"]).dtype.kind == "i"
    model.save(tmp_path / "run")
    assert TextClassifier.load(tmp_path / "run").classes_.tolist() == [2, 10, 30]


def test_classes_are_in_the_order_that_scorers_expect(data, tmp_path):
    ratings = [{"animal": "10", "food": "2", "tool": "1"}[label] for label in data[1]]
    model = TextClassifier(epochs=2).fit(data[0], ratings)
    assert model.classes_.tolist() == ["1", "10", "2"]
    chances = model.predict_proba(data[0])
    assert model.predict(data[0]).tolist() == model.classes_[chances.argmax(axis=1)].tolist()
    right = np.array([list(model.classes_).index(rating) for rating in ratings])
    assert -get_scorer("neg_log_loss")(model, data[0], ratings) == pytest.approx(
        -np.log(chances[np.arange(len(right)), right]).mean()
    )
    model.save(tmp_path / "run")
    np.testing.assert_array_equal(TextClassifier.load(tmp_path / "run").predict_proba(data[0]), chances)


def test_two_texts_are_enough_to_train():
    assert len(TextClassifier(epochs=1).fit(["a good film", "a bad film"], ["p", "n"]).predict(["good"])) == 1


def test_lists_of_labels_train_a_multi_label_model(data):
    labels = [[label, "any"] for label in data[1]]
    model = TextClassifier().fit(data[0], labels)
    assert model.classes_.tolist() == ["animal", "any", "food", "tool"]
    assert model.score(data[0], labels) > 0.8
    assert all("any" in names for names in model.predict(data[0][:5]))


@pytest.mark.parametrize("preset", ["default", "encoder"])
def test_balanced_classes_count_the_same(preset):
    texts = [f"{word} film" for word in ("nice", "odd")] * 100
    labels = ["rare" if number % 20 < 2 else "often" for number in range(200)]  # what it is, no word tells
    usual, balanced = (
        TextClassifier(preset=preset, epochs=3, class_weight=weight).fit(texts, labels) for weight in (None, "balanced")
    )
    assert usual.predict_proba(["a film"])[0, 1] < 0.25
    assert 0.35 < balanced.predict_proba(["a film"])[0, 1] < 0.65
    assert balanced._predictor.trained.record["settings"]["class_weight"] == "balanced"
    assert clone(balanced).class_weight == "balanced"


@pytest.mark.parametrize("preset", ["default", "encoder"])
def test_texts_count_by_their_weights(preset):
    """Every text has both labels equally often; weights say which one counts."""
    texts = [f"{word} film" for word in ("nice", "odd")] * 60
    labels = ["good" if number % 4 < 2 else "bad" for number in range(120)]
    weights = [
        9.0 if (text == "nice film") == (label == "good") else 1.0 for text, label in zip(texts, labels, strict=True)
    ]
    model = TextClassifier(preset=preset, epochs=3).fit(texts, labels, sample_weight=weights)
    chances = model.predict_proba(["nice film", "odd film"])
    assert (chances[:, 0] > [0, 0.6]).all()  # bad, good
    assert (chances[:, 1] > [0.6, 0]).all()
    texts, labels = [*texts, "a third kind"], [*labels, "none"]
    same = TextClassifier(preset=preset, epochs=3).fit(texts, labels, sample_weight=[*(2 * np.array(weights)), 0])
    assert same.classes_.tolist() == ["bad", "good"]  # weight 0 is left out, and only how weights compare matters
    np.testing.assert_array_equal(same.predict_proba(["nice film", "odd film"]), chances)


def test_numbers_and_several_labels_count_by_their_weights():
    texts = ["nice film", "odd film"] * 60
    first = np.arange(120) % 4 < 2
    numbers = np.where(first, 1.0, 5.0)
    model = TextRegressor(epochs=10).fit(texts, numbers, sample_weight=np.where(first, 1.0, 19.0))
    assert model.predict(["nice film"])[0] > 4
    several = [["a", "b"] if one else ["b"] for one in first]
    light, heavy = (
        TextClassifier(epochs=3).fit(texts, several, sample_weight=np.where(first, weight, 1.0)) for weight in (0.1, 10)
    )
    assert light.predict_proba(["nice film"])[0, 0] < 0.3 < 0.7 < heavy.predict_proba(["nice film"])[0, 0]


def test_weights_are_checked_as_scikit_learn_does(data):
    count = len(data[0])
    for weights, message in (
        ([1.0] * 3, "sample_weight.shape"),
        ([-1.0] * count, "Negative values"),
        ([np.nan] * count, "NaN"),
        (np.ones((count, 2)), "Sample weights must be 1D"),
        ([0.0] * count, "all weights are 0|zero"),
    ):
        for model in (TextClassifier(), TextRegressor()):
            with pytest.raises(ValueError, match=message):
                model.fit(data[0], range(count) if isinstance(model, TextRegressor) else data[1], sample_weight=weights)


def test_class_weights_are_for_one_label_per_text(data):
    with pytest.raises(UserError, match="only 'balanced'"):
        TextClassifier(class_weight="even").fit(*data)
    with pytest.raises(UserError, match="any number"):
        TextClassifier(class_weight="balanced").fit(data[0], [[label] for label in data[1]])
    with pytest.raises(UserError, match="numbers have no classes"):
        TextRegressor(class_weight="balanced").fit(data[0], range(len(data[0])))


def test_mistakes_are_named(fitted):
    with pytest.raises(ValueError, match="2 texts but 1 labels"):
        TextClassifier().fit(["a", "b"], ["x"])
    with pytest.raises(ValueError, match="not one string"):
        fitted.predict("a cat")
    with pytest.raises(ValueError, match="not one dictionary"):
        fitted.predict({"text": "a cat"})
    with pytest.raises(ValueError, match="a list of labels, not one string"):
        TextClassifier().fit(["a", "b"], "xy")
    with pytest.raises(ValueError, match="text 1 is a int"):
        fitted.predict(["a", 3])
    with pytest.raises(ValueError, match="in a matrix, 1 says that a text has the label of the column"):
        TextClassifier().fit(["a", "b"], 2 * np.eye(2))
    with pytest.raises(UserError, match=r"the label 'a\\ud83d' holds half a character"):
        TextClassifier().fit(["a", "b", "c"], ["a\ud83d", "b", "b"])
    with pytest.raises(ValueError, match="text 1 is NaN, not a string"):
        fitted.predict(["a", float("nan")])
    with pytest.raises(ValueError, match="text 1 has no label"):
        TextClassifier().fit(["a", "b"], ["x", float("nan")])
    with pytest.raises(UserError, match="at least two"):
        TextClassifier().fit(["a cat", "a dog"], ["x", "x"])
    assert fitted.predict([]).shape == (0,)
    assert fitted.predict([""]).shape == (1,)


def test_a_data_frame_of_one_column_is_that_column(fitted, data):
    frame = pd.DataFrame({"text": data[0][:8], "id": range(8)})
    expected = fitted.predict(data[0][:8]).tolist()
    for one in (frame[["text"]], np.array(data[0][:8])[:, None], frame["text"], pa.table({"text": data[0][:8]})):
        assert fitted.predict(one).tolist() == expected
    assert fitted.score(frame[["text"]], pd.DataFrame({"label": data[1][:8]})) == fitted.score(data[0][:8], data[1][:8])
    for call in (fitted.predict, lambda frame: TextClassifier().fit(frame, data[1][:8])):
        with pytest.raises(ValueError, match=r"a data frame with 2 columns \(text, id\); give one, as in df\['text'\]"):
            call(frame)


def test_labels_are_written_as_files_have_them(data, tmp_path):
    texts, truth = data[0][:60], [label == "animal" for label in data[1][:60]]
    model = TextClassifier(epochs=1, preset="encoder").fit(pd.DataFrame({"text": texts}), truth)
    assert model.predict(texts).dtype == bool
    model.save(tmp_path / "run")
    source = write_csv(tmp_path / "a.csv", list(zip(texts, truth, strict=True)))  # True and False
    assert evaluate(open_run(tmp_path / "run"), source, show_progress=False)["rows"] == 60
    assert TextClassifier.load(tmp_path / "run").predict(texts).tolist() == model.predict(texts).tolist()


def test_labels_of_any_type_are_scored(data, tmp_path):
    """A run that was trained on a file has strings for classes, also where labels are numbers."""
    texts, stars = data[0][:60], [{"animal": 1, "food": 5, "tool": 4.1}[label] for label in data[1][:60]]
    source = write_csv(tmp_path / "a.csv", list(zip(texts, stars, strict=True)))
    train("classification", source, output=tmp_path / "run", epochs=1, preset="encoder", show_progress=False)
    model = TextClassifier.load(tmp_path / "run")
    assert model.classes_.tolist() == ["1", "4.1", "5"]
    right = [float(ours) == theirs for ours, theirs in zip(model.predict(texts), stars, strict=True)]
    assert any(right)
    for labels in (stars, [float(star) for star in stars], [str(star) for star in stars], np.array(stars)):
        assert model.score(texts, labels) == np.mean(right)
    short = pd.Series(stars, dtype="float32")  # whose 4.1 is 4.099999904632568 as one of Python's floats
    for labels in (short, short.to_frame(), short.to_numpy()):
        assert model.score(texts, labels) == np.mean(right)
        with pytest.raises(ValueError, match="continuous numbers; learn them with TextRegressor"):
            TextClassifier().fit(texts, labels)
    several = TextClassifier(epochs=1, preset="encoder").fit(texts, [[str(star)] for star in stars])
    of_lists = several.score(texts, [[str(star)] for star in stars])
    assert of_lists > 0
    assert several.score(texts, [[star] for star in stars]) == of_lists
    assert several.score(texts, [f"{star}|{star}" for star in stars]) == of_lists  # as a file has them
    with pytest.raises(ValueError, match="a matrix, but the model has learned lists"):
        several.score(texts, np.eye(3)[np.zeros(len(texts), dtype=int)])


def test_a_model_of_a_matrix_is_scored_on_lists_too(data):
    texts = data[0][:80]
    frame = pd.DataFrame({"cat": ["cat" in text for text in texts], "the": ["the" in text for text in texts]})
    model = TextClassifier(epochs=2, preset="encoder").fit(texts, frame.astype(int))
    assert model.score(texts, frame.astype(int)) > 0
    assert model.score(texts, indicators(frame.astype(int)).labels()) == model.score(texts, frame.astype(int))
    assert (
        model.score(texts, frame[["the", "cat"]]) == model.score(texts, frame) == model.score(texts, frame.to_numpy())
    )
    with pytest.raises(ValueError, match=r"the columns are not those that the model has learned \(cat, the\)"):
        model.score(texts, frame.rename(columns={"the": "a"}))


def test_a_model_with_numbers_of_numpy_is_saved(data, tmp_path):
    settings = {"epochs": np.arange(1, 2)[0], "max_length": np.int64(32), "verbose": np.bool_(False)}
    model = TextClassifier(preset="encoder", learning_rate=np.float32(0.001), **settings)
    model.fit(data[0][:60], data[1][:60]).save(tmp_path / "run")
    loaded = TextClassifier.load(tmp_path / "run")
    assert loaded.get_params() == model.get_params()
    assert type(loaded.epochs) is int


def test_an_indicator_matrix_goes_in_and_comes_out(data, tmp_path):
    texts = data[0][:80]
    matrix = np.array([["cat" in text, "the" in text, False] for text in texts]).astype(int)
    model = TextClassifier(epochs=1, preset="encoder").fit(texts, matrix)
    assert model.classes_.tolist() == [0, 1]  # of the last column nothing is learned
    found = model.predict(texts)
    assert found.shape == matrix.shape
    assert set(found[:, 2].tolist()) == {0}
    assert model.score(texts, matrix) == (found == matrix).all(axis=1).mean()
    model.save(tmp_path / "run")
    assert (TextClassifier.load(tmp_path / "run").predict(texts) == found).all()
    for other in (sparse.csr_array(matrix), pd.DataFrame(matrix, columns=["cat", "the", "none"])):
        assert indicators(other).cells.tolist() == matrix.tolist()
    assert indicators(pd.DataFrame(matrix, columns=["cat", "the", "none"])).labels()[0] == [
        name for name, cell in zip(["cat", "the", "none"], matrix[0], strict=True) if cell
    ]


@pytest.fixture(scope="module")
def numbers(data):
    return [{"animal": 100.0, "food": 250.0, "tool": 400.0}[label] for label in data[1]]


@pytest.fixture(scope="module")
def regressor(data, numbers):
    return TextRegressor().fit(data[0], numbers)


class TestRegressor:
    """The same promises, for numbers."""

    def test_learns_in_the_units_of_the_data(self, regressor, data, numbers):
        predicted = regressor.predict(data[0])
        assert (predicted.shape, predicted.dtype) == ((240,), np.float64)
        assert 50 < predicted.min() < 150
        assert 350 < predicted.max() < 450
        assert regressor.score(data[0], numbers) == pytest.approx(r2_score(numbers, predicted))
        assert regressor.score(data[0], numbers) > 0.8
        assert is_regressor(regressor)

    def test_clone_copies_settings_not_weights(self, regressor):
        copy = clone(regressor)
        assert copy.get_params() == regressor.get_params()
        with pytest.raises(NotFittedError):
            copy.predict(["a cat"])

    def test_pickled_saved_and_loaded_is_the_same(self, regressor, data, numbers, tmp_path):
        regressor.save(tmp_path / "run")
        predicted = regressor.predict(data[0])
        for copy in (pickle.loads(pickle.dumps(regressor)), TextRegressor.load(tmp_path / "run")):
            np.testing.assert_array_equal(copy.predict(data[0]), predicted)
            assert copy.get_params() == regressor.get_params()
        source = write_csv(tmp_path / "test.csv", list(zip(data[0], numbers, strict=True)))
        scores = evaluate(open_run(tmp_path / "run"), source, show_progress=False)
        assert scores["r2"] == pytest.approx(regressor.score(data[0], numbers))

    def test_cross_validation(self, data, numbers):
        scores = cross_val_score(TextRegressor(epochs=4), np.array(data[0]), np.array(numbers), cv=2)
        assert scores.shape == (2,)
        assert np.isfinite(scores).all()

    def test_explains_the_number(self, regressor):
        explanation = regressor.explain("a cat and a hammer")
        assert explanation.label is None
        assert explanation.prediction == pytest.approx(regressor.predict(["a cat and a hammer"])[0])

    def test_mistakes_are_named(self, regressor):
        for bad in (float("nan"), float("-inf"), None, "3", [1.0]):
            with pytest.raises(ValueError, match="text 1 has .* where a finite number is needed") as caught:
                TextRegressor().fit(["a", "b"], [1.0, bad])
            assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match="2 texts but 1 numbers"):
            TextRegressor().fit(["a", "b"], [1.0])
        with pytest.raises(ValueError, match="not a matrix"):
            TextRegressor().fit(["a", "b"], np.eye(2))
        assert regressor.predict([]).shape == (0,)

    def test_runs_of_the_other_kind_are_refused(self, regressor, run_folder, tmp_path):
        regressor.save(tmp_path / "numbers")
        with pytest.raises(UserError, match=r"numbers: this run predicts numbers; load it with TextRegressor$"):
            TextClassifier.load(tmp_path / "numbers")
        with pytest.raises(UserError, match=r"this run predicts labels; load it with TextClassifier$"):
            TextRegressor.load(run_folder)

    def test_loads_what_the_command_line_trained(self, data, numbers, tmp_path):
        source = write_csv(tmp_path / "train.csv", list(zip(data[0], numbers, strict=True)))
        train("classification", source, output=tmp_path / "run", regression=True, epochs=1, show_progress=False)
        assert TextRegressor.load(tmp_path / "run").predict(data[0][:3]).shape == (3,)
