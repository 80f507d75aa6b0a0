"""Word pairs hashed to rows of a table, and a linear n-gram channel: class scores of the words a text contains."""

from collections.abc import Callable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from fastformer.modeling.configuration import FastformerConfig


def pair_rows(before: Tensor | np.ndarray, after: Tensor | np.ndarray, buckets: int) -> Tensor | np.ndarray:
    """Row 1 … buckets - 1 of a hashed table for each pair of token ids."""
    # Sums and products with large primes, no number beyond 63 bits: the same on every machine and in every runtime.
    mixed = (before * 1_000_000_007 + after * 998_244_353) % 2_147_483_647
    return 1 + (mixed * 1_103_515_245 >> 16) % (buckets - 1)


def bigram_rows(ids: Tensor, mask: Tensor, buckets: int) -> Tensor:
    """`pair_rows` of each token and its left neighbour; 0 if one of them is padding."""
    ids, both = ids.long(), mask[:, :-1] & mask[:, 1:]  # 32 bits would overflow
    return F.pad(pair_rows(ids[:, :-1], ids[:, 1:], buckets) * both, (1, 0))


class NgramChannel(nn.Module):
    """Linear class scores of the words, word pairs and characters of a text, beside the encoder.

    A block of features j, each with how often the text has it, n_j, and two numbers of a table, gives

        s = Σ_j φ_j a_j / √(Σ_j φ_j² q_j)        φ_j = 1 + log n_j        a_j = idf_j w_j        q_j = idf_j²

    which is a linear classifier w on TF-IDF features of length 1. The logits are the sum of these blocks and a bias:

    - words and hashed word pairs;
    - characters. With G_wg how often the word w has the n-gram of characters g, counts are taken of words and not of
      n-grams, so that with x_wg = G_wg idf_g the scores a_w = Σ_g x_wg w_g are rows of one more table of words: the
      n-grams are never looked up in a text. Words have n-grams in common, so the length of their sum is more than that
      of their parts. Most of it lies along one direction u, the mean of all texts: with r_w = x_w · u

        ‖Σ_w φ_w x_w‖² ≈ (Σ_w φ_w r_w)² + Σ_w φ_w² (‖x_w‖² - r_w²)

    - meanings, if there are any: the same, with x_w the pre-trained vector of each word, and the scores a_w = x_w · w.

    This is hard to beat on small data. `ngram_form="present"` is the older form: φ_j = 1, no characters. Nothing here
    is trained by gradients: `tasks.classification.ngrams` fits the tables.
    """

    def __init__(self, words: int, buckets: int, labels: int, counted: bool = True, meanings: bool = False):
        super().__init__()
        self.counted = counted
        table = torch.zeros(words + 1, labels + 1)  # a row is (a_j, q_j); the last one is padding's
        self.register_buffer("words", table)
        self.register_buffer("pairs", torch.zeros(buckets, labels + 1))
        # A row is (a_w, r_w, ‖x_w‖² - r_w²).
        self.register_buffer("characters", torch.zeros(words + 1, labels + 2) if counted else None)
        self.register_buffer("meanings", torch.zeros(words + 1, labels + 2) if meanings else None)
        self.register_buffer("bias", torch.zeros(labels))

    @classmethod
    def of(cls, config: FastformerConfig) -> "NgramChannel":
        """The channel that a configuration asks for, all zeros."""
        buckets = config.ngram_buckets or config.bigram_buckets
        return cls(config.vocab_size, buckets, config.num_labels, config.ngram_form == "counted", config.ngram_meanings)

    def describe(self, config: FastformerConfig) -> None:
        """Write into a configuration what this channel is."""
        config.ngram_channel = True
        config.ngram_form = "counted" if self.counted else "present"
        config.ngram_buckets = len(self.pairs)
        config.ngram_meanings = self.meanings is not None

    @property
    def of_words(self) -> list[Tensor]:
        """The tables of what words have in common, each a block of its own."""
        return [table for table in (self.characters, self.meanings) if table is not None]

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, num_labels) of texts given as token ids (batch, length) and a mask of the real ones."""
        words = torch.where(mask, ids, len(self.words) - 1)
        pairs = bigram_rows(ids, mask, len(self.pairs))
        on_cpu = ids.device.type == "cpu" and not torch.compiler.is_compiling()
        on_cpu = on_cpu and self.words.dtype == torch.float32  # NumPy has no bfloat16
        read = _read_on_cpu if on_cpu else _read
        of_words, of_pairs = read(words, len(self.words), self.counted), read(pairs, len(self.pairs), self.counted)
        scores = _of_length_1(of_words(self.words) + of_pairs(self.pairs))
        for table in self.of_words:
            scores = scores + _of_length_1(of_words(table), shared=True)
        return scores + self.bias

    @torch.no_grad()
    def token_effects(self, ids: Tensor) -> Tensor:
        """Gradient times input of every token of one text, given as its ids: (length, num_labels).

        With S and Q the two sums of a block, and φ_j taken as the input, that of a word or pair is

            φ_j ∂s/∂φ_j = φ_j a_j / √Q - S (φ_j² q_j + φ_j r_j Σ_k φ_k r_k) / Q^(3/2)

        shared equally by the places where j stands. A pair counts for both of its tokens: it goes with either.
        """
        pairs = bigram_rows(ids[None], torch.ones_like(ids, dtype=torch.bool)[None], len(self.pairs))[0, 1:]
        word, pair = (_Found(found, self.counted) for found in (ids, pairs))
        of_words, of_pairs = _effects((word, self.words), (pair, self.pairs))
        for table in self.of_words:
            of_words = of_words + _effects((word, table), shared=True)[0]
        return of_words + F.pad(of_pairs, (0, 0, 1, 0)) + F.pad(of_pairs, (0, 0, 0, 1))

    def scale(self, factor: float) -> None:
        """Multiply all logits by `factor`."""
        self.bias *= factor
        for table in (self.words, self.pairs):
            table[:, :-1] *= factor
        for table in self.of_words:
            table[:, :-2] *= factor


class _Found:
    """The distinct rows that one text has, what each weighs, and where it stands."""

    def __init__(self, rows: Tensor, counted: bool):
        self.rows, self.places, self.counts = rows.unique(return_inverse=True, return_counts=True)
        self.weights = 1 + self.counts.log() if counted else torch.ones_like(self.counts, dtype=torch.float32)


def _effects(*block: tuple[_Found, Tensor], shared: bool = False) -> list[Tensor]:
    """What the formula of `token_effects` gives for each token, by table of a block; `shared`: with an r."""
    weighed = [_weigh(table[found.rows], found.weights) for found, table in block]
    total = sum(rows.sum(dim=0) for rows in weighed)
    labels = len(total) - (2 if shared else 1)
    square = _square(total[None], shared)[0]

    def shares(rows: Tensor, found: _Found) -> Tensor:
        longer = rows[:, -1:] + (rows[:, -2:-1] * total[-2] if shared else 0.0)
        each = (rows[:, :labels] - total[:labels] * longer / square) / square.sqrt() / found.counts[:, None]
        return each[found.places]

    return [shares(rows, found) for rows, (found, _) in zip(weighed, block, strict=True)]


def _weigh(rows: Tensor, weights: Tensor) -> Tensor:
    """φ a and φ² q of rows (a, q)."""
    weights = weights[..., None]
    return torch.cat([rows[..., :-1] * weights, rows[..., -1:] * weights.square()], dim=-1)


def _of_length_1(sums: Tensor, shared: bool = False) -> Tensor:
    """Σ φ a over its length."""
    return sums[:, : -2 if shared else -1] / _square(sums, shared).sqrt()


def _square(sums: Tensor, shared: bool) -> Tensor:
    """The squared length: Σ φ² q, and (Σ φ r)² if there is an r."""
    square = sums[:, -1:] + (sums[:, -2:-1].square() if shared else 0.0)
    return square.clamp(min=1e-12)


def count_rows(rows: np.ndarray, texts: np.ndarray, number: int, height: int) -> sparse.csr_array:
    """How often each of `number` texts has each of `height` rows, given a row and the number of its text, in order."""
    distinct, counts, ends = _counted(rows, texts, number, height)
    return sparse.csr_array((counts, distinct, ends), (number, height))


def _counted(
    rows: np.ndarray, texts: np.ndarray, number: int, height: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct rows of each text, how often it has each of them, and where its own begin and end among them."""
    small = np.int32 if number * height < 2**31 else np.int64  # half the bytes are sorted in half the time
    first = (height * np.arange(number + 1)).astype(small)  # the key of row 0 of each text
    keys = np.sort(first[texts] + rows.astype(small, copy=False))
    starts = np.flatnonzero(np.diff(keys, prepend=small(-1)))
    distinct = keys[starts]
    counts = np.diff(starts, append=len(keys)).astype(np.float32)
    ends = np.searchsorted(distinct, first)
    distinct -= first[:-1].repeat(np.diff(ends))
    return distinct.astype(np.int32, copy=False), counts, ends


def _read(rows: Tensor, height: int, counted: bool) -> Callable[[Tensor], Tensor]:
    """What turns a table into the sums (Σ φ a, Σ φ² q) over the distinct rows of each text: (batch, columns)."""
    rows = rows.sort(dim=1).values
    new = F.pad(rows[:, 1:] != rows[:, :-1], (1, 0), value=True)
    weights = new.float()
    if counted:
        run = new.long().cumsum(dim=1) - 1
        counts = torch.zeros_like(weights).scatter_add(1, run, torch.ones_like(weights))
        weights = weights * (1 + counts.gather(1, run).log())
    return lambda table: _weigh(F.embedding(rows, table), weights.to(table.dtype)).sum(dim=1)


def _read_on_cpu(rows: Tensor, height: int, counted: bool) -> Callable[[Tensor], Tensor]:
    """`_read` by NumPy's sort and torch's weighted bags: several times as fast, and no (batch, length, columns)."""
    texts, length = rows.shape
    distinct, counts, ends = _counted(rows.numpy().reshape(-1), np.repeat(np.arange(texts), length), texts, height)
    weights = 1 + np.log(counts) if counted else np.ones_like(counts)
    text = np.repeat(np.arange(texts), np.diff(ends))
    places, starts, factors = (torch.from_numpy(part) for part in (distinct, ends[:-1].astype(np.int32), weights))

    def sums(table: Tensor) -> Tensor:
        # Whole rows, where they lie: a part of the columns would have to be copied first, for every batch.
        summed = F.embedding_bag(places, table, starts, mode="sum", per_sample_weights=factors)
        squares = np.bincount(text, weights * weights * table.numpy()[distinct, -1], texts)
        summed[:, -1] = torch.from_numpy(squares)
        return summed

    return sums
