"""Word pairs hashed to rows of a table, and a linear n-gram channel: class scores of the words a text contains."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastformer.modeling.configuration import FastformerConfig

_PART = 65_536  # tokens looked up at once: the channel's scores of a million tokens are never held together


def pair_rows(before: Tensor | np.ndarray, after: Tensor | np.ndarray, buckets: int) -> Tensor | np.ndarray:
    """Row 1 … buckets - 1 of a hashed table for each pair of token ids."""
    # Sums and products with large primes, no number beyond 63 bits: the same on every machine and in every runtime.
    mixed = (before * 1_000_000_007 + after * 998_244_353) % 2_147_483_647
    return 1 + (mixed * 1_103_515_245 >> 16) % (buckets - 1)


def bigram_rows(ids: Tensor, mask: Tensor, buckets: int) -> Tensor:
    """`pair_rows` of each token and its left neighbour; 0 where one of them is padding."""
    ids, both = ids.long(), mask[:, :-1] & mask[:, 1:]  # 32 bits would overflow
    return F.pad(pair_rows(ids[:, :-1], ids[:, 1:], buckets) * both, (1, 0))


class NgramChannel(nn.Module):
    """Linear class scores of the words and word pairs that a text contains, beside the encoder.

        logits = Σ_j idf_j w_j / √(Σ_j idf_j²) + b        over the distinct words and hashed word pairs j of the text

    This is logistic regression on TF-IDF features, with a word present or absent: hard to beat on small data, where the
    encoder only has to learn what it misses. A row of a table holds (idf_j w_j, idf_j²), all zeros for what never
    occurred twice in training. Nothing here is trained by gradients: `tasks.classification.ngrams` fits the tables.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__()
        columns = config.num_labels + 1
        self.register_buffer("words", torch.zeros(config.vocab_size + 1, columns))  # the last row is padding's
        self.register_buffer("pairs", torch.zeros(config.bigram_buckets, columns))
        self.register_buffer("bias", torch.zeros(config.num_labels))

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, num_labels) of texts given as token ids (batch, length) and a mask of the real ones."""
        words = torch.where(mask, ids, len(self.words) - 1)
        total = _sum_of_distinct(self.words, words)
        total = total + _sum_of_distinct(self.pairs, bigram_rows(ids, mask, len(self.pairs)))
        return total[:, :-1] / total[:, -1:].clamp(min=1e-12).sqrt() + self.bias

    @torch.no_grad()
    def token_effects(self, ids: Tensor) -> Tensor:
        """Gradient times input of every token of one text, given as its ids: (length, num_labels).

        With a_j = idf_j w_j, S and Q the two sums, and m_j = 1 the presence of j, that of a word or pair is

            m_j ∂logits/∂m_j = a_j / √Q - S idf_j² / Q^(3/2)

        shared equally by the places where j stands. A pair counts for both of its tokens: it goes with either.
        """
        pairs = bigram_rows(ids[None], torch.ones_like(ids, dtype=torch.bool)[None], len(self.pairs))[0, 1:]
        rows, places = [], []
        for table, found in ((self.words, ids), (self.pairs, pairs)):
            distinct, place, count = found.unique(return_inverse=True, return_counts=True)
            rows.append((table[distinct], count))
            places.append(place)
        total = sum(row.sum(dim=0) for row, _ in rows)
        square = total[-1].clamp(min=1e-12)

        def shares(row: Tensor, count: Tensor) -> Tensor:
            return (row[:, :-1] - total[:-1] * row[:, -1:] / square) / square.sqrt() / count[:, None]

        of_words, of_pairs = (shares(*row)[place] for row, place in zip(rows, places, strict=True))
        return of_words + F.pad(of_pairs, (0, 0, 1, 0)) + F.pad(of_pairs, (0, 0, 0, 1))

    def scale(self, factor: float) -> None:
        """Multiply all logits by `factor`."""
        self.bias *= factor
        for table in (self.words, self.pairs):
            table[:, :-1] *= factor


def _sum_of_distinct(table: Tensor, rows: Tensor) -> Tensor:
    """Sum of the table's rows that occur in each text, each counted once: (batch, columns)."""
    rows = rows.sort(dim=1).values
    new = F.pad(rows[:, 1:] != rows[:, :-1], (1, 0), value=True).to(table.dtype)
    if torch.compiler.is_compiling() or rows.shape[1] <= _PART:
        return (new[:, None] @ F.embedding(rows, table))[:, 0]
    parts = zip(new.split(_PART, dim=1), rows.split(_PART, dim=1), strict=True)
    return sum((weight[:, None] @ F.embedding(part, table))[:, 0] for weight, part in parts)
