"""Work on every token by itself, done a few thousand tokens at a time.

Embedding, norms, feed-forward and residuals never look at a neighbour. Without gradients to keep, a batch is taken
through them in parts that stay in the processor's cache, and a million tokens need no second tensor of their size.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Part = tuple[slice, slice]  # rows, tokens

PART_TOKENS = 2048
_WHOLE: Part = (slice(None), slice(None))


def map_parts(function: Callable[[Part], Tensor], batch: Tensor, out: Tensor | None = None) -> Tensor:
    """`function(part)` of all parts of a (batch, length, …) tensor, put together; where gradients flow, of the whole.

    With `out` the result is written there; it may be what `function` reads, part by part.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or batch.device.type != "cpu":
        return function(_WHOLE)
    rows, length = batch.shape[:2]
    if rows * length <= PART_TOKENS and out is None:
        return function(_WHOLE)
    rows_a_part = max(1, PART_TOKENS // max(1, length))
    for row in range(0, rows, rows_a_part):
        for token in range(0, length, PART_TOKENS):
            part = slice(row, row + rows_a_part), slice(token, token + PART_TOKENS)
            value = function(part)
            if out is None:
                out = value.new_empty(rows, length, *value.shape[2:])
            out[part] = value
    return function(_WHOLE) if out is None else out  # out is None: an empty batch
