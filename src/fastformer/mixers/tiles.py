"""Sparse attention in tiles: how Longformer, BigBird and Poolingformer stay linear in length.

A tile is a run of queries that shares one short list of keys, the union of what its queries may see; a mask
hides from each query what only its neighbours see. With tiles of T queries and lists of S keys

    time O(N·S·d), memory O(N/T·S·d)        and never an N by N tensor.

Larger tiles hide more of what they compute, smaller ones copy each key more often.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fastformer.mixers.packing import take


def tile_length(reach: int, block: int = 1) -> int:
    """A good tile for windows that reach `reach` tokens to each side, in whole blocks.

    Measured on CPUs with windows of 8 to 512: the fastest, or within a tenth of it.
    """
    return -(-max(32, reach // 2) // block) * block


def tile_for(length: int, tile: int, block: int = 1) -> int:
    """`tile`, or what there is of a text that is shorter, in whole blocks: a title of ten words is not made 32 long.

    A traced graph must serve any length, so its tile is fixed.
    """
    return tile if torch.compiler.is_compiling() else min(tile, -(-max(length, 1) // block) * block)


def window(length: int, tile: int, reach: int, block: int = 1, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Keys of each tile (tiles, keys), and which of them each query sees (tiles, tile, keys).

    Query i sees key j when their blocks are at most `reach` apart; blocks of one token make a sliding window.
    """
    alone = not torch.compiler.is_compiling() and length == tile  # nothing stands beside the only tile
    around = 0 if alone else reach * block
    start = torch.arange(length // tile, device=device)[:, None] * tile
    queries = start + torch.arange(tile, device=device)
    keys = start + torch.arange(-around, tile + around, device=device)
    distance = queries[:, :, None] // block - keys[:, None] // block
    return keys, distance.abs() <= reach


def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, keys: Tensor, seen: Tensor, num_global: int = 0) -> Tensor:
    """Softmax attention of every query to the keys it sees, and of the first `num_global` tokens to and from all.

    q          (batch, tiles * tile, heads, head width)
    k, v       (batch, any length, heads, head width), of which `lengths` (batch,) are real
    keys       (batch or 1, tiles, keys) positions in k; those outside 0 <= position < length are hidden
    seen       (batch or 1, tiles, tile, keys) bool
    returns    (batch, tiles * tile, width)
    """
    batch, (tiles, tile, _) = q.shape[0], seen.shape[1:]
    if num_global:
        everyone = torch.arange(num_global, device=q.device).expand(*keys.shape[:2], -1)
        seen = seen & (keys >= num_global)[:, :, None]  # a global key counts once
        seen = torch.cat([seen.new_ones(*seen.shape[:3], num_global), seen], -1)
        keys = torch.cat([everyone, keys], -1)
    seen = seen & ((keys >= 0) & (keys < lengths[:, None, None]))[:, :, None]
    seen = seen | ~seen.any(-1, keepdim=True)  # padding may see no key at all: any will do, but nan will not

    # batch * tiles, heads, tile or keys, head width
    q_tiles = q.reshape(batch * tiles, tile, *q.shape[2:]).transpose(1, 2)
    k_tiles, v_tiles = (take(x, keys).flatten(0, 1).transpose(1, 2) for x in (k, v))
    y = F.scaled_dot_product_attention(q_tiles, k_tiles, v_tiles, attn_mask=seen.flatten(0, 1)[:, None])
    y = y.transpose(1, 2).flatten(2).reshape(batch, tiles * tile, -1)
    if num_global:
        real = torch.arange(k.shape[1], device=k.device) < lengths[:, None]
        first = F.scaled_dot_product_attention(
            q[:, :num_global].transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=real[:, None, None]
        )
        y = torch.cat([first.transpose(1, 2).flatten(2), y[:, num_global:]], 1)
    return y
