"""What is learned: hide 15% of the words of a text and predict them from the rest.

Of the hidden words 80% become [MASK], 10% a random word and 10% stay (Devlin et al., 2019). Pairs of words are looked
up after that, so that a neighbour's pair does not tell the word. Only hidden words go through the output matrix.

The loss of a word w with logits z is log Σ_v exp z_v - z_w. A sum over 30,000 words for each hidden one is most of the
work on a CPU, so training estimates it: the words hidden in the batch, T, are in it all, of the others a random set R,
each of whom stands for many:

    Σ_v exp z_v  ≈  Σ_{v ∈ T} exp z_v  +  (V - |T|) / |R| · Σ_{v ∈ R} exp z_v

which is right on average over R. Validation has the whole sum, and hides words by a hash of place and word: a text
hides the same ones whenever, and with whomever, it is read.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput

from fastformer.modeling import FastformerConfig, FastformerForMaskedLM

HIDDEN_SHARE = 0.15
SAMPLED_WORDS = 2048
_ROWS_AT_ONCE = 1024  # hidden words times the vocabulary, in float32, that are in memory together


class Hidden(NamedTuple):
    """A batch with words hidden."""

    ids: Tensor  # (batch, length)
    where: Tensor  # (batch, length) bool: these are to be predicted


def hide_at_random(ids: Tensor, may_hide: Tensor, mask_id: int, vocab_size: int) -> Hidden:
    """Hide words for training; another draw every time."""
    where = may_hide & (torch.rand(ids.shape, device=ids.device) < HIDDEN_SHARE)
    what = torch.rand(ids.shape, device=ids.device)
    masked, replaced = where & (what < 0.8), where & (what >= 0.9)
    ids = torch.where(masked, mask_id, ids)
    return Hidden(torch.where(replaced, torch.randint_like(ids, vocab_size), ids), where)


def hide_by_hash(ids: Tensor, may_hide: Tensor, mask_id: int) -> Hidden:
    """Hide words for scoring; a function of the text alone."""
    place = torch.arange(ids.shape[1], device=ids.device)
    mixed = (ids * 1_000_000_007 + place * 998_244_353) % 2_147_483_647
    where = may_hide & ((mixed * 1_103_515_245 >> 16) % 10_000 < HIDDEN_SHARE * 10_000)
    return Hidden(torch.where(where, mask_id, ids), where)


class MaskedWordLearner(FastformerForMaskedLM):
    """`FastformerForMaskedLM` that hides words itself and returns, of each, its loss and whether it was found.

    In training only the loss. `special_ids` (padding, unknown, …) are never hidden.
    """

    def __init__(self, config: FastformerConfig, mask_id: int, special_ids: list[int]):
        super().__init__(config)
        self.mask_id = mask_id
        self.special_ids = torch.tensor(special_ids)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> MaskedLMOutput:
        """The mean loss of the hidden words; when scoring, also (hidden words, 2). `labels` are not looked at."""
        may_hide = attention_mask.bool() & ~torch.isin(input_ids, self.special_ids.to(input_ids.device))
        if self.training:
            hidden = hide_at_random(input_ids, may_hide, self.mask_id, self.config.vocab_size)
        else:
            hidden = hide_by_hash(input_ids, may_hide, self.mask_id)
        words, targets = self.states(hidden, attention_mask), input_ids[hidden.where]
        if self.training:
            return MaskedLMOutput(loss=self._sampled_loss(words, targets))
        parts = zip(words.split(_ROWS_AT_ONCE), targets.split(_ROWS_AT_ONCE), strict=True)
        scores = torch.cat([self._score(*part) for part in parts])
        return MaskedLMOutput(loss=scores[:, 0].mean() if len(scores) else scores.sum(), logits=scores)

    def states(self, hidden: Hidden, attention_mask: Tensor) -> Tensor:
        """What the output matrix is applied to, at the hidden words: (hidden words, width)."""
        states = self.fastformer(hidden.ids, attention_mask).last_hidden_state[hidden.where]
        return self.norm(self.activation(self.dense(states)))

    def _sampled_loss(self, words: Tensor, targets: Tensor) -> Tensor:
        present, places = targets.unique(return_inverse=True)
        absent = torch.ones(self.config.vocab_size, dtype=torch.bool, device=words.device)
        absent[present] = False
        others = absent.nonzero()[:, 0]
        drawn = others[torch.randperm(len(others), device=words.device)[:SAMPLED_WORDS]]
        candidates = torch.cat([present, drawn])
        logits = nn.functional.linear(words, self.decoder.weight[candidates], self.decoder.bias[candidates])
        if len(drawn):
            logits[:, len(present) :] += math.log(len(others) / len(drawn))
        # A batch of empty texts hides nothing: a loss of 0 that still has a gradient.
        return nn.functional.cross_entropy(logits, places) if len(targets) else words.sum()

    def _score(self, words: Tensor, targets: Tensor) -> Tensor:
        logits = self.decoder(words)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        return torch.stack([losses, (logits.argmax(dim=-1) == targets).float()], dim=-1)
