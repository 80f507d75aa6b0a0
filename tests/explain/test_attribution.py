"""Weights are the model's own, effects are gradient times input, and the check really removes tokens."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from fastformer import FastformerConfig, FastformerForSequenceClassification, available_mixers
from fastformer.errors import UserError
from fastformer.explain.attribution import compare, places_to_remove, removal_logits, token_effects, token_weights

IDS = np.array([5, 9, 7, 9, 21, 30, 14], dtype=np.int32)


def build(**settings) -> FastformerForSequenceClassification:
    small = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 4, "num_labels": 3}
    torch.manual_seed(0)
    config = FastformerConfig(**{**small, "initializer_range": 0.3, **settings})
    model = FastformerForSequenceClassification(config).eval().double()
    if config.bigram_buckets:
        torch.nn.init.normal_(model.fastformer.embeddings.bigram_embeddings.weight)
    return model


def removal_effects(model, ids, score, places) -> np.ndarray:
    whole, without = removal_logits(model, ids, places)
    return (score(whole) - score(without)).numpy()


def check_by_removal(model, ids, score, effects, candidates):
    places = places_to_remove(effects, candidates)
    return compare(places, effects, removal_effects(model, ids, score, places))


def mean_of_words(**settings) -> FastformerForSequenceClassification:
    """A linear model: its logits are W·mean(x) + b."""
    plain = {"num_hidden_layers": 0, "pooling": "mean", "norm": "none", "position_embedding_type": "none"}
    return build(**plain, **settings)


def first_class(logits):
    return logits[:, 0]


def log_odds(logits):
    return logits[:, 1] - logits[:, [0, 2]].logsumexp(dim=1)


def test_in_a_linear_model_the_effects_add_up_to_the_score():
    model = mean_of_words()
    vectors = model.fastformer.embeddings.word_embeddings.weight[IDS]
    expected = vectors @ model.classifier.weight[0] / len(IDS)
    effects = token_effects(model, IDS, first_class)
    np.testing.assert_allclose(effects, expected.detach(), rtol=1e-5)
    score = first_class(model(torch.tensor(IDS[None].astype(np.int64))).logits) - model.classifier.bias[0]
    assert effects.sum() == pytest.approx(score.item(), rel=1e-5)


def test_a_token_answers_for_both_pairs_that_it_is_in():
    model = mean_of_words(bigram_buckets=64)
    embeddings = model.fastformer.embeddings
    ids = torch.tensor(IDS[None].astype(np.int64))
    pairs = embeddings.bigram_embeddings(embeddings.tokens(ids, torch.ones_like(ids).bool(), None).pairs)[0]
    own = embeddings.word_embeddings(ids)[0] + pairs
    following = torch.cat([pairs[1:], torch.zeros_like(pairs[:1])])
    row = model.classifier.weight[0] / len(IDS)
    np.testing.assert_allclose(token_effects(model, IDS, first_class), ((own + following) @ row).detach(), rtol=1e-5)
    from_mean = ((own - own.mean(dim=0) + following) @ row).detach()
    np.testing.assert_allclose(token_effects(model, IDS, first_class, "mean"), from_mean, rtol=1e-4, atol=1e-7)


def test_in_a_mean_of_words_the_check_finds_full_agreement():
    model = mean_of_words()
    ids = np.arange(3, 23, dtype=np.int32)
    effects = token_effects(model, ids, first_class)
    assert check_by_removal(model, ids, first_class, effects, np.arange(20)).correlation == pytest.approx(1)


def slope(model, places: dict[torch.nn.Module, int], step: float = 1e-5) -> float:
    """How the score moves when what these modules give out for these places is stretched by a little."""

    def stretched(by):
        def stretch(module, inputs, output):
            output = output.clone()
            output[:, places[module]] *= 1 + by
            return output

        hooks = [module.register_forward_hook(stretch) for module in places]
        with torch.no_grad():
            score = log_odds(model(torch.tensor(IDS[None].astype(np.int64))).logits).item()
        for hook in hooks:
            hook.remove()
        return score

    return (stretched(step) - stretched(-step)) / (2 * step)


@pytest.mark.parametrize("norm", ["post", "none"])
@pytest.mark.parametrize("mixer", available_mixers())
def test_an_effect_is_the_slope_along_the_input(mixer, norm):
    model = build(mixer=mixer, norm=norm)
    embeddings = model.fastformer.embeddings
    effects = token_effects(model, IDS, log_odds)
    assert np.isfinite(effects).all()
    for place, effect in enumerate(effects):
        assert effect == pytest.approx(slope(model, {embeddings: place}), rel=1e-3, abs=1e-6)


def test_with_pairs_and_norm_an_effect_is_the_slope_along_both():
    model = build(bigram_buckets=64, norm="post")
    embeddings = model.fastformer.embeddings
    effects = token_effects(model, IDS, log_odds)
    for place in (0, 3):
        expected = slope(model, {embeddings: place, embeddings.bigram_embeddings: place + 1})
        assert effects[place] == pytest.approx(expected, rel=1e-3)


def test_explaining_leaves_no_trace_and_needs_no_trainable_weights():
    model = build(bigram_buckets=64)
    free = token_effects(model, IDS, log_odds)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    frozen = token_effects(model.requires_grad_(False), IDS, log_odds)
    np.testing.assert_array_equal(frozen, free)


def test_unknown_baseline():
    with pytest.raises(UserError, match="unknown baseline 'median'; choose from zero, mean"):
        token_effects(build(), IDS, log_odds, "median")


@pytest.mark.parametrize("pooling", ["additive", "mean", "first"])
def test_pooling_weights_make_the_text_vector(pooling):
    model = build(pooling=pooling)
    weights = token_weights(model, IDS)
    with torch.no_grad():
        output = model.fastformer(torch.tensor(IDS[None].astype(np.int64)))
    assert weights.pooling.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(
        weights.pooling @ output.last_hidden_state[0].numpy(), output.pooler_output[0], atol=1e-6
    )


def test_poolings_weigh_no_padding():
    x, mask = torch.randn(3, 5, 16), torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0] * 5]).bool()
    for pooling in ("additive", "mean", "first"):
        pooler = build(pooling=pooling).float().fastformer.pooler
        weights = pooler.weights(x, mask)
        assert (weights[~mask] == 0).all()
        torch.testing.assert_close(weights.sum(dim=1), torch.tensor([1.0, 1.0, 0.0]))
        torch.testing.assert_close((weights[:, None] @ x).squeeze(1), pooler(x, mask))


@pytest.mark.parametrize("settings", [{}, {"share_layers": False}, {"head_form": "full"}, {"interaction": "concat"}])
def test_global_weights_are_those_of_every_layer_and_head(settings):
    model = build(**settings)
    weights = token_weights(model, IDS)
    ids = torch.tensor(IDS[None].astype(np.int64))
    attentions = model(ids, output_attentions=True).attentions
    for found, which in ((weights.global_query, 0), (weights.global_key, 1)):
        assert found.shape == (2, 4, len(IDS))
        np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)
        expected = np.stack([layer[0, which].detach() for layer in attentions])
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("mixer", [name for name in available_mixers() if name != "fastformer"])
def test_rivals_have_pooling_weights_only(mixer, caplog):
    weights = token_weights(build(mixer=mixer), IDS)
    assert weights.global_query is weights.global_key is None
    assert weights.pooling.sum() == pytest.approx(1, abs=1e-6)
    assert not caplog.records  # nobody asked for what is not there


@pytest.mark.parametrize("mixer", available_mixers())
def test_removing_is_running_the_model_without_the_token(mixer, monkeypatch):
    monkeypatch.setattr("fastformer.explain.attribution.BATCH_TOKENS", 20)  # in several batches
    model = build(mixer=mixer, bigram_buckets=64)
    changes = removal_effects(model, IDS, log_odds, [6, 0, 3])

    def score(ids):
        with torch.no_grad():
            return float(log_odds(model(torch.tensor(ids[None].astype(np.int64))).logits))

    expected = [score(IDS) - score(np.delete(IDS, place)) for place in (6, 0, 3)]
    np.testing.assert_allclose(changes, expected, atol=1e-5)


def test_the_check_takes_tokens_from_all_over_the_ranking():
    model = build(max_position_embeddings=200)
    ids = np.random.default_rng(0).integers(3, 40, 150).astype(np.int32)
    effects = token_effects(model, ids, log_odds)
    candidates = np.arange(10, 150)
    removals = check_by_removal(model, ids, log_odds, effects, candidates)
    assert len(set(removals.places.tolist())) == 40
    assert removals.places.min() >= 10
    assert effects[removals.places].min() == effects[candidates].min()
    assert effects[removals.places].max() == effects[candidates].max()
    np.testing.assert_allclose(removals.effects, removal_effects(model, ids, log_odds, removals.places), atol=1e-6)
    assert removals.correlation == pytest.approx(spearmanr(effects[removals.places], removals.effects)[0])


@pytest.mark.parametrize("length", [0, 1, 2])
def test_too_few_tokens_to_compare(length):
    model = build()
    effects = token_effects(model, IDS[:length], log_odds)
    removals = check_by_removal(model, IDS[:length], log_odds, effects, np.arange(length))
    assert len(effects) == len(removals.places) == len(removals.effects) == length
    assert removals.correlation is None
    assert len(token_weights(model, IDS[:length]).pooling) == length
