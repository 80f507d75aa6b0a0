"""Fastformer: additive attention, folded so that a layer costs one matrix product.

The paper, per head of width d_h (`fastformer_reference.py` has it as code):

    a_i = softmax_i(w_q·q_i / √d_h)      q = Σ a_i q_i           global query
    p_i = q * k_i
    b_i = softmax_i(w_k·p_i / √d_h)      k = Σ b_i p_i           global key
    u_i = k * v_i                        out_i = W_r u_i + c + q_i

with q_i = W_q x_i + b_q and so on. Weights that sum to 1 commute with affine maps, so neither Q nor K
is needed token by token:

    a_i = softmax_i(x_i · W_qᵀ w_q / √d_h)         q = W_q (Σ a_i x_i) + b_q
    b_i = softmax_i(x_i · W_kᵀ (q * w_k) / √d_h)   k = q * (W_k (Σ b_i x_i) + b_k)
    out_i = (W_r diag(k) W_v + W_q) x_i + (W_r (k * b_v) + c + b_q)

(a bias inside a softmax shifts all scores alike and drops out). Two thin pooling passes, O(N·d·h), and
one N·d·d product remain. A row with no real token has zero global vectors by definition.

`head_form="full"` is the authors' released code: every head's score sees all heads, W_r is d×d, and an
output projection follows. `fastformer_ablations.py` has the other interactions, `add` and `concat`, and
registers the name for all three.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastformer.mixers.attentive_sum import Change, attentive_sum
from fastformer.mixers.sequence_parallel import current_exchange


class GlobalContext(NamedTuple):
    """What a sequence is summed up to: `query` and `key` (batch, heads, head size), and the weights of both sums."""

    query: Tensor
    key: Tensor
    weights: Tensor | None  # batch, 2, heads, length; only when asked for


class Maps(NamedTuple):
    """The maps of the output, head by head; with `head_form="full"` all heads as one, the output projection in them."""

    transform: Tensor  # heads, head size, head size (or two): W_r; full: W_o W_r (width, width)
    offset: Tensor  # width: c; full: W_o c + b_o
    query: Tensor  # heads, head size, width: W_q; full: (width, width)
    query_bias: Tensor  # heads, head size: b_q; full: (width)
    values: Tensor  # as `query`: W_v
    value_bias: Tensor
    bypass: Tensor  # what brings the query past the transform: I; full: W_o


class FastformerMixer(nn.Module):
    """Additive attention in O(N·d): `mixer(x, mask) -> y`."""

    def __init__(self, config):
        super().__init__()
        width, heads = config.hidden_size, config.num_attention_heads
        self.heads, self.head_size = heads, width // heads
        self.interaction = config.interaction
        self.full_width = config.head_form == "full"

        # Shared heads own one head's parameters, which `_per_head` repeats.
        own_heads = 1 if config.share_heads else heads
        projected = own_heads * self.head_size
        seen = width if self.full_width else self.head_size  # what one head's score and transform read
        parts = 2 if self.interaction == "concat" else 1

        self.query = nn.Linear(width, projected)
        self.key = nn.Linear(width, projected)
        self.value = None if config.share_query_value else nn.Linear(width, projected)
        self.query_score = nn.Linear(seen, own_heads, bias=False)
        self.key_score = nn.Linear(seen, own_heads, bias=False)
        self.key_merge = nn.Linear(2 * seen, projected) if self.interaction == "concat" else None
        self.transform = nn.Linear(parts * seen, projected)
        self.output = nn.Linear(width, width) if self.full_width else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` (batch, length, width); `mask` is True at real tokens."""
        context, x = self.global_context(x, mask)
        return self.mix(x, context)

    def forward_with_weights(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Also return the weights of the global query and the global key: (batch, 2, heads, length), 0 at padding."""
        context, x = self.global_context(x, mask, keep_weights=True)
        return self.mix(x, context), context.weights

    def mix(self, x: Tensor, context: GlobalContext) -> Tensor:
        """Mix tokens, these or others, of a sequence that was summed up."""
        if self.folds(x):
            return self.apply_map(x, *self.token_map(context, x.dtype))
        return self._apply_step_by_step(x, context).to(x.dtype)

    def prepare(self, x: Tensor, mask: Tensor, change: Change | None = None) -> Callable[[tuple[slice, slice]], Tensor]:
        """Read all of `x`; then mix any rows and tokens of it: `prepare(x, mask)(part)` is `forward(x, mask)[part]`.

        With `change` it is `forward(change(x), mask)[part]`, and `change(x)` is never held as a whole: it is made three
        times, in parts. For texts so long that this matters, without gradients.
        """
        context, x = self.global_context(x, mask, change=change)
        if not self.folds(x):
            return self._apply_step_by_step(x if change is None else change(x), context).__getitem__
        token_map, offset = self.token_map(context, x.dtype)

        def mix(part: tuple[slice, slice]) -> Tensor:
            tokens = x[part] if change is None else change(x[part])
            return self.apply_map(tokens, token_map[part[0]], offset[part[0]])

        return mix

    def folds(self, x: Tensor) -> bool:
        """Whether a map for each sequence is the cheaper way: once a sequence is longer than it is wide.

        An exported graph serves all lengths and takes the form for long ones.
        """
        return torch.compiler.is_exporting() or x.shape[1] >= x.shape[2]

    def global_context(
        self, x: Tensor, mask: Tensor, keep_weights: bool = False, change: Change | None = None
    ) -> tuple[GlobalContext, Tensor]:
        """The two pooling passes, and the input to go on with, in products only (see `attentive_sum`).

        Scores, softmax and sums are float32 even when `x` is bfloat16.
        """
        with torch.autocast(x.device.type, enabled=False):
            tokens = x.to(torch.promote_types(x.dtype, torch.float32))
            query_map, query_bias = self._per_head(self.query, tokens.dtype)
            key_map, key_bias = self._per_head(self.key, tokens.dtype)
            occupied, exchange = None, current_exchange()
            if exchange is not None or torch.compiler.is_compiling() or not mask.all():
                # An empty row would have the average of its padding: its global vectors are zero instead.
                occupied = mask.any(dim=1)[:, None, None].to(tokens.dtype)
                occupied = occupied if exchange is None else exchange.largest(occupied)
            else:
                mask = None

            query_scores = self._scores_of_input(self._score(self.query_score, tokens.dtype), query_map)
            how: Any = {"keep_weights": keep_weights, "change": change}
            pooled, tokens, query_weights = attentive_sum(tokens, mask, query_scores, **how)
            query = torch.einsum("bhd,hkd->bhk", pooled, query_map) + query_bias
            query = query if occupied is None else query * occupied

            key_scores = self._key_scores(query, key_map)
            pooled, tokens, key_weights = attentive_sum(tokens, mask, key_scores, **how)
            weights = None
            if query_weights is not None and key_weights is not None:
                weights = torch.stack([query_weights.mT, key_weights.mT], dim=1)
                weights = weights if mask is None else weights * mask[:, None, None]
                pooled = weights[:, 1] @ tokens  # through the tensor that is returned, so that gradients reach it
                pooled = pooled if exchange is None else exchange.total(pooled)
            key = torch.einsum("bhd,hkd->bhk", pooled, key_map) + key_bias
            key = self._global_key(query, key)
            key = key if occupied is None else key * occupied
        return GlobalContext(query, key, weights), tokens if x.dtype == tokens.dtype else x

    def _key_scores(self, query: Tensor, key_map: Tensor) -> Tensor:
        """Score vectors of the second pass: W_kᵀ (q * w_k) / √d_h, (batch, heads, width)."""
        seen = query.flatten(1)[:, None] if self.full_width else query
        return self._scores_of_input(seen * self._score(self.key_score, query.dtype), key_map)

    def _global_key(self, query: Tensor, pooled_key: Tensor) -> Tensor:
        """Global key from the global query and Σ b_i k_i: batch, heads, head size."""
        return query * pooled_key

    def token_map(self, context: GlobalContext, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """M (batch, width, width) and c' (batch, 1, width) of out = x Mᵀ + c', built in float32."""
        with torch.autocast(context.key.device.type, enabled=False):
            maps = self._maps(context.key.dtype)
            scale = (context.key.flatten(1) if self.full_width else context.key)[..., None, :]
            if self.value is None:  # the values are the queries: both go through one product
                transform = torch.addcmul(maps.bypass, maps.transform, scale)
            else:
                transform = maps.transform * scale
            offset = (transform @ maps.value_bias[..., None]).flatten(1) + maps.offset
            if self.full_width:
                token_map = transform @ maps.values
            else:  # one product a head for all sequences, not one a sequence and head
                token_map = transform.transpose(0, 1).flatten(1, 2) @ maps.values
                token_map = token_map.unflatten(1, (-1, self.head_size)).transpose(0, 1).flatten(1, 2)
            if self.value is not None:
                past, past_offset = self._past(maps)
                token_map, offset = token_map + past, offset + past_offset
        return token_map.to(dtype), offset[:, None].to(dtype)

    def mapped(self, context: GlobalContext, outer: Tensor, residual: bool) -> tuple[Tensor, Tensor]:
        """`outer` (any, width) after the mixer, or after x + mixer(x): outer y = P x + o for every token.

        P is (batch or 1, any, width), o (batch, any). It costs one product a sequence, which M itself would not save:
        diag(k), all that depends on the sequence, stands between two known matrices.
        """
        maps = self._maps(context.key.dtype)
        past, past_offset = self._past(maps)
        known = outer @ past + outer if residual else outer @ past  # the part of P that all sequences share
        constant = outer @ (maps.offset + past_offset)
        values, value_bias = maps.values.reshape(-1, maps.values.shape[-1]), maps.value_bias.flatten()
        if self.full_width:
            transform = outer @ maps.transform
        else:
            heads = outer.unflatten(1, (self.heads, self.head_size))
            transform = torch.einsum("ohk,hkj->ohj", heads, maps.transform).flatten(1)
        transform = transform * context.key.flatten(1)[:, None]
        batch = (len(transform), -1, -1)
        return torch.baddbmm(known.expand(batch), transform, values.expand(batch)), transform @ value_bias + constant

    def apply_map(self, x: Tensor, token_map: Tensor, offset: Tensor) -> Tensor:
        """The one product: x Mᵀ + c'."""
        return torch.baddbmm(offset, x, token_map.mT)

    def _maps(self, dtype: torch.dtype) -> Maps:
        """`Maps` of the present weights: a few thin products, made anew for each batch."""
        query, query_bias = self._per_head(self.query, dtype)
        values, value_bias = self._per_head(self.value or self.query, dtype)
        transform, bias = self._per_head(self.transform, dtype)
        if not self.full_width:
            bypass = torch.eye(self.head_size, dtype=dtype, device=transform.device)
            return Maps(transform, bias.flatten(), query, query_bias, values, value_bias, bypass)
        bypass, output_bias = _as_type(self.output, dtype)
        transform, query, values = (each.flatten(0, 1) for each in (transform, query, values))
        offset = F.linear(bias.flatten(), bypass, output_bias)
        return Maps(bypass @ transform, offset, query, query_bias.flatten(), values, value_bias.flatten(), bypass)

    def _past(self, maps: Maps) -> tuple[Tensor, Tensor]:
        """Map (width, width) and offset (width) of the query that goes past the transform."""
        if self.full_width:
            return maps.bypass @ maps.query, maps.bypass @ maps.query_bias
        return maps.query.reshape(-1, maps.query.shape[-1]), maps.query_bias.flatten()

    def _apply_step_by_step(self, x: Tensor, context: GlobalContext) -> Tensor:
        """The same with Q and V written out: cheaper for inputs shorter than they are wide."""
        key = context.key.to(x.dtype)
        query = self._project(self.query, x)
        value = query if self.value is None else self._project(self.value, x)
        mixed = value * key.flatten(1)[:, None]
        if self.output is not None:
            return self.output(self.transform(mixed) + query)
        transform, offset = self._per_head(self.transform, x.dtype)
        mixed = mixed.unflatten(-1, (self.heads, self.head_size))
        mixed = torch.einsum("bnhd,hkd->bnhk", mixed, transform) + offset
        return mixed.flatten(2) + query

    def _project(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """Apply a projection to every token, repeating shared heads."""
        projected = linear(x)
        if projected.shape[-1] != x.shape[-1]:
            projected = projected.repeat(1, 1, self.heads)
        return projected

    def _per_head(self, linear: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Weight (heads, head size, in) and bias (heads, head size) of a linear map, shared heads repeated."""
        weight, bias = _as_type(linear, dtype)
        weight = weight.view(-1, self.head_size, weight.shape[-1])
        return weight.expand(self.heads, -1, -1), bias.view(-1, self.head_size).expand(self.heads, -1)

    def _score(self, linear: nn.Linear, dtype: torch.dtype) -> Tensor:
        """Score vectors w / √d_h of all heads: heads, seen."""
        return linear.weight.to(dtype).expand(self.heads, -1) * self.head_size**-0.5

    def _scores_of_input(self, score: Tensor, projection: Tensor) -> Tensor:
        """Score vectors of the projected tokens, pulled back to the input: Wᵀ w, (…, heads, width)."""
        if self.full_width:
            return score @ projection.flatten(0, 1)
        return torch.einsum("...hk,hkd->...hd", score, projection)


def _as_type(linear: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return linear.weight.to(dtype), linear.bias.to(dtype)
