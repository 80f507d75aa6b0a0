"""Articles in, summaries out: streamed, beam search in batches of similar lengths, returned in input order."""

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.inference import BATCH_TOKENS
from fastformer.machine import tune
from fastformer.modeling import FastformerForConditionalGeneration
from fastformer.progress import progress_bar, quiet_libraries, say
from fastformer.run_folder import Run
from fastformer.tasks.summarization.data import in_chunks
from fastformer.tasks.summarization.documents import Document, tidy

_MOST_DOCUMENTS = 32  # of a batch: each has a beam's worth of rows over the whole vocabulary


class Written(NamedTuple):
    """A summary, and its score: the mean log-probability of its words. An empty article has neither."""

    summary: str
    score: float | None


class Summarizer:
    """A model that writes. `cut` and `empty` count articles longer than its maximum and articles without a word."""

    def __init__(
        self, model: FastformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, beams: int | None = None
    ):
        tune()
        self.model, self.tokenizer = model.eval(), tokenizer
        self.beams = beams or model.generation_config.num_beams or 1
        self.cut = self.empty = self.count = 0
        self.seconds = 0.0

    @classmethod
    def of(cls, run: Run, beams: int | None = None) -> "Summarizer":
        """Load a run folder."""
        if run.task != "summarization":
            raise UserError(
                f"{run.folder}: a run of {run.task}, which writes no summaries; give a run of `train summarization`"
            )
        return cls(run.load_model(FastformerForConditionalGeneration), run.load_tokenizer(), beams)

    def __call__(self, articles: Iterable[str], title: str = "", show_progress: bool = False) -> Iterator[Written]:
        """The summary of each article; a few hundred articles are in memory."""
        with progress_bar(title, show=show_progress) as advance:

            def done(count: int) -> None:
                advance(count, note=f"{self.count / self.seconds:.1f} documents a second")

            for chunk in in_chunks(map(Document, articles)):
                yield from self._write([document.article for document in chunk], done)

    def warn(self) -> None:
        """One line each if any article was cut, or empty."""
        if self.cut:
            limit = self.tokenizer.model_max_length
            say(f"{self.cut:,} of {self.count:,} articles were longer than {limit:,} tokens and were cut.")
        if self.empty:
            say(f"{self.empty:,} of {self.count:,} articles are empty: their summaries are empty.")

    def _write(self, articles: list[str], done) -> list[Written]:
        encoded, cut = encode_batch(self.tokenizer, articles, self.tokenizer.model_max_length)
        self.cut += cut
        lengths = np.array([len(ids) for ids in encoded])
        found = [Written("", None)] * len(articles)
        batches = token_budget_batches(lengths, BATCH_TOKENS)
        for batch in (
            part for whole in batches for part in np.split(whole, range(_MOST_DOCUMENTS, len(whole), _MOST_DOCUMENTS))
        ):
            start = perf_counter()
            full = [row for row in batch if articles[row].strip()]
            self.empty += len(batch) - len(full)
            if full:
                for row, written in zip(full, self._generate([encoded[row] for row in full]), strict=True):
                    found[row] = written
            self.count, self.seconds = self.count + len(batch), self.seconds + perf_counter() - start
            done(len(batch))
        return found

    @torch.inference_mode()
    def _generate(self, articles: list[np.ndarray]) -> Iterator[Written]:
        inputs = pad_batch(articles, self.tokenizer.pad_token_id)
        with quiet_libraries():
            output = self.model.generate(
                **{name: tensor.to(self.model.device) for name, tensor in inputs.items()},
                num_beams=self.beams,
                return_dict_in_generate=True,
                output_scores=True,
            )
        summaries = self.tokenizer.batch_decode(output.sequences, skip_special_tokens=True)
        return map(Written, map(tidy, summaries), self._scores(output).tolist())

    def _scores(self, output) -> Tensor:
        """Mean log-probability of the words written."""
        if self.beams > 1:
            return output.sequences_scores
        words = self.model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        real = words.isfinite() & (output.sequences[:, 1:] != self.tokenizer.pad_token_id)
        return words.where(real, 0).sum(dim=1) / real.sum(dim=1).clamp(min=1)
