"""Token vectors: words, pairs of words and positions, for encoders and decoders."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fastformer.mixers.sequence_parallel import current_exchange
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.dropout import Dropout
from fastformer.modeling.ngrams import bigram_rows
from fastformer.modeling.norms import norm_at
from fastformer.modeling.parts import Part, map_parts

EMBEDDED_TOKENS = 16_384  # at once: looking up needs no cache, and parts have to be put together


class Tokens(NamedTuple):
    """What is embedded: every field (batch, length)."""

    ids: Tensor
    pairs: Tensor | None  # row of the bigram table for each token and its predecessor; 0 where it has none
    positions: Tensor
    mask: Tensor

    def part(self, part: Part) -> "Tokens":
        """Some rows and columns."""
        return Tokens(*(None if field is None else field[part] for field in self))

    def drop(self, rate: float) -> "Tokens":
        """Remove a random share of each text's tokens (never all of them) and close the gaps."""
        kept = self.mask & (torch.rand(self.mask.shape, device=self.mask.device) >= rate)
        kept = torch.where(kept.any(dim=1, keepdim=True), kept, self.mask)
        order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(kept.sum(dim=1).max()))]
        fields = (self.ids, self.pairs, self.positions, kept)
        return Tokens(*(None if field is None else field.gather(1, order) for field in fields))


class BigramEmbedding(nn.Embedding):
    """The table of word pairs. A batch meets few of its rows: `train_model` makes its gradient sparse."""


class FastformerEmbeddings(nn.Module):
    """Token vectors, plus those of word pairs and of positions, then norm (post-norm models) and dropout.

    A token's position is its rank among the real tokens of its row, so padding on either side changes nothing.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.bigram_embeddings = None
        if config.bigram_buckets:
            self.bigram_embeddings = BigramEmbedding(config.bigram_buckets, config.hidden_size, padding_idx=0)
        self.position_embedding_type = config.position_embedding_type
        if config.position_embedding_type == "learned":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.norm = norm_at(config, "post")
        self.dropout = Dropout(config.hidden_dropout_prob)

    def tokens(self, input_ids: Tensor, mask: Tensor, positions: Tensor | None) -> Tokens:
        """Everything that is looked up for each token."""
        pairs = None
        if self.bigram_embeddings is not None:
            pairs = bigram_rows(*_with_last_before(input_ids, mask), self.bigram_embeddings.num_embeddings)
            pairs = pairs[:, -input_ids.shape[1] :]
        return Tokens(input_ids, pairs, self.positions(mask) if positions is None else positions, mask)

    def forward(self, tokens: Tokens) -> Tensor:
        """Vectors (batch, length, width) of the tokens."""
        return map_parts(lambda part: self._embed(tokens.part(part)), tokens.ids, part_tokens=EMBEDDED_TOKENS)

    def _embed(self, tokens: Tokens) -> Tensor:
        x = self.word_embeddings(tokens.ids)
        if self.bigram_embeddings is not None:
            pairs = self.bigram_embeddings(tokens.pairs)
            x = x + pairs if torch.is_grad_enabled() else pairs.add_(x)
        return self.finish(x, tokens.positions)

    def positions(self, mask: Tensor) -> Tensor:
        """The rank of each token among the real ones of its row, in all slices where each process has one of them."""
        exchange = current_exchange()
        if exchange is None:
            return token_ranks(mask)
        counts = exchange.each(mask.sum(dim=1))
        if self.position_embedding_type == "learned":  # all processes refuse what is too long, or some would wait
            self._check_length(int(counts.sum(dim=0).max()))
        return token_ranks(mask, counts[: exchange.rank].sum(dim=0)[:, None])

    def finish(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions to token vectors; norm and dropout."""
        if self.position_embedding_type != "none":
            x = x + self._position_vectors(positions, x)
        return self.dropout(self.norm(x))

    def _position_vectors(self, positions: Tensor, x: Tensor) -> Tensor:
        if self.position_embedding_type == "sinusoidal":
            return sinusoidal_positions(positions, x.shape[-1]).to(x.dtype)
        if not torch.compiler.is_compiling() and positions.numel():
            self._check_length(int(positions.max()) + 1)
        return self.position_embeddings(positions)

    def _check_length(self, longest: int) -> None:
        if longest > (limit := self.position_embeddings.num_embeddings):
            raise ValueError(
                f"a text has {longest} tokens but this model has learned positions for {limit} "
                "(max_position_embeddings): cut the text, or build the model with a larger "
                "max_position_embeddings or position_embedding_type='sinusoidal' or 'none'"
            )


def token_ranks(mask: Tensor, before: Tensor | int = 0) -> Tensor:
    """Positions: how many real tokens a row has before each, and `before` more."""
    return (mask.cumsum(dim=1) + before - 1).clamp(min=0)


def _with_last_before(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where each process has a slice, the last token of the slice before comes first; nothing is real before all."""
    exchange = current_exchange()
    if exchange is None:
        return ids, mask
    last = exchange.each(torch.stack([ids[:, -1], mask[:, -1].to(ids.dtype)]))[exchange.rank - 1]
    last = last if exchange.rank else torch.zeros_like(last)
    return torch.cat([last[0][:, None], ids], dim=1), torch.cat([last[1][:, None].bool(), mask], dim=1)


def sinusoidal_positions(positions: Tensor, width: int) -> Tensor:
    """sin(p·f_j) and cos(p·f_j) side by side, f_j = 10000^(-2j/width): (…, width)."""
    half = (width + 1) // 2
    frequencies = torch.exp(torch.arange(half, device=positions.device) * (-2 * math.log(10000.0) / width))
    angles = positions[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]
