"""Models that write: cached equals uncached for every beam, losses, copying, saving."""

import json

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    PreTrainedTokenizerFast,
    StaticCache,
)

from fastformer import (
    FastformerForCausalLM,
    FastformerForConditionalGeneration,
    FastformerForMaskedLM,
    FastformerModel,
    available_mixers,
)
from tests.modeling.test_models import small

CAUSAL = available_mixers(causal=True)
KINDS = [(FastformerForCausalLM, {"mixer": mixer}) for mixer in CAUSAL]
KINDS += [
    (FastformerForConditionalGeneration, {"decoder_mixer": mixer, "copy_mechanism": copying})
    for mixer in CAUSAL
    for copying in (False, True)
]
KINDS += [
    (FastformerForConditionalGeneration, {"decoder_mixer": mixer, "decoder_layers": 3})  # the encoder has two
    for mixer in CAUSAL
]
every_kind = pytest.mark.parametrize(
    ("model_class", "settings"),
    KINDS,
    ids=lambda value: value.__name__ if isinstance(value, type) else "-".join(map(str, value.values())),
)
STRATEGIES = {
    "greedy": {},
    "sampling": {"do_sample": True, "top_p": 0.9},
    "beams": {"num_beams": 5, "num_return_sequences": 5},
    "beams with rules": {
        "num_beams": 5,
        "num_return_sequences": 3,
        "length_penalty": 2.0,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 4,
        "early_stopping": True,
    },
}
EOS = 3


def build(model_class=FastformerForConditionalGeneration, **settings):
    torch.manual_seed(0)
    model = model_class(small(**{"eos_token_id": EOS, "initializer_range": 0.5, **settings})).eval()
    torch.nn.init.normal_(model.lm_head.bias)
    return model


def source(rows=3, length=9, padding=4):
    torch.manual_seed(1)
    ids = torch.randint(4, 40, (rows, length))
    mask = torch.ones_like(ids)
    mask[1, length - padding :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def left_padded(rows=3, length=9, padding=4):
    inputs = source(rows, length, padding)
    return {name: tensor.flip(1) for name, tensor in inputs.items()}


def prompt_of(model_class):
    return left_padded() if model_class is FastformerForCausalLM else source()


@every_kind
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_generation_with_cache_equals_without(model_class, settings, strategy):
    model, results = build(model_class, **settings), []
    for use_cache in (True, False):
        torch.manual_seed(2)
        results.append(
            model.generate(
                **prompt_of(model_class),
                **{"do_sample": False, **STRATEGIES[strategy]},
                max_new_tokens=12,
                use_cache=use_cache,
                return_dict_in_generate=True,
                output_scores=True,
                output_logits=True,
            )
        )
    cached, plain = results
    assert torch.equal(cached.sequences, plain.sequences)
    for ours, theirs in zip(cached.logits, plain.logits, strict=True):  # of every beam, token by token
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    if "beams" in strategy:
        torch.testing.assert_close(cached.sequences_scores, plain.sequences_scores, atol=1e-5, rtol=1e-5)
        assert len({tuple(row) for row in cached.sequences[:3].tolist()}) == 3


@every_kind
def test_decoding_step_by_step_equals_all_at_once(model_class, settings):
    model, inputs = build(model_class, **settings), prompt_of(model_class)
    if model_class is FastformerForCausalLM:
        whole, past = model(**inputs).logits, None
        for i in range(9):
            step = model(inputs["input_ids"][:, i : i + 1], inputs["attention_mask"][:, : i + 1], past_key_values=past)
            past, real = step.past_key_values, inputs["attention_mask"][:, i].bool()
            torch.testing.assert_close(step.logits[real, 0], whole[real, i], atol=1e-5, rtol=1e-4)
    else:
        target = torch.randint(4, 40, (3, 12))
        whole, past = model(**inputs, decoder_input_ids=target).logits, None
        for i in range(12):
            step = model(**inputs, decoder_input_ids=target[:, i : i + 1], past_key_values=past)
            past = step.past_key_values
            torch.testing.assert_close(step.logits[:, 0], whole[:, i], atol=1e-4, rtol=1e-4)
        assert isinstance(past, EncoderDecoderCache)
        assert past.get_seq_length() == 12


@every_kind
def test_beams_are_scored_by_their_own_words(model_class, settings):
    """The score that a beam carries is that of its words, read back all at once."""
    model, inputs = build(model_class, **settings), prompt_of(model_class)
    options = {"num_beams": 5, "num_return_sequences": 5, "length_penalty": 0.0, "max_new_tokens": 8}
    found = model.generate(**inputs, **options, return_dict_in_generate=True, output_scores=True)
    repeated = {name: tensor.repeat_interleave(5, dim=0) for name, tensor in inputs.items()}
    if model_class is FastformerForCausalLM:
        start = 9
        mask = torch.cat([repeated["attention_mask"], torch.ones(15, found.sequences.shape[1] - start).long()], dim=1)
        logits = model(found.sequences, mask).logits[:, start - 1 : -1]
    else:
        start = 1
        logits = model(**repeated, decoder_input_ids=found.sequences).logits[:, :-1]
    words = found.sequences[:, start:]
    scores = logits.log_softmax(dim=-1).gather(2, words[..., None])[..., 0]
    ended = ((words == EOS).cumsum(dim=1) - (words == EOS).long()) > 0
    torch.testing.assert_close(scores.masked_fill(ended, 0).sum(dim=1), found.sequences_scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mixer", CAUSAL)
def test_left_padding_changes_no_continuation(mixer):
    model = build(FastformerForCausalLM, mixer=mixer)
    inputs = left_padded()
    together = model.generate(**inputs, max_new_tokens=10, do_sample=False)
    alone = model.generate(inputs["input_ids"][1:2, 4:], max_new_tokens=10, do_sample=False)
    length = alone.shape[1] - 5
    assert torch.equal(together[1, 9 : 9 + length], alone[0, 5:])


@pytest.mark.parametrize("mixer", available_mixers())
def test_any_encoder_and_padding_of_the_source_changes_nothing(mixer):
    model = build(mixer=mixer, copy_mechanism=True)
    inputs, target = source(), torch.randint(4, 40, (3, 6))
    expected = model(**inputs, decoder_input_ids=target).logits
    alone = model(inputs["input_ids"][1:2, :5], decoder_input_ids=target[1:2]).logits
    torch.testing.assert_close(expected[1:2], alone, atol=1e-5, rtol=1e-4)
    inputs["input_ids"][1, 5:] = 7
    torch.testing.assert_close(model(**inputs, decoder_input_ids=target).logits, expected, atol=1e-5, rtol=1e-4)


@every_kind
def test_saved_and_reloaded_gives_identical_outputs(model_class, settings, tmp_path):
    model, inputs = build(model_class, **settings), prompt_of(model_class)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors"
    }  # fmt: skip
    auto = AutoModelForCausalLM if model_class is FastformerForCausalLM else AutoModelForSeq2SeqLM
    reloaded = auto.from_pretrained(tmp_path)
    assert type(reloaded) is model_class
    assert reloaded.lm_head.weight is reloaded.get_input_embeddings().weight
    labels = inputs["input_ids"]
    assert torch.equal(model(**inputs, labels=labels).logits, reloaded(**inputs, labels=labels).logits)
    written = [each.generate(**inputs, num_beams=3, max_new_tokens=6) for each in (model, reloaded)]
    assert torch.equal(*written)


def test_the_stack_of_a_language_model_is_a_causal_encoder(tmp_path):
    model = build(FastformerForCausalLM, num_hidden_layers=3)
    model.save_pretrained(tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path)
    assert type(encoder) is FastformerModel
    expected = model.fastformer(**source()).last_hidden_state
    real = source()["attention_mask"].bool()
    torch.testing.assert_close(encoder(**source()).last_hidden_state[real], expected[real])


def test_an_encoder_starts_from_another_models(tmp_path):
    pretrained = FastformerForMaskedLM(small())
    pretrained.save_pretrained(tmp_path)
    model = FastformerForConditionalGeneration.from_pretrained(tmp_path)
    theirs = dict(pretrained.fastformer.named_parameters())
    assert all(torch.equal(weight, theirs[name]) for name, weight in model.fastformer.named_parameters())


def test_losses_leave_padding_out_and_smooth_in_training_only():
    model, inputs = build(label_smoothing=0.1, hidden_dropout_prob=0.0), source()
    labels = torch.randint(4, 40, (3, 6))
    labels[0, 4:] = -100
    outputs = model(**inputs, labels=labels)
    log_p, real = outputs.logits.log_softmax(dim=-1), labels != -100
    likelihood = log_p[real].gather(1, labels[real][:, None]).mean()
    torch.testing.assert_close(outputs.loss, -likelihood)
    smoothed = -(0.9 * likelihood + 0.1 * log_p[real].mean())
    torch.testing.assert_close(model.train()(**inputs, labels=labels).loss, smoothed)
    assert outputs.past_key_values is None

    language = build(FastformerForCausalLM)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    outputs = language(**inputs, labels=labels)
    log_p, real = outputs.logits.log_softmax(dim=-1)[:, :-1], labels[:, 1:] != -100
    expected = -log_p[real].gather(1, labels[:, 1:][real][:, None]).mean()
    torch.testing.assert_close(outputs.loss, expected)


def test_texts_of_one_source_may_share_it():
    model, inputs = build(copy_mechanism=True), source()
    torch.manual_seed(1)
    written = torch.randint(4, model.config.vocab_size, (6, 5))  # two for each source
    every = {name: value.repeat_interleave(2, dim=0) for name, value in inputs.items()}
    expected = model(**every, decoder_input_ids=written, output_attentions=True)
    encoded = model.get_encoder()(**inputs)
    mask = inputs["attention_mask"]
    options = {"attention_mask": mask, "decoder_input_ids": written, "output_attentions": True}
    found = model(encoder_outputs=encoded, **options)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.cross_attentions, expected.cross_attentions)
    assert found.past_key_values.cross_attention_cache.layers[0].keys.shape[0] == 3
    with pytest.raises(ValueError, match="4 texts cannot share 3 sources"):
        model(encoder_outputs=encoded, **{**options, "decoder_input_ids": written[:4]})


def test_the_configuration_decides_what_is_returned():
    model, inputs = build(decoder_layers=3), {**source(), "decoder_input_ids": torch.randint(4, 40, (3, 4))}
    found = model(**inputs)
    assert found.past_key_values is not None
    assert found.decoder_hidden_states is found.cross_attentions is None
    model.config.use_cache, model.config.output_hidden_states, model.config.output_attentions = False, True, True
    found = model(**inputs)
    assert found.past_key_values is None
    assert len(found.encoder_hidden_states) == 1 + model.config.num_hidden_layers
    assert len(found.decoder_hidden_states) == 1 + len(found.cross_attentions) == 1 + model.config.decoder_layers


def test_labels_become_decoder_inputs():
    model = build(decoder_start_token_id=2)
    labels = torch.tensor([[5, 6, 7], [8, 3, -100], [9, -100, -100]])
    expected = torch.tensor([[2, 5, 6], [2, 8, 3], [2, 9, 0]])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), expected)
    assert model.generate(**source(), max_new_tokens=2)[:, 0].tolist() == [2, 2, 2]
    assert build().config.decoder_start_token_id == 0  # padding
    assert build(bos_token_id=1).config.decoder_start_token_id == 1
    with pytest.raises(ValueError, match="pad_token_id"):
        build(pad_token_id=None, bos_token_id=1).prepare_decoder_input_ids_from_labels(labels)


def test_the_given_configuration_is_left_alone():
    config = small()
    FastformerForCausalLM(config)
    FastformerForConditionalGeneration(config)
    assert not config.causal
    assert not config.is_encoder_decoder


@every_kind
def test_gradient_checkpointing_changes_no_gradient(model_class, settings):
    def gradients(checkpointing):
        model = build(model_class, hidden_dropout_prob=0.0, **settings).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        inputs = source()
        model(**inputs, labels=inputs["input_ids"], use_cache=True).loss.backward()
        return [parameter.grad for parameter in model.parameters()]

    for ours, theirs in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(ours, theirs)


@every_kind
def test_resizing_the_vocabulary_keeps_old_words(model_class, settings):
    model, inputs = build(model_class, **settings), prompt_of(model_class)
    before = model(**inputs, labels=inputs["input_ids"]).logits
    model.resize_token_embeddings(50)
    assert model.lm_head.weight.shape == (50, 16)
    after = model(**inputs, labels=inputs["input_ids"]).logits
    assert after.shape == (3, 9, 50)
    if not settings.get("copy_mechanism"):  # else these are probabilities, of which new words take their share
        torch.testing.assert_close(after[..., :40], before)
    model.generate(torch.tensor([[49, 48]]), max_new_tokens=2)


def test_weights_of_the_cross_attention():
    model, target = build(decoder_layers=3), torch.randint(4, 40, (3, 6))
    outputs = model(**source(), decoder_input_ids=target, output_attentions=True, output_hidden_states=True)
    assert [weights.shape for weights in outputs.cross_attentions] == [(3, 4, 6, 9)] * 3
    assert (outputs.cross_attentions[0][1, ..., 5:] == 0).all()
    assert len(outputs.decoder_hidden_states) == 4
    torch.testing.assert_close(outputs.logits, model(**source(), decoder_input_ids=target).logits)


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_the_decoder_follows_the_switches(norm):
    model = build(
        norm=norm, position_embedding_type="sinusoidal", decoder_layers=1, feed_forward=False, bigram_buckets=9
    )
    assert len(model.decoder.layers) == 1
    assert model.decoder.layers[0].feed_forward is None
    assert model.generate(**source(), max_new_tokens=70, min_new_tokens=70).shape == (3, 71)


@pytest.mark.parametrize("model_class", [FastformerForCausalLM, FastformerForConditionalGeneration])
def test_the_decoder_has_a_final_norm_only_if_it_shall(model_class):
    name = "fastformer" if model_class is FastformerForCausalLM else "decoder"
    decoders = [getattr(build(model_class, norm="pre", final_norm=wanted), name) for wanted in (True, False)]
    assert [type(one.final_norm) for one in decoders] == [torch.nn.LayerNorm, torch.nn.Identity]


def test_an_encoder_that_reads_neighbours_leaves_the_decoder_blind_to_the_future():
    model = build(neighbor_size=6, decoder_layers=1)
    assert model.decoder.config.neighbor_size == 0
    ids = torch.tensor([[5, 6, 7, 8]])
    other = torch.tensor([[5, 6, 7, 9]])
    logits = [model(**source(), decoder_input_ids=one.expand(3, -1)).logits for one in (ids, other)]
    torch.testing.assert_close(logits[0][:, :3], logits[1][:, :3])


def test_the_decoder_has_positions_of_its_own(tmp_path):
    model = build(position_embedding_type="learned", max_position_embeddings=9, decoder_positions=4)
    tables = [one.embeddings.position_embeddings.num_embeddings for one in (model.fastformer, model.decoder)]
    assert tables == [9, 4]
    assert model.generate(**source(), max_new_tokens=4, min_new_tokens=4).shape == (3, 5)
    with pytest.raises(ValueError, match="a text has 5 tokens but this model has learned positions for 4"):
        model(**source(), decoder_input_ids=torch.ones(3, 5).long())
    model = build(position_embedding_type="learned", max_position_embeddings=9)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del saved["decoder_positions"]  # as models were saved before there was such a number
    (tmp_path / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    reloaded = FastformerForConditionalGeneration.from_pretrained(tmp_path)
    labels = source()["input_ids"]
    assert torch.equal(model(**source(), labels=labels).logits, reloaded(**source(), labels=labels).logits)


def test_a_cache_made_by_hand_serves():
    model, inputs = build(FastformerForCausalLM), left_padded()
    cache = DynamicCache(config=model.config)
    model(inputs["input_ids"][:, :5], inputs["attention_mask"][:, :5], past_key_values=cache)
    assert cache.get_seq_length() == 5
    went_on = model.generate(**inputs, past_key_values=cache, max_new_tokens=5, do_sample=False)
    assert torch.equal(went_on, model.generate(**inputs, max_new_tokens=5, do_sample=False))


def test_a_cache_of_fixed_size_is_refused():
    """It has places for tokens to come, which would be seen."""
    for model, inputs in ((build(FastformerForCausalLM), left_padded()), (build(), source())):
        cache = StaticCache(config=model.config, max_cache_len=20)
        labels = {"decoder_input_ids": inputs["input_ids"]} if model.config.is_encoder_decoder else {}
        for given in (cache, EncoderDecoderCache(cache, DynamicCache())):
            with pytest.raises(ValueError, match="caches of a fixed size .* are not supported: leave"):
                model(**inputs, **labels, past_key_values=given)
        with pytest.raises(ValueError, match="attention_mask has 4 dimensions"):
            model.get_decoder()(inputs_embeds=torch.zeros(3, 9, 16), attention_mask=torch.ones(3, 1, 9, 9),
                                encoder_hidden_states=torch.zeros(3, 9, 16))  # fmt: skip


def test_beams_share_the_keys_of_their_source():
    model, written = build(), torch.randint(4, 40, (6, 4))
    inputs = {name: tensor.repeat_interleave(2, dim=0) for name, tensor in source().items()}  # two beams each
    cache = model(**inputs, decoder_input_ids=written).past_key_values
    kept, moved = cache.cross_attention_cache.layers[0].keys, cache.self_attention_cache.layers[0].keys
    beams = torch.tensor([1, 1, 2, 3, 5, 4])
    cache = model._reorder_cache(cache, beams)
    assert cache.cross_attention_cache.layers[0].keys is kept
    torch.testing.assert_close(kept[beams], kept)
    assert torch.equal(cache.self_attention_cache.layers[0].keys, moved[beams])


def test_only_the_last_logits_when_asked():
    model = build(FastformerForCausalLM)
    logits = model(**left_padded()).logits
    torch.testing.assert_close(model(**left_padded(), logits_to_keep=2).logits, logits[:, -2:])


def test_transformers_collator_makes_batches_of_pairs():
    words = Tokenizer(WordLevel({"[PAD]": 0}, unk_token="[PAD]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    model = build()
    pairs = [{"input_ids": [5, 6, 7], "labels": [8, 3]}, {"input_ids": [9, 9], "labels": [4, 5, 6, 3]}]
    batch = DataCollatorForSeq2Seq(tokenizer, model=model)(pairs)
    assert batch["decoder_input_ids"].tolist() == [[0, 8, 3, 0], [0, 4, 5, 6]]
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize("mixer", CAUSAL)
def test_it_learns_to_repeat_its_source(mixer):
    torch.manual_seed(0)
    model = FastformerForConditionalGeneration(
        small(decoder_mixer=mixer, mixer="transformer", copy_mechanism=True, eos_token_id=EOS, initializer_range=0.1,
              hidden_dropout_prob=0.0, hidden_size=32, position_embedding_type="learned", share_layers=False)
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    ends = torch.full((32, 1), EOS)
    for _ in range(100):
        ids = torch.randint(4, 40, (32, 3))
        loss = model(ids, labels=torch.cat([ids, ends], dim=1)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(4, 40, (32, 3))
    written = model.eval().generate(ids, num_beams=5, max_new_tokens=6)[:, 1:4]
    assert (written == ids).float().mean() > 0.9


def test_mistakes_say_what_to_do():
    with pytest.raises(ValueError, match="bigram_buckets"):
        build(FastformerForCausalLM, bigram_buckets=10)
    with pytest.raises(ValueError, match="neighbor_size: a decoder sees one word at a time"):
        build(FastformerForCausalLM, neighbor_size=10)
    with pytest.raises(ValueError, match="neighbor_size=10 reads the next token too"):
        build(FastformerModel, neighbor_size=10, causal=True)
    for model_class in (FastformerForCausalLM, FastformerForConditionalGeneration):
        with pytest.raises(ValueError, match="token_dropout"):
            build(model_class, token_dropout=0.1)
    with pytest.raises(ValueError, match=r"'bigbird' has no causal form"):
        build(decoder_mixer="bigbird")
    with pytest.raises(ValueError, match="label_smoothing=1.5"):
        build(label_smoothing=1.5)
    model = build(FastformerForCausalLM)
    past = model(torch.tensor([[5, 6]])).past_key_values
    with pytest.raises(ValueError, match=r"2 columns for 1 tokens after 2 in the cache"):
        model(torch.tensor([[7]]), torch.ones(1, 2), past_key_values=past)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()
    with pytest.raises(ValueError, match="labels, decoder_input_ids"):
        build()(torch.tensor([[5]]))
    with pytest.raises(ValueError, match="static"):
        model.generate(torch.tensor([[5, 6]]), cache_implementation="static", max_new_tokens=3)
    with pytest.raises(ValueError, match=r"is not supported with stateful"):
        model.generate(torch.tensor([[5, 6, 5, 6]]), prompt_lookup_num_tokens=2, max_new_tokens=3)
