"""The verbs of the command line for classification, as functions on files and run folders."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from fastformer.data.tables import Row, detect_label_kind, read_rows
from fastformer.errors import UserError
from fastformer.inference import TextRunner
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.onnx_model import OnnxClassifier
from fastformer.progress import progress_bar
from fastformer.run_folder import CHECKPOINTS, Run, claim_output, save_run, unharmed
from fastformer.tasks import check_training
from fastformer.tasks.classification.card import model_card
from fastformer.tasks.classification.data import LabelSpace, Table
from fastformer.tasks.classification.fit import fit_classifier
from fastformer.tasks.classification.metrics import falling, has_label, probabilities, scores
from fastformer.tasks.classification.presets import Preset, get_preset
from fastformer.tasks.classification.report import details, report_folder, write_report
from fastformer.vectors import write_vectors
from fastformer.warm_start import tokenizer_of


def train(
    train: str,
    validation: str | None = None,
    test: str | None = None,
    *,
    unlabelled: str | None = None,
    output: str | Path,
    mixer: str = "fastformer",
    preset: str | Preset = "default",
    text_column: str | None = None,
    label_column: str | None = None,
    regression: bool = False,
    tokenizer: str | None = None,
    init: str | None = None,
    max_length: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    class_weight: str | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train a classifier on a file and leave a run folder; return its metrics.

    Without `validation` a part of `train` is held out to choose the epoch. `test` is only scored, at the end.
    `unlabelled` are further texts, whose labels, if any, are not read. `preset` is a name, or settings of one's own.
    With `class_weight="balanced"` every class counts the same in the losses, however rare it is.
    """
    check_training((mixer,), (train, validation, test, unlabelled))
    settings = (preset if isinstance(preset, Preset) else get_preset(preset, mixer)).with_overrides(
        tokenizer=tokenizer or tokenizer_of(init),
        max_length=max_length,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        class_weight=class_weight,
    )
    folder = claim_output(output, resume=resume, overwrite=overwrite)
    columns = {"text_column": text_column, "label_column": label_column}
    with unharmed(folder):
        kind = "number" if regression else detect_label_kind(train, **columns, split="train")

        def table(source: str, split: str) -> Table:
            return _checked(Table(source, **columns, label_kind=kind, split=split))

        fitted = fit_classifier(
            table(train, "train"),
            table(validation, "validation") if validation else None,
            test=table(test, "test") if test else (),
            unlabelled=_checked(Table(unlabelled, text_column, None, "none", "train")) if unlabelled else None,
            kind=kind,
            preset=settings,
            mixer=mixer,
            init=init,
            checkpoints=folder / CHECKPOINTS,
            resume=resume,
            show_progress=show_progress,
            names=(train, validation or train, test or train, unlabelled or train),
        )
        metrics = fitted.metrics()
        if test:
            runner = TextRunner(fitted.model, fitted.tokenizer, fitted.tokenizer.model_max_length)
            metrics["test"] = _score(runner, fitted.space, table(test, "test"), test, show_progress)
            runner.warn_about_cut_texts()
        data = {"train": str(train), "validation": validation, "test": test, **columns}
        if unlabelled:
            data["unlabelled"] = unlabelled
        record = fitted.record(preset if isinstance(preset, str) else "custom", init, data)
        card = model_card(record, metrics, fitted.space, folder.resolve().name)
        save_run(folder, fitted.model, fitted.tokenizer, record=record, metrics=metrics, card=card)
    return metrics


def _checked(table: Table) -> Table:
    """Read one row: a wrong file or column fails here, before any work."""
    next(iter(table))
    return table


def evaluate(
    run: Run,
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    report: str | Path | None = None,
    by_class: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Score a run on a labelled file.

    `report` is a folder to write a report to: see `report.py`. With it, or `by_class`, the result has the scores of
    each class as `classes`, or for numbers the quantiles of the errors as `residuals`.
    """
    with nullcontext() if report is None else report_folder(report) as folder:
        classifier = Classifier(run)
        space, runner = classifier.space, classifier.runner
        table = classifier.labelled(source, text_column, label_column)
        logits, labels = _run_labelled(runner, space, table, source, show_progress, classifier.logits)
        result = {"rows": len(labels), **scores(space, logits, labels)}
        if by_class or folder:
            result |= details(space, logits, labels)
        if folder:
            write_report(folder, space, logits, labels, run=str(run.folder), source=source, result=result)
    runner.warn_about_cut_texts()
    return result


def compare(
    classifier: "Classifier",
    models: dict[str, FastformerForSequenceClassification | OnnxClassifier],
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> dict[str, dict[str, float]]:
    """Score several forms of one model on a labelled file: quality, texts a second, difference from the first.

    Every batch goes through all of them in turn, so a machine's moods meet all alike. The time is that of the models,
    without reading and tokenizing.
    """
    seconds = dict.fromkeys(models, 0.0)

    def all_logits(**inputs: Tensor) -> Tensor:
        found = []
        for name, model in models.items():
            start = perf_counter()
            found.append(model(**inputs).logits)
            seconds[name] += perf_counter() - start
        return torch.stack(found, dim=1)

    table = classifier.labelled(source, text_column, label_column)
    logits, labels = _run_labelled(classifier.runner, classifier.space, table, source, show_progress, all_logits, True)
    return {
        name: {
            **scores(classifier.space, logits[:, index], labels),
            "texts_per_second": len(labels) / seconds[name],
            "largest_difference": float(np.abs(logits[:, index] - logits[:, 0]).max()),
        }
        for index, name in enumerate(models)
    }


def predict(
    run: Run,
    source: str,
    out: TextIO,
    *,
    text_column: str | None = None,
    format: str | None = None,
    top: int | None = None,
    show_progress: bool = True,
) -> int:
    """Write one JSON line per text, in input order; return how many.

    One label: `{"label": …, "probabilities": {…}}`; several: `labels`; a number: `{"prediction": …}`. With `top` only
    so many probabilities are written, the largest first.
    """
    if top is not None and top < 1:
        raise UserError(f"--top {top}: no label would be left; give 1 or more")
    classifier = Classifier(run)
    if top is not None and classifier.space.kind == "number":
        raise UserError(f"--top {top}: {run.folder} predicts a number and has no probabilities; leave --top out")
    rows = _texts_to_predict(classifier, source, text_column, format)
    count = 0
    with progress_bar("Predicting", show=show_progress) as advance:
        for logits in classifier.runner.in_chunks((row.text for row in rows), classifier.logits):
            out.writelines(json_lines(classifier.space, np.stack(logits), top))
            advance(len(logits))
            count += len(logits)
    classifier.runner.warn_about_cut_texts()
    return count


def embed(
    run: Run,
    source: str,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write the text vectors of a file to `.npy` or `.parquet`, in input order; return their number and width."""
    classifier = Classifier(run)
    rows = _texts_to_predict(classifier, source, text_column, format)
    vectors = classifier.runner((row.text for row in rows), classifier.vectors)
    count = write_vectors(output, vectors, classifier.model.config.hidden_size, show_progress)
    classifier.runner.warn_about_cut_texts()
    return count, classifier.model.config.hidden_size


class Classifier:
    """A loaded run: model, tokenizer, labels, and the runner that feeds it texts."""

    def __init__(self, run: Run):
        self.run = run
        self.model = run.load_model(FastformerForSequenceClassification)
        tokenizer = run.load_tokenizer()
        try:
            kind, self.data = run.record["label_kind"], run.record["data"]
        except KeyError as error:
            raise UserError(f"{run.folder}/run.json: has no {error}; train the run again") from None
        names = () if kind == "number" else tuple(self.model.config.id2label.values())
        thresholds = self.model.config.label_thresholds
        self.space = LabelSpace(kind, names, None if thresholds is None else tuple(thresholds))
        self.runner = TextRunner(self.model, tokenizer, tokenizer.model_max_length)

    def logits(self, **inputs):
        """Scores of the classes."""
        return self.model(**inputs).logits

    def vectors(self, **inputs):
        """Text vectors."""
        return self.model.fastformer(**inputs).pooler_output

    def describe(self, logits: np.ndarray, top: int | None = None) -> dict[str, Any]:
        """A prediction as it is written out."""
        return describe(self.space, logits, top)

    def columns(self, text_column: str | None, label_column: str | None) -> tuple[str | None, str | None]:
        """Column names as given, or as they were in training."""
        return text_column or self.data.get("text_column"), label_column or self.data.get("label_column")

    def labelled(self, source: str, text_column: str | None, label_column: str | None) -> Table:
        """Labelled data to score the model on."""
        if source == "-":
            raise UserError("scoring needs a file: standard input does not say which column is the label")
        return Table(source, *self.columns(text_column, label_column), label_kind=self.space.kind, split="test")


def describe(space: LabelSpace, logits: np.ndarray, top: int | None = None) -> dict[str, Any]:
    """The prediction that the logits of one text make: `label`, `labels` or `prediction`, and `probabilities`.

    The probabilities are in the order of the labels, or only the `top` largest, in falling order. Where there may be
    several, `labels` are those above their thresholds.
    """
    if space.kind == "number":
        return {"prediction": float(logits[0])}
    chances = probabilities(space, logits)
    order = range(len(chances)) if top is None else falling(chances)[:top]
    named = {space.names[index]: round(float(chances[index]), 6) for index in order}
    if space.kind == "single":
        return {"label": space.names[int(chances.argmax())], "probabilities": named}
    chosen = [name for name, yes in zip(space.names, has_label(space, chances), strict=True) if yes]
    return {"labels": chosen, "probabilities": named}


def json_lines(space: LabelSpace, logits: np.ndarray, top: int | None = None) -> list[str]:
    """One line of JSON per text: what `json.dumps` makes of `describe`, for many texts (texts, outputs) at a time."""
    if not np.isfinite(logits).all():  # JSON spells these in its own way
        return [json.dumps(describe(space, row, top), ensure_ascii=False) + "\n" for row in logits]
    if space.kind == "number":
        return [f'{{"prediction": {number!r}}}\n' for number in logits[:, 0].tolist()]
    names = [json.dumps(name, ensure_ascii=False) for name in space.names]
    keys = [f"{name}: " for name in names]
    chances = probabilities(space, logits)
    if space.kind == "single":
        answers = [f'"label": {names[best]}' for best in chances.argmax(axis=-1).tolist()]
    else:
        found = has_label(space, chances).tolist()
        chosen = ([name for name, yes in zip(names, row, strict=True) if yes] for row in found)
        answers = [f'"labels": [{", ".join(some)}]' for some in chosen]
    values = _rounded(chances)
    if top is None:
        named = [zip(keys, row, strict=True) for row in values]
    else:
        orders = falling(chances)[:, :top].tolist()
        named = [[(keys[place], row[place]) for place in order] for order, row in zip(orders, values, strict=True)]
    written = [", ".join([f"{key}{value!r}" for key, value in row]) for row in named]
    pairs = zip(answers, written, strict=True)
    return [f'{{{answer}, "probabilities": {{{probability}}}}}\n' for answer, probability in pairs]


def _rounded(chances: np.ndarray) -> list[list[float]]:
    """`round(chance, 6)` of every number."""
    rounded = chances.round(6)
    # NumPy multiplies, rounds and divides: where the product falls between two integers, it may go the wrong way.
    millionths = chances * 1e6
    doubtful = np.abs(millionths - np.floor(millionths) - 0.5) < 1e-6
    rounded[doubtful] = [round(chance, 6) for chance in chances[doubtful].tolist()]
    return rounded.tolist()


def _score(runner: TextRunner, space: LabelSpace, rows: Iterable[Row], where: str, show: bool) -> dict[str, float]:
    logits, labels = _run_labelled(runner, space, rows, where, show, lambda **inputs: runner.model(**inputs).logits)
    return {"rows": len(labels), **scores(space, logits, labels)}


def _run_labelled(
    runner: TextRunner,
    space: LabelSpace,
    rows: Iterable[Row],
    where: str,
    show: bool,
    output: Callable[..., Tensor],
    one_by_one: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and encoded labels of labelled rows."""
    labels: list[Any] = []

    def texts() -> Iterator[str]:
        for row in rows:
            labels.append(space.encode([row.label], where, len(labels) + 1)[0])
            yield row.text

    with progress_bar("Evaluating", show=show) as advance:
        outputs = []
        for rows in runner.in_chunks(texts(), output, one_by_one):
            outputs += rows
            advance(len(rows))
    return np.stack(outputs), np.stack(labels)


def _texts_to_predict(
    classifier: Classifier, source: str, text_column: str | None, format: str | None
) -> Iterator[Row]:
    column, _ = classifier.columns(text_column, None)
    return read_rows(source, text_column=column, label_kind="none", format=format, split="test")
