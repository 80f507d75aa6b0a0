"""Texts in, model outputs out: streamed, batched by length, returned in input order.

Texts are read a few thousand at a time, sorted by length within that, run in batches of about as many tokens, and put
back in order, so memory stays flat and little padding is computed.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tokenizers import encode_batch
from fastformer.machine import release, tune
from fastformer.onnx_model import OnnxClassifier
from fastformer.progress import say

CHUNK_TEXTS = 4096
CHUNK_CHARACTERS = 16_000_000
BATCH_TOKENS = 16_384


class TextRunner:
    """Runs a model over any number of texts. `cut` counts the texts that were longer than its maximum."""

    def __init__(
        self, model: PreTrainedModel | OnnxClassifier, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ):
        self.model, self.tokenizer, self.max_length = model.eval(), tokenizer, max_length
        self.cut = 0

    def __call__(self, texts: Iterable[str], output: Callable[..., Tensor]) -> Iterator[np.ndarray]:
        """Yield one array a text: the row of `output(input_ids=…, attention_mask=…)` that belongs to it."""
        tune()
        for chunk in chunks(texts):
            yield from self._run(chunk, output)

    def warn_about_cut_texts(self) -> None:
        """One line if any text was longer than the model's maximum."""
        if self.cut:
            say(f"{self.cut:,} texts were longer than the model's {self.max_length:,} tokens and were cut.")

    def _run(self, texts: list[str], output: Callable[..., Tensor]) -> Iterator[np.ndarray]:
        encoded, cut = encode_batch(self.tokenizer, texts, self.max_length)
        self.cut += cut
        lengths = np.array([len(ids) for ids in encoded])
        results: list[np.ndarray | None] = [None] * len(texts)
        for batch in token_budget_batches(lengths, BATCH_TOKENS):
            inputs = pad_batch([encoded[index] for index in batch], self.tokenizer.pad_token_id)
            inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
            with torch.inference_mode():
                rows = output(**inputs).float().cpu().numpy()
            for index, row in zip(batch, rows, strict=True):
                results[index] = row
            release()
        return iter(results)


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Consecutive texts, a few thousand or a few megabytes at a time."""
    chunk, characters = [], 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if len(chunk) == CHUNK_TEXTS or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
