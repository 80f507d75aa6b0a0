"""A batch in parts: rows of similar length together, and single tokens a few thousand at a time.

A row's answer does not depend on the other rows. So a ragged batch is cut into groups of rows of similar length, each
as wide as its longest row, and most of the padding is never computed.

Embedding, norms, feed-forward and residuals never look at a neighbour. Without gradients to keep, a batch is taken
through them in parts that stay in the processor's cache, and a million tokens need no second tensor of their size.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Part = tuple[slice, slice]  # rows, tokens
Group = tuple[Tensor, int]  # rows, and how wide they are

PART_TOKENS = 2048
_WHOLE: Part = (slice(None), slice(None))


def map_parts(
    function: Callable[[Part], Tensor], batch: Tensor, out: Tensor | None = None, part_tokens: int | None = None
) -> Tensor:
    """`function(part)` of all parts of a (batch, length, …) tensor, put together; if gradients flow, of the whole.

    A part has `part_tokens` tokens, or PART_TOKENS. With `out` the result is written there; it may be what `function`
    reads, part by part.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or batch.device.type != "cpu":
        return function(_WHOLE)
    rows, length = batch.shape[:2]
    part_tokens = part_tokens or PART_TOKENS
    if rows * length <= part_tokens and out is None:
        return function(_WHOLE)
    rows_a_part = max(1, part_tokens // max(1, length))
    for row in range(0, rows, rows_a_part):
        for token in range(0, length, part_tokens):
            part = slice(row, row + rows_a_part), slice(token, token + part_tokens)
            value = function(part)
            if out is None:
                out = value.new_empty(rows, length, *value.shape[2:])
            out[part] = value
    return function(_WHOLE) if out is None else out  # out is None: an empty batch


def similar_rows(mask: Tensor) -> list[Group]:
    """Groups of rows whose last real tokens are near each other; one group if that saves less than a fifth."""
    rows, length = mask.shape
    whole = [(torch.arange(rows, device=mask.device), length)]
    if rows < 2 or length == 0:
        return whole
    widths = (mask * torch.arange(1, length + 1, device=mask.device)).amax(dim=1).clamp(min=1)
    if widths.sum() > 0.8 * rows * length:
        return whole
    order = widths.argsort(descending=True, stable=True)
    groups, start = [], 0
    falling = widths[order].tolist()
    for place in range(1, rows + 1):
        # A new group costs some small operations: it must be well narrower, and the one before it worth a call.
        worth = (place - start) * falling[start] >= PART_TOKENS
        if place == rows or (worth and falling[place] <= 0.75 * falling[start]):
            groups.append((order[start:place], falling[start]))
            start = place
    return groups
