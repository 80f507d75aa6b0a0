"""Packing: each row's real tokens moved to its front, so that left padding or holes in the mask change nothing.

Methods for which a position means something (windows and blocks) pack their input, work on rows that
hold `lengths[i]` real tokens and then padding, and put the result back:

    x, lengths, restore = pack(x, mask, tile)
    ...
    return restore(y)
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def take(x: Tensor, positions: Tensor) -> Tensor:
    """`x[b, positions[b]]` for every row `b`: (batch, length, *rest), (batch or 1, *any) -> (batch, *any, *rest).

    Positions outside the row are moved to its ends: mask what comes from there.
    """
    batch, length = x.shape[:2]
    row = torch.arange(batch, device=x.device).view(-1, *[1] * (positions.dim() - 1))
    index = positions.clamp(0, length - 1) + row * length
    # One index into all rows at once copies whole tokens; `gather` would read an index for every number.
    return x.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, index.shape)


def pack(x: Tensor, mask: Tensor, tile: int) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Move real tokens to the front, in order, and pad the length to whole tiles: O(N·d), nothing if nothing moves.

    Returns the packed `x`, the real `lengths` (batch,), and `restore`, which undoes it for a result of the same length.
    The length of a row with no real token is given as 1: one token of padding stands in, so that every row has
    something to attend to and stays finite.
    """
    length = x.shape[1]
    counts = mask.sum(1)
    # A traced graph must serve any mask, so it always packs.
    traced = torch.compiler.is_compiling()
    moved = traced or bool((mask[:, 1:] & ~mask[:, :-1]).any())
    if moved:
        place = torch.where(mask, mask.cumsum(1), counts[:, None] + (~mask).cumsum(1)) - 1  # where each token goes
        order = torch.empty_like(place).scatter_(1, place, torch.arange(length, device=x.device).expand_as(place))
        x = take(x, order)
    # It must serve any length too, and torch takes a single tile for a constant: one more makes two at least.
    tiles = (length + tile - 1 + tile * traced) // tile
    if traced or length % tile:
        x = F.pad(x, (0, 0, 0, tiles * tile - length))

    def restore(y: Tensor) -> Tensor:
        return take(y, place) if moved else y[:, :length]

    return x, counts.clamp(min=1), restore
