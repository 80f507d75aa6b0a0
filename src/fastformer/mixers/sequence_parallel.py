"""One text over several processes: each holds some of its tokens, and only sums are exchanged.

Additive attention reads a text by softmax-weighted sums alone, and these are associative. With m the largest score of
all tokens, process r gives

    S_r = Σ exp(s_i - m)        Y_r = Σ exp(s_i - m) x_i        over its own tokens

and Σ_r Y_r / Σ_r S_r is the sum over the whole text: h·d numbers, whatever the length. The gradient of such a sum is
the sum of what each process has of it, once more h·d numbers.

    with sequence_parallel(group) as exchange:
        loss = model(input_ids=my_slice, labels=labels).loss
    loss.backward()

The slices, side by side in the order of their ranks, are the batch that one process would have. What is pooled from
the text, and so the loss, is the same in every process. Gradients are those of data parallel training: averaged over
the group, as DistributedDataParallel does, they are those of the mean of all losses, which is what one process has.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


class Exchange:
    """What the processes of a group tell each other. `bytes` is what this one has handed over, in `calls` calls."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the group that the text is shared out to")
        self.bytes = self.calls = 0

    def largest(self, values: Tensor) -> Tensor:
        """The largest of all processes, number by number; no gradient flows."""
        return self._reduce(values.detach(), dist.ReduceOp.MAX)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes; its gradient is summed over them too."""
        return _Total.apply(values, self) if values.requires_grad else self.sum(values)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, through which no gradient flows."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def each(self, values: Tensor) -> Tensor:
        """What every process has, in their order: (processes, …)."""
        own = torch.arange(self.size, device=values.device) == self.rank
        return self.total(own.view(-1, *(1,) * values.ndim).to(values.dtype) * values)

    def before(self, counts: Tensor) -> Tensor:
        """The sum over the processes before this one."""
        return self.each(counts)[: self.rank].sum(dim=0)

    def softmax(self, scores: Tensor, dim: int) -> Tensor:
        """Softmax along a dimension of which each process has a slice."""
        top = self.largest(scores.amax(dim=dim, keepdim=True))
        powers = (scores - top).exp()
        return powers / self.total(powers.sum(dim=dim, keepdim=True))

    def _reduce(self, values: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        values = values.contiguous().clone()
        self.bytes += values.numel() * values.element_size()
        self.calls += 1
        dist.all_reduce(values, how, group=self.group)
        return values


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, exchange):
        ctx.exchange = exchange
        return exchange.sum(values)

    @staticmethod
    def backward(ctx, gradient):
        return _Total.apply(gradient, ctx.exchange), None


_exchange: Exchange | None = None  # a plain global: torch.compile sees when it changes


@contextmanager
def sequence_parallel(group: dist.ProcessGroup | None = None) -> Iterator[Exchange]:
    """Within it a model reads slices: each process of `group` (default: all) has its own part of the same texts.

    `FastformerModel` and its heads for texts and tokens take part, with `mixer="fastformer"`. Every process must have
    equally many rows and at least one place in them, which may be padding. It holds for all threads of the process.
    """
    if not dist.is_initialized():
        raise RuntimeError("call torch.distributed.init_process_group first; torchrun starts the processes")
    global _exchange
    before, _exchange = _exchange, Exchange(group)
    try:
        yield _exchange
    finally:
        _exchange = before


def current_exchange() -> Exchange | None:
    """Through what slices of texts are put together; None: texts are whole."""
    return _exchange


def needs_whole_texts(what: str) -> None:
    """Refuse to work on slices."""
    if current_exchange() is not None:
        raise ValueError(f"sequence_parallel: {what} needs whole texts; use it outside")
