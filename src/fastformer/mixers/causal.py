"""Causal Fastformer: a token sees itself and what came before it, in O(N·d), and decodes with O(d) of state.

Ours, not the paper's. Per head, with running sums in place of sums over the whole text:

    a_it = softmax_{i≤t}(w_q·q_i / √d_h)      g_t = Σ_{i≤t} a_it q_i      running global query
    p_i = g_i * k_i                           each key meets the query of its own prefix
    b_it = softmax_{i≤t}(w_k·p_i / √d_h)      κ_t = Σ_{i≤t} b_it p_i      running global key
    out_t = W_r (κ_t * v_t) + c + q_t

This is another function than the bidirectional one, even at the last token: there every key meets the query of the
whole text. The parameters are the same. Folding does not apply: each token has global vectors of its own.

Both sums are running means: weights e^{s_i} that no later token changes, and their total. So the state of a sum is its
mean so far and the logarithm of the total: d_h + 1 numbers per head.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fastformer.mixers.attentive_sum import Change
from fastformer.mixers.fastformer import FastformerMixer
from fastformer.mixers.memory import Memory
from fastformer.mixers.registry import register

# A chunk costs N·chunk·heads weights: as many numbers as the values themselves at a head size of 16.
_CHUNK = 16
# Without gradients a long text goes through in pieces, so that nothing but input and output has its length.
_PIECE = 4096


@register("fastformer", causal=True)
class CausalFastformerMixer(FastformerMixer):
    """`mixer(x, mask, memory) -> y`: `y_t` depends on the real tokens up to `t`, those in `memory` first."""

    def forward(self, x: Tensor, mask: Tensor | None, memory: Memory | None = None) -> Tensor:
        """Mix the tokens of `x` (batch, length, width); `mask` (batch, at least length) ends with theirs.

        None: all are real. With `memory`, tokens of earlier calls come first, and these are added to it.
        """
        length = x.shape[1]
        mask = None if mask is None else mask[:, mask.shape[1] - length :]
        state = None if memory is None else memory.state()
        whole = torch.is_grad_enabled() or torch.compiler.is_compiling()
        step = length if whole and length else _PIECE
        pieces = []
        for start in range(0, length, step):
            here = slice(start, start + step)
            mixed, state = self._mix_piece(x[:, here], None if mask is None else mask[:, here], state)
            pieces.append(mixed)
        if memory is not None and pieces and state is not None:
            memory.keep(*state, tokens=length)
        return pieces[0] if len(pieces) == 1 else torch.cat([x[:, :0], *pieces], dim=1)

    def prepare(self, x: Tensor, mask: Tensor, change: Change | None = None) -> Callable[[tuple[slice, slice]], Tensor]:
        """`prepare(x, mask)(part)` is `forward(x, mask)[part]`; with `change`, of `change(x)`."""
        x = x if change is None else change(x)
        return self.forward(x, mask).__getitem__

    def forward_with_weights(self, x: Tensor, mask: Tensor) -> tuple[Tensor, None]:
        """No weights: every token has its own."""
        return self.forward(x, mask), None

    def _mix_piece(
        self, x: Tensor, mask: Tensor | None, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key = self._split(self._project(self.query, x)), self._split(self._project(self.key, x))
        value = query if self.value is None else self._split(self._project(self.value, x))
        query_state, key_state = (None, None) if state is None else state

        with torch.autocast(x.device.type, enabled=False):  # scores and sums: in float32 at least
            wide = torch.promote_types(query.dtype, torch.float32)
            query_sums, key_wide = query.to(wide), key.to(wide)
            scores = self._scores(self.query_score, query_sums)
            global_query, query_state = running_sum(scores, query_sums, mask, query_state)
            if self.interaction == "product":
                meeting = global_query * key_wide
            elif self.interaction == "add":
                meeting = global_query + key_wide
            else:
                meeting = torch.cat([global_query, key_wide], dim=-1)
            scores = self._scores(self.key_score, meeting[..., -self.head_size :])
            global_key, key_state = running_sum(scores, meeting, mask, key_state)
        global_key = global_key.to(query.dtype)

        if self.interaction == "concat":
            global_key = self._transformed(self.key_merge, global_key)
            met = torch.cat([global_key, value], dim=-1)
        else:
            met = global_key * value if self.interaction == "product" else global_key + value
        mixed = _merge(self._transformed(self.transform, met) + query)
        if self.output is not None:
            mixed = self.output(mixed)
        return mixed.to(x.dtype), (query_state, key_state)

    def _split(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> (batch, heads, length, head size), copied: the sums read it in this order."""
        return x.unflatten(-1, (self.heads, self.head_size)).transpose(1, 2).contiguous()

    def _scores(self, linear: torch.nn.Linear, vectors: Tensor) -> Tensor:
        """w·vector / √d_h: (batch, heads, length, head size) -> (batch, heads, length)."""
        score = self._score(linear, vectors.dtype)
        if self.full_width:
            return F.linear(_merge(vectors), score).mT
        return (vectors @ score[..., None]).squeeze(-1)

    def _transformed(self, linear: torch.nn.Linear, vectors: Tensor) -> Tensor:
        """A map of each head's vector, or of all heads' together: (batch, heads, length, one or two head sizes)."""
        if self.full_width:  # with two parts to a head, first the first parts of all heads, as `linear` reads them
            parts = [_merge(part) for part in vectors.split(self.head_size, dim=-1)]
            return self._split(linear(torch.cat(parts, dim=-1)))
        weight, bias = self._per_head(linear, vectors.dtype)
        return vectors @ weight.mT + bias[:, None]


def running_sum(scores: Tensor, values: Tensor, mask: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Softmax-weighted means of every prefix, and the state after the last token.

        y_t = Σ_{i≤t} e^{s_i} v_i / Σ_{i≤t} e^{s_i}

    Args:
        scores: s, (batch, heads, length).
        values: v, (batch, heads, length, size).
        mask: True at real tokens (batch, length); None: all are.
        state: (batch, heads, 1 + size), the log of the total weight so far and the mean so far; None: no token yet.

    Zeros until the first real token. A state is float64: with 100,000 tokens behind it, one more adds a hundred
    thousandth to a total, of which float32 would keep only the first two digits, and lose the same each time.
    """
    dtype, length = scores.dtype, scores.shape[-1]
    exact = torch.float32 if scores.device.type == "mps" else torch.float64  # mps has nothing wider
    short = length <= _CHUNK
    if short:  # a decoding step: so little work that all of it is exact
        scores, values = scores.to(exact), values.to(exact)
    lowest = torch.finfo(dtype).min
    if mask is not None:
        real = mask[:, None]
        scores, values = scores.masked_fill(~real, lowest), values.masked_fill(~real[..., None], 0)
    if state is None:
        state = F.pad(values.new_zeros(*scores.shape[:2], values.shape[-1], dtype=exact), (1, 0), value=lowest)
    total, mean = state[..., :1], state[..., None, 1:]
    totals, means = _running(scores, values, total.to(scores.dtype), mean.to(scores.dtype))
    total = totals[..., -1:] if short else torch.logaddexp(total, scores.to(exact).logsumexp(dim=-1, keepdim=True))
    state = torch.cat([total, means[..., -1, :].to(exact)], dim=-1)
    return means.to(dtype), state


def _running(scores: Tensor, values: Tensor, total: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Log totals (…, length) and means (…, length, size) of every prefix, after a total (…, 1) and mean (…, 1, size).

    A chunk of tokens is to later ones a single token, whose score is the log of its total weight and whose value is its
    mean. So the running means of whole chunks are this same problem, a chunk's length smaller, and give each chunk
    the token that it starts from. O(N·(d + chunk·heads)) in all, and log N / log chunk steps one after the other.
    """
    length = scores.shape[-1]
    if length == 1:
        totals = torch.logaddexp(total, scores)
        return totals, mean + (scores - totals).exp()[..., None] * (values - mean)
    if length <= _CHUNK:
        return _within_chunk(scores, values, total, mean)
    chunks = -(-length // _CHUNK)
    missing = chunks * _CHUNK - length
    if missing:
        scores = F.pad(scores, (0, missing), value=torch.finfo(scores.dtype).min)
        values = F.pad(values, (0, 0, 0, missing))
    scores, values = scores.unflatten(-1, (chunks, _CHUNK)), values.unflatten(-2, (chunks, _CHUNK))

    chunk_totals = scores.logsumexp(dim=-1)
    weights = (scores - chunk_totals[..., None]).exp()
    chunk_means = (weights[..., None, :] @ values).squeeze(-2)
    totals, means = _running(chunk_totals[..., :-1], chunk_means[..., :-1, :], total, mean)
    before, mean_before = torch.cat([total, totals], dim=-1), torch.cat([mean, means], dim=-2)
    totals, means = _within_chunk(scores, values, before[..., None], mean_before[..., None, :])
    return totals.flatten(-2)[..., :length], means.flatten(-3, -2)[..., :length, :]


def _within_chunk(scores: Tensor, values: Tensor, total: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a few tokens, by a lower triangular matrix of weights."""
    length = scores.shape[-1]
    # The largest score of each prefix; any number would do but for rounding, so no gradient goes through it.
    highest = torch.maximum(scores.detach().cummax(dim=-1).values, total.detach())
    future = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    weights = (scores[..., None, :] - highest[..., None]).masked_fill_(future, -torch.inf).exp_()  # …, prefix, token
    past = (total - highest).exp()
    sums = weights.sum(dim=-1) + past
    means = (weights @ values + past[..., None] * mean) / sums[..., None]
    return highest + sums.log(), means


def _merge(x: Tensor) -> Tensor:
    """(batch, heads, length, head size) -> (batch, length, width)."""
    return x.transpose(1, 2).flatten(2)
