"""A block that reads each token with its neighbours: word order at any length."""

import pytest
import torch

from fastformer import FastformerConfig, FastformerModel
from fastformer.modeling import parts


@pytest.fixture
def model():
    config = FastformerConfig(
        vocab_size=30,
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=16,
        neighbor_size=8,
        norm="pre",
        pooling="mean",
        position_embedding_type="none",
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    return FastformerModel(config).eval()


def test_it_is_the_formula(model):
    block, x = model.neighbors, torch.randn(1, 4, 16)
    n = block.norm(x)[0]
    zero = torch.zeros(16)
    for place in range(4):
        three = [n[place - 1] if place else zero, n[place], n[place + 1] if place < 3 else zero]
        expected = x[0, place] + block.output(torch.nn.functional.gelu(block.inner(torch.cat(three))))
        assert torch.allclose(block(x, torch.ones(1, 4, dtype=torch.bool))[0, place], expected, atol=1e-6)


@torch.inference_mode()
def test_order_matters_and_padding_does_not(model):
    one = model(torch.tensor([[3, 4, 5]])).pooler_output
    other = model(torch.tensor([[5, 4, 3]])).pooler_output
    assert not torch.allclose(one, other, atol=1e-3)
    right = model(torch.tensor([[3, 4, 5, 9, 9]]), torch.tensor([[1, 1, 1, 0, 0]])).pooler_output
    left = model(torch.tensor([[9, 9, 3, 4, 5]]), torch.tensor([[0, 0, 1, 1, 1]])).pooler_output
    assert torch.allclose(one, right, atol=1e-5)
    assert torch.allclose(one, left, atol=1e-5)


@torch.inference_mode()
def test_in_parts_it_is_the_same(model, monkeypatch):
    ids = torch.randint(1, 30, (2, 50))
    whole = model(ids).pooler_output
    monkeypatch.setattr(parts, "PART_TOKENS", 7)
    assert torch.allclose(model(ids).pooler_output, whole, atol=1e-5)
