"""Documents -> token ids on disk -> batches.

A row of the file is an article followed by its summary and the end token; the label of the row is how many of its
tokens are the summary's. So everything that encoded texts have serves documents too.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import EncodedTexts, EncodedTextsWriter, Subset, pad_batch
from fastformer.data.standard_input import some_at_a_time
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.inference import cut_note
from fastformer.surroundings import ranks
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks.summarization.documents import Documents

END = "[END]"  # in tokenizers that have no such token
IGNORED = -100  # the label of padding
_SUMMARY_WEIGHT = 8  # a token of a summary has the whole vocabulary in its sums: it costs as much as this many others
_CHUNK = 256  # documents, in memory together

Item = TypeVar("Item")


class Pairs(Subset):
    """Some of the documents. Lengths are what they cost, so that batches have about the same memory and time."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every article and summary, those of summaries counted several times."""
        return super().lengths + (_SUMMARY_WEIGHT - 1) * self.labels


def add_end_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """See that the tokenizer has a token that ends a summary."""
    if tokenizer.eos_token_id is None:
        tokenizer.add_special_tokens({"eos_token": END})


def encode_documents(
    documents: Documents,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_summary_length: int,
    path: Path,
    show_progress: bool,
) -> EncodedTexts:
    """Encode all documents into the file `path`; say how many were cut and how many were empty."""
    if not ranks.is_first():
        return EncodedTexts.open(path)
    lengths: list[int] = []
    cut_articles = cut_summaries = 0
    end = np.array([tokenizer.eos_token_id], dtype=np.int32)
    with progress_bar("Encoding", show=show_progress) as advance, EncodedTextsWriter(path) as writer:
        for chunk in in_chunks(documents):
            articles, cut = encode_batch(tokenizer, [document.article for document in chunk], max_length)
            cut_articles += cut
            texts = [document.summary for document in chunk]  # the end token is all that is added to them
            summaries, cut = encode_batch(tokenizer, texts, max_summary_length - 1, marks=False)
            cut_summaries += cut
            for article, summary in zip(articles, summaries, strict=True):
                writer.add(np.concatenate([article, summary, end]))
                lengths.append(len(summary) + 1)
            advance(len(chunk))
        encoded = writer.finish(np.array(lengths, dtype=np.int64))
    for note in documents.notes():
        say(note)
    for cut, what, limit in ((cut_articles, "articles", max_length), (cut_summaries, "summaries", max_summary_length)):
        if cut:
            say(cut_note(cut, limit, what, len(lengths)))
    return encoded


class DocumentCollator:
    """Collate items of `Pairs` to the model's inputs: `input_ids`, `attention_mask` and `labels`, -100 at padding."""

    def __init__(self, pad_token_id: int):
        self.pad_token_id = pad_token_id

    def __call__(self, items: list[dict]) -> dict[str, Tensor]:
        """Items -> padded tensors."""
        ends = [len(item["input_ids"]) - item["labels"] for item in items]
        articles = [item["input_ids"][:end] for item, end in zip(items, ends, strict=True)]
        summaries = [item["input_ids"][end:] for item, end in zip(items, ends, strict=True)]
        targets = pad_batch(summaries, IGNORED)["input_ids"]
        return {**pad_batch(articles, self.pad_token_id), "labels": targets}


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Consecutive documents or articles, a few hundred at a time."""
    return some_at_a_time(items, _CHUNK)
