"""Texts in, model outputs out: streamed, batched by length, returned in input order.

Texts are read a few thousand at a time, sorted by length within that, run in batches of about as many tokens, and put
back in order, so memory stays flat and little padding is computed. On a CPU the batches are shared out to threads.
"""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.standard_input import input_pauses
from fastformer.data.tokenizers import encode_batch
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.surroundings.machine import in_threads, on_one_core, release, tune
from fastformer.surroundings.progress import how_many

CHUNK_TEXTS = 4096
TOKENIZED_TEXTS = 512
FEW_TOKENS = 1024  # tokens: shorter work is not worth a second core
CHUNK_CHARACTERS = 16_000_000
BATCH_TOKENS = 16_384


class TextRunner:
    """Runs a model over any number of texts. `cut` counts the texts that were longer than its maximum."""

    def __init__(
        self,
        model: PreTrainedModel | OnnxClassifier,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None,
        batch_tokens: int = BATCH_TOKENS,
    ):
        self.model, self.tokenizer, self.max_length = model.eval(), tokenizer, max_length
        self.batch_tokens = batch_tokens
        self.cut = 0

    def __call__(
        self, texts: Iterable[str], output: Callable[..., Tensor], one_by_one: bool = False
    ) -> Iterator[np.ndarray]:
        """Yield one array per text: the row of `output(input_ids=…, attention_mask=…)` that belongs to it.

        `output` is called for several batches at a time, in threads; with `one_by_one` for one after another.
        """
        for rows in self.in_chunks(texts, output, one_by_one):
            yield from rows

    def in_chunks(
        self, texts: Iterable[str], output: Callable[..., Tensor], one_by_one: bool = False
    ) -> Iterator[list[np.ndarray]]:
        """The same, a few thousand at a time."""
        tune()
        on_cpu = isinstance(self.model, PreTrainedModel) and self.model.device.type == "cpu"
        each = in_threads if on_cpu and not one_by_one else _in_turn
        for chunk in chunks(texts):
            yield self._run(chunk, output, each)

    def notes(self) -> Iterator[str]:
        """How many texts were longer than the model's maximum, if any were; from then on they are counted anew."""
        cut, self.cut = self.cut, 0
        if cut and self.max_length is not None:
            yield cut_note(cut, self.max_length)

    def _run(self, texts: list[str], output: Callable[..., Tensor], each: Callable) -> list[np.ndarray]:
        parts = [texts[start : start + TOKENIZED_TEXTS] for start in range(0, len(texts), TOKENIZED_TEXTS)]
        encoded: list[np.ndarray] = []
        for rows, cut in each(lambda part: encode_batch(self.tokenizer, part, self.max_length), parts):
            encoded += rows
            self.cut += cut
        lengths = np.array([len(ids) for ids in encoded])
        batches = token_budget_batches(lengths, self.batch_tokens)
        device = self.model.device  # once, because it walks through the modules

        def run(batch: np.ndarray) -> np.ndarray:
            inputs = pad_batch([encoded[index] for index in batch], self.tokenizer.pad_token_id)
            with torch.inference_mode():
                rows = output(**{name: tensor.to(device) for name, tensor in inputs.items()})
                rows = rows.float().cpu().numpy()
            release()
            return rows

        if each is in_threads and lengths.sum() <= FEW_TOKENS:
            each = _on_one_core
        # A text that fills more than a batch takes its memory, so it has all cores to itself.
        alone = int((lengths > self.batch_tokens).sum())  # the longest come first
        if alone:
            release(at_once=True)  # what tokenizing such a text took
        found = [*_in_turn(run, batches[:alone]), *each(run, batches[alone:])]
        answers: dict[int, np.ndarray] = {}
        for batch, rows in zip(batches, found, strict=True):
            answers.update(zip(batch.tolist(), rows, strict=True))
        return [answers[index] for index in range(len(texts))]


def _on_one_core(function: Callable, items: list) -> list:
    with on_one_core():
        return _in_turn(function, items)


def cut_note(cut: int, longest: int, what: str = "texts", total: int | None = None) -> str:
    """The message that texts were cut."""
    return f"{how_many(cut, what, 'were', total)} cut after {longest:,} tokens."


def _in_turn(function: Callable, items: list) -> list:
    return [function(item) for item in items]


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Consecutive texts, a few thousand or a few megabytes at a time; fewer if standard input pauses."""
    chunk: list[str] = []
    characters, since = 0, 0.0
    for text in texts:
        since = since if chunk else monotonic()
        chunk.append(text)
        characters += len(text)
        if len(chunk) == CHUNK_TEXTS or characters > CHUNK_CHARACTERS or input_pauses(since):
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
