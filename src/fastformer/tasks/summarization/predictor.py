"""A trained summarizer, ready to write and to be scored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fastformer.data.objects import check_columns
from fastformer.engine.fit import Trained
from fastformer.engine.inference import TextRunner
from fastformer.modeling.pooling import MeanPooling
from fastformer.tasks.base import Predictor, Service
from fastformer.tasks.summarization.baselines import SENTENCES, baseline_summaries, lead
from fastformer.tasks.summarization.declaration import Evaluating, Predicting, SummarizationSettings, Summarizing
from fastformer.tasks.summarization.documents import Documents, read_documents, tidy
from fastformer.tasks.summarization.metrics import ENGLISH, ROUGE, language_code, rouge
from fastformer.tasks.summarization.writing import Writer


class SummaryPredictor(Predictor[SummarizationSettings]):
    """Writes summaries. Examples are documents, dictionaries with an article, or articles."""

    counts_itself = True

    def __init__(self, trained: Trained[SummarizationSettings]):
        super().__init__(trained)
        self.runner = TextRunner(self.model, self.tokenizer, self.tokenizer.model_max_length)
        self.noted: tuple[Documents | Writer | TextRunner, ...] = ()  # what has notes about the last call

    @cached_property
    def writer(self) -> Writer:
        """Looks at every word of the vocabulary once: made where it writes."""
        return Writer(self.model, self.tokenizer)

    def predict(self, examples: Iterable[Any], options: Predicting | None = None) -> Iterator[dict[str, Any]]:
        """`{"summary": …, "score": …}`: the score is the mean log-probability of the tokens; None if there are none."""
        options = options or Predicting()
        articles, self.noted = self._articles(examples), (self.writer,)
        for written in self.writer(articles, beams=options.beams, title="Summarizing", show_progress=self.show):
            yield {"summary": written.summary, "score": None if written.score is None else round(written.score, 4)}

    def example(self, text: str) -> str:
        """A text is all that an example is."""
        return text

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The one article of each example."""
        reading = self.settings.reading("test")
        found = [[one.article] for one in read_documents(examples, reading, with_summary=False)]
        check_columns(examples, reading.chosen.get("texts", ()))
        return found

    def services(self, keep: Path) -> Sequence[Service]:
        """`summarize`, which can be watched while it writes."""

        def answer(request: Summarizing, tell: Callable[[Any], None] | None = None) -> dict[str, Any]:
            told = None if tell is None else lambda text: tell({"summary": text})
            written = self.writer.write_one(tidy(request.text), beams=request.beams, tell=told)
            score = None if written.score is None else round(written.score, 4)
            return {"summary": written.summary, "score": score, "lead": lead(request.text, SENTENCES[0])}

        about = (
            "The summary of a text, its score (the mean log-probability of its words), and the first three sentences "
            "of the text to compare it with.\n\nWith `stream` there are server-sent events: `part` with the best "
            "summary so far after every word, then `done` with the answer."
        )
        example = {"text": self.sample()}
        return (Service("summarize", about, Summarizing, answer, example, streams=True, panel="write"),)

    def vectors(self, examples: Iterable[Any]) -> Iterator[np.ndarray]:
        """The mean of the encoder's vectors (width,); zeros for an article without tokens."""

        def mean(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            states = self.model.get_encoder()(input_ids, attention_mask).last_hidden_state
            return MeanPooling(self.model.config)(states, attention_mask.bool())

        self.noted = (self.runner,)
        return self.runner(self._articles(examples), mean)

    def evaluate(self, examples: Iterable[Any], options: Evaluating | None = None) -> dict[str, Any]:
        """ROUGE beside baselines: the first three sentences or one of an article, and random ones.

        `summaries` has of each the means in percent and 95% `intervals`.
        """
        options = options or Evaluating()
        language = language_code(options.language or self.settings.language or ENGLISH)
        beams, seed = options.beams or self.writer.beams, self.settings.training.seed
        documents = self._read(examples, labelled=True)
        self.noted = (documents, self.writer)
        baselines, references = [], []

        def noting_references() -> Iterator[str]:
            for row, document in enumerate(documents):
                baselines.append(baseline_summaries(document.article, (seed, row)))
                references.append(document.summary)
                yield document.article

        found = self.writer(noting_references(), beams=beams, title="Summarizing", show_progress=self.show)
        written = [one.summary for one in found]
        summaries = {"model": written, **{name: [one[name] for one in baselines] for name in baselines[0]}}
        return {
            "rows": len(references),
            "language": language,
            "beams": beams,
            "documents_per_second": round(self.writer.count / self.writer.seconds, 2),
            "summaries": {name: rouge(texts, references, language, seed) for name, texts in summaries.items()},
        }

    def scores_of(self, result: Mapping[str, Any]) -> dict[str, float]:
        """ROUGE of its own summaries."""
        return {name: result["summaries"]["model"][name] for name in ROUGE}

    def notes(self) -> Iterator[str]:
        """How many documents were left out, and how many articles were cut or empty."""
        for one in self.noted:
            yield from one.notes()

    def _articles(self, examples: Iterable[Any]) -> Iterator[str]:
        return (document.article for document in self._read(examples, labelled=False))

    def _read(self, examples: Iterable[Any], labelled: bool) -> Documents:
        """Examples that were read already, or that are read here, with the run's columns."""
        if isinstance(examples, Documents):
            return examples
        return Documents(examples, self.settings.reading("test"), labelled)
