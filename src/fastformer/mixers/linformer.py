"""Linformer: keys and values projected along the length to a few rows (Wang et al. 2020)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.registry import register


@register("linformer")
class LinformerMixer(HeadedMixer):
    """Softmax attention to k = `projection_size` learned mixtures of the tokens. Per head:

        Y = softmax(Q (E K)ᵀ / √d_h) (F V)        E, F: k rows, the first N of `max_position_embeddings` columns

    E and F are shared by the heads; the i-th real token meets column i, padding none. All k rows take part whatever
    the length: for a text shorter than k they are more mixtures than it has tokens, redundant but right, and the
    function does not change its form at N = k.

    Time O(N·k·d), memory O(N·d) beside the projections. E K = E (X W + 1 bᵀ) = (E X) W + (E 1) bᵀ, so keys and values
    are projected after the length is: k rows instead of N.
    """

    def __init__(self, config: Any):
        super().__init__(config)
        self.max_length = config.max_position_embeddings
        self.key_length = nn.Linear(self.max_length, config.projection_size, bias=False)
        self.value_length = nn.Linear(self.max_length, config.projection_size, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        self._check(x.shape[1] if torch.compiler.is_compiling() else int(mask.sum(1).max()))
        rank = (mask.cumsum(1) - 1).clamp(0, self.max_length - 1)  # the column of E and F that a token meets

        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):  # sums over the whole text: in float32 at least
            both = torch.cat([self.key_length.weight, self.value_length.weight]).to(dtype)
            both = both.index_select(1, rank.flatten()).unflatten(1, rank.shape).transpose(0, 1)  # batch, 2k, length
            both = both * mask[:, None]
            mixtures = (both @ x.to(dtype)).to(x.dtype)  # batch, 2k, width
            totals = both.sum(-1, keepdim=True).to(x.dtype)
        (for_keys, for_values), (key_total, value_total) = mixtures.chunk(2, 1), totals.chunk(2, 1)

        q = self.query(x)
        k = F.linear(for_keys, self.key.weight) + key_total * self.key.bias
        v = F.linear(for_values, self.value.weight) + value_total * self.value.bias
        q, k, v = (self.split(t.to(q.dtype)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)  # batch, heads, length, head width
        return self.output(self.merge(y)).to(x.dtype)

    def _check(self, length: int) -> None:
        if length > self.max_length:
            raise ValueError(
                f"a text of {length} tokens is longer than max_position_embeddings={self.max_length}, the longest that "
                "this Linformer's length projection was built for: truncate the text, or build the model with a larger "
                "max_position_embeddings"
            )
