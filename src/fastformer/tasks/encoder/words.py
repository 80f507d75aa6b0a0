"""What words mean: the token table of a trained encoder, for models of other tasks to start from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from fastformer.data.tokenizers import encode_batch
from fastformer.runs.folder import open_run
from fastformer.tasks.base import load_run

WIDTH = 128  # the first numbers say most (docs/LOG.md)
COVERED = 0.5
_WORD = re.compile("[a-z]+")


@dataclass(frozen=True)
class Meanings:
    """A vector per word, the sum of those of its tokens; words that say little have short ones."""

    tokenizer: PreTrainedTokenizerBase
    table: np.ndarray  # tokens, width

    @classmethod
    def of_run(cls, name: str) -> Self:
        """What an encoder knows of words: a run folder, or the name of one that an installed package brings along."""
        run = open_run(name)
        trained = load_run(run).trained
        table = trained.model.get_input_embeddings().weight.detach()
        return cls(trained.tokenizer, table[:, :WIDTH].to(torch.float32).numpy())

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words that are one token, in the order of the vocabulary."""
        vocabulary = self.tokenizer.get_vocab()
        return tuple(word for word in sorted(vocabulary, key=vocabulary.__getitem__) if _WORD.fullmatch(word))

    def of(self, words: Sequence[str]) -> np.ndarray:
        """The vectors (words, width); zeros for an empty one."""
        ids, _ = encode_batch(self.tokenizer, list(words), marks=False)
        lengths = [len(tokens) for tokens in ids]
        found = np.zeros((len(words), self.table.shape[1]), dtype=np.float32)
        np.add.at(found, np.repeat(np.arange(len(words)), lengths), self.table[np.concatenate([[], *ids]).astype(int)])
        return found

    def cover(self, counts: Mapping[str, int]) -> bool:
        """Whether half of a text with so many of each word is known: else it is of another language."""
        known = set(self.words)
        return sum(count for word, count in counts.items() if word in known) >= COVERED * sum(counts.values()) > 0
