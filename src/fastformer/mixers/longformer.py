"""Longformer: a sliding window and a few global tokens (Beltagy et al. 2020)."""

from typing import Any

from torch import Tensor

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.packing import pack
from fastformer.mixers.registry import register
from fastformer.mixers.tiles import attend, tile_for, tile_length, window


@register("longformer")
class LongformerMixer(HeadedMixer):
    """Softmax attention in which token i sees token j when, with w = `window_size` and g = `num_global_tokens`,

        |i - j| <= w // 2    or    i < g    or    j < g        (positions among the real tokens)

    Time O(N·(w + g)·d), memory O(N·d). Local and global attention use the same projections: Longformer's second set,
    for global tokens, is left out to keep the parameters of the rivals equal.
    """

    def __init__(self, config: Any):
        super().__init__(config)
        self.reach = config.window_size // 2
        self.num_global = config.num_global_tokens
        self.tile = tile_length(self.reach)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        tile = tile_for(x.shape[1], self.tile)
        x, lengths, restore = pack(x, mask, tile)
        q, k, v = self.project(x)
        keys, seen = window(x.shape[1], tile, self.reach, device=x.device)
        y = attend(q, k, v, lengths, keys[None], seen[None], self.num_global)
        return restore(self.output(y)).to(x.dtype)
