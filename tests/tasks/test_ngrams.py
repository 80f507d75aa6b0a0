"""The n-gram channel: fitted by scikit-learn, and the same function inside the model."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.svm import LinearSVC

from fastformer.data.batches import EncodedTexts, Subset
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.modeling import ngrams as modeling
from fastformer.modeling.ngrams import NgramChannel, pair_rows
from fastformer.tasks.classification import ngram_features, ngrams
from fastformer.tasks.classification.channel import can_fit_channel
from fastformer.tasks.classification.data import LabelSpace

BUCKETS = 512
WORDS = [""] + [f" w{number}e{number % 7}x " for number in range(1, 37)] + ["ing", "ed", ""]  # the last three: pieces


def make_texts(count: int = 120, classes: int = 3, seed: int = 0) -> Subset:
    """Texts whose class shows in some of their words."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    texts = [
        np.concatenate(
            [random.integers(10, 40, size=random.integers(0, 12)), random.choice([1 + label, 5 + label], size=2)]
        )
        for label in labels
    ]
    offsets = np.cumsum([0] + [len(text) for text in texts])
    return Subset(EncodedTexts(np.concatenate(texts).astype(np.int32), offsets, labels), np.arange(count))


def padded(texts: Subset, extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    width = int(texts.lengths.max()) + extra
    ids, mask = torch.full((len(texts), width), 7), torch.zeros(len(texts), width, dtype=torch.bool)
    for row in range(len(texts)):
        tokens = torch.from_numpy(texts[row]["input_ids"].astype(np.int64))
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, True
    return ids, mask


def fit(texts: Subset, classes: int = 3) -> tuple[ngram_features.Features, ngram_features.Weights, NgramChannel]:
    channel = NgramChannel(len(WORDS), BUCKETS, classes)
    features = ngram_features.Features(texts, WORDS, BUCKETS)
    weights = ngrams.fit_machines(features, texts.labels, classes, C=1.0)
    features.fill(channel, weights)
    return features, weights, channel


@pytest.fixture(scope="module")
def fitted() -> tuple[Subset, NgramChannel]:
    texts = make_texts()
    return texts, fit(texts)[2]


def test_the_model_computes_what_was_fitted():
    texts = make_texts()
    features, weights, channel = fit(texts)
    found = channel(*padded(texts)).numpy()
    np.testing.assert_allclose(found, weights(features.rows), atol=1e-4)
    scaled = features.rows * ngrams._feature_scales(features.rows, texts.labels, 0)
    machines = LinearSVC(C=1.0, class_weight="balanced", tol=1e-6, max_iter=100_000).fit(scaled, texts.labels)
    np.testing.assert_allclose(found, machines.decision_function(scaled), atol=0.1)
    assert (found.argmax(axis=1) == texts.labels).mean() > 0.95


def test_features_by_hand():
    texts = make_texts(3)
    texts.texts.tokens = np.array([5, 6, 5, 6, 5, 9], np.int32)
    texts.texts.offsets = np.array([0, 5, 6, 6])
    words = [""] * 5 + [" a ", " ab ", "", "", " c "]
    features = ngram_features.Features(texts, words, BUCKETS)
    idf = np.log(4 / 2) + 1  # every word, pair and n-gram is in one text
    pairs = [len(words) + pair_rows(5, 6, BUCKETS), len(words) + pair_rows(6, 5, BUCKETS)]
    row = features.rows[[0]].toarray()[0]
    expected = np.zeros(len(words) + BUCKETS)
    expected[[5, 6, *pairs]] = idf * (1 + np.log([3, 2, 2, 2]))
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(row[: features.words_and_pairs], expected[features.used], rtol=1e-5)
    assert features.characters.of_words.shape[1] == 0  # an n-gram of one text alone is left out
    assert features.rows[[2]].nnz == 0


def test_characters_of_words_that_share_them():
    texts = make_texts(2)
    texts.texts.tokens = np.array([0, 0, 1], np.int32)
    texts.texts.offsets = np.array([0, 2, 3])
    features = ngram_features.Features(texts, [" ab ", " abc ", "ab"], BUCKETS)
    shared = {" a", " ab", "ab"}  # n-grams of two texts, idf 1
    assert features.characters.of_words.shape == (3, len(shared))
    characters = features.rows[:, features.words_and_pairs :].toarray()
    np.testing.assert_allclose(characters, 1 / np.sqrt(3), rtol=1e-6)  # the count of the word cancels
    np.testing.assert_allclose(features.characters.squares, [3, 3, 1])  # a piece has no space before it
    np.testing.assert_allclose(features.characters.shared, np.sqrt([3, 3, 1 / 3]), rtol=1e-6)  # all point the same way


@pytest.mark.parametrize("counted", [True, False])
def test_both_ways_to_read_are_equal(counted):
    random = torch.Generator().manual_seed(0)
    table, rows = torch.rand(20, 4, generator=random), torch.randint(20, (5, 30), generator=random)
    fast, plain = (read(rows, 20, counted)(table) for read in (modeling._read_on_cpu, modeling._read))
    torch.testing.assert_close(fast, plain)
    for text, sums in zip(rows, plain, strict=True):
        values, counts = text.unique(return_counts=True)
        weights = 1 + counts.log() if counted else torch.ones(len(counts))
        torch.testing.assert_close(sums[:-1], (weights[:, None] * table[values, :-1]).sum(dim=0))
        torch.testing.assert_close(sums[-1], (weights**2 * table[values, -1]).sum())


def test_padding_and_company_change_nothing(fitted):
    texts, channel = fitted
    ids, mask = padded(texts)
    longer, longer_mask = padded(texts, extra=9)
    longer[~longer_mask] = 39
    assert torch.equal(channel(longer, longer_mask), channel(ids, mask))
    assert torch.equal(channel(ids[3:4], mask[3:4]), channel(ids, mask)[3:4])
    shifted = torch.cat([torch.full((len(ids), 2), 11), ids], dim=1)  # padding on the left
    assert torch.equal(channel(shifted, torch.nn.functional.pad(mask, (2, 0))), channel(ids, mask))


def test_an_empty_text_has_the_bias(fitted):
    _, channel = fitted
    found = channel(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.bool))
    torch.testing.assert_close(found, channel.bias[None])


def test_token_effects_are_gradients(fitted):
    _, channel = fitted
    ids = torch.tensor([12, 1, 15, 20, 5])  # all different: every place is its own word
    pairs = channel.pairs[pair_rows(ids[:-1], ids[1:], BUCKETS)]

    def logits(weights):
        rows, letters = torch.cat([channel.words[ids], pairs]), channel.characters[ids]
        words = weights @ rows[:, :-1] / (weights**2 @ rows[:, -1]).sqrt()
        length = ((weights[:5] @ letters[:, -2]) ** 2 + weights[:5] ** 2 @ letters[:, -1]).sqrt()
        return words + weights[:5] @ letters[:, :-2] / length + channel.bias

    weights = torch.ones(9)
    torch.testing.assert_close(logits(weights)[None], channel(ids[None], torch.ones(1, 5, dtype=torch.bool)))
    gradient = torch.autograd.functional.jacobian(logits, weights).T  # places, labels
    expected = gradient[:5].clone()
    expected[1:] += gradient[5:]
    expected[:-1] += gradient[5:]
    torch.testing.assert_close(channel.token_effects(ids), expected)


def test_a_repeated_word_shares_its_effect(fitted):
    _, channel = fitted
    effects = channel.token_effects(torch.tensor([12, 5, 15, 5, 15]))
    with torch.no_grad():
        kept = channel.pairs.clone()
        channel.pairs.zero_()  # words alone
        alone = channel.token_effects(torch.tensor([12, 5, 15, 5, 15]))
        channel.pairs.copy_(kept)
    torch.testing.assert_close(alone[1], alone[3])
    torch.testing.assert_close(alone[2], alone[4])
    assert not torch.equal(effects, alone)


def test_features_are_scaled_by_how_strongly_they_indicate_a_class():
    labels = np.array([0, 0, 0, 1, 1, 1])
    rows = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]], np.float32))
    scales = ngrams._feature_scales(rows, labels, places=0)
    shares = np.array([6, 4]) / 10
    expected = [
        max(abs(np.log((n + 2 * p) / (other + 2 * (1 - p))) - np.log(p / (1 - p))) for n, other, p in found)
        for found in (
            [(3, 3, shares[0]), (3, 3, shares[1])],
            [(2, 1, shares[0]), (1, 2, shares[1])],
            [(1, 0, shares[0])],
        )
    ]
    expected[2] = max(expected[2], np.log(1.5))  # the other class lacks it
    np.testing.assert_allclose(scales / scales[0], np.cbrt(expected) / np.cbrt(expected[0]), rtol=1e-5)
    assert (rows.data**2).sum() == pytest.approx(((rows * scales).data ** 2).sum(), rel=1e-5)


def test_places_along_directions_are_no_counts():
    rows = sparse.csr_array(np.array([[1, 0, 0.3], [0, 1, -0.2]], np.float32))
    scales = ngrams._feature_scales(rows, np.array([0, 1]), places=1)
    assert scales[2] / scales[0] == pytest.approx(1 / np.cbrt(np.log(2)), rel=1e-5)


def with_meanings(texts: Subset) -> ngram_features.Features:
    """Words 1 to 3 and 4 to 6 mean what is opposite; nothing is known of the others."""
    meanings = np.zeros((len(WORDS), 4), np.float32)
    meanings[1:4, 0], meanings[4:7, 0], meanings[7:30, 1] = 1, -1, 0.3
    return ngram_features.Features(texts, WORDS, BUCKETS, meanings)


@pytest.mark.parametrize("scale", [1.0, 2.0, 0.0])
def test_the_model_knows_what_words_mean(scale):
    texts = make_texts()
    features = with_meanings(texts).with_meanings_at(scale)
    assert (features.meanings is None) == (scale == 0)
    channel = NgramChannel(len(WORDS), BUCKETS, 3, meanings=features.meanings is not None)
    weights = ngrams.fit_machines(features, texts.labels, 3, C=1.0)
    features.fill(channel, weights)
    np.testing.assert_allclose(channel(*padded(texts)).numpy(), weights(features.rows), atol=1e-4)
    config = FastformerConfig(vocab_size=len(WORDS), hidden_size=8, num_attention_heads=2, num_labels=3)
    channel.describe(config)
    again = NgramChannel.of(config)
    again.load_state_dict(channel.state_dict())
    assert torch.equal(again(*padded(texts)), channel(*padded(texts)))


def test_a_word_that_no_text_had_counts_by_its_meaning():
    """Words 1 and 2 tell the classes apart; 3 means what 1 means and is in no text."""
    texts = make_texts(40, classes=2)
    tokens = [np.array([10, 11, 1 + label]) for label in texts.labels]
    texts.texts.tokens, texts.texts.offsets = np.concatenate(tokens).astype(np.int32), np.arange(0, 121, 3)
    meanings = np.zeros((len(WORDS), 2), np.float32)
    meanings[[1, 3]], meanings[2] = (1, 0), (0, 1)
    features = ngram_features.Features(texts, WORDS, BUCKETS, meanings)
    channel = NgramChannel(len(WORDS), BUCKETS, 2, meanings=True)
    features.fill(channel, ngrams.fit_machines(features, texts.labels, 2, C=1.0))
    unseen = torch.tensor([[10, 11, 3]])
    assert channel(unseen, torch.ones_like(unseen, dtype=torch.bool)).argmax() == 0
    channel.meanings.zero_()
    alone = channel(unseen, torch.ones_like(unseen, dtype=torch.bool))
    assert alone.softmax(dim=-1)[0, 0] < 0.7  # its letters alone say little


def test_effects_of_meanings_are_those_of_a_gradient():
    texts = make_texts()
    features = with_meanings(texts)
    channel = NgramChannel(len(WORDS), BUCKETS, 3, meanings=True)
    features.fill(channel, ngrams.fit_machines(features, texts.labels, 3, C=1.0))
    ids = torch.tensor([12, 1, 5])
    without = channel.token_effects(ids)
    kept, channel.meanings = channel.meanings, None
    rows, difference = kept[ids], without - channel.token_effects(ids)

    def logits(weights):
        length = ((weights @ rows[:, -2]) ** 2 + weights**2 @ rows[:, -1]).sqrt()
        return weights @ rows[:, :-2] / length

    torch.testing.assert_close(difference, torch.autograd.functional.jacobian(logits, torch.ones(3)).T)


def test_the_scale_of_meanings_is_chosen_by_what_it_gains(monkeypatch):
    texts = make_texts()
    features, values = with_meanings(texts), {0.5: 0.5, 0.0: 0.9, 1.0: 0.6, 2.0: 0.6}
    heard: list[float] = []

    def value_of(scores, labels):
        heard.append(0)
        return list(values.values())[max(0, len(heard) - len(ngrams.GRID))]

    monkeypatch.setattr(ngrams, "value_of", value_of)
    choice = ngrams.choose(features, texts.labels, 3, 0, lambda steps: None)
    assert choice.meaning_scale == 0.0
    assert choice.tried["meanings 0"] == 0.9


def test_out_of_fold_scores_have_not_seen_their_text():
    texts = make_texts(60)
    features = ngram_features.Features(texts, WORDS, BUCKETS)
    before = ngrams.cross_fit(features, texts.labels, 3, 1.0, folds=3, seed=0)
    moved = texts.labels.copy()
    moved[7] = (moved[7] + 1) % 3
    folds = [held_out for _, held_out in ngrams._folds(moved, 3, 0)]
    after = ngrams.cross_fit(features, moved, 3, 1.0, folds=3, seed=0)
    [own] = [held_out for held_out in folds if 7 in held_out]
    same = [held_out for _, held_out in ngrams._folds(texts.labels, 3, 0) if set(held_out) == set(own)]
    if same:  # the folds are drawn by class: where they stay, its own label moves nothing
        np.testing.assert_array_equal(before[7], after[7])
    assert sorted(np.concatenate(folds)) == list(range(60))


def test_every_class_is_spread_over_the_folds():
    labels = np.array([0] * 30 + [1] * 3 + [2])
    for training, held_out in ngrams._folds(labels, 3, 0):
        assert np.bincount(labels[held_out], minlength=3)[1] == 1
        assert not set(training) & set(held_out)


def test_a_c_is_chosen_by_what_it_gains():
    texts = make_texts(150)
    done = []
    choice = ngrams.choose(ngram_features.Features(texts, WORDS, BUCKETS), texts.labels, 3, 0, done.append)
    assert set(choice.tried) == {str(C) for C in ngrams.GRID}
    assert choice.C == ngrams.FEW_CLASSES_C or choice.value > choice.tried[str(ngrams.FEW_CLASSES_C)] + ngrams.WORTH
    assert choice.value > 0.9
    assert len(done) == len(ngrams.GRID)


def test_not_for_every_task():
    assert can_fit_channel(LabelSpace("single", ("a", "b")))
    assert not can_fit_channel(LabelSpace("number"))
    assert not can_fit_channel(LabelSpace("single", tuple(map(str, range(ngrams.MAX_CLASSES + 1)))))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_may_be_missing(classes):
    texts = make_texts(80, classes)
    _, _, channel = fit(texts, classes + 1)  # no text has the last class
    assert (channel(*padded(texts)).argmax(dim=1).numpy() == texts.labels).mean() > 0.9


def test_too_many_texts_are_sampled(monkeypatch):
    texts = make_texts(200)
    assert len(ngram_features.within_memory(texts, seed=0)) == 200
    monkeypatch.setattr(ngram_features, "MAX_VALUES", 4000)
    some = ngram_features.within_memory(texts, seed=0)
    assert 0 < len(some) < 200
    assert np.array_equal(some, ngram_features.within_memory(texts, seed=0))


def test_the_model_adds_the_channel(fitted):
    texts, channel = fitted
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_labels": 3, "bigram_buckets": 16}
    model = FastformerForSequenceClassification(FastformerConfig(vocab_size=len(WORDS), **sizes)).eval()
    ids, mask = padded(texts)
    plain = model(ids, mask).logits
    model.add_ngrams(channel)
    torch.testing.assert_close(model(ids, mask).logits, plain + channel(ids, mask))
    model.add_ngrams(channel, only=True)
    torch.testing.assert_close(model(ids, mask).logits, channel(ids, mask))


def test_where_the_channel_answers_alone_the_encoder_can_be_trained_further(fitted):
    texts, channel = fitted
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_labels": 3, "bigram_buckets": 16}
    model = FastformerForSequenceClassification(FastformerConfig(vocab_size=len(WORDS), **sizes))
    model.add_ngrams(channel, only=True)
    ids, mask = padded(texts)
    model(ids, mask, labels=torch.from_numpy(texts.labels)).loss.backward()
    assert model.classifier.weight.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="give input_ids"):
        model(inputs_embeds=torch.zeros(1, 3, 8))


def test_half_precision_answers_too(fitted):
    texts, _ = fitted
    channel = fit(texts)[2]
    expected = channel(*padded(texts))
    found = channel.to(torch.bfloat16)(*padded(texts))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)


def test_a_channel_of_the_older_form_answers_as_it_did():
    config = FastformerConfig(vocab_size=40, num_labels=3, bigram_buckets=64, ngram_channel=True)
    channel = NgramChannel.of(config)
    assert set(channel.state_dict()) == {"words", "pairs", "bias"}
    random = torch.Generator().manual_seed(0)
    for table in channel.state_dict().values():
        table.copy_(torch.rand(table.shape, generator=random))
    channel.pairs[0] = 0  # no pair
    ids = torch.tensor([[5, 6, 5, 9]])
    rows = torch.cat([channel.words[[5, 6, 9]], channel.pairs[pair_rows(ids[0, :-1], ids[0, 1:], 64)]]).sum(dim=0)
    found = channel(ids, torch.ones_like(ids, dtype=torch.bool))
    torch.testing.assert_close(found, (rows[:-1] / rows[-1].sqrt() + channel.bias)[None])


def test_a_channel_needs_word_pairs():
    with pytest.raises(ValueError, match="bigram_buckets"):
        FastformerConfig(ngram_channel=True)


def test_the_length_of_long_texts_is_nearly_right():
    """Words have n-grams in common: the parts alone would make a text of a hundred words half as long as it is."""
    random = np.random.default_rng(0)
    ids = random.integers(1, 37, size=40 * 100).astype(np.int32)
    texts = Subset(EncodedTexts(ids, np.arange(0, 4001, 100), np.zeros(40, np.int64)), np.arange(40))
    features = ngram_features.Features(texts, WORDS, BUCKETS)
    lengths = np.linalg.norm(features.rows[:, features.words_and_pairs :].toarray(), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=0.1)


def test_counting_beyond_32_bits():
    rows, height = np.array([7, 2**30, 7, 3, 7]), 2**30 + 1
    found = modeling.count_rows(rows, np.array([0, 1, 1, 2, 2]), 4, height)  # the last text has none
    assert found.indptr.tolist() == [0, 1, 3, 5, 5]
    assert found.indices.tolist() == [7, 7, 2**30, 3, 7]
    same = modeling.count_rows(np.array([7, 7, 7]), np.zeros(3, dtype=np.int64), 4, height)
    assert same.data.tolist() == [3.0]
