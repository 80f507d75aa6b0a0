"""Pooling: from token vectors to one text vector, padding left out.

Where each process has a slice of a text (`mixers/sequence_parallel.py`), all of them have the vector of the whole.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastformer.mixers.sequence_parallel import current_exchange
from fastformer.modeling.parts import Part, map_parts


class AdditivePooling(nn.Module):
    """Additive attention: y = Σ softmax_i(w·tanh(W x_i + b)) x_i (the paper's text vector).

    Computed with tanh(h) = 2σ(2h) - 1, which is several times as fast on a CPU; the 1 shifts all scores alike and drops
    out of the softmax.
    """

    def __init__(self, config):
        super().__init__()
        inner = getattr(config, "pooling_size", None) or config.hidden_size  # a foreign configuration has none
        self.dense = nn.Linear(config.hidden_size, inner)
        self.score = nn.Linear(inner, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        return weighted_sum(self.weights(x, mask), x)

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weight of each token (batch, length): 0 at padding; the others of a row sum to 1."""
        # mul, not mul_: a linear layer returns a view, and writing to a view makes autograd copy its gradient.
        scores = map_parts(lambda part: self.score(self.dense(x[part]).mul(2).sigmoid_()).mul(2), x).squeeze(-1)
        return _softmax(scores.to(_at_least_float32(x)), mask)

    def mapped_weights(self, x: Tensor, mask: Tensor, token_map: Tensor, offset: Tensor) -> Tensor:
        """`weights` of tokens M x + c that are not there, given 2WM (batch or 1, inner, width) and 2(Wc + b)."""

        def scores(part: Part) -> Tensor:
            rows, _ = part
            if len(token_map) == 1:
                hidden = F.linear(x[part], token_map[0]).add_(offset[rows, None])
            else:
                hidden = torch.baddbmm(offset[rows, None], x[part], token_map[rows].mT)
            return hidden.sigmoid_() @ (2 * self.score.weight[0])

        return _softmax(map_parts(scores, x), mask)


class MeanPooling(nn.Module):
    """The average of the real tokens."""

    def __init__(self, config):
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        return weighted_sum(self.weights(x, mask), x)

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weight of each token (batch, length): 0 at padding; the others of a row sum to 1."""
        real, exchange = mask.to(_at_least_float32(x)), current_exchange()
        count = real.sum(dim=1, keepdim=True)
        return real / (count if exchange is None else exchange.sum(count)).clamp(min=1)


class FirstPooling(nn.Module):
    """The first real token, on whichever side the padding is."""

    def __init__(self, config):
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool `x` (batch, length, width) to (batch, width); zeros for a row with no real token."""
        if current_exchange() is not None:
            return weighted_sum(self.weights(x, mask), x)
        first = mask.int().argmax(dim=1)[:, None, None].expand(-1, 1, x.shape[-1])
        return x.gather(1, first).squeeze(1) * mask.any(dim=1)[:, None]

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weight of each token (batch, length): 1 for the first real one of a row."""
        place, exchange = mask.cumsum(dim=1), current_exchange()
        if exchange is not None:
            place = place + exchange.before(mask.sum(dim=1))[:, None]
        return (mask & (place == 1)).to(_at_least_float32(x))


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _softmax(scores: Tensor, mask: Tensor) -> Tensor:
    scores, exchange = scores.masked_fill(~mask, torch.finfo(scores.dtype).min), current_exchange()
    return (scores.softmax(dim=-1) if exchange is None else exchange.softmax(scores, dim=-1)) * mask


def weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """Σ a_i x_i in float32 at least: (batch, width)."""
    with torch.autocast(x.device.type, enabled=False):
        summed, exchange = (weights[:, None] @ x.to(weights.dtype)).squeeze(1), current_exchange()
        return (summed if exchange is None else exchange.total(summed)).to(x.dtype)


POOLINGS: dict[str, type[nn.Module]] = {"additive": AdditivePooling, "mean": MeanPooling, "first": FirstPooling}
