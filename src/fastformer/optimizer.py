"""Adam for models with a large, rarely touched table.

Dense parameters take torch's AdamW. A table whose gradient is sparse (hashed word pairs: a batch meets a few thousand
of 200,000 rows) takes torch's SparseAdam, which moves only the rows that were met: dense Adam would spend most of a
step on the others, and keep moving rare rows by their old momentum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class DenseAndSparseAdam(torch.optim.Optimizer):
    """AdamW and SparseAdam under one roof, with one learning rate schedule and one checkpoint."""

    def __init__(self, model: nn.Module, lr: float, betas: tuple[float, float], weight_decay: float):
        sparse = {module.weight for module in model.modules() if isinstance(module, nn.Embedding) and module.sparse}
        dense = [parameter for parameter in model.parameters() if parameter not in sparse]
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(dense, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        ]
        if sparse:
            self.parts.append(torch.optim.SparseAdam(list(sparse), lr=lr, betas=betas))
        self.defaults: dict[str, Any] = {"lr": lr}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of both parts: a schedule sets their learning rates."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict:
        """State of both parts, by parameter."""
        return {parameter: state for part in self.parts for parameter, state in part.state.items()}

    def step(self, closure: Callable | None = None) -> None:
        """One update of all parameters."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """State of both parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
