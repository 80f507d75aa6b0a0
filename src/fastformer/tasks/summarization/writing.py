"""Articles in, summaries out: streamed, beam search in batches of similar lengths, returned in input order."""

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.inference import BATCH_TOKENS, cut_note
from fastformer.modeling import FastformerForConditionalGeneration
from fastformer.modeling.seq2seq import EncoderOutput
from fastformer.surroundings.machine import release, tune
from fastformer.surroundings.progress import how_many, progress_bar, quiet_libraries
from fastformer.tasks.summarization.data import in_chunks
from fastformer.tasks.summarization.documents import tidy
from fastformer.tasks.summarization.repeats import NoRepeatedWords

_MOST_DOCUMENTS = 32  # of a batch: each has a beam's worth of rows over the whole vocabulary


class Written(NamedTuple):
    """A summary, and its score: the mean log-probability of its tokens. An empty article has neither."""

    summary: str
    score: float | None


class Writer:
    """A model that writes, by default with `beams`, or as many as its own configuration says.

    Of the last call, `count` is how many articles were read, `cut` and `empty` how many of them were longer than the
    model's maximum and how many had no word, and `seconds` how long it took.
    """

    def __init__(
        self, model: FastformerForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, beams: int | None = None
    ):
        self.model, self.tokenizer = model.eval(), tokenizer
        self.beams = beams or model.generation_config.num_beams or 1
        words = model.generation_config.no_repeat_ngram_size
        self.rules = LogitsProcessorList([NoRepeatedWords(tokenizer, words)] if words else [])
        self._start()

    def _start(self) -> None:
        self.cut = self.empty = self.count = 0
        self.seconds = 0.0

    def __call__(
        self, articles: Iterable[str], *, beams: int | None = None, title: str = "", show_progress: bool = False
    ) -> Iterator[Written]:
        """The summary of each article; a few hundred articles are in memory."""
        tune()
        self._start()
        with progress_bar(title, show=show_progress) as advance:

            def done(count: int) -> None:
                advance(count, note=f"{self.count / self.seconds:.1f} documents per second")

            for chunk in in_chunks(articles):
                yield from self._write(chunk, beams or self.beams, done)

    def write_one(
        self, article: str, *, beams: int | None = None, tell: Callable[[str], None] | None = None
    ) -> Written:
        """The summary of one article; `tell` is called with the best summary so far after every word."""
        tune()
        self._start()
        [written] = self._write([article], beams or self.beams, lambda _: None, tell)
        return written

    def notes(self) -> Iterator[str]:
        """How many articles of the last call were cut, and how many empty, if any were."""
        if self.cut:
            yield cut_note(self.cut, self.tokenizer.model_max_length, "articles", self.count)
        if self.empty:
            yield f"{how_many(self.empty, 'articles', 'are', self.count)} empty, and so is the summary of each."

    def _write(
        self,
        articles: list[str],
        beams: int,
        done: Callable[[int], None],
        tell: Callable[[str], None] | None = None,
    ) -> list[Written]:
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
                for row, written in zip(full, self._generate([encoded[row] for row in full], beams, tell), strict=True):
                    found[row] = written
            self.count, self.seconds = self.count + len(batch), self.seconds + perf_counter() - start
            done(len(batch))
            release()
        return found

    @torch.inference_mode()
    def _generate(
        self, articles: list[np.ndarray], beams: int, tell: Callable[[str], None] | None
    ) -> Iterator[Written]:
        inputs = pad_batch(articles, self.tokenizer.pad_token_id)
        ids, mask = (tensor.to(self.model.device) for tensor in inputs.values())
        source = self.model.get_encoder()(ids, mask).last_hidden_state
        with quiet_libraries():
            sequences = self.model.generate(
                ids,
                attention_mask=mask,
                encoder_outputs=EncoderOutput(last_hidden_state=source, source_ids=ids),
                num_beams=beams,
                no_repeat_ngram_size=0,
                logits_processor=self.rules,
                stopping_criteria=StoppingCriteriaList([] if tell is None else [_Watch(self.tokenizer, tell)]),
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


class _Watch(StoppingCriteria):
    """Tells what is written while it is written: the first row is the best beam. It stops nothing."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tell: Callable[[str], None]):
        self.tokenizer, self.tell = tokenizer, tell

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """Called after every word."""
        self.tell(tidy(self.tokenizer.decode(input_ids[0], skip_special_tokens=True)))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _is_visible(text: str) -> bool:
    """Whether anything would be seen of a text: not with white space, control and zero-width characters alone."""
    return any(character.isprintable() and not character.isspace() for character in text)
