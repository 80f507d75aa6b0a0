"""Fastformer with another interaction than the product: the paper's ablations. They fold further.

    add      p_i = q + k_i       k = Σ b_i p_i                 u_i = k + v_i
    concat   p_i = [q; k_i]      k = W_m [q; Σ b_i k_i] + b_m  u_i = [k; v_i]

In both, q shifts all key scores alike and drops out of their softmax, so b_i does not depend on it. And k only adds to
the output, W_r (k + v_i), or W_r [k; v_i] = W_rk k + W_rv v_i, so that one token map serves all sequences:

    out_i = (W_rv W_v + W_q) x_i + (W_rk k + W_rv b_v + c + b_q)
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fastformer.mixers.fastformer import FastformerMixer, GlobalContext, _as_type
from fastformer.mixers.registry import register


class FastformerAblation(FastformerMixer):
    """`interaction="add"` or `"concat"`."""

    def folds(self, x: Tensor) -> bool:
        """Always: the map is there already."""
        return True

    def _key_scores(self, query: Tensor, key_map: Tensor) -> Tensor:
        return self._scores_of_input(self._score(self.key_score, query.dtype), key_map)

    def _global_key(self, query: Tensor, pooled_key: Tensor) -> Tensor:
        if self.interaction == "add":
            return query + pooled_key
        if self.full_width:
            pair = torch.cat([query.flatten(1), pooled_key.flatten(1)], dim=-1)
            return F.linear(pair, *_as_type(self.key_merge, pair.dtype)).view_as(query)
        merge, bias = self._per_head(self.key_merge, query.dtype)
        return torch.einsum("bhp,hkp->bhk", torch.cat([query, pooled_key], dim=-1), merge) + bias

    def token_map(self, context: GlobalContext, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """M (batch, width, width), the same for all sequences, and c' (batch, 1, width) of out = x Mᵀ + c'."""
        with torch.autocast(context.key.device.type, enabled=False):
            token_map, offset = self._one_map(context)
        return token_map.to(dtype).expand(len(offset), -1, -1), offset[:, None].to(dtype)

    def mapped(self, context: GlobalContext, outer: Tensor, residual: bool) -> tuple[Tensor, Tensor]:
        """`outer` (any, width) after the mixer, or after x + mixer(x): P (1, any, width) and o (batch, any)."""
        token_map, offset = self._one_map(context)
        known = outer @ token_map
        return (known + outer if residual else known)[None], F.linear(offset, outer)

    def apply_map(self, x: Tensor, token_map: Tensor, offset: Tensor) -> Tensor:
        """The one product, with one map for all sequences."""
        return F.linear(x, token_map[0]) + offset

    def _one_map(self, context: GlobalContext) -> tuple[Tensor, Tensor]:
        """Map (width, width) and offsets (batch, width)."""
        maps = self._maps(context.key.dtype)
        of_key = of_value = maps.transform
        if self.interaction == "concat":
            of_key, of_value = maps.transform.chunk(2, dim=-1)
        key = context.key.flatten(1) if self.full_width else context.key
        past, past_offset = self._past(maps)
        token_map = past + (of_value @ maps.values).view_as(past)
        constant = maps.offset + past_offset + (of_value @ maps.value_bias[..., None]).flatten()
        return token_map, (of_key @ key[..., None]).flatten(1) + constant


@register("fastformer")
def fastformer(config) -> FastformerMixer:
    """The mixer that a configuration's `interaction` asks for."""
    return (FastformerMixer if config.interaction == "product" else FastformerAblation)(config)
