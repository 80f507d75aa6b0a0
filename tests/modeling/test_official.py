"""Checkpoints of the authors' released code load and compute what that code computes."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fastformer import FastformerForSequenceClassification, FastformerModel, load_official

CONFIG = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.2,
    "hidden_act": "gelu",
}


def random_checkpoint():
    torch.manual_seed(0)
    width, heads, inner = 12, 3, 20
    shapes = {"position_embeddings.weight": (16, width)}

    def linear(name, rows, columns):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

    def norm(name):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (width,), (width,)

    norm("LayerNorm")
    linear("poolers.0.att_fc1", width, width)
    linear("poolers.0.att_fc2", 1, width)
    for layer in range(2):
        attention = f"encoders.{layer}.attention"
        for name in ("query", "key", "transform"):
            linear(f"{attention}.self.{name}", width, width)
        for name in ("query_att", "key_att"):
            linear(f"{attention}.self.{name}", heads, width)
        linear(f"{attention}.output.dense", width, width)
        norm(f"{attention}.output.LayerNorm")
        linear(f"encoders.{layer}.intermediate.dense", inner, width)
        linear(f"encoders.{layer}.output.dense", width, inner)
        norm(f"encoders.{layer}.output.LayerNorm")
    return {name: torch.randn(shape) * 0.3 for name, shape in shapes.items()}


def as_described(weights, x, mask):
    """The released code's function, written from its description: full-width scores, post-norm, additive pooling."""
    functional = torch.nn.functional

    def linear(name, value):
        return functional.linear(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name, value):
        return functional.layer_norm(value, value.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    def attend(scores):  # batch, length, heads
        return (scores + (1.0 - mask)[..., None] * -10000.0).softmax(dim=1)

    x = norm("LayerNorm", x + weights["position_embeddings.weight"][: x.shape[1]])
    for layer in range(2):
        own = f"encoders.{layer}.attention.self"
        query, key = linear(f"{own}.query", x), linear(f"{own}.key", x)
        a = attend(linear(f"{own}.query_att", query) / 2.0)  # √4
        pooled_query = torch.einsum("bnh,bnhd->bhd", a, query.unflatten(-1, (3, 4))).flatten(1)[:, None]
        p = pooled_query * key
        b = attend(linear(f"{own}.key_att", p) / 2.0)
        pooled_key = torch.einsum("bnh,bnhd->bhd", b, p.unflatten(-1, (3, 4))).flatten(1)[:, None]
        mixed = linear(f"{own}.transform", pooled_key * query) + query
        output = f"encoders.{layer}.attention.output"
        x = norm(f"{output}.LayerNorm", linear(f"{output}.dense", mixed) + x)
        inner = functional.gelu(linear(f"encoders.{layer}.intermediate.dense", x))
        x = norm(f"encoders.{layer}.output.LayerNorm", linear(f"encoders.{layer}.output.dense", inner) + x)
    weight = linear("poolers.0.att_fc2", torch.tanh(linear("poolers.0.att_fc1", x)))[..., 0].exp() * mask
    weight = weight / (weight.sum(1, keepdim=True) + 1e-8)
    return torch.einsum("bn,bnd->bd", weight, x)


def inputs():
    x = torch.randn(3, 10, 12)
    mask = torch.ones(3, 10)
    mask[1, 6:] = 0
    mask[2, 1:] = 0
    return x, mask


def test_equals_the_released_code_on_the_fixture(fixtures):
    path = fixtures / "official.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])
    weights = {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}
    model = load_official(weights, config)
    pooled = model(inputs_embeds=tensors["inputs_embeds"], attention_mask=tensors["attention_mask"]).pooler_output
    torch.testing.assert_close(pooled, tensors["pooler_output"], atol=1e-5, rtol=0)


def test_equals_the_description():
    weights = random_checkpoint()
    model = load_official(weights, CONFIG)
    assert type(model) is FastformerModel
    x, mask = inputs()
    pooled = model(inputs_embeds=x, attention_mask=mask).pooler_output
    torch.testing.assert_close(pooled, as_described(weights, x, mask), atol=1e-5, rtol=1e-5)


def test_a_whole_model_becomes_a_classifier():
    encoder = random_checkpoint()
    weights = {f"fastformer_model.{name}": value for name, value in encoder.items()}
    weights["word_embedding.weight"] = torch.randn(30, 12)
    weights["dense_linear.weight"], weights["dense_linear.bias"] = torch.randn(5, 12), torch.randn(5)
    model = load_official(weights, CONFIG)
    assert type(model) is FastformerForSequenceClassification
    assert model.config.num_labels == 5
    ids = torch.randint(0, 30, (3, 10))
    _, mask = inputs()
    pooled = as_described(encoder, weights["word_embedding.weight"][ids], mask)
    expected = pooled @ weights["dense_linear.weight"].T + weights["dense_linear.bias"]
    torch.testing.assert_close(model(ids, attention_mask=mask).logits, expected, atol=1e-5, rtol=1e-5)


def test_a_missing_an_extra_and_a_misshapen_key_are_named():
    weights = random_checkpoint()
    removed = "encoders.1.attention.self.query_att.bias"  # one that has no effect is still expected
    del weights[removed]
    with pytest.raises(ValueError, match=f"missing {removed}"):
        load_official(weights, CONFIG)
    with pytest.raises(ValueError, match=r"unexpected encoders\.9\.x"):
        load_official(random_checkpoint() | {"encoders.9.x": torch.zeros(1)}, CONFIG)
    with pytest.raises(ValueError, match=r"position_embeddings\.weight has shape \(16, 12\).*\(8, 12\)"):
        load_official(random_checkpoint(), CONFIG | {"max_position_embeddings": 8})
