"""Recommenders: padding and company change nothing, a saved model is the same, scores are what the formulas say."""

import json
import math

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertConfig, ModernBertConfig, T5Config

from fastformer import available_mixers
from fastformer.modeling import FastformerForRecommendation, FimConfig, FimForRecommendation, RecommendationConfig

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "max_position_embeddings": 9,
    "max_history": 8,
    "norm": "none",
    "position_embedding_type": "none",
    "initializer_range": 0.3,
    "window_size": 4,
    "num_global_tokens": 2,
    "num_random_tokens": 2,
    "block_size": 2,
    "pooling_window_size": 8,
    "pooling_stride": 2,
    "projection_size": 4,
}
BARE = {"residual": False, "feed_forward": False}  # NRMS
PLM = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
).to_dict()
KINDS = [*available_mixers(), "nrms", "plm", "fim"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def build(kind: str):
    torch.manual_seed(0)
    if kind == "fim":
        settings = {"vocab_size": 50, "hidden_size": 16, "max_title": 9, "max_history": 8, "initializer_range": 0.3}
        return FimForRecommendation(FimConfig(**settings, dilations=[1, 2])).eval()
    mixers = {"mixer": kind, "user_mixer": kind}
    settings = {"nrms": {"mixer": "transformer", "user_mixer": "transformer", **BARE}, "plm": {"plm": PLM}}
    return FastformerForRecommendation(RecommendationConfig(**SMALL, **settings.get(kind, mixers))).eval()


def batch(news=12, words=6, users=4, history=5, candidates=3):
    random = torch.Generator().manual_seed(1)
    mask = torch.ones(news, words, dtype=torch.long)
    mask[2, 3:] = mask[5, 1:] = mask[4] = 0  # a short title, one of one word, one of none
    clicked = torch.ones(users, history, dtype=torch.long)
    clicked[1, 2:] = clicked[3] = 0  # a short history, an empty one
    return {
        "input_ids": torch.randint(3, 50, (news, words), generator=random) * mask,
        "attention_mask": mask,
        "history": torch.randint(0, news, (users, history), generator=random),
        "history_mask": clicked,
        "candidates": torch.randint(0, news, (users, candidates), generator=random),
    }


def scores(model, inputs) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs).logits


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@every_kind
def test_longer_padding_and_what_stands_in_it_change_nothing(kind):
    model, inputs = build(kind), batch()
    wider = dict(inputs)
    for name, mask, fill in (("input_ids", "attention_mask", 7), ("history", "history_mask", 11)):
        wider[mask] = nn.functional.pad(inputs[mask], (0, 3))
        wider[name] = torch.where(wider[mask].bool(), nn.functional.pad(inputs[name], (0, 3)), fill)
    close(scores(model, wider), scores(model, inputs))


@every_kind
def test_other_users_and_other_news_in_the_batch_change_nothing(kind):
    model, inputs = build(kind), batch()
    whole = scores(model, inputs)
    for user in range(4):
        real = inputs["history_mask"][user].bool()
        history = inputs["history"][user : user + 1, real] if real.any() else inputs["candidates"][user : user + 1, :1]
        numbers = torch.cat([history, inputs["candidates"][user : user + 1]], dim=1)
        news, places = numbers.unique(return_inverse=True)
        width = max(1, int(inputs["attention_mask"][news].sum(dim=1).max()))
        alone = {
            "input_ids": inputs["input_ids"][news, :width],
            "attention_mask": inputs["attention_mask"][news, :width],
            "history": places[:, : history.shape[1]],
            "history_mask": torch.full_like(history, int(real.any())),
            "candidates": places[:, history.shape[1] :],
        }
        close(scores(model, alone)[0], whole[user])


@every_kind
def test_saved_and_reloaded_is_the_same_model(kind, tmp_path):
    model, inputs = build(kind), batch()
    model.save_pretrained(tmp_path)
    for loaded in (type(model).from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert torch.equal(scores(loaded.eval(), inputs), scores(model, inputs))


@every_kind
def test_everything_learns_and_empty_titles_and_histories_are_finite(kind):
    model, inputs = build(kind), batch()
    output = model(**inputs, labels=torch.zeros(4, dtype=torch.long))
    assert output.logits.isfinite().all()
    output.loss.backward()
    gradients = {name: one.grad for name, one in model.named_parameters() if "plm.pooler" not in name}
    unused = [name for name, gradient in gradients.items() if gradient is None or not gradient.isfinite().all()]
    assert unused == []


def test_titles_may_be_read_by_pairs_of_words():
    torch.manual_seed(0)
    model = FastformerForRecommendation(RecommendationConfig(**SMALL, bigram_buckets=64)).eval()
    assert scores(model, batch()).isfinite().all()
    assert (model.news.config.bigram_buckets, model.user.config.bigram_buckets) == (64, 0)


def test_padded_candidates_take_no_part_in_the_loss():
    model, inputs = build("fastformer"), batch()
    labels, mask = torch.zeros(4, dtype=torch.long), torch.tensor([[1, 1, 0]] * 4)
    masked = model(**inputs, candidate_mask=mask, labels=labels).loss
    fewer = model(**{**inputs, "candidates": inputs["candidates"][:, :2]}, labels=labels).loss
    torch.testing.assert_close(masked, fewer)


def test_an_empty_history_has_a_vector_that_is_learned():
    model, inputs = build("fastformer"), batch()
    model(**inputs, labels=torch.zeros(4, dtype=torch.long)).loss.backward()
    assert model.user.get_input_embeddings().weight.grad.abs().sum() > 0
    assert scores(model, inputs)[3].abs().max() > 0  # an answer, not zeros


def pooled(pooler, x):
    """Additive attention, as the formula has it."""
    weights = (torch.tanh(x @ pooler.dense.weight.T + pooler.dense.bias) @ pooler.score.weight.T).softmax(dim=0)
    return (weights * x).sum(dim=0)


def self_attention(mixer, x):
    """Multi-head self-attention of one text (length, width), head by head."""
    q, k, v = (part(x).chunk(mixer.heads, dim=-1) for part in (mixer.query, mixer.key, mixer.value))
    heads = [(a @ b.T / math.sqrt(a.shape[-1])).softmax(dim=-1) @ c for a, b, c in zip(q, k, v, strict=True)]
    return mixer.output(torch.cat(heads, dim=-1))


def test_nrms_is_self_attention_and_additive_pooling_at_both_levels():
    model, inputs = build("nrms"), batch()

    def news(number):
        words = inputs["input_ids"][number][inputs["attention_mask"][number].bool()]
        x = model.news.embeddings.word_embeddings(words)
        return pooled(model.news.pooler, self_attention(model.news.layers[0].mixer, x))

    user = 1
    clicked = inputs["history"][user][inputs["history_mask"][user].bool()]
    x = torch.stack([news(number) for number in clicked])
    vector = pooled(model.user.pooler, self_attention(model.user.layers[0].mixer, x))
    close(scores(model, inputs)[user], torch.stack([vector @ news(number) for number in inputs["candidates"][user]]))


def test_fim_matches_every_segment_of_every_clicked_title():
    model, inputs = build("fim"), batch()
    with torch.no_grad():
        segments = model.encode_news(inputs["input_ids"], inputs["attention_mask"])  # news, levels, words, width
        cube = torch.zeros(3, 8, 9, 9)
        for level in range(3):
            for place, news in enumerate(inputs["history"][0]):
                candidate = inputs["candidates"][0, 1]
                cube[level, place] = segments[news, level] @ segments[candidate, level].T / math.sqrt(16)
        expected = model.score(model.cube(cube[None]))[0, 0]
    close(scores(model, inputs)[0, 1], expected)
    assert not segments[2, :, 3:].any()  # nothing at padding


def test_a_run_needs_no_outside_folder_for_its_pretrained_encoder(tmp_path):
    model = build("plm")
    model.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())["plm"]
    assert stored["model_type"] == "bert"
    assert stored["hidden_size"] == 24


SIZE = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
MODERN = {**SIZE, "pad_token_id": 0, "global_attn_every_n_layers": 2}


def pretrained(config):
    torch.manual_seed(0)
    return FastformerForRecommendation(RecommendationConfig(**SMALL, plm=config.to_dict())).eval()


@pytest.mark.parametrize("trained", [0, 1, 2])
@pytest.mark.parametrize("config", [BertConfig(**SIZE), ModernBertConfig(**MODERN)], ids=["bert", "modernbert"])
def test_what_frozen_layers_gave_stands_for_them(config, trained):
    model, inputs = pretrained(config), batch()
    model.news.freeze(trained)
    titles = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    kept = model.read_titles(**titles)
    calls = []
    layers = [name for name, one in model.news.plm.named_modules() if name.split(".")[-1] in ("0", "1", "2")][:3]
    for name in layers:  # attention inside a layer: the layer itself is called, and hands on what it is given
        attention = next(one for at, one in model.news.plm.get_submodule(name).named_children() if at.startswith("att"))
        attention.register_forward_hook(lambda *_, name=name: calls.append(name))
    expected = model(**inputs, labels=torch.zeros(4, dtype=torch.long))
    assert calls == layers * (len(calls) // 3)
    calls.clear()
    found = model(**inputs, title_states=kept, labels=torch.zeros(4, dtype=torch.long))
    assert {*calls} == {*layers[3 - trained :]}
    close(found.logits, expected.logits)

    def gradients(loss):
        model.zero_grad()
        loss.backward()
        return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}

    ours, theirs = gradients(found.loss), gradients(expected.loss)
    assert ours.keys() == theirs.keys()
    assert any("plm" in name for name in ours) == bool(trained)
    for name, one in ours.items():
        close(one, theirs[name])
    close(scores(model, inputs), expected.logits.detach())  # the frozen layers run again without what was kept


def test_nothing_is_kept_of_an_encoder_whose_layers_hand_on_more_than_vectors():
    config = T5Config(vocab_size=50, d_model=24, d_kv=12, d_ff=32, num_layers=3, num_heads=2, is_encoder_decoder=True)
    model, inputs = pretrained(config), batch()
    titles = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    assert model.read_titles(**titles) is None  # nothing is frozen
    model.news.freeze(1)
    assert model.read_titles(**titles) is None
    model.news.freeze(0)
    expected = scores(model, inputs)
    close(scores(model, inputs | {"title_states": model.read_titles(**titles)}), expected)
