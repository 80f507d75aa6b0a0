"""BigBird: blocks that see their neighbours, a few global blocks and a few random ones (Zaheer et al. 2020)."""

from typing import Any

import torch
from torch import Tensor

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.packing import pack
from fastformer.mixers.registry import register
from fastformer.mixers.tiles import attend, tile_for, tile_length, window


@register("bigbird")
class BigBirdMixer(HeadedMixer):
    """Softmax attention in which a token of block a sees the tokens of block c when

        |a - c| <= w    or    a < g    or    c < g    or    c is one of the r random blocks of a

    in blocks of b = `block_size` real tokens: g and r are `num_global_tokens` and `num_random_tokens`, w is half of
    `window_size`, each rounded up. A key that is reached in two ways counts once.

    Time O(N·(w + g + r)·b·d), memory O(N·(w + g + r)·d).
    """

    def __init__(self, config: Any):
        super().__init__(config)
        self.block = config.block_size
        self.reach = -(-(config.window_size // 2) // self.block)
        self.global_blocks = -(-config.num_global_tokens // self.block)
        self.random_blocks = -(-config.num_random_tokens // self.block)
        self.seed = config.random_seed
        self.tile = tile_length(self.reach * self.block, self.block)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        tile = tile_for(x.shape[1], self.tile, self.block)
        x, lengths, restore = pack(x, mask, tile)
        q, k, v = self.project(x)
        keys, seen = (t[None] for t in window(x.shape[1], tile, self.reach, self.block, device=x.device))
        if self.random_blocks:
            keys, seen = self._add_random(keys, seen, lengths)
        y = attend(q, k, v, lengths, keys, seen, self.global_blocks * self.block)
        return restore(self.output(y)).to(x.dtype)

    def _add_random(self, keys: Tensor, seen: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Append to the keys of a tile the random blocks of each of its blocks, which only that block sees."""
        device, per_tile = keys.device, seen.shape[2] // self.block
        num_blocks = keys.shape[1] * per_tile
        chosen = random_blocks(
            lengths, num_blocks, self.block, self.reach, self.global_blocks, self.random_blocks, self.seed
        )
        tokens = chosen[..., None] * self.block + torch.arange(self.block, device=device)
        tokens = tokens.reshape(lengths.shape[0], keys.shape[1], -1)  # batch, tiles, random keys
        owner = torch.arange(per_tile, device=device).repeat_interleave(self.random_blocks * self.block)
        block = torch.arange(per_tile, device=device).repeat_interleave(self.block)
        own = (block[:, None] == owner).expand(*seen.shape[:2], -1, -1)  # 1, tiles, tile, random keys
        return torch.cat([keys.expand(lengths.shape[0], -1, -1), tokens], -1), torch.cat([seen, own], -1)


def random_blocks(
    lengths: Tensor, num_blocks: int, block: int, reach: int, num_global: int, num_random: int, seed: int
) -> Tensor:
    """Random blocks of each of the first `num_blocks` blocks of each row: (batch, num_blocks, num_random), -1 for none.

    They are drawn among the row's real blocks that are neither global nor within `reach`, one from each of `num_random`
    equal parts of those, so that none is drawn twice. A draw is a hash of seed, real length, block and part:
    the same on any machine and whatever else is in the batch.
    """
    device = lengths.device
    length = lengths[:, None, None]
    here = torch.arange(num_blocks, device=device)[:, None]
    part = torch.arange(num_random, device=device)

    real = -(-length // block)  # blocks with a real token
    low = (here - reach).clamp(min=num_global)  # the window, which is skipped: low <= block < high
    high = (here + reach + 1).minimum(real).maximum(low)
    free = (real - num_global - (high - low)).clamp(min=0)
    first, last = free * part // num_random, free * (part + 1) // num_random

    draw = _scramble(_scramble(_scramble(length + _scramble(seed)) + here) + part)
    chosen = num_global + first + ((last - first) * draw >> 32)
    chosen = torch.where(chosen < low, chosen, chosen + high - low)
    return torch.where(first < last, chosen, -1)


def _scramble(n: Any) -> Any:
    """Hash of an integer (or a tensor of them) to 32 bits. No product exceeds 63 bits, so all machines agree."""
    n = n & 0xFFFFFFFF
    n = (n ^ n >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    n = (n ^ n >> 12) * 0x297A2D39 & 0xFFFFFFFF
    return n ^ n >> 15
