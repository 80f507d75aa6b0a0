"""Dropout whose mask is cheap to draw on a CPU.

torch draws one random number an element, one after the other, which takes longer than the matrix product beside it.
Here eight elements share one 64-bit random number, a byte each: eight times less to draw. The rate is rounded to a
256th (a small rate that this would change by a twentieth is left to torch), and the scale follows the rounded rate, so
that the mean stays exact.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Dropout(nn.Dropout):
    """`nn.Dropout`, with masks drawn a byte an element on CPUs."""

    def forward(self, input: Tensor) -> Tensor:
        """Zero a random share of the elements in training and scale up the others."""
        dropped = round(256 * self.p)
        close = 0 < dropped < 256 and abs(dropped / 256 - self.p) < 0.05 * self.p
        cheap = self.training and close and input.device.type == "cpu"
        if not cheap or torch.compiler.is_compiling():
            return super().forward(input)
        return _ByteDropout.apply(input, dropped)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dropped):
        size = x.numel()
        numbers = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        bytes_ = numbers.view(torch.uint8)
        kept = torch.ge(bytes_, dropped, out=bytes_)[:size].view(x.shape)  # 0 or 1, in place
        ctx.save_for_backward(kept)
        ctx.scale = 256 / (256 - dropped)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y):
        (kept,) = ctx.saved_tensors
        return (d_y * kept).mul_(ctx.scale), None
