"""Several labels per text: the n-gram channel, its blend with the encoder, thresholds that held-out texts choose."""

import json

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC

from fastformer import TextClassifier
from fastformer.data.batches import EncodedTexts, Subset
from fastformer.modeling import FastformerConfig
from fastformer.modeling.ngrams import NgramChannel
from fastformer.runs.folder import open_run
from fastformer.tasks.classification import ngram_features, ngrams
from fastformer.tasks.classification.answers import describe, describe_all, has_label, probabilities
from fastformer.tasks.classification.channel import Stacked, can_fit_channel
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import log_losses, scores
from fastformer.tasks.classification.report import class_scores
from fastformer.tasks.classification.stacking import Blend, Unseen, best_scale
from fastformer.tasks.classification.thresholds import cross_answers, label_thresholds
from fastformer.tasks.verbs import evaluate

from .conftest import write_jsonl
from .test_ngrams import BUCKETS, WORDS, make_texts, padded

SPACE = LabelSpace("multi", ("a", "b", "c"))


def several(texts: Subset) -> Subset:
    """The same texts; each label says whether a text has a word of it."""
    labels = np.zeros((len(texts), 3), np.float32)
    for row in range(len(texts)):
        ids = texts[row]["input_ids"]
        labels[row] = [bool(np.isin(ids, words).any()) for words in ([1, 5], [10, 11, 12, 13], [2, 6])]
    return Subset(EncodedTexts(texts.texts.tokens, texts.texts.offsets, labels), texts.indices)


def noisy(count: int, labels: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and truths of labels that get ever rarer; the logits know something, and are calibrated."""
    random = np.random.default_rng(seed)
    base = np.linspace(0, -5, labels)
    logits = base + 1.5 * random.normal(size=(count, labels))
    return logits.astype(np.float32), (random.random((count, labels)) < expit(logits)).astype(np.float32)


def both_f(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return np.array([f1_score(truth, predicted, average=kind, zero_division=0) for kind in ("micro", "macro")])


class TestChannel:
    def test_one_machine_per_label(self):
        texts = several(make_texts(200))
        features, channel = ngram_features.Features(texts, WORDS, BUCKETS), NgramChannel(len(WORDS), BUCKETS, 3)
        features.fill(channel, ngrams.fit_machines(features, texts.labels, 3, C=1.0))
        found = channel(*padded(texts)).numpy()
        for label in range(3):
            machine = LinearSVC(C=1.0, tol=1e-6, max_iter=100_000).fit(features.rows, texts.labels[:, label])
            np.testing.assert_allclose(found[:, label], machine.decision_function(features.rows), atol=0.1)
        assert ((found > 0) == texts.labels).mean() > 0.9

    def test_a_label_that_all_or_none_have(self):
        texts = several(make_texts(50))
        texts.texts.labels[:, 1:] = [0, 1]
        found = ngrams.fit_machines(ngram_features.Features(texts, WORDS, BUCKETS), texts.labels, 3, C=1.0)
        assert not found.weights[:, 1:].any()
        assert found.bias[1] < 0 < found.bias[2]
        assert found.weights[:, 0].any()

    def test_c_is_chosen_by_both_f(self):
        texts = several(make_texts(150))
        choice = ngrams.choose(ngram_features.Features(texts, WORDS, BUCKETS), texts.labels, 3, 0, lambda count: None)
        assert set(choice.tried) == {str(C) for C in ngrams.GRID}
        assert choice.value == pytest.approx(both_f(choice.labels, choice.scores > 0).mean())

    def test_every_text_is_in_one_fold(self):
        labels = np.zeros((31, 3))
        folds = list(ngrams._folds(labels, 3, 0))
        assert sorted(np.concatenate([held_out for _, held_out in folds])) == list(range(31))
        assert max(len(held_out) for _, held_out in folds) == 11
        assert folds[0][1].tolist() != list(range(0, 31, 3))  # not in the order of the file

    def test_not_for_too_many_labels(self):
        assert can_fit_channel(SPACE)
        assert not can_fit_channel(LabelSpace("multi", tuple(map(str, range(ngrams.MAX_CLASSES + 1)))))


class TestBlend:
    truth = np.random.default_rng(0).random((1500, 3)) < 0.2

    def scores(self, seed: int, quality: float) -> np.ndarray:
        noise = np.random.default_rng(seed).normal(size=self.truth.shape)
        return (quality * (self.truth - 0.5) + noise).astype(np.float32)

    def test_noise_is_not_used(self):
        assert Unseen(SPACE, self.scores(1, 2.0), self.scores(2, 0.0), self.truth, usual=2.0).blend().encoder == 0

    def test_what_knows_something_is_used(self):
        channel, encoder = self.scores(1, 2.0), self.scores(2, 2.0)
        found = Unseen(SPACE, channel, encoder, self.truth, usual=2.0).blend()
        # two looks of noise 1 at 2 y: the log-odds are 2 (x1 + x2) + log(0.2 / 0.8)
        assert (found.channel, found.encoder) == pytest.approx((2, 2), rel=0.25)
        assert found.bias == pytest.approx(np.log(0.2 / 0.8), rel=0.3)
        assert found.doubt == 0

    def test_it_has_the_least_loss(self):
        channel, encoder = self.scores(1, 2.0), self.scores(2, 2.0)
        found = Unseen(SPACE, channel, encoder, self.truth, usual=2.0).blend()

        def loss(one: Blend) -> float:
            return log_losses(probabilities(SPACE, one(channel, encoder)), self.truth).mean()

        for other in (
            Blend(found.channel * 1.3, found.encoder, bias=found.bias),
            Blend(found.channel, found.encoder / 1.3, bias=found.bias),
            Blend(found.channel, found.encoder, bias=found.bias + 0.4),
        ):
            assert loss(found) < loss(other)

    def test_the_best_scale_undoes_a_factor(self):
        channel = self.scores(1, 2.0)
        scale = best_scale(SPACE, channel, self.truth)
        assert best_scale(SPACE, channel / 3, self.truth) == pytest.approx(3 * scale, rel=0.1)

    def test_the_model_has_the_bias(self):
        channel = NgramChannel(5, 8, 3)
        channel.bias += 1
        model = torch.nn.Module()
        model.classifier = torch.nn.Linear(2, 3)
        model.add_ngrams = lambda channel, only, doubt: None
        Stacked(channel, Blend(2.0, 0.5, bias=-0.25), np.zeros(0), {}).add_to(model)
        assert channel.bias.tolist() == [1.75] * 3


class TestThresholds:
    def test_by_hand(self):
        logits = np.repeat([[-3.0], [-2.0], [-1.0], [1.0]], 20, axis=0)  # all of -1 and 1 have the label, half of -2
        truth = np.array([[0]] * 20 + [[0], [1]] * 10 + [[1]] * 40)
        own, count = -2.5, 50  # F1 of naming those from -2 on: 100 / 110, from -1 on: 80 / 90
        expected = own * count / (count + 10)  # the common one, of the same texts
        expected = (count * own + 10 * expected) / (count + 10)
        assert label_thresholds(logits, truth) == pytest.approx(expit(expected))

    def test_nothing_to_gain_is_one_half(self):
        logits = np.array([[2.0], [1.0], [-1.0], [-2.0]] * 20)
        assert label_thresholds(logits, logits > 0).tolist() == [0.5]
        assert label_thresholds(logits, np.zeros_like(logits)).tolist() == [0.5]

    def test_few_texts_share_one(self):
        logits, truth = noisy(300)
        found, counts = label_thresholds(logits, truth), truth.sum(axis=0)
        assert len(set(found[counts < 10])) == 1
        assert len(set(found[counts >= 10])) > 5

    @pytest.mark.parametrize("seed", range(3))
    def test_fresh_texts_gain(self, seed):
        logits, truth = noisy(1000, seed=seed)
        fresh, answers = noisy(4000, seed=seed + 100)
        gain = both_f(answers, expit(fresh) > label_thresholds(logits, truth)) - both_f(answers, fresh > 0)
        assert gain.min() > 0.02

    def test_a_label_that_is_too_sure_is_corrected(self):
        """Not every label is calibrated: here one is named far too often."""
        logits, truth = noisy(1000)
        fresh, answers = noisy(4000, seed=1)
        logits[:, 5] += 3
        fresh[:, 5] += 3
        thresholds = label_thresholds(logits, truth)
        before = f1_score(answers[:, 5], fresh[:, 5] > 0)
        assert f1_score(answers[:, 5], expit(fresh[:, 5]) > thresholds[5]) > before + 0.05

    def test_a_text_does_not_choose_its_own(self):
        logits, truth = noisy(100)
        found = cross_answers(logits, truth)
        moved = truth.copy()
        moved[::2] = 1 - moved[::2]
        np.testing.assert_array_equal(cross_answers(logits, moved)[::2], found[::2])
        assert (cross_answers(logits, moved)[1::2] != found[1::2]).any()

    def test_all_who_answer_use_them(self):
        space = LabelSpace("multi", SPACE.names, (0.5, 0.2, 0.9))
        logits = np.array([[1.0, -1.0, 1.0], [-0.1, -2.0, 3.0]])
        expected = np.array([[1, 1, 0], [0, 0, 1]])
        np.testing.assert_array_equal(has_label(space, probabilities(space, logits)), expected)
        assert [describe(space, row)["labels"] for row in logits] == [["a", "b"], ["c"]]
        assert [answer["labels"] for answer in describe_all(space, logits)] == [["a", "b"], ["c"]]
        assert scores(space, logits, expected)["micro_f"] == 1
        assert scores(SPACE, logits, expected)["micro_f"] < 1
        assert class_scores(space, logits, expected)["b"]["f1"] == 1
        assert describe(space, logits[0])["probabilities"] == describe(SPACE, logits[0])["probabilities"]

    def test_there_is_one_for_each_label(self):
        assert FastformerConfig(num_labels=3, label_thresholds=[0.5, 0.5]).label_thresholds is None  # of other labels


def make_pair(random: np.random.Generator) -> tuple[str, list[str]]:
    """A text, and its labels: 12 of falling frequency, each seen by one of its words, often in vain."""
    has = random.random(12) < 0.5 / (1 + np.arange(12))
    seen = np.where(random.random(12) < 0.75, has, random.random(12) < 0.05)
    words = [f"word{label}{'xyz'[random.integers(3)]}" for label in np.flatnonzero(seen)]
    words += [f"filler{number}" for number in random.integers(40, size=6)]
    return " ".join(random.permutation(words)), [f"label{label}" for label in np.flatnonzero(has)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    random = np.random.default_rng(0)
    texts, labels = zip(*(make_pair(random) for _ in range(900)), strict=True)
    model = TextClassifier(epochs=4).fit(list(texts), list(labels))
    folder = tmp_path_factory.mktemp("several") / "run"
    model.save(folder)
    fresh = [make_pair(random) for _ in range(1500)]
    return model, folder, fresh


def test_fresh_texts_do_not_lose_by_thresholds(trained):
    model, _, fresh = trained
    texts, labels = zip(*fresh, strict=True)
    truth = np.array([[name in names for name in model.classes_] for names in labels])
    chosen = np.array([[name in names for name in model.classes_] for names in model.predict(list(texts))])
    ours, plain = both_f(truth, chosen), both_f(truth, model.predict_proba(list(texts)) > 0.5)
    assert (ours >= plain).all()
    assert ours.mean() > 0.7


def test_a_run_keeps_channel_and_thresholds(trained, tmp_path):
    model, folder, fresh = trained
    thresholds = json.loads((folder / "config.json").read_text())["label_thresholds"]
    assert len(thresholds) == 12
    assert set(thresholds) != {0.5}
    assert model.model_.ngrams is not None
    assert model._predictor.trained.metrics["ngrams"]["weights"]["doubt"] == 0
    texts = [text for text, _ in fresh[:200]]
    assert TextClassifier.load(folder).predict(texts) == model.predict(texts)
    source = write_jsonl(tmp_path / "fresh.jsonl", [{"text": text, "label": names} for text, names in fresh[:200]])
    found = evaluate(open_run(folder), source, show_progress=False)
    assert found["accuracy"] == pytest.approx(model.score(texts, [names for _, names in fresh[:200]]))


def test_an_older_run_answers_at_one_half(trained, tmp_path):
    model, folder, fresh = trained
    old = TextClassifier.load(folder)
    old.model_.config.label_thresholds = None
    old.save(tmp_path / "old")
    texts = [text for text, _ in fresh[:200]]
    loaded = TextClassifier.load(tmp_path / "old")
    np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))
    expected = [loaded.classes_[row > 0.5].tolist() for row in model.predict_proba(texts)]
    assert loaded.predict(texts) == expected != model.predict(texts)
