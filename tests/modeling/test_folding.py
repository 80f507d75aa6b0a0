"""The last layer folded into the pooling gives the text vector that the two give one after the other."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification, FastformerModel
from fastformer.modeling.layer import FastformerLayer

WIDTH = 16


def build(**options) -> FastformerModel:
    torch.manual_seed(0)
    plain = {"norm": "none", "feed_forward": False, "pooling": "additive", "position_embedding_type": "none"}
    shape = {"vocab_size": 50, "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = FastformerModel(
        FastformerConfig(**{**shape, **plain, "hidden_dropout_prob": 0.0, "initializer_range": 0.2, **options})
    ).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)  # biases start at zero, where a forgotten one would not be missed
    return model


def batch(*lengths: int, width: int, seed: int = 0, left: bool = False) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 50, (len(lengths), width), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return {"input_ids": ids, "attention_mask": (mask.flip(1) if left else mask).long()}


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


FORMS = [
    {"head_form": form, "interaction": interaction, "share_query_value": shared}
    for form, interaction, shared in itertools.product(
        ("headwise", "full"), ("product", "add", "concat"), (True, False)
    )
]
OTHERS = [
    {"residual": False},
    {"residual": False, "head_form": "full"},
    {"num_attention_heads": 1},
    {"num_attention_heads": WIDTH},
    {"share_heads": True},
    {"num_hidden_layers": 2},
    {"num_hidden_layers": 3, "share_layers": True},
    {"bigram_buckets": 32},
    {"position_embedding_type": "sinusoidal"},
]


@pytest.mark.parametrize("options", [*FORMS, *OTHERS], ids=str)
def test_the_text_vector_is_the_same(options):
    model = build(**options)
    for inputs in (batch(40, 33, 40, width=40), batch(0, 1, 20, 40, width=40), batch(0, 9, 40, width=40, left=True)):
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                expected, found = model(**inputs), model(**inputs, pooled_only=True)
            assert found.last_hidden_state is None
            close(found.pooler_output, expected.pooler_output)
    assert not found.pooler_output[0].any()  # a text without tokens


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(60, 80), st.booleans(), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_for_any_lengths_and_whatever_the_company(lengths, width, left, seed):
    model, inputs = build(), batch(*lengths, width=width, seed=seed, left=left)
    with torch.no_grad():
        found = model(**inputs, pooled_only=True).pooler_output
        close(found, model(**inputs).pooler_output)
        for row in range(len(lengths)):
            alone = {name: field[row : row + 1] for name, field in inputs.items()}
            close(model(**alone, pooled_only=True).pooler_output[0], found[row])
        noise = torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], 7)
        torch.testing.assert_close(model(noise, inputs["attention_mask"], pooled_only=True).pooler_output, found)


def test_ragged_batches_are_cut_into_groups():
    model, inputs = build(), batch(3000, 5, 2900, 40, 1200, 0, width=3000)
    with torch.no_grad():
        close(model(**inputs, pooled_only=True).pooler_output, model(**inputs).pooler_output)


@pytest.mark.parametrize("options", FORMS[:2] + OTHERS[5:7], ids=str)
def test_gradients_are_the_same(options):
    gradients = []
    for pooled_only in (False, True):
        model = build(**options, token_dropout=0.2).train()
        torch.manual_seed(1)
        model(**batch(40, 33, 40, width=40), pooled_only=pooled_only).pooler_output.pow(2).sum().backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, expected in gradients[0].items():
        if name != "pooler.score.bias":  # it drops out of the softmax: noise around zero, or None
            close(gradients[1][name], expected, 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "post"},
        {"norm": "pre"},
        {"feed_forward": True},
        {"pooling": "mean"},
        {"pooling": "first"},
        {"mixer": "transformer"},
        {"causal": True},
        {"num_hidden_layers": 0},
    ],
    ids=str,
)
def test_other_models_answer_as_ever(options):
    model, inputs = build(**options), batch(40, 33, 0, width=40)
    with torch.no_grad():
        found = model(**inputs, pooled_only=True)
        assert torch.equal(found.pooler_output, model(**inputs).pooler_output)
        assert found.last_hidden_state is not None


def test_whoever_asks_for_more_or_listens_gets_it():
    model, inputs = build(), batch(40, 33, width=40)
    with torch.no_grad():
        expected = model(**inputs)
        asked = model(**inputs, pooled_only=True, output_hidden_states=True, output_attentions=True)
        assert torch.equal(asked.hidden_states[-1], asked.last_hidden_state)
        heard = []
        for module in (model.layers[0], model.layers[0].mixer, model.pooler):
            with module.register_forward_hook(lambda module, *_: heard.append(module)):
                close(model(**inputs, pooled_only=True).pooler_output, expected.pooler_output)
    assert heard == [model.layers[0], model.pooler]  # the mixer is not called by the layer: it is asked for its map


def test_dropout_in_training_keeps_its_place():
    model, inputs = build(hidden_dropout_prob=0.5).train(), batch(40, 33, width=40)
    assert model(**inputs, pooled_only=True).last_hidden_state is not None
    assert model.eval()(**inputs, pooled_only=True).last_hidden_state is None


def test_a_classifier_is_folded(monkeypatch):
    """What a user runs takes the short way."""
    model = FastformerForSequenceClassification(build().config.with_changes(num_labels=3)).eval()
    used = []
    pool = FastformerLayer.pool

    def seen(self, *rest, **named):
        used.append(1)
        return pool(self, *rest, **named)

    monkeypatch.setattr(FastformerLayer, "pool", seen)
    with torch.inference_mode():
        inputs = batch(40, 33, width=40)
        logits = model(**inputs).logits
        expected = model.classifier(model.fastformer(**inputs).pooler_output)
    assert used
    close(logits, expected)
