"""Verdicts: from differences over seeds and over test rows, worked out by hand and by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, roc_auc_score

from fastformer.paper.verdicts import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    OfRows,
    judge,
    mean_of_rows,
    mean_of_runs,
    of_rows,
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
    found = judge([1.0, 1.1, 0.9], OfRows(shared=1.0))
    assert found["verdict"] == UNDECIDED
    assert found["more_rows"] == pytest.approx(1.96**2, abs=0.01)
    assert "more_runs" not in found


def test_as_many_runs_as_it_says_would_decide():
    differences = [1.0, -0.4, 1.1, -0.2]
    more = judge(differences, OfRows(shared=0.01))["more_runs"]
    spread, mean = np.var(differences, ddof=1), np.mean(differences)
    for runs, decided in ((4 + more, True), (4 + more - 1, False)):
        error = (spread / runs + 0.01) ** 0.5
        freedom = error**4 / ((spread / runs) ** 2 / (runs - 1))
        assert (stats.t.ppf(0.975, freedom) * error < mean) == decided


def test_what_rows_do_to_one_seed_alone_more_seeds_mend():
    found = judge([1.0, 1.1, 0.9], OfRows(own=4.0))
    assert found["verdict"] == UNDECIDED  # the seeds agree by chance: 4 / 3 is the least that the mean varies by
    assert found["high"] - found["difference"] == pytest.approx(1.96 * (4 / 3) ** 0.5, rel=0.01)
    assert found["more_runs"] == 16 - 3  # 1.96² · 4 = 15.4
    assert what_would_decide(found) == {"more_runs": 13}


def runs_of_two_methods(random, rows, shared, own):
    """Three runs each; a row adds something to all runs of a method, and something else to every run."""
    return [
        [mean_of_rows({"x": of_all + random.normal(0, own**0.5, rows)}) for _ in range(3)]
        for of_all in (random.normal(0, shared**0.5, rows) for _ in range(2))
    ]


def test_rows_are_told_apart_from_seeds():
    random, rows = np.random.default_rng(0), 500
    sides = runs_of_two_methods(random, rows, shared=1.0, own=4.0)
    found = of_rows(*([score_again(run, rows) for run in side] for side in sides))["x"]
    assert found.shared == pytest.approx(2 * 1.0 / rows, rel=0.3)  # of two methods
    assert found.own == pytest.approx(2 * 4.0 / rows, rel=0.3)


def test_what_seeds_share_is_never_below_zero():
    drawn = {"x": np.array([1.0, -1.0, 1.0, -1.0])}, {"x": np.array([-1.0, 1.0, -1.0, 1.0])}
    nothing = [{"x": np.zeros(4)}] * 2
    assert of_rows(drawn, nothing)["x"] == (0.0, pytest.approx(4 / 3))
    assert of_rows(drawn[:1], nothing[:1])["x"] == (pytest.approx(4 / 3), 0.0)  # one seed: nothing to tell apart by


def test_draws_without_a_score_do_not_count():
    random = np.random.default_rng(0)
    sides = [[{score: random.normal(size=9) for score in ("auc", "f")} for _ in range(2)] for _ in range(2)]
    expected = of_rows(*([{name: values[3:] for name, values in one.items()} for one in side] for side in sides))
    sides[0][1]["auc"][:2] = np.nan
    sides[1][0]["auc"][2] = np.nan
    assert of_rows(*sides)["auc"] == pytest.approx(expected["auc"])
    sides[0][0]["auc"] = np.full(9, np.nan)
    assert list(of_rows(*sides)) == ["f"]


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_both_shares_are_variances(seeds, seed):
    random = np.random.default_rng(seed)
    sides = ([{"x": random.normal(size=5)} for _ in range(seeds)] for _ in range(2))
    assert min(of_rows(*sides)["x"]) >= 0


@pytest.mark.parametrize(
    ("seeds", "of_seed", "shared", "own", "least", "most"),
    [
        (5, 1.0, 0.5, 0.3, 0.93, 0.96),  # without R: 0.83
        (4, 0.1, 0.02, 0.3, 0.95, 0.975),  # with R₁ counted twice: 0.981; without it as the least: 0.937
    ],
)
def test_the_interval_holds_the_difference_as_often_as_it_should(seeds, of_seed, shared, own, least, most):
    random, hits, tries = np.random.default_rng(0), 0, 4000
    for _ in range(tries):
        made = random.normal(0, (of_seed + own) ** 0.5, seeds) + random.normal(0, shared**0.5)
        found = judge(list(made), OfRows(shared, own))
        hits += found["low"] <= 0 <= found["high"]
    assert least < hits / tries < most


def test_a_mean_of_methods_is_made_draw_by_draw():
    runs = [{"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 0.0])}]
    assert mean_of_runs(runs)["x"].tolist() == [2.0, 1.0]


def test_what_would_decide_can_be_asked_later_and_at_another_level():
    found = judge([1.0, -0.4, 1.1, -0.2], OfRows(shared=0.01))
    assert what_would_decide(found) == {"more_runs": found["more_runs"]}
    assert what_would_decide(found, level=0.01)["more_runs"] > found["more_runs"]
    assert what_would_decide(judge([1.0, 1.1, 0.9], OfRows(shared=1.0)))["more_rows"] == pytest.approx(
        1.96**2, abs=0.01
    )
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
            right[true] += judge(differences, of_rows(*resampled)["accuracy"])["verdict"] != UNDECIDED
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
        assert np.isnan(score(np.array([labels], np.float32))["auc"][0])  # converted ones alone: none, and no warning
