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

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastformer.mixers.attentive_sum import attentive_sum
from fastformer.mixers.registry import register


class GlobalContext(NamedTuple):
    """What a sequence is summed up to: `query` and `key` (batch, heads, head size), and the weights of both sums."""

    query: Tensor
    key: Tensor
    weights: Tensor | None  # batch, 2, heads, length; only when asked for
    folded: "Folded"


class Folded(NamedTuple):
    """All that follows from the weights alone, before any token is seen."""

    query_scores: Tensor  # heads, width: W_qᵀ w_q / √d_h
    key_scores: Tensor | None  # heads, width: W_kᵀ w_k / √d_h, where it does not depend on the global query
    transform: Tensor  # heads, head size, head size: W_r; full width: W_o W_r (width, width)
    of_key: Tensor | None  # concat: what the transform makes of the global key, same shape
    values: Tensor  # heads, head size, width: W_v; full width: (width, width)
    value_bias: Tensor  # heads, head size; full width: (width)
    bypass: Tensor | None  # I; full width: W_o: brings the query past the transform, where the values are the queries
    token_map: Tensor | None  # width, width: else, the part of M that is the same for every sequence
    offset: Tensor  # width: the part of c' that is the same for every sequence


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
        self._kept: tuple | None = None  # see `folded`

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

    def prepare(self, x: Tensor, mask: Tensor) -> Callable[[tuple[slice, slice]], Tensor]:
        """Read all of `x`; then mix any rows and tokens of it: `prepare(x, mask)(part)` is `forward(x, mask)[part]`."""
        context, x = self.global_context(x, mask)
        if not self.folds(x):
            return self._apply_step_by_step(x, context).__getitem__
        token_map, offset = self.token_map(context, x.dtype)
        one_map = self.interaction != "product"  # for all sequences
        return lambda part: self.apply_map(x[part], token_map if one_map else token_map[part[0]], offset[part[0]])

    def folds(self, x: Tensor) -> bool:
        """Whether a map for each sequence is the cheaper way: once a sequence is longer than it is wide.

        An exported graph serves all lengths and takes the form for long ones.
        """
        return self.interaction != "product" or torch.compiler.is_exporting() or x.shape[1] >= x.shape[2]

    def global_context(self, x: Tensor, mask: Tensor, keep_weights: bool = False) -> tuple[GlobalContext, Tensor]:
        """The two pooling passes, and the input to go on with, in products only (see `attentive_sum`).

        Scores, softmax and sums are float32 even when `x` is bfloat16.
        """
        with torch.autocast(x.device.type, enabled=False):
            tokens = x.to(torch.promote_types(x.dtype, torch.float32))
            folded = self.folded(tokens.dtype)
            query_map, query_bias = self._per_head(self.query, tokens.dtype)
            key_map, key_bias = self._per_head(self.key, tokens.dtype)
            occupied = None
            if torch.compiler.is_compiling() or not mask.all():
                # An empty row would have the average of its padding: its global vectors are zero instead.
                occupied = mask.any(dim=1)[:, None, None].to(tokens.dtype)
            else:
                mask = None

            pooled, tokens, query_weights = attentive_sum(tokens, mask, folded.query_scores, keep_weights=keep_weights)
            query = torch.einsum("bhd,hkd->bhk", pooled, query_map) + query_bias
            query = query if occupied is None else query * occupied

            key_scores = folded.key_scores
            if key_scores is None:
                seen_query = query.flatten(1)[:, None] if self.full_width else query
                score = seen_query * self._score(self.key_score, tokens.dtype) * self.head_size**-0.5
                key_scores = self._scores_of_input(score, key_map)
            pooled, tokens, key_weights = attentive_sum(tokens, mask, key_scores, keep_weights=keep_weights)
            weights = None
            if keep_weights:
                weights = torch.stack([query_weights.mT, key_weights.mT], dim=1)
                weights = weights if mask is None else weights * mask[:, None, None]
                pooled = weights[:, 1] @ tokens  # through the tensor that is returned, so that gradients reach it
            key = torch.einsum("bhd,hkd->bhk", pooled, key_map) + key_bias
            key = self._interact(query, key)
            key = key if occupied is None else key * occupied
        return GlobalContext(query, key, weights, folded), tokens if x.dtype == tokens.dtype else x

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

    def token_map(self, context: GlobalContext, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """M (batch or 1, width, width) and c' (batch, 1, width) of out = x Mᵀ + c', built in float32."""
        with torch.autocast(context.key.device.type, enabled=False):
            folded = context.folded
            key = context.key.flatten(1) if self.full_width else context.key
            if self.interaction != "product":
                token_map = folded.token_map[None]
                offset = (folded.transform if folded.of_key is None else folded.of_key) @ key[..., None]
            else:
                scale = key[..., None, :]
                if folded.bypass is None:
                    transform = folded.transform * scale
                else:
                    transform = torch.addcmul(folded.bypass, folded.transform, scale)
                offset = transform @ folded.value_bias[..., None]
                if not self.full_width:  # one product a head for all sequences, not one a sequence and head
                    transform = transform.transpose(0, 1).flatten(1, 2)
                token_map = transform @ folded.values
                if not self.full_width:
                    token_map = token_map.unflatten(1, (-1, self.head_size)).transpose(0, 1).flatten(1, 2)
                token_map = token_map if folded.token_map is None else token_map + folded.token_map
            offset = offset.flatten(1)[:, None] + folded.offset
        return token_map.to(dtype), offset.to(dtype)

    def mapped(self, context: GlobalContext, outer: Tensor, residual: bool) -> tuple[Tensor, Tensor]:
        """`outer` (any, width) after the mixer, or after x + mixer(x): outer y = P x + o for every token.

        P is (batch or 1, any, width), o (batch, any). It costs one product a sequence, which M itself would not save:
        diag(k), all that depends on the sequence, stands between two known matrices.
        """
        folded, key = context.folded, context.key
        constant = outer @ folded.offset
        known = outer if residual else torch.zeros_like(outer)  # the part of P that is the same for every sequence
        if folded.token_map is not None:
            known = known + outer @ folded.token_map
        if self.interaction != "product":
            transform = folded.transform if folded.of_key is None else folded.of_key
            of_key = transform @ (key.flatten(1) if self.full_width else key)[..., None]
            return known[None], F.linear(of_key.flatten(1), outer) + constant
        values, value_bias = folded.values.reshape(-1, folded.values.shape[-1]), folded.value_bias.flatten()
        if folded.bypass is not None:
            past = outer @ folded.bypass if self.full_width else outer
            known, constant = known + past @ values, constant + past @ value_bias
        if self.full_width:
            transform = outer @ folded.transform
        else:
            heads = outer.unflatten(1, (self.heads, self.head_size))
            transform = torch.einsum("ohk,hkj->ohj", heads, folded.transform).flatten(1)
        transform = transform * key.flatten(1)[:, None]
        batch = (len(transform), -1, -1)
        return torch.baddbmm(known.expand(batch), transform, values.expand(batch)), transform @ value_bias + constant

    def apply_map(self, x: Tensor, token_map: Tensor, offset: Tensor) -> Tensor:
        """The one product: x Mᵀ + c'."""
        if self.interaction != "product":  # one map for all sequences
            return F.linear(x, token_map[0]) + offset
        return torch.baddbmm(offset, x, token_map.mT)

    def folded(self, dtype: torch.dtype) -> Folded:
        """`Folded` of the present weights; without gradients it is kept until a weight changes or `eval()` is called.

        torch counts neither a change made through `weight.data`, so call `eval()` after one, nor a fused optimizer's:
        nothing is kept from before a pass with gradients, nor while there are any.
        """
        if torch.compiler.is_compiling():
            return self._fold(dtype)
        if torch.is_grad_enabled():
            self._kept = None
            return self._fold(dtype)
        weights = list(self.parameters())
        # Those of inference mode do not count their changes.
        if any(weight.is_inference() or weight.grad is not None for weight in weights):
            return self._fold(dtype)
        state = dtype, [(weight.data_ptr(), weight._version) for weight in weights]
        kept = self._kept
        if kept is None or kept[0] != state:
            self._kept = kept = state, self._fold(dtype)
        return kept[1]

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation; forgets what was folded."""
        self._kept = None
        return super().train(mode)

    def _fold(self, dtype: torch.dtype) -> Folded:
        scale = self.head_size**-0.5
        query_map, query_bias = self._per_head(self.query, dtype)
        values, value_bias = self._per_head(self.value or self.query, dtype)
        query_scores = self._scores_of_input(self._score(self.query_score, dtype) * scale, query_map)
        key_scores = None
        if self.interaction != "product":
            key_map, _ = self._per_head(self.key, dtype)
            key_scores = self._scores_of_input(self._score(self.key_score, dtype) * scale, key_map)

        transform, bias = self._per_head(self.transform, dtype)
        bypass = torch.eye(self.head_size, dtype=dtype, device=transform.device)
        if self.full_width:  # all heads as one, and the output projection folded in
            transform, query_map, values = (each.flatten(0, 1) for each in (transform, query_map, values))
            query_bias, value_bias, bias = query_bias.flatten(), value_bias.flatten(), bias.flatten()
            bypass, output_bias = _as_type(self.output, dtype)
            transform = bypass @ transform
            bias = F.linear(bias, bypass, output_bias)
        of_key = None
        if self.interaction == "concat":
            of_key, transform = transform.chunk(2, dim=-1)

        offset, token_map = bias.flatten(), None
        if self.interaction != "product" or self.value is not None:
            token_map = (bypass @ query_map).view(-1, values.shape[-1])
            offset = offset + (bypass @ query_bias[..., None]).flatten()
            bypass = None
        if self.interaction != "product":  # then the whole map is the same for every sequence
            token_map = token_map + (transform @ values).view_as(token_map)
            offset = offset + (transform @ value_bias[..., None]).flatten()
        return Folded(query_scores, key_scores, transform, of_key, values, value_bias, bypass, token_map, offset)

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


def _as_type(linear: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return linear.weight.to(dtype), linear.bias.to(dtype)
