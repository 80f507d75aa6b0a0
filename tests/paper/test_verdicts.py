"""Verdicts: from differences over seeds and over test rows, worked out by hand and by simulation."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, roc_auc_score

from fastformer.paper.verdicts import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    judge,
    mean_of_rows,
    rows_variances,
    score_again,
    what_would_decide,
)


def test_without_rows_it_is_the_paired_t_test():
    ours, theirs = np.array([3.1, 2.8, 3.6, 3.0]), np.array([2.0, 2.9, 2.5, 2.2])
    found = judge(list(ours - theirs))
    expected = stats.ttest_rel(ours, theirs)
    assert found["p"] == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval()
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("differences", "margin", "verdict"),
    [
        ([1.0, 1.1, 0.9], 0, CONFIRMED),
        ([-1.0, -1.1, -0.9], 0, REFUTED),
        ([1.0, -1.1, 0.4], 0, UNDECIDED),
        ([-0.2, -0.1, -0.15], 0.5, CONFIRMED),  # similar
        ([-1.0, -1.1, -0.9], 0.5, REFUTED),
        ([5.0], 0, UNDECIDED),  # one seed
        ([0.0, 0.0], 0, UNDECIDED),  # the same
    ],
)
def test_the_interval_decides(differences, margin, verdict):
    assert judge(differences, margin=margin)["verdict"] == verdict


def test_few_test_rows_leave_it_open_and_more_runs_do_not_help():
    found = judge([1.0, 1.1, 0.9], rows_variance=1.0)
    assert found["verdict"] == UNDECIDED
    assert found["more_rows"] == pytest.approx(1.96**2, abs=0.01)
    assert "more_runs" not in found


def test_as_many_runs_as_it_says_would_decide():
    differences = [1.0, -0.4, 1.1, -0.2]
    more = judge(differences, rows_variance=0.01)["more_runs"]
    spread, mean = np.var(differences, ddof=1), np.mean(differences)
    for runs, decided in ((4 + more, True), (4 + more - 1, False)):
        error = (spread / runs + 0.01) ** 0.5
        freedom = error**4 / ((spread / runs) ** 2 / (runs - 1))
        assert (stats.t.ppf(0.975, freedom) * error < mean) == decided


def test_what_would_decide_can_be_asked_later_and_at_another_level():
    found = judge([1.0, -0.4, 1.1, -0.2], rows_variance=0.01)
    assert what_would_decide(found) == {"more_runs": found["more_runs"]}
    assert what_would_decide(found, level=0.01)["more_runs"] > found["more_runs"]
    assert what_would_decide(judge([1.0, 1.1, 0.9], rows_variance=1.0))["more_rows"] == pytest.approx(1.96**2, abs=0.01)
    assert what_would_decide(judge([0.3])) == {"more_runs": 1}
    assert what_would_decide(judge([0.5, -0.5])) == {}


def test_a_true_difference_is_found_and_a_false_one_rarely():
    """Runs of two methods: rows have a difficulty of their own, seeds a luck of their own."""
    random, right = np.random.default_rng(0), {0.0: 0, 0.1: 0}
    for true in right:
        for _ in range(60):
            rows, count = 400, 5
            hard = random.random(rows)
            runs = [
                [(hard < 0.6 + shift + random.normal(0, 0.01) + random.normal(0, 0.15, rows)) for _ in range(count)]
                for shift in (true, 0.0)
            ]
            differences = [a.mean() - b.mean() for a, b in zip(*runs, strict=True)]
            resampled = [
                [score_again(mean_of_rows({"accuracy": one.astype(float)}), rows, draws=200) for one in side]
                for side in runs
            ]
            variance = rows_variances(*resampled)["accuracy"]
            right[true] += judge(differences, variance)["verdict"] != UNDECIDED
    assert right[0.0] <= 6  # 5% of 60, and luck
    assert right[0.1] >= 50


class TestScoresOfRows:
    """With every row once they are the scores of the run; with other weights those of the rows drawn."""

    @pytest.fixture
    def drawn(self):
        return np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60), size=4)

    def write(self, folder, rows):
        from fastformer.paper.datasets import Dataset, Prepared

        from ..tasks.conftest import write_jsonl

        file = write_jsonl(folder / "test.jsonl", rows)
        return Prepared(Dataset("x", None, "x"), {"test": file}, {"classes": 4})

    def test_accuracy_and_macro_f(self, drawn, tmp_path):
        from fastformer.paper.classification import Classification

        random = np.random.default_rng(0)
        true, given = random.choice(list("abc"), 60), random.choice(list("abcd"), 60)
        rows = [{"text": "x", "label": label} for label in true]
        score = Classification.resampled(None, self.write(tmp_path, rows), list(given))
        for weights in (np.ones(60, int), *drawn):
            found = score(weights[None].astype(np.float32))
            labels, answers = np.repeat(true, weights), np.repeat(given, weights)
            macro = f1_score(labels, answers, labels=list("abcd"), average="macro", zero_division=0)
            assert found["macro_f"][0] == pytest.approx(macro, abs=1e-6)
            assert found["accuracy"][0] == pytest.approx((labels == answers).mean())

    def test_auc(self, drawn, tmp_path):
        from fastformer.paper.conversion import Conversion

        random = np.random.default_rng(0)
        labels, chances = random.integers(2, size=60), random.integers(10, size=60) / 10  # many are equal
        rows = [{"behaviors": [], "ad": "x", "label": int(label)} for label in labels]
        score = Conversion.resampled(None, self.write(tmp_path, rows), list(chances))
        for weights in (np.ones(60, int), *drawn):
            expected = roc_auc_score(np.repeat(labels, weights), np.repeat(chances, weights))
            assert score(weights[None].astype(np.float32))["auc"][0] == pytest.approx(expected)
