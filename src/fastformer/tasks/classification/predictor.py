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

from fastformer.data.tables import given_texts
from fastformer.engine.fit import Trained
from fastformer.engine.inference import TextRunner
from fastformer.errors import UserError
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.base import Predictor, Service
from fastformer.tasks.classification.answers import check_options, describe_all
from fastformer.tasks.classification.data import LabelEncoder, LabelSpace, Rows, Table
from fastformer.tasks.classification.declaration import ClassificationSettings, Evaluating, Predicting
from fastformer.tasks.classification.metrics import scores
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

        With `top` there are only that many probabilities, the largest first. With a `threshold` no label is given that
        is less probable.
        """
        options = options or Predicting()
        check_options(self.space, options, self.trained.name)
        chunks = self.runner.in_chunks(texts_of(examples, self.settings), self.logits)
        return (
            answer
            for logits in chunks
            for answer in describe_all(self.space, np.stack(logits), options.top, options.threshold)
        )

    def example(self, text: str) -> str:
        """A text is all that an example is."""
        return text

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The one text of each example."""
        return given_texts(examples, self.settings.reading("test"))

    def services(self, keep: Path) -> Sequence[Service]:
        """`explain`, but of an export, which has no gradients."""
        if isinstance(self.model, OnnxClassifier):
            return ()
        from fastformer.tasks.classification.explaining import explain_service

        return (explain_service(self),)

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
        self.report = folder
        return result

    def exportable(self) -> PreTrainedModel:
        """The model itself."""
        return self.model

    def compare(self, models: Mapping[str, Callable[..., Any]], examples: Iterable[Any]) -> dict[str, dict[str, float]]:
        """Score several forms of the model on labelled texts: quality, texts per second, difference from the first.

        Every batch goes through all of them in turn, so that disturbances of the machine affect all of them. The time
        is that of the models, without reading and tokenizing.
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
