"""Copying: a decoder may take its next word from the source, even one that it never learned to write.

    p(w) = g · softmax(logits)_w + (1 - g) · Σ_{j: source_j = w} a_j

with the gate g = σ(w_g·h + b_g) and the attention of the decoder's state h to the encoder's vectors e_j of the source

    a_j = softmax_j Σ_k (W_k h + b_k)·e_{j-k} / √d,    k = 0 … _BEFORE,    e of padding and before the start: 0

(a pointer-generator, See et al. 2017, where k = 0 only). W_0 looks for the token that is wanted, the others for places
whose tokens before are the ones just written: so a phrase is copied on, although a Fastformer's vectors do not know
their neighbours. What is returned is log p, which is its own log-softmax: beam search, sampling and cross-entropy read
it as they read any logits.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.sharing import by_source

_BEFORE = 3  # tokens before a source token that count
_LOG_ZERO = -1e30  # no probability at all, in a logarithm that stays finite


class CopyHead(nn.Module):
    """Logits of the vocabulary in, log-probabilities with copying out."""

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.pointer = nn.Linear(config.hidden_size, (1 + _BEFORE) * config.hidden_size)  # W_0, W_1, …
        self.gate = nn.Linear(config.hidden_size, 1)

    def forward(
        self, hidden: Tensor, logits: Tensor, source: Tensor, source_ids: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Log-probabilities (batch, length, vocabulary), float32 at least.

        Args:
            hidden: the decoder's states (batch, length, width).
            logits: (batch, length, vocabulary).
            source: the encoder's vectors (batch, source length, width); or a source for every two, three, … texts.
            source_ids: the source tokens (sources, source length).
            mask: True at real source tokens; None: all are. With none in a row, nothing is copied there.
        """
        scores, gate = self._scores_and_gate(hidden, source, mask)
        logits = logits.to(scores.dtype)
        generated = F.logsigmoid(gate) + logits.log_softmax(dim=-1)

        # The log of each word's sum of attention, by its largest term, so that nothing vanishes.
        texts = hidden.shape[0] // source.shape[0]  # of a source
        words = source_ids.repeat_interleave(texts, dim=0)[:, None].expand_as(scores)
        attention = scores.log_softmax(dim=-1)
        largest = torch.full_like(generated, -torch.inf).scatter_reduce(2, words, attention.detach(), "amax")
        terms = (attention - largest.gather(2, words)).exp()
        sums = torch.zeros_like(generated).scatter_add(2, words, terms)
        # Words that the source does not have keep what they had: log 0 would spoil the gradient.
        in_source = sums > 0
        copied = F.logsigmoid(-gate) + largest + torch.where(in_source, sums, 1).log()
        return torch.where(in_source, torch.logaddexp(generated, copied), generated)

    def log_probability(
        self, hidden: Tensor, generated: Tensor, source: Tensor, source_ids: Tensor, mask: Tensor | None, words: Tensor
    ) -> Tensor:
        """log p of one word at each place (batch, length): what training needs, without the other words'.

        `words` are those words, `generated` is log softmax(logits) of each; the rest is as in `forward`, a source a
        text.
        """
        scores, gate = self._scores_and_gate(hidden, source, mask)
        gate = gate[..., 0]
        elsewhere = source_ids[:, None] != words[..., None]  # batch, length, source length
        copied = scores.log_softmax(dim=-1).masked_fill(elsewhere, _LOG_ZERO).logsumexp(dim=-1)
        return torch.logaddexp(F.logsigmoid(gate) + generated.to(scores.dtype), F.logsigmoid(-gate) + copied)

    def _scores_and_gate(self, hidden: Tensor, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores of the source tokens (batch, length, source length), and the gate (…, 1) before its sigmoid."""
        batch, length, width = hidden.shape
        hidden = by_source(hidden, source)
        parts = self.pointer(hidden).unflatten(2, (1 + _BEFORE, width)).flatten(1, 2) @ source.mT / width**0.5
        gate = self.gate(hidden)
        wide = torch.promote_types(parts.dtype, torch.float32)
        parts, gate = parts.to(wide).unflatten(1, (hidden.shape[1], 1 + _BEFORE)), gate.to(wide)
        if mask is not None:
            parts = parts.masked_fill(~mask[:, None, None], 0)
        scores = parts[:, :, 0]
        for before in range(1, 1 + _BEFORE):
            scores = scores + F.pad(parts[:, :, before], (before, 0))[..., : source.shape[1]]
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], torch.finfo(wide).min)
            gate = gate.masked_fill(~mask.any(dim=1)[:, None, None], torch.inf)
        return scores.view(batch, length, source.shape[1]), gate.view(batch, length, 1)
