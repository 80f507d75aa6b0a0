"""Adam for models with a large, rarely touched table.

Dense parameters take torch's AdamW. A table whose gradient is sparse (hashed word pairs, a large vocabulary: a batch
uses a few thousand of 200,000 rows) takes `RowAdam`, which moves only the rows that were used: dense Adam would spend
most of a step on the others.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


def clip_gradients(model: nn.Module, most: float) -> Tensor:
    """Scale the gradients of all but embeddings so that their norm is `most` or less; the norm that they had.

    The gradient of an embedding is a few rows of a batch: its norm says nothing about the rest, and if it is sparse
    there is no function that measures it.
    """
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    return nn.utils.clip_grad_norm_([one for one in model.parameters() if one not in tables], most)


class RowAdam(torch.optim.Optimizer):
    """AdamW on the rows of a table that a step touched: the time of a step does not depend on the table's size.

    What dense AdamW does to a row that is not met is done when it is met again: after n steps its moments are β₁ⁿ and
    β₂ⁿ of what they were, and its weights (1 - lr·decay)ⁿ, with the learning rate of that later step. The tail of its
    momentum is left out, and a row that is never met again stays as it is.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float):
        super().__init__(tables, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> None:
        """One update of the rows that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None and table.grad._nnz():
                    self._update(table, group)

    def _update(self, table: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros((), device=table.device)
            state["met"] = torch.zeros(len(table), device=table.device)  # the step at which each row was last met
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]

        gradient = table.grad
        rows, place = gradient._indices()[0].unique(return_inverse=True)
        values = gradient._values()
        total = values.new_zeros(len(rows), values.shape[1]).index_add_(0, place, values)
        missed = (state["step"] - state["met"][rows])[:, None]
        state["met"][rows] = state["step"] + 1

        weight = table.index_select(0, rows).mul_((1 - lr * decay) ** missed)
        mean = state["exp_avg"].index_select(0, rows).mul_(beta1**missed)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(beta2**missed)
        adamw(
            [weight],
            [total],
            [mean],
            [square],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=decay,
            eps=group["eps"],
            maximize=False,
        )
        for whole, part in ((table, weight), (state["exp_avg"], mean), (state["exp_avg_sq"], square)):
            whole.index_copy_(0, rows, part)


class DenseAndRowAdam(torch.optim.Optimizer):
    """AdamW and RowAdam in one optimizer, with one learning rate schedule and one checkpoint.

    `rates` names modules whose parameters learn at a share of the learning rate; of two that hold a parameter the last
    decides. Norms and biases do not decay: a bias says where zero is and a norm how large things are, and neither is
    any better for being small.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        rates: Sequence[tuple[nn.Module, float]] = (),
    ):
        sparse = {module.weight for module in model.modules() if isinstance(module, nn.Embedding) and module.sparse}
        share = {parameter: rate for module, rate in rates for parameter in module.parameters()}
        dense: dict[tuple[float, float], list[nn.Parameter]] = {}
        rows: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in model.parameters():  # in the model's order: a checkpoint numbers them
            group = share.get(parameter, 1.0), weight_decay if parameter.ndim > 1 else 0.0
            (rows if parameter in sparse else dense).setdefault(group, []).append(parameter)
        self.parts: list[torch.optim.Optimizer] = []
        for kind, groups, options in ((torch.optim.AdamW, dense, {"fused": True}), (RowAdam, rows, {})):
            if groups:
                parameters = [
                    {"params": group, "lr": lr * rate, "weight_decay": decay} for (rate, decay), group in groups.items()
                ]
                self.parts.append(kind(parameters, lr=lr, betas=betas, weight_decay=weight_decay, **options))
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
