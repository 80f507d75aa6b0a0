"""Dropout whose mask is cheap to draw on a CPU.

torch draws one random number per element, one after the other, which takes longer than the matrix product beside it.
Here eight elements share one 64-bit random number, a byte each: eight times less to draw. The rate is rounded to a
256th (a small rate that this would change by a twentieth is left to torch), and the scale follows the rounded rate, so
that the mean stays exact.

A mask of bytes is made a mask of floats before it is multiplied: a product of two types takes torch four times as long.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Dropout(nn.Dropout):
    """`nn.Dropout`, with masks drawn a byte per element on CPUs."""

    def forward(self, input: Tensor, onto: Tensor | None = None) -> Tensor:
        """Zero a random share of the elements in training and scale up the others; then add `onto`, if given."""
        dropped = round(256 * self.p)
        close = 0 < dropped < 256 and abs(dropped / 256 - self.p) < 0.05 * self.p
        cheap = self.training and close and input.device.type == "cpu"
        if not cheap or torch.compiler.is_compiling():
            changed = super().forward(input)
            return changed if onto is None else onto + changed
        return _ByteDropout.apply(input, onto, dropped)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, onto, dropped):
        size = x.numel()
        numbers = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        bytes_ = numbers.view(torch.uint8)
        kept = torch.ge(bytes_, dropped, out=bytes_)[:size].view(x.shape)  # 0 or 1, in place
        ctx.save_for_backward(kept)
        ctx.scale = 256 / (256 - dropped)
        mask = kept.to(x.dtype)
        return mask.mul_(x).mul_(ctx.scale) if onto is None else torch.addcmul(onto, x, mask, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y):
        (kept,) = ctx.saved_tensors
        d_x = kept.to(d_y.dtype).mul_(d_y).mul_(ctx.scale)
        return d_x, d_y if ctx.needs_input_grad[1] else None, None
