"""`TextClassifier` and `TextRegressor`: scikit-learn estimators for labels and for numbers, over one base."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from fastformer.data.frames import Indicators, indicators, only_column
from fastformer.data.tables import Row
from fastformer.data.values import BadValueError, is_missing, is_nan, label_of, labels_of
from fastformer.engine.fit import fit
from fastformer.engine.settings import plain
from fastformer.errors import UserError
from fastformer.explain import Explanation
from fastformer.runs.claiming import claim_output, unharmed
from fastformer.runs.folder import open_run
from fastformer.tasks.base import get_task, load_run
from fastformer.tasks.classification.answers import falling, has_label, probabilities
from fastformer.tasks.classification.data import LabelKind, LabelSpace, Rows
from fastformer.tasks.classification.explaining import explain_text
from fastformer.tasks.classification.predictor import Classifier
from fastformer.tasks.model import temporary_workspace
from fastformer.tasks.verbs import save

TASK = "classification"
_LOADERS = {"labels": "TextClassifier", "numbers": "TextRegressor"}  # what a run predicts -> who loads it


class _TextEstimator(BaseEstimator):
    """What the two estimators share: settings, training, answers of the model, run folders.

    After `_fit` or `load`: `model_`, `tokenizer_`, and `_predictor`, which answers.
    """

    _predicts: str  # `labels` or `numbers`

    def __init__(
        self,
        mixer: str = "fastformer",
        preset: str = "default",
        tokenizer: str | None = None,
        init: str | None = None,
        max_length: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        random_state: int = 0,
        verbose: bool = False,
        class_weight: str | None = None,
    ):
        self.mixer = mixer
        self.preset = preset
        self.tokenizer = tokenizer
        self.init = init
        self.max_length = max_length
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.verbose = verbose
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: a list of texts, no matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags = TransformerTags(preserves_dtype=[])  # vectors are float32
        return tags

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Save as a run folder, which the command line and transformers read too.

        A finished run that is there is kept unless `overwrite`.
        """
        self._need_run("saved again")
        folder = claim_output(folder, resume=False, overwrite=overwrite)
        trained = self._predictor.trained
        parameters = {name: plain(value) for name, value in self.get_params().items()}
        with unharmed(folder):
            save(get_task(TASK), replace(trained, record={**trained.record, "estimator": parameters}), folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a run folder, saved here or trained on the command line, or an export of one."""
        run = open_run(folder)
        if run.task != TASK:
            raise UserError(f"{folder}: this run is for {run.task}; {cls.__name__} loads runs of {TASK} only")
        predicts = "numbers" if run.record.get("label_kind") == "number" else "labels"
        if predicts != cls._predicts:
            raise UserError(f"{folder}: this run predicts {predicts}; load it with {_LOADERS[predicts]}")
        self = cls(**run.record.get("estimator", {"mixer": run.record["mixer"], "preset": run.record["preset"]}))
        self._take(load_run(run))
        return self

    def _fit(
        self,
        texts: list[str],
        labels: list[Any],
        kind: LabelKind,
        weights: np.ndarray | None,
        unlabelled: list[str] | None = None,
    ) -> None:
        task = get_task(TASK)
        settings = task.settings(
            self.preset,
            mixer=self.mixer,
            tokenizer=self.tokenizer,
            init=self.init,
            max_length=self.max_length,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.random_state,
            class_weight=self.class_weight,
            regression=kind == "number",
        )
        rows = [Row(*pair) for pair in zip(texts, labels, strict=True)]
        data = {"train": Rows(rows, kind, "training data", weights)}
        if unlabelled is not None:
            data["unlabelled"] = Rows([Row(text) for text in unlabelled], "none", "unlabelled data")
        with temporary_workspace(self.verbose) as workspace:
            trained = fit(task, data, settings, workspace)
        trained.record["preset"] = self.preset
        trained.record["data"] = {"train": f"{type(self).__name__}.fit", **trained.record["data"]}
        self._take(task.predictor(trained))

    def _take(self, predictor: Any) -> None:
        self._predictor: Classifier = predictor
        self.model_, self.tokenizer_ = predictor.model, predictor.tokenizer

    def __getstate__(self) -> dict[str, Any]:
        """A loaded run is pickled as its path (`Predictor`), without the weights; what was fitted here goes whole."""
        state = super().__getstate__()
        if "_predictor" in state and state["_predictor"].trained.run is not None:
            state = {name: value for name, value in state.items() if name not in ("model_", "tokenizer_")}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_predictor" in state:
            self._take(self._predictor)

    def _need_run(self, done: str) -> None:
        """An export can only answer: refuse anything else."""
        check_is_fitted(self, "model_")
        if (run := self._predictor.trained.run) is not None and run.is_export:
            raise UserError(f"{run.folder}: an export cannot be {done}; load the run that it was made from")

    @property
    def _space(self) -> LabelSpace:
        return self._predictor.space

    def _logits(self, texts: Iterable[str]) -> np.ndarray:
        """Outputs of the model (texts, outputs)."""
        check_is_fitted(self, "model_")
        logits = list(self._predictor.runner(_checked_texts(texts), self._predictor.logits))
        return np.stack(logits) if logits else np.zeros((0, self._space.size), dtype=np.float32)

    def transform(self, texts: Iterable[str]) -> np.ndarray:
        """Text vectors (texts, width) of the encoder, float32: as a step of a `Pipeline`, features for the next one."""
        check_is_fitted(self, "model_")
        vectors = list(self._predictor.vectors(_checked_texts(texts)))
        return np.stack(vectors) if vectors else np.zeros((0, self._predictor.width), dtype=np.float32)

    embed = transform

    def fit_transform(self, texts: Sequence[str], y: Sequence[Any], **options: Any) -> np.ndarray:
        """Train, and give the vectors of the same texts; they fit these texts better than any others."""
        return self.fit(texts, y, **options).transform(texts)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the numbers of a vector, for scikit-learn's `set_output`."""
        check_is_fitted(self, "model_")
        name = type(self).__name__.lower()
        return np.array([f"{name}{number}" for number in range(self._predictor.width)], dtype=object)

    def _explain(self, text: str, label: str | None, baseline: str) -> Explanation:
        self._need_run("explained")
        if not isinstance(text, str):
            raise ValueError(f"explain takes one text, a string, not a {type(text).__name__}")
        parts = self.model_, self.tokenizer_, self._space
        return explain_text(*parts, text, label=label, baseline=baseline, name=type(self).__name__)


class TextClassifier(ClassifierMixin, _TextEstimator):
    """Fastformer text classifier with scikit-learn's interface: texts in, labels out.

    It clones, cross-validates, grid-searches and pickles. Labels may be strings or integers; if every label is a
    list or tuple, or labels are an indicator matrix, any number of labels per text is learned. A setting left at `None`
    is the preset's.

        >>> texts = ["a dull and endless film", "the best film of the year", "what a bore", "a joy to the end"] * 20
        >>> model = TextClassifier(epochs=3).fit(texts, ["bad", "good"] * 40)
        >>> model.predict(["an endless bore", "the best of all"]).tolist()
        ['bad', 'good']
        >>> model.save("runs/films")  # which `fastformer predict`, and `TextClassifier.load`, read

    Parameters
        mixer: the method: `fastformer`, `transformer`, `longformer`, `bigbird`, `linformer`, `linear` or
            `poolingformer`.
        preset: `default`, `encoder` (without its n-gram channel), `paper-amazon`, `paper-imdb` or `paper-mind`.
        tokenizer: `word`, `pieces`, `bpe`, `nltk`, or the path of a saved tokenizer.
        init: what to start from: a GloVe file, a folder with a transformers or sentence-transformers encoder, or its
            name on the Hub, or an earlier run, which brings its tokenizer too unless `tokenizer` is given.
        max_length: tokens after which a text is cut.
        epochs, batch_size, learning_rate: training.
        random_state: seed; the same seed gives the same model.
        verbose: show progress.
        class_weight: `"balanced"` makes every class count the same in the losses, however rare it is: better recall of
            rare classes, for less accuracy. It is for one label per text.

    After `fit`: `classes_`, `model_` (a `FastformerForSequenceClassification`) and `tokenizer_`.
    """

    _predicts = "labels"

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: several labels per text are fine too."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(
        self,
        texts: Iterable[str],
        y: Sequence[Any],
        unlabelled: Iterable[str] | None = None,
        sample_weight: Sequence[float] | None = None,
    ) -> Self:
        """Train on texts and their labels `y`; some of them are held out to choose the epoch.

        `unlabelled` are further texts, without labels. Their words join the vocabulary. The model also learns which
        words go together in them, if that does better on the texts held out.

        `sample_weight` says how much each text counts in the losses, beside the others. One of weight 0 is left out.
        """
        if unlabelled is not None and not (unlabelled := _checked_texts(unlabelled)):
            raise UserError("unlabelled: no texts; give at least one, or leave it out")
        texts, matrix = _checked_texts(texts), indicators(y)
        labels = _checked_labels(y) if matrix is None else matrix.labels()
        _refuse_continuous(labels)
        _check_as_many(texts, labels, "labels")
        texts, labels, weights = _weighted(texts, labels, sample_weight)
        several = bool(labels) and all(isinstance(label, list | tuple | set | frozenset) for label in labels)
        known = np.unique([name for names in labels for name in names] if several else labels)
        original = {_written(name): name for name in known}
        if len(original) < len(known):
            raise ValueError(f"labels {', '.join(map(repr, known.tolist()))[:200]}: some are the same once written out")
        written = [[_written(name) for name in label] if several else _written(label) for label in labels]
        self._fit(texts, written, "multi" if several else "single", weights, unlabelled)
        if matrix is not None:
            self._predictor.trained.record["indicator_columns"] = list(matrix.names)
        self._set_labels([original[name] for name in self._space.names])
        return self

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a run folder of a classifier, saved here or trained on the command line."""
        self = super().load(folder)
        self._set_labels(self._predictor.trained.record.get("classes", self._space.names))
        return self

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Probabilities (texts, classes), columns in the order of `classes_`."""
        logits = self._logits(texts)
        return probabilities(self._space, logits)[:, self._places]

    def predict(self, texts: Iterable[str]) -> np.ndarray | list[list[Any]]:
        """The most likely label of each text; if several are learned, a list of those above their thresholds.

        After training on an indicator matrix the answer is one too, with the same columns.
        """
        logits = self._logits(texts)
        chances = probabilities(self._space, logits)
        if self._space.kind == "single":
            return self.classes_[chances[:, self._places].argmax(axis=1)]
        found = has_label(self._space, chances)[:, self._places]
        if (columns := self._predictor.trained.record.get("indicator_columns")) is not None:
            places = {name: place for place, name in enumerate(self.classes_.tolist())}
            never = np.zeros((len(found), 1), dtype=bool)  # of a column without a single 1 nothing was learned
            return np.concatenate([found, never], axis=1)[:, [places.get(name, -1) for name in columns]].astype(int)
        return [self.classes_[row].tolist() for row in found]

    def predict_top(self, texts: Iterable[str], k: int) -> list[list[tuple[Any, float]]]:
        """The `k` most probable labels of each text with their probabilities, in falling order."""
        if k < 1:
            raise ValueError(f"k is {k}: no label would be left; give 1 or more")
        chances, labels = self.predict_proba(texts), self.classes_.tolist()
        return [
            [(labels[place], float(row[place])) for place in places]
            for row, places in zip(chances, falling(chances)[:, :k], strict=True)
        ]

    def score(self, texts: Iterable[str], y: Sequence[Any], sample_weight: Sequence[float] | None = None) -> float:
        """Accuracy; if several labels are learned, the share of texts with exactly the right ones."""
        predicted: Any = self.predict(texts)
        columns = self._predictor.trained.record.get("indicator_columns")
        if self._space.kind == "single":
            labels = _checked_labels(y)
            _check_as_many(predicted, labels, "labels")
            right = [_written(ours) == _written(theirs) for ours, theirs in zip(predicted, labels, strict=True)]
        elif (matrix := indicators(y)) is None:
            found = predicted if columns is None else Indicators(predicted, columns).labels()
            right = [_written_all(ours) == _written_all(theirs) for ours, theirs in zip(found, y, strict=True)]
        elif columns is not None:
            right = (predicted == matrix.ordered(columns)).all(axis=1)
        else:
            raise ValueError("labels: a matrix, but the model has learned lists of labels; give a list per text")
        return float(np.average(right, weights=sample_weight))

    def explain(self, text: str, label: Any = None, baseline: str = "zero") -> Explanation:
        """Why the model answers as it does on one text: weights and effects of its tokens.

        `label` is the class to explain, by default the most probable one; `baseline="mean"` measures tokens from the
        average one of the text. The result shows itself in a notebook; `.save("why.html")` writes it as a page.
        """
        return self._explain(text, None if label is None else _written(label), baseline)

    def _set_labels(self, labels: Sequence[Any]) -> None:
        """Labels in the model's order ("2" before "10"). scikit-learn's scorers expect `classes_` in NumPy's."""
        self.classes_, self._places = np.unique(labels, return_index=True)
        self._predictor.trained.record["classes"] = np.array(labels).tolist()  # numbers stay numbers


class TextRegressor(RegressorMixin, _TextEstimator):
    """Fastformer text regressor with scikit-learn's interface: texts in, numbers out.

    It clones, cross-validates, grid-searches and pickles; `score` is R². The parameters are those of `TextClassifier`,
    but for `class_weight`: numbers have no classes.

        >>> texts = ["a dull and endless film", "the best film of the year", "what a bore", "a joy to the end"] * 20
        >>> model = TextRegressor(epochs=20).fit(texts, [1, 5] * 40)
        >>> model.predict(["a dull and endless film", "the best of all"]).round().tolist()
        [1.0, 5.0]

    After `fit`: `model_` (a `FastformerForSequenceClassification` with one output, in the units of the numbers) and
    `tokenizer_`.
    """

    _predicts = "numbers"

    def fit(self, texts: Iterable[str], y: Sequence[float], sample_weight: Sequence[float] | None = None) -> Self:
        """Train on texts and their numbers `y`; some of them are held out to choose the epoch.

        `sample_weight` says how much each text counts in the loss, beside the others. One of weight 0 is left out.
        """
        texts, numbers = _checked_texts(texts), _checked_numbers(y)
        _check_as_many(texts, numbers, "numbers")
        texts, numbers, weights = _weighted(texts, numbers, sample_weight)
        self._fit(texts, numbers, "number", weights)
        return self

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The number of each text."""
        return self._logits(texts)[:, 0].astype(np.float64)

    def explain(self, text: str, baseline: str = "zero") -> Explanation:
        """Why the model answers as it does on one text: weights of its tokens, and their effects on the number.

        `baseline="mean"` measures tokens from the average one of the text. The result shows itself in a notebook;
        `.save("why.html")` writes it as a page.
        """
        return self._explain(text, None, baseline)


def _checked_labels(labels: Sequence[Any]) -> list[Any]:
    """Labels as a list: one hashable value per text, or a list of them."""
    labels = list(only_column(_array_like(labels, "label"), "labels"))
    for index, label in enumerate(labels):
        if label is None or label != label:  # NaN
            raise ValueError(f"text {index} has no label")
    numbers = [label for label in labels if isinstance(label, int | float | np.generic)]
    if len({isinstance(label, bool | np.bool_) for label in numbers}) == 2:
        raise ValueError("some labels are true or false and others numbers, and 1 equals True; make them strings")
    return labels


def _refuse_continuous(labels: list[Any]) -> None:
    if all(isinstance(label, float | np.floating) for label in labels) and type_of_target(labels) == "continuous":
        raise ValueError("Unknown label type: continuous numbers; learn them with TextRegressor, or make them strings")


def _written(label: Any) -> str:
    """A label as a file has it, so that a run scores on any of them."""
    if not isinstance(label, str | bool | int | float | np.generic) or is_missing(label):
        return str(label)
    try:
        return label_of(label)
    except BadValueError as error:
        raise UserError(str(error)) from None


def _written_all(labels: Any) -> set[str]:
    """The labels of a text as a file has them, where a string may join them."""
    return set(labels_of(labels) if isinstance(labels, str) else map(_written, labels))


def _checked_numbers(numbers: Sequence[float]) -> list[float]:
    """Numbers as a list of floats, all of them finite."""
    found = []
    for index, number in enumerate(only_column(_array_like(numbers, "number"), "numbers")):
        try:
            found.append(math.nan if isinstance(number, str) else float(number))
        except (TypeError, ValueError, OverflowError):
            found.append(math.nan)
        if not math.isfinite(found[-1]):
            raise ValueError(f"text {index} has {number!r} where a finite number is needed; correct it or leave it out")
    return found


def _array_like(y: Any, what: str) -> Any:
    """`y` as something to iterate over; a matrix of one column is flattened, with scikit-learn's warning."""
    if y is None:
        raise ValueError(f"this estimator requires y to be passed, but the target y is None; give a {what} per text")
    y = y if isinstance(y, Iterable) else np.asarray(y)
    return column_or_1d(y, warn=True) if isinstance(y, np.ndarray) and y.shape[1:] == (1,) else y


def _check_as_many(texts: list[str], labels: list[Any], what: str) -> None:
    if len(texts) != len(labels):
        raise ValueError(f"{len(texts)} texts but {len(labels)} {what}")


def _weighted(
    texts: list[str], labels: list[Any], sample_weight: Any
) -> tuple[list[str], list[Any], np.ndarray | None]:
    """Texts that count, their labels, and how much each counts, 1 on average; None if all count the same."""
    if sample_weight is None:
        return texts, labels, None
    weights = _check_sample_weight(sample_weight, texts, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weights)
    if not len(kept):
        raise ValueError("sample_weight: all weights are 0, so no text is left to learn from")
    weights = (weights[kept] / weights[kept].mean()).astype(np.float32)
    return [texts[index] for index in kept], [labels[index] for index in kept], weights


def _checked_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list."""
    texts = list(only_column(texts, "texts"))
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            kind = "NaN" if is_nan(text) else f"a {type(text).__name__}"
            raise ValueError(f"text {index} is {kind}, not a string")
    return texts
