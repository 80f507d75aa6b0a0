"""Articles in, summaries out: streamed, beam search in batches of similar lengths, returned in input order."""

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.inference import BATCH_TOKENS
from fastformer.machine import release, tune
from fastformer.modeling import FastformerForConditionalGeneration
from fastformer.modeling.seq2seq import EncoderOutput
from fastformer.progress import how_many, progress_bar, quiet_libraries, say
from fastformer.run_folder import Run
from fastformer.tasks.summarization.data import in_chunks
from fastformer.tasks.summarization.documents import tidy
from fastformer.tasks.summarization.repeats import NoRepeatedWords

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
        words = model.generation_config.no_repeat_ngram_size
        self.rules = LogitsProcessorList([NoRepeatedWords(tokenizer, words)] if words else [])
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
                advance(count, note=f"{self.count / self.seconds:.1f} documents per second")

            for chunk in in_chunks(articles):
                yield from self._write(chunk, done)

    def warn(self) -> None:
        """One line each if any article was cut, or empty."""
        if self.cut:
            limit = self.tokenizer.model_max_length
            say(f"{how_many(self.cut, 'articles', 'were', self.count)} cut after {limit:,} tokens.")
        if self.empty:
            say(f"{how_many(self.empty, 'articles', 'are', self.count)} empty, and so is the summary of each.")

    def _write(self, articles: list[str], done) -> list[Written]:
        encoded, cut = encode_batch(self.tokenizer, articles, self.tokenizer.model_max_length)
        self.cut += cut
        lengths = np.array([len(ids) for ids in encoded])
        marks = self.tokenizer.num_special_tokens_to_add()  # a foreign tokenizer's own, around every text
        found = [Written("", None)] * len(articles)
        batches = token_budget_batches(lengths, BATCH_TOKENS)
        for batch in (
            part for whole in batches for part in np.split(whole, range(_MOST_DOCUMENTS, len(whole), _MOST_DOCUMENTS))
        ):
            start = perf_counter()
            full = [row for row in batch if lengths[row] > marks and _is_visible(articles[row])]
            self.empty += len(batch) - len(full)
            if full:
                for row, written in zip(full, self._generate([encoded[row] for row in full]), strict=True):
                    found[row] = written
            self.count, self.seconds = self.count + len(batch), self.seconds + perf_counter() - start
            done(len(batch))
            release()
        return found

    @torch.inference_mode()
    def _generate(self, articles: list[np.ndarray]) -> Iterator[Written]:
        inputs = pad_batch(articles, self.tokenizer.pad_token_id)
        ids, mask = (tensor.to(self.model.device) for tensor in inputs.values())
        source = self.model.get_encoder()(ids, mask).last_hidden_state
        with quiet_libraries():
            sequences = self.model.generate(
                ids,
                attention_mask=mask,
                encoder_outputs=EncoderOutput(last_hidden_state=source, source_ids=ids),
                num_beams=self.beams,
                no_repeat_ngram_size=0,
                logits_processor=self.rules,
            )
        summaries = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        scores = map(self._score, sequences[:, 1:], source.split(1), ids.split(1), mask.split(1))
        return map(Written, map(tidy, summaries), list(scores))

    def _score(self, written: Tensor, source: Tensor, source_ids: Tensor, mask: Tensor) -> float:
        """Mean log-probability of a summary's words and of its end, whatever the rules of `generate` left to choose.

        Read back all at once, one document at a time: every word has the whole vocabulary beside it.
        """
        ends = (written == self.model.config.eos_token_id).long()
        words = written[ends.cumsum(dim=0) == ends]  # up to the first end
        encoded = EncoderOutput(last_hidden_state=source, source_ids=source_ids)
        return -self.model(attention_mask=mask, encoder_outputs=encoded, labels=words[None]).loss.item()


def _is_visible(text: str) -> bool:
    """Whether anything would be seen of a text: not with white space, control and zero-width characters alone."""
    return any(character.isprintable() and not character.isspace() for character in text)
