"""The n-gram channel: fitted by scikit-learn, the same function inside the model."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fastformer.data.batches import EncodedTexts, Subset
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.modeling.ngrams import NgramChannel, pair_rows
from fastformer.tasks.classification import ngrams
from fastformer.tasks.classification.calibration import cross_calibrated, divide_logits, temperature
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import calibration_error, mean_log_loss, probabilities

CONFIG = FastformerConfig(vocab_size=40, hidden_size=8, num_attention_heads=2, num_labels=3, bigram_buckets=512)
SIZE = ngrams.ChannelSize.of(CONFIG)


def make_texts(count: int = 120, classes: int = 3, seed: int = 0) -> Subset:
    """Texts whose class shows in some of their words."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    texts = [
        np.concatenate(
            [random.integers(10, 40, size=random.integers(0, 12)), random.choice([label, 4 + label], size=2)]
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


@pytest.fixture(scope="module")
def fitted() -> tuple[Subset, NgramChannel]:
    texts, channel = make_texts(), NgramChannel(CONFIG)
    ngrams.fit_channel(channel, texts, SIZE, loudness=1.0)
    return texts, channel


def test_the_model_computes_what_was_fitted(fitted):
    texts, channel = fitted
    every = np.arange(len(texts))
    rows = ngrams.present(texts, every, SIZE).toarray()
    documents = rows.sum(axis=0)
    idf = np.where(documents >= 2, np.log((1 + len(rows)) / (1 + documents)) + 1, 0)
    rows = rows * idf
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    settings = {"C": ngrams.INVERSE_REGULARIZATION, "max_iter": ngrams.ITERATIONS, "tol": 1e-3}
    model = LogisticRegression(**settings).fit(rows, texts.labels)
    found = channel(*padded(texts)).numpy()
    np.testing.assert_allclose(found, model.decision_function(rows), atol=0.01)
    assert (found.argmax(axis=1) == texts.labels).mean() > 0.95


def test_a_word_counts_once_and_pairs_are_hashed_like_the_models():
    texts = make_texts(3)
    texts.texts.tokens = np.array([5, 6, 5, 6, 5, 9], np.int32)
    texts.texts.offsets = np.array([0, 5, 6, 6])
    found = ngrams.present(texts, np.arange(3), SIZE)
    pairs = {41 + pair_rows(5, 6, 512), 41 + pair_rows(6, 5, 512)}
    assert set(found[[0]].indices) == {5, 6, *pairs}
    assert set(found[[1]].indices) == {9}
    assert set(found[[2]].indices) == set()


def test_padding_and_company_change_nothing(fitted):
    texts, channel = fitted
    ids, mask = padded(texts)
    longer, longer_mask = padded(texts, extra=9)
    longer[~longer_mask] = 39
    torch.testing.assert_close(channel(longer, longer_mask), channel(ids, mask))
    torch.testing.assert_close(channel(ids[3:4], mask[3:4]), channel(ids, mask)[3:4])
    shifted = torch.cat([torch.full((len(ids), 2), 11), ids], dim=1)  # padding on the left
    torch.testing.assert_close(channel(shifted, torch.nn.functional.pad(mask, (2, 0))), channel(ids, mask))


def test_long_texts_in_parts(fitted, monkeypatch):
    texts, channel = fitted
    expected = channel(*padded(texts))
    monkeypatch.setattr("fastformer.modeling.ngrams._PART", 3)
    torch.testing.assert_close(channel(*padded(texts)), expected)


def test_an_empty_text_has_the_bias(fitted):
    _, channel = fitted
    found = channel(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.bool))
    torch.testing.assert_close(found, channel.bias[None])


def test_token_effects_are_gradients(fitted):
    _, channel = fitted
    ids = torch.tensor([12, 0, 15, 20, 4])  # all different: every place is its own word
    mask = torch.ones(1, 5, dtype=torch.bool)

    def logits(presence):
        words = presence[:5, None] * channel.words[ids]
        pairs = presence[5:, None] * channel.pairs[pair_rows(ids[:-1], ids[1:], 512)]
        linear = torch.cat([words, pairs])[:, :-1].sum(dim=0)
        square = presence**2 * torch.cat([channel.words[ids], channel.pairs[pair_rows(ids[:-1], ids[1:], 512)]])[:, -1]
        return linear / square.sum().sqrt() + channel.bias

    presence = torch.ones(9)
    torch.testing.assert_close(logits(presence)[None], channel(ids[None], mask))
    gradient = torch.autograd.functional.jacobian(logits, presence).T  # places, labels
    expected = gradient[:5].clone()
    expected[1:] += gradient[5:]
    expected[:-1] += gradient[5:]
    torch.testing.assert_close(channel.token_effects(ids), expected)


def test_a_repeated_word_shares_its_effect(fitted):
    _, channel = fitted
    with torch.no_grad():
        channel.pairs.zero_()  # words alone
    once, twice = (channel.token_effects(torch.tensor(ids)) for ids in ([12, 4, 15], [12, 4, 15, 4]))
    torch.testing.assert_close(twice[1], once[1] / 2)
    torch.testing.assert_close(twice[1], twice[3])
    torch.testing.assert_close(twice[0], once[0])


def test_out_of_fold_logits_have_not_seen_their_text():
    texts = make_texts(60)
    before, _ = ngrams.cross_fit(texts, SIZE, seed=0)
    changed = make_texts(60)
    changed.texts.labels = changed.texts.labels.copy()
    changed.texts.labels[7] = (changed.texts.labels[7] + 1) % 3
    after, loudness = ngrams.cross_fit(changed, SIZE, seed=0)
    before, after = (each - each.mean(axis=1, keepdims=True) for each in (before, after))
    direction = (before[7] * after[7]).sum() / np.sqrt((before[7] ** 2).sum() * (after[7] ** 2).sum())
    assert direction > 0.9999  # but for the loudness its own label moves nothing
    assert loudness > 0


def test_not_for_every_task():
    space = LabelSpace("single", ("a", "b"))
    assert ngrams.can_fit_channel(space, 10, 1000)
    assert not ngrams.can_fit_channel(space, 1, 1000)
    assert not ngrams.can_fit_channel(space, 10, ngrams.MAX_TOKENS + 1)
    assert not ngrams.can_fit_channel(LabelSpace("multi", ("a", "b")), 10, 1000)
    assert not ngrams.can_fit_channel(LabelSpace("number"), 10, 1000)
    assert not ngrams.can_fit_channel(LabelSpace("single", tuple(map(str, range(101)))), 10, 1000)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_may_be_missing(classes):
    size = ngrams.ChannelSize(classes + 1, 40, 512)  # no text has the last class
    channel = NgramChannel(FastformerConfig(vocab_size=40, num_labels=classes + 1, bigram_buckets=512))
    texts = make_texts(80, classes)
    ngrams.fit_channel(channel, texts, size, loudness=1.0)
    assert (channel(*padded(texts)).argmax(dim=1).numpy() == texts.labels).mean() > 0.9


def test_the_model_adds_the_channel():
    config = FastformerConfig(**{**CONFIG.to_diff_dict(), "ngram_channel": True})
    model = FastformerForSequenceClassification(config).eval()
    ids, mask = padded(make_texts(4))
    plain = model(ids, mask).logits
    model.ngrams.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(model(ids, mask).logits, plain + torch.tensor([1.0, 2.0, 3.0]))
    given = torch.randn(4, 3)
    torch.testing.assert_close(model(ids, mask, ngram_logits=given).logits, plain + given)
    divide_logits(model, 2.0)
    torch.testing.assert_close(model(ids, mask).logits, (plain + torch.tensor([1.0, 2.0, 3.0])) / 2)


def test_a_channel_needs_word_pairs():
    with pytest.raises(ValueError, match="bigram_buckets"):
        FastformerConfig(ngram_channel=True)


class TestCalibration:
    space = LabelSpace("single", ("a", "b", "c"))

    def test_temperature_undoes_a_factor(self):
        random = np.random.default_rng(0)
        logits = random.normal(size=(20_000, 3))
        chances = probabilities(self.space, logits)
        labels = (chances.cumsum(axis=1) > random.random((len(logits), 1))).argmax(axis=1)
        assert temperature(self.space, 3 * logits, labels) == pytest.approx(3, rel=0.05)
        assert temperature(self.space, logits, labels) == pytest.approx(1, rel=0.05)

    def test_few_texts_say_little(self):
        logits = np.array([[5.0, 0, 0], [0, 5.0, 0]])
        assert 0.8 < temperature(self.space, logits, np.array([0, 1])) < 1.25

    def test_scores_come_from_other_texts_than_the_temperature(self):
        random = np.random.default_rng(0)
        logits, labels = random.normal(size=(40, 3)), random.integers(0, 3, 40)
        found = cross_calibrated(self.space, logits, labels)
        np.testing.assert_allclose(found[::2], logits[::2] / temperature(self.space, logits[1::2], labels[1::2]))
        changed = labels.copy()
        changed[0] = (changed[0] + 1) % 3  # a text's own label does not move its own logits
        np.testing.assert_array_equal(cross_calibrated(self.space, logits, changed)[::2], found[::2])

    def test_several_labels(self):
        space = LabelSpace("multi", ("a", "b"))
        logits = np.random.default_rng(0).normal(size=(5000, 2))
        labels = (np.random.default_rng(1).random(logits.shape) < probabilities(space, logits)).astype(float)
        assert temperature(space, 2 * logits, labels) == pytest.approx(2, rel=0.1)

    def test_calibration_error_by_hand(self):
        chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.45, 0.55]])
        labels = np.array([0, 1, 1, 1])
        # range of 0.9: half right, off by 0.4, two texts; 0.6 (bin 9) right: 0.4; 0.55 (bin 8) right: 0.45
        assert calibration_error(chances, labels) == pytest.approx((2 * 0.4 + 0.4 + 0.45) / 4)

    def test_log_loss_is_sklearns(self):
        chances = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
        expected = -(np.log(0.7) + np.log(0.1)) / 2
        assert mean_log_loss(self.space, chances, np.array([0, 2])) == pytest.approx(expected)
