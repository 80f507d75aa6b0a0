"""The blend of channel and encoder, and probabilities that mean what they say."""

import numpy as np
import pytest

from fastformer.tasks.classification import stacking
from fastformer.tasks.classification.answers import probabilities
from fastformer.tasks.classification.calibration import cross_calibrated, temperature
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.metrics import calibration_error, log_losses
from fastformer.tasks.classification.stacking import Unseen, best_scale, class_weights

LETTERS = LabelSpace("single", ("a", "b", "c"))


class TestBlend:
    """What the encoder is worth beside the channel."""

    labels = np.random.default_rng(0).integers(3, size=400)

    def scores(self, seed: int, quality: float) -> np.ndarray:
        noise = np.random.default_rng(seed).normal(size=(len(self.labels), 3))
        return (quality * np.eye(3)[self.labels] + noise).astype(np.float32)

    def test_noise_is_not_used(self):
        assert Unseen(LETTERS, self.scores(1, 2.0), self.scores(2, 0.0), self.labels, usual=2.0).blend().encoder == 0

    def test_what_knows_something_is_used(self):
        channel, encoder = self.scores(1, 2.0), self.scores(2, 2.0)
        found = Unseen(LETTERS, channel, encoder, self.labels, usual=2.0).blend()
        assert found.encoder / found.channel == pytest.approx(1, rel=0.3)
        right = (found(channel, encoder).argmax(axis=1) == self.labels).mean()
        assert right > (channel.argmax(axis=1) == self.labels).mean() + 0.05

    def test_a_small_gain_is_used_if_many_texts_show_it(self):
        labels = np.random.default_rng(0).integers(3, size=8000)
        noise = np.random.default_rng(1).normal(size=(2, len(labels), 3))
        channel, encoder = (np.eye(3)[labels] * [[[2.0]], [[0.5]]] + noise).astype(np.float32)
        many = Unseen(LETTERS, channel, encoder, labels, usual=2.0)
        few = Unseen(LETTERS, channel[:100], encoder[:100], labels[:100], usual=2.0)
        assert many.blend().encoder > 0
        assert few.blend().encoder == 0

    def test_probabilities_mean_what_they_say(self):
        channel, encoder = self.scores(1, 3.0), self.scores(2, 3.0)
        channel, encoder = channel / 10, encoder * 7
        logits = Unseen(LETTERS, channel, encoder, self.labels, usual=1.0).blend()(channel, encoder)
        assert calibration_error(probabilities(LETTERS, logits), self.labels) < 0.05

    def test_texts_that_only_the_channel_speaks_of_say_how_far_it_can_be_trusted(self):
        channel, noise = self.scores(1, 3.0), self.scores(2, 0.0)[:20]
        channel[:20] = 5 * np.eye(3)[self.labels[:20]]  # it happens to be right on all that the encoder speaks of
        found = Unseen(LETTERS, channel, noise, self.labels, usual=1.0)
        assert found.blend().encoder == 0
        said = probabilities(LETTERS, found.blend()(channel, np.zeros_like(channel)))
        assert calibration_error(said[20:], self.labels[20:]) < 0.05
        assert found.cross_blended().shape == (20, 3)

    def test_the_best_scale_undoes_a_factor(self):
        channel = self.scores(1, 2.0)
        scales = best_scale(LETTERS, channel, self.labels)
        assert best_scale(LETTERS, channel / 3, self.labels) == pytest.approx(3 * scales, rel=0.1)

    def test_certainty_has_a_limit(self):
        perfect = 10 * np.eye(3)[self.labels[:5]]
        assert best_scale(LETTERS, perfect, self.labels[:5]) < 20

    def test_rare_classes_weigh_more(self):
        weights = class_weights(np.array([0] * 90 + [1] * 10), 2)
        assert weights[1] / weights[0] == pytest.approx(3)
        assert 0.9 * weights[0] + 0.1 * weights[1] == pytest.approx(1)
        assert class_weights(np.array([0, 0, 1]), 2, power=0).tolist() == [1, 1]

    def test_balanced_classes_count_the_same(self, monkeypatch):
        """The channel knows the frequent class, the encoder the rare one: balanced, the encoder weighs more."""
        monkeypatch.setattr(stacking, "SURE", 0.0)  # 20 texts of the rare class are not enough to be sure
        labels = np.array([0] * 380 + [1] * 20)
        random = np.random.default_rng(0)
        channel, encoder = random.normal(size=(2, 400, 2)).astype(np.float32)
        channel[labels == 0, 0] += 3
        encoder[labels == 1, 1] += 3
        space = LabelSpace("single", ("often", "rarely"))
        usual, balanced = (Unseen(space, channel, encoder, labels, 1.0, yes).blend() for yes in (False, True))
        assert balanced.encoder / balanced.channel > 1.2 * usual.encoder / usual.channel


class TestCalibration:
    def test_temperature_undoes_a_factor(self):
        random = np.random.default_rng(0)
        logits = random.normal(size=(20_000, 3))
        chances = probabilities(LETTERS, logits)
        labels = (chances.cumsum(axis=1) > random.random((len(logits), 1))).argmax(axis=1)
        assert temperature(LETTERS, 3 * logits, labels) == pytest.approx(3, rel=0.05)
        assert temperature(LETTERS, logits, labels) == pytest.approx(1, rel=0.05)

    def test_few_texts_say_little(self):
        logits = np.array([[5.0, 0, 0], [0, 5.0, 0]])
        assert 0.8 < temperature(LETTERS, logits, np.array([0, 1])) < 1.25

    def test_scores_come_from_other_texts_than_the_temperature(self):
        random = np.random.default_rng(0)
        logits, labels = random.normal(size=(40, 3)), random.integers(0, 3, 40)
        found = cross_calibrated(LETTERS, logits, labels)
        np.testing.assert_allclose(found[::2], logits[::2] / temperature(LETTERS, logits[1::2], labels[1::2]))
        changed = labels.copy()
        changed[0] = (changed[0] + 1) % 3  # a text's own label does not move its own logits
        np.testing.assert_array_equal(cross_calibrated(LETTERS, logits, changed)[::2], found[::2])

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
        assert log_losses(chances, np.array([0, 2])).mean() == pytest.approx(expected)
