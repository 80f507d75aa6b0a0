"""`RowAdam` is AdamW on the rows that a step meets."""

import pytest
import torch
from torch import nn

from fastformer.engine.optimizer import DenseAndRowAdam, RowAdam

SETTINGS = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1}


def tables(rows=6, width=8):
    torch.manual_seed(0)
    dense = nn.Embedding(rows, width)
    lazy = nn.Embedding(rows, width, sparse=True)
    lazy.load_state_dict(dense.state_dict())
    return dense, lazy


def train(dense, lazy, batches):
    """Both optimizers on the same gradients; returns their states."""
    exact = torch.optim.AdamW(dense.parameters(), **SETTINGS)
    ours = RowAdam(lazy.parameters(), **SETTINGS)
    for number, ids in enumerate(batches):
        torch.manual_seed(number)
        direction = torch.randn(len(ids), dense.embedding_dim)
        for table, optimizer in ((dense, exact), (lazy, ours)):
            optimizer.zero_grad()
            (table(torch.tensor(ids)) * direction).sum().backward()
            optimizer.step()
    return exact.state[dense.weight], ours.state[lazy.weight]


def test_equals_adamw_where_every_row_is_met():
    dense, lazy = tables()
    train(dense, lazy, [[0, 1, 2, 3, 4, 5, 5, 0]] * 7)
    torch.testing.assert_close(lazy.weight, dense.weight)


def test_leaves_rows_alone_that_are_not_met():
    dense, lazy = tables()
    before = lazy.weight.detach().clone()
    train(dense, lazy, [[1, 2], [2]])
    assert torch.equal(lazy.weight[[0, 3, 4, 5]], before[[0, 3, 4, 5]])
    assert not torch.equal(lazy.weight[[1, 2]], before[[1, 2]])


def test_moments_catch_up_when_a_row_is_met_again():
    dense, lazy = tables()
    exact, ours = train(dense, lazy, [[0, 1], [1], [1], [1], [0, 1]])
    for moment in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(ours[moment][:2], exact[moment][:2])
    torch.testing.assert_close(lazy.weight[1], dense.weight[1])


def test_weights_decay_while_a_row_is_not_met():
    _, lazy = tables()
    settings = {"lr": 0.01, "betas": (0.0, 0.0), "weight_decay": 0.5}
    optimizer = RowAdam(lazy.parameters(), **settings)
    start = lazy.weight.detach().clone()
    for ids in ([0], [1], [1], [0]):
        optimizer.zero_grad()
        lazy(torch.tensor(ids)).sum().backward()
        optimizer.step()
    expected = start[0]
    for met in (True, False, False, True):  # no momentum: each meeting moves the row by lr, each step decays it
        expected = expected * (1 - 0.01 * 0.5) - 0.01 * met
    torch.testing.assert_close(lazy.weight[0].detach(), expected, atol=1e-6, rtol=1e-6)


def test_a_saved_state_continues_the_same():
    def run(stop):
        torch.manual_seed(0)
        model = nn.ModuleDict({"words": nn.Embedding(9, 4, sparse=True), "head": nn.Linear(4, 2)})
        optimizer = DenseAndRowAdam(model, **SETTINGS)
        for step in range(6):
            if step == stop:
                state = optimizer.state_dict()
                optimizer = DenseAndRowAdam(model, **SETTINGS)
                optimizer.load_state_dict(state)
            torch.manual_seed(step)
            model["head"](model["words"](torch.randint(0, 9, (5,)))).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model["words"].weight

    assert torch.equal(run(stop=3), run(stop=None))


def test_modules_may_learn_more_slowly_whether_lazy_or_not():
    moved = []
    for rate in (1.0, 0.1):
        model = nn.ModuleList([*tables(), nn.Linear(8, 1)])
        before = [parameter.detach().clone() for parameter in model.parameters()]
        dense, lazy, linear = model
        rates = [(dense, rate), (lazy, rate)]
        optimizer = DenseAndRowAdam(model, lr=0.01, betas=(0.9, 0.95), weight_decay=0.0, rates=rates)
        ids = torch.arange(6)
        linear(dense(ids) + lazy(ids)).sum().backward()
        optimizer.step()
        moved.append([(after - start).abs().max() for after, start in zip(model.parameters(), before, strict=True)])
    (dense, lazy, *rest), (slow_dense, slow_lazy, *same) = moved
    torch.testing.assert_close(torch.stack([slow_dense, slow_lazy]), 0.1 * torch.stack([dense, lazy]))
    assert rest == same


def test_a_pretrained_part_may_learn_more_slowly_tables_and_all():
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 8)), "head": nn.Linear(8, 1)})
    before = [parameter.detach().clone() for parameter in model.parameters()]
    options = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.0}
    optimizer = DenseAndRowAdam(model, **options, rates=[(model["encoder"][0], 1.0), (model["encoder"], 0.03)])
    model["head"](model["encoder"](torch.arange(6))).sum().backward()
    optimizer.step()
    moved = [(after - start).abs().max().item() for after, start in zip(model.parameters(), before, strict=True)]
    assert moved == pytest.approx([0.0003] * 3 + [0.01] * 2, rel=0.01)


def test_norms_and_biases_do_not_decay():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = DenseAndRowAdam(model, lr=0.1, betas=(0.9, 0.95), weight_decay=0.5, rates=[(model[0], 0.1)])
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)  # nothing to learn: only decay moves a weight
    optimizer.step()
    kept = {"0.weight": 1 - 0.01 * 0.5, "1.weight": 1 - 0.1 * 0.5, "1.bias": 1, "2.weight": 1, "2.bias": 1}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), kept[name] * before[name])
