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

The other interactions fold further. `add`: p_i = q + k_i, u_i = k + v_i. `concat`: p_i = [q; k_i],
k = W_m [q; Σ b_i k_i], u_i = [k; v_i]. In both, q only shifts the key scores, so b_i does not depend on
it, and the token map does not depend on k.

`head_form="full"` is the authors' released code: every head's score sees all heads, W_r is d×d, and an
output projection follows.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastformer.mixers.registry import register


class GlobalContext(NamedTuple):
    """What a sequence is summed up to: `query` and `key` (batch, heads, head size), and the weights of both sums."""

    query: Tensor
    key: Tensor
    weights: Tensor | None  # batch, 2, heads, length; only when asked for


@register("fastformer")
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
        return self._mix(x, self.global_context(x, mask))

    def forward_with_weights(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Also return the weights of the global query and the global key: (batch, 2, heads, length), 0 at padding."""
        context = self.global_context(x, mask, keep_weights=True)
        return self._mix(x, context), context.weights

    def _mix(self, x: Tensor, context: GlobalContext) -> Tensor:
        # Building a d×d map for each sequence costs d³: worth it once a sequence is longer than it is wide.
        # An exported graph serves all lengths and takes the form for long ones.
        if self.interaction != "product" or torch.compiler.is_exporting() or x.shape[1] >= x.shape[2]:
            return self._apply_folded_map(x, context).to(x.dtype)
        return self._apply_step_by_step(x, context).to(x.dtype)

    def global_context(self, x: Tensor, mask: Tensor, keep_weights: bool = False) -> GlobalContext:
        """The two pooling passes. Scores, softmax and sums are float32 even when `x` is bfloat16."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            scale = self.head_size**-0.5
            query_map, query_bias = self._per_head(self.query, x.dtype)
            key_map, key_bias = self._per_head(self.key, x.dtype)
            # An empty row would have the average of its padding: its global vectors are zero instead.
            occupied = mask.any(dim=1)[:, None, None].to(x.dtype)

            score_map = self._scores_of_input(self._score(self.query_score, x.dtype), query_map)
            query_weights = _attend(x, mask, score_map * scale)
            pooled = query_weights @ x  # batch, heads, width
            query = (torch.einsum("bhd,hkd->bhk", pooled, query_map) + query_bias) * occupied

            key_score = self._score(self.key_score, x.dtype)
            if self.interaction == "product":
                seen_query = query.flatten(1)[:, None] if self.full_width else query
                key_score = seen_query * key_score  # batch, heads, seen
            score_map = self._scores_of_input(key_score, key_map)
            key_weights = _attend(x, mask, score_map * scale)
            weights = None
            if keep_weights:
                # The sum below goes through the tensor that is returned, so that gradients reach it.
                weights = torch.stack([query_weights, key_weights], dim=1) * mask[:, None, None]
                key_weights = weights[:, 1]
            pooled = key_weights @ x
            key = torch.einsum("bhd,hkd->bhk", pooled, key_map) + key_bias
            key = self._interact(query, key) * occupied
        return GlobalContext(query, key, weights)

    def _interact(self, query: Tensor, pooled_key: Tensor) -> Tensor:
        """Global key from the global query and Σ b_i k_i: batch, heads, head size."""
        if self.interaction == "product":
            return query * pooled_key
        if self.interaction == "add":
            return query + pooled_key
        if self.full_width:
            pair = torch.cat([query.flatten(1), pooled_key.flatten(1)], dim=-1)
            return F.linear(pair, *_as_type(self.key_merge, pair.dtype)).view_as(query)
        merge, bias = self._per_head(self.key_merge, query.dtype)
        return torch.einsum("bhp,hkp->bhk", torch.cat([query, pooled_key], dim=-1), merge) + bias

    def _apply_folded_map(self, x: Tensor, context: GlobalContext) -> Tensor:
        """out = x M + c': one product, the map M and the offset c' built in float32."""
        with torch.autocast(x.device.type, enabled=False):
            key = context.key
            query_map, query_bias = self._per_head(self.query, key.dtype)  # heads, head size, width
            value_map, value_bias = self._per_head(self.value or self.query, key.dtype)
            transform, offset = self._dense_transform(key.dtype)  # width, parts·width
            if self.interaction == "product":
                value_map, value_bias = key[..., None] * value_map, key * value_bias
            elif self.interaction == "add":
                value_bias = key + value_bias
            else:
                of_key, transform = transform.chunk(2, dim=1)
                offset = offset + F.linear(key.flatten(1), of_key)

            width = x.shape[-1]
            value_map, value_bias = value_map.flatten(-3, -2), value_bias.flatten(-2)
            token_map = transform @ value_map + query_map.reshape(width, width)
            offset = F.linear(value_bias, transform) + offset + query_bias.flatten()
            if self.output is not None:
                output, output_bias = _as_type(self.output, key.dtype)
                token_map, offset = output @ token_map, F.linear(offset, output) + output_bias
            offset = offset.expand(x.shape[0], width)[:, None].to(x.dtype)  # batch, 1, width
            token_map = token_map.to(x.dtype)
        if self.interaction == "product":
            return torch.baddbmm(offset, x, token_map.transpose(1, 2))
        return F.linear(x, token_map) + offset

    def _apply_step_by_step(self, x: Tensor, context: GlobalContext) -> Tensor:
        """The same with Q and V written out: cheaper for inputs shorter than they are wide."""
        key = context.key.to(x.dtype)
        query = self._project(self.query, x)
        value = query if self.value is None else self._project(self.value, x)
        mixed = value * key.flatten(1)[:, None]
        if self.full_width:
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
        """Score vectors w of all heads: heads, seen."""
        return linear.weight.to(dtype).expand(self.heads, -1)

    def _scores_of_input(self, score: Tensor, projection: Tensor) -> Tensor:
        """Score vectors of the projected tokens, pulled back to the input: Wᵀ w, (…, heads, width)."""
        if self.full_width:
            return score @ projection.flatten(0, 1)
        return torch.einsum("...hk,hkd->...hd", score, projection)

    def _dense_transform(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """W_r as one matrix (width, parts·width), block-diagonal in the head-wise form, and its bias (width)."""
        if self.full_width:
            return _as_type(self.transform, dtype)
        weight, bias = self._per_head(self.transform, dtype)  # heads, head size, parts·head size
        weight = weight.unflatten(-1, (-1, self.head_size))  # heads, out, parts, in
        own_head = torch.eye(self.heads, dtype=dtype, device=weight.device)
        dense = torch.einsum("hopi,hg->hopgi", weight, own_head)
        return dense.reshape(self.heads * self.head_size, -1), bias.flatten()


def _as_type(linear: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return linear.weight.to(dtype), linear.bias.to(dtype)


def _attend(x: Tensor, mask: Tensor, score_map: Tensor) -> Tensor:
    """Weights softmax_i(x_i · s) of every head: (batch, heads, length).

    `score_map` holds the vectors s: (heads, width), or (batch, heads, width) where they depend on the sequence.
    """
    scores = score_map @ x.transpose(1, 2)
    return scores.masked_fill(~mask[:, None], torch.finfo(x.dtype).min).softmax(dim=-1)
