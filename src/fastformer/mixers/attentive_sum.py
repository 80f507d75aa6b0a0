"""The attentive sum: all of additive attention that touches every token, for all heads in one reading of the input.

    a_i = softmax_i(x_i · s)        y = Σ a_i x_i

for every head's score vector s. Two thin products, O(N·d·h), and nothing of size N×d beside the input.

The backward pass is written by hand. With g the gradient of y and e_i that of the score of token i,

    e_i = a_i (g · x_i - g · y)     ds = Σ e_i x_i     dx_i += a_i g + e_i s

Autograd would make three tensors of the input's size here; this adds both terms of dx to the gradient that comes back
through the input itself, in one product. To that end the function also returns its input: use that one from then on,
and in matrix products only (their gradients are new tensors; another operation might hand on one that is not ours).

Where each process has a slice of the text, y and g are sums over all of them (`sequence_parallel.py`).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fastformer.mixers.sequence_parallel import Exchange, current_exchange

PART_TOKENS = 2048  # of a text that is changed part by part

Change = Callable[[Tensor], Tensor]  # of each token by itself


def attentive_sum(
    x: Tensor, mask: Tensor | None, scores: Tensor, *, keep_weights: bool = False, change: Change | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sums (batch, heads, width), the input again, and the weights (batch, length, heads) if they are to be kept.

    Args:
        x: tokens (batch, length, width).
        mask: True at real tokens (batch, length); None: all are. A row with none gets the average of its padding.
        scores: the vectors s, (heads, width), or (batch, heads, width) where they depend on the sequence.
        keep_weights: also return the weights, as a tensor that gradients flow through.
        change: without gradients, the sums of `change(x)`, which takes no memory of the size of x.
    """
    if change is not None:
        return _of_parts(x, mask, scores, change), x, None
    needs_gradient = torch.is_grad_enabled() and (x.requires_grad or scores.requires_grad)
    if needs_gradient and not keep_weights and not torch.compiler.is_compiling():
        summed, same = _AttentiveSum.apply(x, mask, scores)
        return summed, same if x.requires_grad else x, None
    exchange = current_exchange()
    if exchange is not None:
        if not keep_weights:
            return _of_slices(x, mask, scores, exchange)[1], x, None
        weights = exchange.softmax(_scores(x, mask, scores), dim=1)
        return exchange.total(weights.mT @ x), x, weights
    if keep_weights or torch.compiler.is_compiling():
        weights = _scores(x, mask, scores).softmax(dim=1)
        return weights.mT @ x, x, weights if keep_weights else None
    found = (x @ scores.mT).mT.contiguous()  # a softmax along rows takes a third of the time, this copy included
    if mask is not None:
        found.masked_fill_(~mask[:, None], torch.finfo(x.dtype).min)
    return found.softmax(dim=-1) @ x, x, None


def _of_parts(x: Tensor, mask: Tensor | None, scores: Tensor, change: Change) -> Tensor:
    """The sums of `change(x)`, which is made in parts, twice, and never held as a whole."""
    parts = x.split(PART_TOKENS, dim=1)
    found = torch.cat([change(part) @ scores.mT for part in parts], dim=1).mT.contiguous()
    if mask is not None:
        found.masked_fill_(~mask[:, None], torch.finfo(x.dtype).min)
    weights = found.softmax(dim=-1).split(PART_TOKENS, dim=-1)
    summed = weights[0] @ change(parts[0])
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        summed += weight @ change(part)
    return summed


class _AttentiveSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, scores):
        ctx.exchange = current_exchange()
        if ctx.exchange is None:
            weights = _scores(x, mask, scores).softmax(dim=1)
            summed = weights.mT @ x
        else:
            weights, summed = _of_slices(x, mask, scores, ctx.exchange)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weights, scores, summed)
        return summed, x

    @staticmethod
    @once_differentiable
    def backward(ctx, d_sum, d_x):
        if d_sum is None:
            return d_x, None, None
        x, weights, scores, summed = ctx.saved_tensors
        if ctx.exchange is not None:
            d_sum = ctx.exchange.sum(d_sum)
        change = (x @ d_sum.mT).sub_((d_sum * summed).sum(dim=-1)[:, None]).mul_(weights)
        if ctx.needs_input_grad[0]:
            # What came back through the input is ours alone (only a product has used it): it may be added to in place.
            d_x = torch.zeros_like(x) if d_x is None else d_x.contiguous()
            vectors = torch.cat([d_sum, scores.expand_as(d_sum)], dim=1)  # batch, 2·heads, width
            d_x.baddbmm_(torch.cat([weights, change], dim=-1), vectors)
        d_scores = change.mT @ x
        return d_x, None, d_scores if scores.ndim == 3 else d_scores.sum(dim=0)


def _of_slices(x: Tensor, mask: Tensor | None, scores: Tensor, exchange: Exchange) -> tuple[Tensor, Tensor]:
    """Weights of the tokens of this slice, and the sums over all slices, in one exchange after that of the maxima."""
    powers = _scores(x, mask, scores)
    powers = (powers - exchange.largest(powers.amax(dim=1, keepdim=True))).exp_()
    sums = exchange.sum(torch.cat([powers.mT @ x, powers.sum(dim=1)[..., None]], dim=-1))
    return powers.div_(sums[..., -1][:, None]), sums[..., :-1] / sums[..., -1:]


def _scores(x: Tensor, mask: Tensor | None, scores: Tensor) -> Tensor:
    found = x @ scores.mT  # batch, length, heads: this way round both products run along the rows of x
    return found if mask is None else found.masked_fill(~mask[..., None], torch.finfo(x.dtype).min)
