"""The models behave as transformers' own do."""

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from fastformer import (
    FastformerConfig,
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerForTokenClassification,
    FastformerModel,
    available_mixers,
)

AUTO = {
    FastformerModel: AutoModel,
    FastformerForSequenceClassification: AutoModelForSequenceClassification,
    FastformerForTokenClassification: AutoModelForTokenClassification,
    FastformerForMaskedLM: AutoModelForMaskedLM,
}
every_model = pytest.mark.parametrize("model_class", AUTO, ids=lambda c: c.__name__)
every_mixer = pytest.mark.parametrize("mixer", available_mixers())
# Tracing takes seconds: by default the methods that differ most.
every_mixer_traced = pytest.mark.parametrize(
    "mixer",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ("fastformer", "transformer", "bigbird")))
        for name in available_mixers()
    ],
)


def small(**settings) -> FastformerConfig:
    defaults = {
        "vocab_size": 40,
        "hidden_size": 16,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "max_position_embeddings": 64,
        "num_labels": 3,
        "initializer_range": 0.3,  # large enough that a wrong position, mask or layer shows
        "window_size": 4,
        "num_global_tokens": 2,
        "num_random_tokens": 2,
        "block_size": 2,
        "pooling_window_size": 8,
        "pooling_stride": 2,
        "projection_size": 4,
    }
    return FastformerConfig(**{**defaults, **settings})


def build(model_class=FastformerModel, **settings):
    torch.manual_seed(0)
    return model_class(small(**settings)).eval()


def batch(length=11, padding=4):
    torch.manual_seed(1)
    ids = torch.randint(3, 40, (3, length))
    mask = torch.ones_like(ids)
    mask[1, length - padding :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@every_model
@every_mixer
def test_saved_and_reloaded_gives_identical_outputs(model_class, mixer, tmp_path):
    model = build(model_class, mixer=mixer)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    reloaded = AUTO[model_class].from_pretrained(tmp_path)
    assert type(reloaded) is model_class
    assert AutoConfig.from_pretrained(tmp_path).to_dict() == reloaded.config.to_dict()
    for ours, theirs in zip(model(**batch()).to_tuple(), reloaded.eval()(**batch()).to_tuple(), strict=True):
        assert torch.equal(ours, theirs)


@every_mixer
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("pooling", ["additive", "mean", "first"])
def test_left_padding_right_padding_and_no_padding_agree(mixer, positions, pooling):
    model = build(mixer=mixer, position_embedding_type=positions, pooling=pooling)
    text = torch.randint(3, 40, (1, 9))
    alone = model(text)
    for pad_left, pad_right in [(0, 5), (5, 0), (2, 3)]:
        sides = [torch.full((1, pad_left), 7), text, torch.full((1, pad_right), 9)]
        mask = torch.cat([torch.full_like(side, index == 1) for index, side in enumerate(sides)], dim=1)
        padded = model(torch.cat(sides, dim=1), attention_mask=mask)
        torch.testing.assert_close(padded.pooler_output, alone.pooler_output, atol=1e-5, rtol=1e-4)
        inside = padded.last_hidden_state[:, pad_left : pad_left + 9]
        torch.testing.assert_close(inside, alone.last_hidden_state, atol=1e-5, rtol=1e-4)


@every_mixer
def test_a_row_with_no_token_is_finite(mixer):
    model = build(FastformerForSequenceClassification, mixer=mixer).train()
    inputs = batch()
    inputs["attention_mask"][2] = 0
    loss = model(**inputs, labels=torch.tensor([0, 1, 2])).loss
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_inputs_embeds_equal_input_ids():
    model, inputs = build(), batch()
    vectors = model.get_input_embeddings()(inputs["input_ids"])
    by_vectors = model(inputs_embeds=vectors, attention_mask=inputs["attention_mask"])
    torch.testing.assert_close(by_vectors.last_hidden_state, model(**inputs).last_hidden_state)
    with pytest.raises(ValueError, match="either"):
        model(inputs["input_ids"], inputs_embeds=vectors)
    with pytest.raises(ValueError, match="either"):
        model()


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
@pytest.mark.parametrize("share_layers", [True, False])
def test_hidden_states_and_attentions(norm, share_layers):
    model = build(FastformerForSequenceClassification, num_hidden_layers=3, norm=norm, share_layers=share_layers)
    outputs = model(**batch(), output_hidden_states=True, output_attentions=True)
    assert [state.shape for state in outputs.hidden_states] == [(3, 11, 16)] * 4
    assert [weights.shape for weights in outputs.attentions] == [(3, 2, 4, 11)] * 3
    for weights in outputs.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 4))
        assert (weights[1, ..., 7:] == 0).all()
    last = model.fastformer(**batch()).last_hidden_state
    torch.testing.assert_close(outputs.hidden_states[-1], last)


def test_gradients_reach_hidden_states_and_attentions():
    model = build()
    outputs = model(**batch(), output_hidden_states=True, output_attentions=True)
    for tensor in (*outputs.hidden_states, *outputs.attentions):
        tensor.retain_grad()
    outputs.pooler_output.sum().backward()
    assert all(tensor.grad is not None for tensor in (*outputs.hidden_states, *outputs.attentions))


@pytest.mark.parametrize("mixer", [mixer for mixer in available_mixers() if mixer != "fastformer"])
def test_other_mixers_say_they_have_no_attentions(mixer, monkeypatch):
    said = []
    monkeypatch.setattr("fastformer.modeling.encoder.logger.warning_once", said.append)
    assert build(mixer=mixer)(**batch(), output_attentions=True).attentions is None
    assert said == [f"mixer={mixer!r} forms no attention weights: `attentions` is None"]


@every_model
def test_tuples_equal_dicts(model_class):
    model = build(model_class)
    as_tuple = model(**batch(), return_dict=False, output_hidden_states=True)
    as_dict = model(**batch(), output_hidden_states=True)
    assert isinstance(as_tuple, tuple)
    for ours, theirs in zip(as_tuple, as_dict.to_tuple(), strict=True):
        torch.testing.assert_close(ours, theirs)


@every_mixer
def test_gradient_checkpointing_changes_no_gradient(mixer):
    def gradients(checkpointing):
        model = build(FastformerForSequenceClassification, mixer=mixer, hidden_dropout_prob=0.0).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(**batch(), labels=torch.tensor([0, 1, 2])).loss.backward()
        return [parameter.grad for parameter in model.parameters()]

    for ours, theirs in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(ours, theirs)


@every_model
def test_resizing_the_vocabulary_keeps_old_words(model_class):
    model = build(model_class)
    before = model(**batch()).to_tuple()[0]
    model.resize_token_embeddings(50)
    assert model.config.vocab_size == 50
    after = model(**batch()).to_tuple()[0]
    torch.testing.assert_close(after[..., : before.shape[-1]], before)
    model(torch.tensor([[49, 48]]))


def test_masked_lm_ties_its_output_to_its_embedding(tmp_path):
    model = build(FastformerForMaskedLM)
    assert model.decoder.weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    reloaded = FastformerForMaskedLM.from_pretrained(tmp_path)
    assert reloaded.decoder.weight is reloaded.get_input_embeddings().weight
    untied = build(FastformerForMaskedLM, tie_word_embeddings=False)
    assert untied.decoder.weight is not untied.get_input_embeddings().weight


@every_mixer_traced
def test_compiles_whole(mixer):
    model = build(FastformerForSequenceClassification, mixer=mixer)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(**batch()).logits, model(**batch()).logits, atol=1e-5, rtol=1e-4)


@every_mixer_traced
def test_exports_for_any_batch_and_length(mixer):
    class Logits(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    model = build(FastformerForSequenceClassification, mixer=mixer)
    rows, length = torch.export.Dim("rows", min=1, max=64), torch.export.Dim("length", min=2, max=64)
    exported = torch.export.export(
        Logits(model), tuple(batch().values()), dynamic_shapes=({0: rows, 1: length}, {0: rows, 1: length})
    ).module()
    for size in (5, 33):
        inputs = batch(length=size, padding=3)
        torch.testing.assert_close(exported(*inputs.values()), model(**inputs).logits, atol=1e-5, rtol=1e-4)


@every_mixer
def test_bfloat16_is_close_to_float32(mixer):
    model = build(FastformerForSequenceClassification, mixer=mixer, initializer_range=0.1)
    expected = model(**batch()).logits
    logits = model.to(torch.bfloat16)(**batch()).logits
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, atol=0.05, rtol=0.05)


def test_losses_of_the_three_problem_types():
    inputs, functional = batch(), torch.nn.functional
    single = build(FastformerForSequenceClassification)(**inputs, labels=torch.tensor([0, 2, 1]))
    torch.testing.assert_close(single.loss, functional.cross_entropy(single.logits, torch.tensor([0, 2, 1])))

    labels = torch.tensor([[0.0, 1, 1], [1, 0, 0], [0, 0, 0]])
    model = build(FastformerForSequenceClassification, problem_type="multi_label_classification")
    multi = model(**inputs, labels=labels)
    torch.testing.assert_close(multi.loss, functional.binary_cross_entropy_with_logits(multi.logits, labels))

    number = build(FastformerForSequenceClassification, num_labels=1)(**inputs, labels=torch.tensor([0.5, -1, 2]))
    torch.testing.assert_close(number.loss, ((number.logits[:, 0] - torch.tensor([0.5, -1, 2])) ** 2).mean())


@pytest.mark.parametrize("model_class", [FastformerForTokenClassification, FastformerForMaskedLM])
def test_token_losses_leave_out_minus_100(model_class):
    model, inputs = build(model_class), batch()
    labels = torch.randint(0, 3, (3, 11))
    labels[:, 5:] = -100
    outputs = model(**inputs, labels=labels)
    expected = torch.nn.functional.cross_entropy(outputs.logits[:, :5].flatten(0, 1), labels[:, :5].flatten())
    torch.testing.assert_close(outputs.loss, expected)


def test_shared_layers_hold_the_parameters_of_one():
    shared, stacked = build(num_hidden_layers=3), build(num_hidden_layers=3, share_layers=False)
    layer = sum(parameter.numel() for parameter in stacked.layers[0].parameters())
    assert stacked.num_parameters() - shared.num_parameters() == 2 * layer


def test_switches_remove_what_they_say():
    names = {name.split(".")[0] + "." + name.split(".")[-2] for name, _ in build().named_parameters()}
    plain = build(norm="none", feed_forward=False, position_embedding_type="none", pooling="mean")
    left = {name for name, _ in plain.named_parameters()}
    assert "embeddings.position_embeddings" in names
    assert all("norm" not in name and "feed_forward" not in name and "pooler" not in name for name in left)
    x = torch.randn(1, 5, 16)
    layer = build(residual=False, norm="none", feed_forward=False).layers[0]
    mask = torch.ones(1, 5, dtype=torch.bool)
    torch.testing.assert_close(layer(x, mask)[0], layer.mixer(x, mask))


def test_too_long_for_learned_positions_says_what_to_do():
    with pytest.raises(ValueError, match=r"65 tokens.*64.*max_position_embeddings"):
        build()(torch.ones(1, 65, dtype=torch.long))
    # What counts is the real length: padding may go beyond.
    mask = torch.zeros(1, 80, dtype=torch.long)
    mask[:, :60] = 1
    build()(torch.ones(1, 80, dtype=torch.long), attention_mask=mask)
    build(position_embedding_type="sinusoidal")(torch.ones(1, 300, dtype=torch.long))


def test_an_unknown_mixer_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'flash'.*fastformer"):
        build(mixer="flash")


def test_width_must_divide_into_heads():
    with pytest.raises(ValueError, match=r"hidden_size=30.*num_attention_heads=4"):
        FastformerConfig(hidden_size=30, num_attention_heads=4)


def test_every_field_of_the_configuration_is_documented():
    own = set(FastformerConfig.__annotations__) - {"pad_token_id", "bos_token_id", "eos_token_id"}
    missing = {name for name in own if f"{name}:" not in FastformerConfig.__doc__}
    assert missing == {"tie_word_embeddings"}  # transformers' own


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification", "regression"])
@pytest.mark.parametrize("balanced", [False, True])
def test_weights_of_texts_scale_their_losses(kind, balanced):
    labels = {"regression": torch.randn(6), "multi_label_classification": torch.rand(6, 3).round()}
    truth = labels.get(kind, torch.tensor([0, 1, 2, 0, 1, 1]))
    config = small(num_labels=1 if kind == "regression" else 3, problem_type=kind)
    model = FastformerForSequenceClassification(config).eval()
    if balanced and kind.startswith("single"):
        model.class_weights = torch.tensor([1.0, 2.0, 3.0])
    ids = torch.randint(3, 40, (6, 9))
    loss = model(ids, labels=truth).loss
    torch.testing.assert_close(model(ids, labels=truth, sample_weight=torch.full((6,), 2.0)).loss, 2 * loss)
    first = torch.tensor([6.0, 0, 0, 0, 0, 0])
    if not balanced:
        alone = model(ids[:1], labels=truth[:1]).loss
        torch.testing.assert_close(model(ids, labels=truth, sample_weight=first).loss, alone)
