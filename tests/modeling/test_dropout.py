"""Dropout with a byte an element: right rate, right mean, the same mask backward, and repeatable."""

import pytest
import torch

from fastformer.modeling.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
def test_rate_and_mean(rate):
    torch.manual_seed(0)
    out = Dropout(rate)(torch.ones(1003, 1001))
    dropped = round(256 * rate) / 256
    assert (out == 0).float().mean().item() == pytest.approx(dropped, abs=0.002)
    assert out.mean().item() == pytest.approx(1, abs=0.01)
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - dropped)])


def test_elements_are_independent():
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(400, 800)) > 0).float()
    for other in (kept.roll(1, dims=1), kept.roll(8, dims=1), kept.roll(1, dims=0)):
        assert torch.corrcoef(torch.stack([kept.flatten(), other.flatten()]))[0, 1].abs() < 0.01


def test_gradient_has_the_mask_of_the_forward_pass():
    x = torch.randn(7, 13, requires_grad=True)
    out = Dropout(0.4)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_same_seed_same_mask():
    def run():
        torch.manual_seed(5)
        return Dropout(0.3)(torch.ones(50, 50))

    assert torch.equal(run(), run())


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_what_it_is_added_onto_stays_whole():
    torch.manual_seed(5)
    x, onto = torch.randn(9, 20, requires_grad=True), torch.randn(9, 20, requires_grad=True)
    dropout = Dropout(0.3)
    torch.manual_seed(7)
    expected = onto + dropout(x)
    torch.manual_seed(7)
    found = dropout(x, onto=onto)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(9, 20)
    for ours, theirs in zip(*(torch.autograd.grad(y, (x, onto), upstream) for y in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(dropout.eval()(x, onto=onto), onto + x)
