"""What all rivals of Fastformer share: query, key, value and output projections, and heads."""

from typing import Any

from torch import Tensor, nn


class HeadedMixer(nn.Module):
    """A mixer with the four projections of multi-head attention: 4·d² weights and their biases."""

    def __init__(self, config: Any):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """Split the width into heads: (batch, length, width) -> (batch, length, heads, head width)."""
        return x.unflatten(-1, (self.heads, -1))

    def merge(self, y: Tensor) -> Tensor:
        """Put heads side by side again: (batch, heads, length, head width) -> (batch, length, width)."""
        return y.transpose(1, 2).flatten(2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `x`, each (batch, length, heads, head width)."""
        return self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
