"""A method of your own, in a dozen lines: it trains, saves and predicts like the seven that are there."""

import torch
from torch import Tensor, nn

from fastformer import TextClassifier, available_mixers
from fastformer.data.tables import read_rows
from fastformer.mixers import register


@register("gated-mean")
class GatedMean(nn.Module):
    """y_i = W (g(x_i) * m), where m is the mean of all real tokens and g a gate between 0 and 1."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix `x` (batch, length, width); padding, False in `mask` (batch, length), has no say."""
        real = mask.unsqueeze(-1).to(x.dtype)
        mean = (x * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True).clamp(min=1)
        return self.output(torch.sigmoid(self.gate(x)) * mean)


print("methods:", ", ".join(available_mixers()))
libraries = ("networkx", "sympy", "torch")
train = [row for row in read_rows("builtin:validation") if row.label in libraries]
test = [row for row in read_rows("builtin:test") if row.label in libraries]
for mixer in ("fastformer", "gated-mean"):
    model = TextClassifier(mixer=mixer, preset="encoder", epochs=6, random_state=0)
    model.fit([row.text for row in train], [row.label for row in train])
    right = model.score([row.text for row in test], [row.label for row in test])
    print(f"{mixer:<11} {right:.1%} of {len(test)} docstrings right, {model.model_.num_parameters():,} parameters")
