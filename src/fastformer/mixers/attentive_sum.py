"""The attentive sum: all of additive attention that touches every token, for all heads in one reading of the input.

    a_i = softmax_i(x_i · s)        y = Σ a_i x_i

for every head's score vector s. Two thin products, O(N·d·h), and nothing of size N×d beside the input. The sums are
associative, so an input larger than the processor's cache is read in chunks, each used for both products while it is
near; their maxima, sums and weighted sums are merged at the end.

The backward pass is written by hand. With g the gradient of y and e_i that of the score of token i,

    e_i = a_i (g · x_i - g · y)     ds = Σ e_i x_i     dx_i += a_i g + e_i s

Autograd would make three tensors of the input's size here; this adds both terms of dx to the gradient that comes back
through the input itself, in one product. To that end the function also returns its input: use that one from then on,
and in matrix products only (their gradients are new tensors; another operation might hand on one that is not ours).
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# An input up to the first size is read whole, a larger one in chunks of the second.
_WHOLE_BYTES = 32 << 20
_CHUNK_BYTES = 4 << 20


def attentive_sum(
    x: Tensor, mask: Tensor | None, scores: Tensor, *, keep_weights: bool = False, from_end: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sums (batch, heads, width), the input again, and the weights (batch, length, heads) if they are to be kept.

    Args:
        x: tokens (batch, length, width).
        mask: True at real tokens (batch, length); None: all are. A row with none gets the average of its padding.
        scores: the vectors s, (heads, width), or (batch, heads, width) where they depend on the sequence.
        keep_weights: also return the weights, as a tensor that gradients flow through.
        from_end: read a long input from its end, where the cache still has what was read last.
    """
    if keep_weights or torch.compiler.is_compiling():
        weights = _scores(x, mask, scores).softmax(dim=1)
        return weights.mT @ x, x, weights
    if torch.is_grad_enabled() and (x.requires_grad or scores.requires_grad):
        summed, same = _AttentiveSum.apply(x, mask, scores)
        return summed, same if x.requires_grad else x, None
    return _sum(x, mask, scores, from_end=from_end)[0], x, None


class _AttentiveSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, scores):
        summed, weights = _sum(x, mask, scores, keep_weights=True)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weights, scores, summed)
        return summed, x

    @staticmethod
    @once_differentiable
    def backward(ctx, d_sum, d_x):
        if d_sum is None:
            return d_x, None, None
        x, weights, scores, summed = ctx.saved_tensors
        of_sum = (d_sum * summed).sum(dim=-1)[:, None]
        # What came back through the input is ours alone (only a product has used it), so it may be added to in place.
        if ctx.needs_input_grad[0]:
            d_x = torch.zeros_like(x) if d_x is None else d_x.contiguous()
        d_scores = torch.zeros_like(summed)
        vectors = torch.cat([d_sum, scores.expand_as(d_sum)], dim=1)  # batch, 2·heads, width
        for part in _parts(x):
            some, weight = x[:, part], weights[:, part]
            change = (some @ d_sum.mT).sub_(of_sum).mul_(weight)
            d_scores.baddbmm_(change.mT, some)
            if ctx.needs_input_grad[0]:
                d_x[:, part].baddbmm_(torch.cat([weight, change], dim=-1), vectors)
        return d_x, None, d_scores if scores.ndim == 3 else d_scores.sum(dim=0)


def _scores(x: Tensor, mask: Tensor | None, scores: Tensor) -> Tensor:
    found = x @ scores.mT  # batch, length, heads: this way round both products run along the rows of x
    return found if mask is None else found.masked_fill(~mask[..., None], torch.finfo(x.dtype).min)


def _sum(
    x: Tensor, mask: Tensor | None, scores: Tensor, keep_weights: bool = False, from_end: bool = False
) -> tuple[Tensor, Tensor | None]:
    parts = _parts(x)
    if from_end:
        parts.reverse()
    if len(parts) == 1:
        weights = _scores(x, mask, scores).softmax(dim=1)
        return weights.mT @ x, weights
    tops, totals, sums, kept = [], [], [], []
    for part in parts:
        some = x[:, part]
        weights = _scores(some, None if mask is None else mask[:, part], scores)
        top = weights.amax(dim=1, keepdim=True)
        weights = weights.sub_(top).exp_()
        tops.append(top)
        totals.append(weights.sum(dim=1, keepdim=True))
        sums.append(weights.mT @ some)
        if keep_weights:
            kept.append(weights)
    tops = torch.stack(tops)
    shares = (tops - tops.amax(dim=0)).exp_()  # chunks, batch, 1, heads
    shares /= (shares * torch.stack(totals)).sum(dim=0)
    for weights, share in zip(kept, shares, strict=False):
        weights *= share
    return (shares.mT * torch.stack(sums)).sum(dim=0), torch.cat(kept, dim=1) if kept else None


def _parts(x: Tensor) -> list[slice]:
    """Ranges of tokens that are worked on together."""
    batch, length, width = x.shape
    token = batch * width * x.element_size()
    if x.device.type != "cpu" or length * token <= _WHOLE_BYTES:
        return [slice(None)]
    step = max(64, _CHUNK_BYTES // token)
    return [slice(start, start + step) for start in range(0, length, step)]
