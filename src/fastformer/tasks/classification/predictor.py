"""A trained classifier that answers: labels and probabilities, text vectors, scores on labelled texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fastformer.engine.fit import Trained
from fastformer.engine.inference import TextRunner
from fastformer.errors import UserError
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.base import Predictor, Service
from fastformer.tasks.classification.data import LabelEncoder, LabelSpace, Rows, Table
from fastformer.tasks.classification.declaration import ClassificationSettings, Evaluating, Predicting
from fastformer.tasks.classification.metrics import falling, has_label, probabilities, scores
from fastformer.tasks.classification.report import details, report_folder, write_report
from fastformer.tasks.texts import texts_of


class Classifier(Predictor[ClassificationSettings]):
    """Model, tokenizer, labels (`space`), and the runner that feeds it texts."""

    model: FastformerForSequenceClassification | OnnxClassifier
    report: Path | None = None  # folder of the last one written
    scored: LabelEncoder | None = None  # the labels of the last scoring

    def __init__(self, trained: Trained[ClassificationSettings]):
        super().__init__(trained)
        if "label_kind" not in trained.record:
            raise UserError(f"{trained.name}/run.json: has no 'label_kind'; train the run again")
        self.space = LabelSpace.of(trained.record["label_kind"], self.model.config)
        self.runner = TextRunner(self.model, self.tokenizer, self.tokenizer.model_max_length)

    def logits(self, **inputs: Tensor) -> Tensor:
        """Scores of the classes, of a batch."""
        return self.model(**inputs).logits

    def predict(self, examples: Iterable[Any], options: Predicting | None = None) -> Iterator[dict[str, Any]]:
        """One label: `{"label": …, "probabilities": {…}}`; several: `labels`; a number: `{"prediction": …}`.

        With `top` there are only so many probabilities, the largest first. With a `threshold` no label is given that
        is less probable.
        """
        options = options or Predicting()
        self._check(options)
        chunks = self.runner.in_chunks(texts_of(examples, self.settings), self.logits)
        return (
            answer
            for logits in chunks
            for answer in describe_all(self.space, np.stack(logits), options.top, options.threshold)
        )

    def example(self, text: str) -> str:
        """A text is all that an example is."""
        return text

    def services(self, keep: Path) -> Sequence[Service]:
        """`explain`, but of an export, which has no gradients."""
        if isinstance(self.model, OnnxClassifier):
            return ()
        from fastformer.tasks.classification.explaining import explain_service

        return (explain_service(self),)

    def _check(self, options: Predicting) -> None:
        for flag, value in (("--top", options.top), ("--threshold", options.threshold)):
            if value is not None and self.space.kind == "number":
                name = self.trained.name
                raise UserError(f"{flag} {value}: {name} predicts a number and has no probabilities; leave {flag} out")
        if options.top is not None and options.top < 1:
            raise UserError(f"--top {options.top}: no label would be left; give 1 or more")
        if options.threshold is not None and not 0 <= options.threshold <= 1:
            raise UserError(f"--threshold {options.threshold}: a probability is between 0 and 1")

    def vectors(self, examples: Iterable[Any]) -> Iterator[np.ndarray]:
        """Text vectors (width,)."""
        texts = texts_of(examples, self.settings)
        return self.runner(texts, lambda **inputs: self.model.fastformer(**inputs).pooler_output)

    def evaluate(self, examples: Iterable[Any], options: Evaluating | None = None) -> dict[str, Any]:
        """Scores on labelled texts.

        `report` is a folder to write a report to: see `report.py`. With it, or `by_class`, the result has the scores of
        each class as `classes`, or for numbers the quantiles of the errors as `residuals`. Without options there are
        only the scores, as metrics.json has them.
        """
        options = options or Evaluating(by_class=False)
        with nullcontext() if options.report is None else report_folder(options.report) as folder:
            rows = self._labelled(examples)
            logits, labels = self._outputs(rows, self.logits)
            result = {"rows": len(labels), **scores(self.space, logits, labels)}
            if self.scored is not None and self.scored.unseen:
                result["unseen_labels"] = self.scored.unseen.total()
            known = self.space.known(labels)
            if options.by_class or folder:
                result |= details(self.space, logits, known)
            if folder:
                called = self.trained.name
                write_report(folder, self.space, logits, known, run=called, source=rows.name, result=result)
        self.report = options.report
        return result

    def exportable(self) -> PreTrainedModel:
        """The model itself."""
        return self.model

    def compare(self, models: Mapping[str, Callable[..., Any]], examples: Iterable[Any]) -> dict[str, dict[str, float]]:
        """Score several forms of the model on labelled texts: quality, texts per second, difference from the first.

        Every batch goes through all of them in turn, so a machine's moods meet all alike. The time is that of the
        models, without reading and tokenizing.
        """
        seconds = dict.fromkeys(models, 0.0)

        def all_logits(**inputs: Tensor) -> Tensor:
            found = []
            for name, model in models.items():
                start = perf_counter()
                found.append(model(**inputs).logits)
                seconds[name] += perf_counter() - start
            return torch.stack(found, dim=1)

        logits, labels = self._outputs(self._labelled(examples), all_logits, one_by_one=True)
        return {
            name: {
                **scores(self.space, logits[:, index], labels),
                "texts_per_second": len(labels) / seconds[name],
                "largest_difference": float(np.abs(logits[:, index] - logits[:, 0]).max()),
            }
            for index, name in enumerate(models)
        }

    def notes(self) -> Iterator[str]:
        """Where a report is, how many labels were unknown, and how many texts were cut."""
        if self.report is not None:
            yield f"The report is {self.report / 'report.md'}."
        if self.scored is not None and (note := self.scored.note()):
            yield note
        yield from self.runner.notes()

    def _labelled(self, examples: Iterable[Any]) -> Table | Rows:
        """Examples whose labels are of the kind that the model has learned."""
        if not isinstance(examples, Table | Rows):
            examples = Table(list(examples), self.settings.reading("test"))
        return examples.of_kind(self.space.kind)

    def _outputs(
        self, rows: Table | Rows, output: Callable[..., Tensor], one_by_one: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Outputs and encoded labels of labelled rows."""
        texts, outputs = LabelEncoder(rows, self.space, rows.name, allowed=True), []
        self.scored = texts
        with progress_bar("Evaluating", show=self.show) as advance:
            for some in self.runner.in_chunks(texts, output, one_by_one):
                outputs += some
                advance(len(some))
        return np.stack(outputs), texts.labels


def describe(
    space: LabelSpace, logits: np.ndarray, top: int | None = None, threshold: float | None = None
) -> dict[str, Any]:
    """The prediction that the logits of one text make: `label`, `labels` or `prediction`, and `probabilities`.

    The probabilities are in the order of the labels, or only the `top` largest, in falling order. Where there may be
    several, `labels` are those above their thresholds, or of at least `threshold`; where there is one, it is None if
    it is less probable than that.
    """
    if space.kind == "number":
        return {"prediction": float(logits[0])}
    chances = probabilities(space, logits)
    order = range(len(chances)) if top is None else falling(chances)[:top]
    named = {space.names[index]: round(float(chances[index]), 6) for index in order}
    if space.kind == "single":
        best = int(chances.argmax())
        sure = threshold is None or chances.max() >= threshold
        return {"label": space.names[best] if sure else None, "probabilities": named}
    found = has_label(space, chances) if threshold is None else chances >= threshold
    return {"labels": [name for name, yes in zip(space.names, found, strict=True) if yes], "probabilities": named}


def describe_all(
    space: LabelSpace, logits: np.ndarray, top: int | None = None, threshold: float | None = None
) -> list[dict[str, Any]]:
    """`describe` of many texts (texts, outputs) at a time, which takes a fraction of the time."""
    if space.kind == "number":
        return [{"prediction": number} for number in logits[:, 0].tolist()]
    names, chances = space.names, probabilities(space, logits)
    values = _rounded(chances)
    if top is None:
        named = [dict(zip(names, row, strict=True)) for row in values]
    else:
        orders = falling(chances)[:, :top].tolist()
        named = [{names[place]: row[place] for place in order} for order, row in zip(orders, values, strict=True)]
    if space.kind == "single":
        labels: list[str | None] = [names[one] for one in chances.argmax(axis=-1).tolist()]
        if threshold is not None:
            sure = (chances.max(axis=-1) >= threshold).tolist()
            labels = [label if yes else None for label, yes in zip(labels, sure, strict=True)]
        return [{"label": label, "probabilities": some} for label, some in zip(labels, named, strict=True)]
    found = (has_label(space, chances) if threshold is None else chances >= threshold).tolist()
    chosen = ([name for name, yes in zip(names, row, strict=True) if yes] for row in found)
    return [{"labels": labels, "probabilities": some} for labels, some in zip(chosen, named, strict=True)]


def _rounded(chances: np.ndarray) -> list[list[float]]:
    """`round(chance, 6)` of every number."""
    rounded = chances.round(6)
    # NumPy multiplies, rounds and divides: where the product falls between two integers, it may go the wrong way.
    millionths = chances * 1e6
    doubtful = np.abs(millionths - np.floor(millionths) - 0.5) < 1e-6
    rounded[doubtful] = [round(chance, 6) for chance in chances[doubtful].tolist()]
    return rounded.tolist()
