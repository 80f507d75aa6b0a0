"""Poolingformer: a sliding window, then a wider one over pooled keys and values (Zhang et al. 2021)."""

from typing import Any

import torch
from torch import Tensor, nn

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.packing import pack, take
from fastformer.mixers.registry import register
from fastformer.mixers.tiles import attend, tile_for, tile_length, window


@register("poolingformer")
class PoolingformerMixer(HeadedMixer):
    """Two levels of softmax attention, the second over what the first gave, with s = `pooling_stride`:

        y_i = Σ_j softmax_j(q_i·k_j / √d_h) v_j           |i - j| <= `window_size` // 2
        p_m = Σ_t softmax_t(U y_{ms} + c)_t y_{ms+t}      t = -κ//2 ... , κ = s + 1 tokens around ms, real ones only
        z_i = Σ_m softmax_m(q'_i·k'_m / √d_h) v'_m        |i - ms| <= `pooling_window_size` // 2
        out_i = W_o (y_i + z_i)

    where q' = W_q y + b_q, k' = W_k p + b_k, v' = W_v p + b_v. The weights of a pooling window are predicted from its
    middle token (dynamic convolution) and sum to 1, so pooling before the projection equals pooling keys and
    values after it, at 1/s of the cost. Both levels use the same W_q, W_k, W_v: 4·d² weights and κ·d for U, where the
    original has a second set.

    Time O(N·(w + w'/s)·d) for windows of w and w' tokens, memory O(N·d).
    """

    def __init__(self, config: Any):
        super().__init__(config)
        self.reach = config.window_size // 2
        self.pooled_reach = config.pooling_window_size // 2
        self.stride = config.pooling_stride
        self.tile = tile_length(self.reach)
        self.pool = nn.Linear(config.hidden_size, self.stride + 1)
        if self.pooled_reach < self.stride - 1:
            raise ValueError(
                f"pooling_window_size={config.pooling_window_size} leaves some tokens without a pooled key: with "
                f"pooling_stride={self.stride} it must be at least {2 * (self.stride - 1)}"
            )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        tile = tile_for(x.shape[1], self.tile)
        x, lengths, restore = pack(x, mask, tile)
        q, k, v = self.project(x)
        keys, seen = window(x.shape[1], tile, self.reach, device=x.device)
        y = attend(q, k, v, lengths, keys[None], seen[None])

        pooled = self._pool(y, lengths)  # batch, pooled, width
        q, k, v = self.split(self.query(y)), self.split(self.key(pooled)), self.split(self.value(pooled))
        keys, seen = self._pooled_window(x.shape[1], tile, x.device)
        z = attend(q, k, v, -(-lengths // self.stride), keys[None], seen[None])
        return restore(self.output(y + z)).to(x.dtype)

    def _pool(self, y: Tensor, lengths: Tensor) -> Tensor:
        """Weighted sum of `stride + 1` tokens around every `stride`-th one."""
        middle = torch.arange(0, y.shape[1], self.stride, device=y.device)
        tokens = middle[:, None] + torch.arange(self.stride + 1, device=y.device) - (self.stride + 1) // 2  # pooled, κ
        real = (tokens >= 0) & (tokens < lengths[:, None, None])
        weights = self.pool(y[:, :: self.stride]).to(torch.promote_types(y.dtype, torch.float32))
        weights = weights.masked_fill(~real, torch.finfo(weights.dtype).min).softmax(-1).to(y.dtype)
        return (weights[:, :, None] @ take(y, tokens[None])).squeeze(2)

    def _pooled_window(self, length: int, tile: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Pooled keys of each tile (tiles, keys), and which of them each query sees (tiles, tile, keys)."""
        start = torch.arange(length // tile, device=device)[:, None] * tile
        queries = start + torch.arange(tile, device=device)
        around = -(-self.pooled_reach // self.stride)
        keys = start // self.stride + torch.arange(-around, -(-tile // self.stride) + around + 1, device=device)
        return keys, (queries[:, :, None] - keys[:, None] * self.stride).abs() <= self.pooled_reach
