"""Conversion prediction: reading events, side features, scores and floors."""

import gzip
import json
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from fastformer.data.ragged import Ragged
from fastformer.errors import UserError
from fastformer.tasks.conversion.baselines import ad_rates, floor_scores
from fastformer.tasks.conversion.data import EventsWriter, Part, collect
from fastformer.tasks.conversion.events import Columns, EventSource
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.metrics import plot_reliability, reliability, scores

from .conftest import write_jsonl
from .conversions import make_events

SIDE = Columns(("price",), ("device",))


def collected(rows, folder, max_behaviors=5, columns=SIDE):
    path = write_jsonl(folder / "rows.jsonl", rows)
    with EventsWriter(folder, columns, max_behaviors) as writer:
        collect(EventSource(path, columns), writer)
        return writer.finish()


class TestReading:
    def test_jsonl_gz_and_parquet_give_the_same_events(self, tmp_path):
        rows = make_events(20, 3)
        plain = list(EventSource(write_jsonl(tmp_path / "rows.jsonl", rows), SIDE))
        with gzip.open(tmp_path / "rows.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        for name in ("rows.jsonl.gz", "rows.parquet"):
            assert repr(list(EventSource(tmp_path / name, SIDE))) == repr(plain)  # repr: nan is not nan
        assert plain[0].ad == rows[0]["ad"]

    def test_distinct_texts_are_kept_once_and_only_the_latest_behaviours(self, tmp_path):
        rows = [
            {"behaviors": ["a", "b", "a", "c"], "ad": "b", "label": 1},
            {"behaviors": [], "ad": "a", "label": 0},
            {"behaviors": None, "ad": "d", "label": False},
        ]
        events = collected(rows, tmp_path, max_behaviors=2, columns=Columns())
        assert events.texts == ["a", "c", "b", "d"]
        assert [events.behaviors.row(row).tolist() for row in range(3)] == [[0, 1], [], []]
        assert events.ads.tolist() == [2, 0, 3]
        assert events.labels.tolist() == [1, 0, 0]

    def test_a_batch_has_each_text_once(self, tmp_path):
        rows = [{"behaviors": ["a", "b", "a"], "ad": "b", "label": 1}, {"behaviors": [], "ad": "c", "label": 0}]
        events = collected([*rows, {"behaviors": ["z"], "ad": "z", "label": 1}], tmp_path, columns=Columns())
        events.tokens = Ragged.from_lengths(np.arange(10, 18), np.array([1, 2, 0, 5]))  # of a, b, c, z
        events.inputs = {}
        batch = events.batch([0, 1], pad_token_id=0)
        assert batch["input_ids"].tolist() == [[10, 0], [11, 12], [0, 0]]
        assert batch["attention_mask"].tolist() == [[1, 0], [1, 1], [0, 0]]
        assert batch["behaviors"].tolist() == [[0, 1, 0], [0, 0, 0]]
        assert batch["behavior_mask"].tolist() == [[1, 1, 1], [0, 0, 0]]
        assert batch["ads"].tolist() == [1, 2]
        assert batch["labels"].tolist() == [1, 0]
        part = Part(events, np.array([0, 1]))
        assert part.lengths.tolist() == [4, 1]
        assert part.text_counts().tolist() == [2, 2, 1, 0]

    def test_dates_are_times(self, tmp_path):
        rows = [{"behaviors": [], "ad": "x", "label": 0, "time": time} for time in ("2026-01-31", "2026-01-31T00:01")]
        first, second = EventSource(write_jsonl(tmp_path / "rows.jsonl", rows), Columns())
        assert second.time - first.time == 60

    def test_a_date_without_a_time_is_its_midnight(self):
        rows = [{"behaviors": [], "ad": "x", "label": 0, "time": time} for time in (date(2026, 1, 31), "2026-01-31")]
        first, second = EventSource(rows, Columns())
        assert first.time == second.time


class TestSideFeatures:
    def test_they_are_learned_from_training_rows(self, tmp_path):
        rows = [
            {"behaviors": [], "ad": "x", "label": 0, "price": price, "device": device}
            for price, device in ((1, "a"), (3, "a"), (None, "b"), (99, "a"))
        ]
        events = collected(rows, tmp_path)
        features = events.learn_features(SIDE, np.arange(3))
        assert features == SideFeatures({"price": (2.0, 1.0)}, {"device": ["a"]})  # b was seen once: unknown
        assert events.inputs["numeric"][:, 0].tolist() == [-1, 1, 0, 97]
        assert events.inputs["categories"][:, 0].tolist() == [1, 1, 0, 1]

    def test_events_one_by_one_get_the_same_numbers(self, tmp_path):
        rows = make_events(30, 5)
        events = collected(rows, tmp_path)
        features = events.learn_features(SIDE, np.arange(20))
        again = features.of_events(list(EventSource(write_jsonl(tmp_path / "again.jsonl", rows), SIDE)))
        for name, values in events.inputs.items():
            np.testing.assert_array_equal(again[name].numpy(), values)

    @pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, 0])
    def test_a_constant_column_says_nothing(self, tmp_path, value):
        rows = [{"behaviors": [], "ad": "x", "label": 0, "price": value, "device": None} for _ in range(1000)]
        events = collected([*rows, {**rows[0], "price": 2 * value + 0.05}], tmp_path)
        features = events.learn_features(SIDE, np.arange(1000))
        assert features.numeric["price"] == (pytest.approx(value), 1.0)
        assert np.abs(events.inputs["numeric"][:1000]).max() < 1e-6

    def test_numbers_stay_finite(self):
        features = SideFeatures({"price": (0.0, 1e-3)}, {})
        found = features.standardised(np.array([[1e300], [-1e300], [0.002], [np.nan]]))
        assert found[:, 0].tolist() == [100, -100, 2, 0]

    def test_later_rows_may_leave_a_side_feature_out(self, tmp_path):
        rows = make_events(3, 0)
        del rows[1]["price"], rows[2]["device"]
        events = list(EventSource(write_jsonl(tmp_path / "rows.jsonl", rows), SIDE))
        assert np.isnan(events[1].numbers[0])
        assert events[2].values == [""]
        with pytest.raises(UserError, match="line 1: no column 'price'"):
            list(EventSource(write_jsonl(tmp_path / "rows.jsonl", rows[1:]), SIDE))


class TestScores:
    def test_against_scikit_learn_and_by_hand(self):
        random = np.random.default_rng(0)
        chances, labels = random.random(500), random.integers(2, size=500)
        found = scores(chances, labels)
        assert found["auc"] == pytest.approx(roc_auc_score(labels, chances))
        assert found["log_loss"] == pytest.approx(log_loss(labels, chances))
        # Two ranges: 0.1 is said where a half converts, 0.9 where all do.
        by_hand = scores(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1]))
        assert by_hand["calibration_error"] == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)

    def test_what_is_not_finite_is_a_learning_rate_too_high(self):
        with pytest.raises(UserError, match="not finite numbers: .* lower --learning-rate"):
            scores(np.array([0.2, np.nan]), np.array([0, 1]))

    def test_one_label_has_no_auc(self):
        assert set(scores(np.array([0.2, 0.4]), np.array([0, 0]))) == {"log_loss", "calibration_error"}

    def test_the_groups_of_the_plot(self, tmp_path):
        chances = np.linspace(0.001, 0.02, 1500)
        labels = (np.random.default_rng(0).random(1500) < chances).astype(int)
        groups = reliability(chances, labels)
        assert groups.shape == (15, 3)
        assert groups[:, 2].tolist() == [100] * 15
        assert groups[:, 1].mean() == pytest.approx(labels.mean())
        plot_reliability(chances, labels, tmp_path / "plot.png", "Rare")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_floors(tmp_path):
    rates = ad_rates(np.array([0, 0, 1, 0, 2]), np.array([1, 1, 0, 0, 0]), np.arange(3))
    prior = 10 * 2 / 3
    assert rates == pytest.approx([(2 + prior) / 12, (2 + prior) / 12, prior / 11, (2 + prior) / 12, prior / 10])
    events = collected(make_events(300, 0), tmp_path, columns=Columns())
    found = floor_scores(events, np.arange(200), np.arange(200, 300))
    assert set(found) == {"ad", "words"}
    assert 0.2 < found["words"]["auc"] < 0.75  # who likes what is in no single word
