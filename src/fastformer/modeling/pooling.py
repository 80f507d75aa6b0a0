"""Pooling: from token vectors to one text vector, padding left out."""

import torch
from torch import Tensor, nn


class AdditivePooling(nn.Module):
    """Additive attention: y = Σ softmax_i(w·tanh(W x_i + b)) x_i (the paper's text vector)."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        scores = self.score(torch.tanh(self.dense(x))).squeeze(-1).float()
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1) * mask
        return torch.einsum("bn,bnd->bd", weights, x.float()).to(x.dtype)


class MeanPooling(nn.Module):
    """The average of the real tokens."""

    def __init__(self, config):
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        count = mask.sum(dim=1, keepdim=True).clamp(min=1)
        return (torch.einsum("bn,bnd->bd", mask.float(), x.float()) / count).to(x.dtype)


class FirstPooling(nn.Module):
    """The first real token, on whichever side the padding is."""

    def __init__(self, config):
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        first = mask.int().argmax(dim=1)[:, None, None].expand(-1, 1, x.shape[-1])
        return x.gather(1, first).squeeze(1) * mask.any(dim=1)[:, None]


POOLINGS = {"additive": AdditivePooling, "mean": MeanPooling, "first": FirstPooling}
