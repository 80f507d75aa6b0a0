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
    of_claim,
    rows_variances,
    verdicts,
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
            resampled = [[mean_of_rows({"accuracy": one.astype(float)}) for one in side] for side in runs]
            variance = rows_variances(*resampled, rows, draws=200)["accuracy"]
            right[true] += judge(differences, variance)["verdict"] != UNDECIDED
    assert right[0.0] <= 6  # 5% of 60, and luck
    assert right[0.1] >= 50


def test_a_claim_about_several_methods():
    yes, no, open_ = {"verdict": CONFIRMED}, {"verdict": REFUTED, "p": 0.04}, {"verdict": UNDECIDED}
    assert of_claim([yes, yes]) == CONFIRMED
    assert of_claim([yes, open_]) == UNDECIDED
    assert of_claim([no]) == REFUTED
    assert of_claim([no, yes]) == UNDECIDED  # 0.04 is not below 0.05 / 2
    assert of_claim([{**no, "p": 0.01}, yes]) == REFUTED


def test_runs_are_paired_by_their_seeds():
    def entry(values, seeds=None):
        found = {"accuracy": {"mean": 0, "std": None, "all": values}}
        return found if seeds is None else {**found, "trained_seeds": seeds}

    claim = {"better": ["A"], "than": ["B", "C"], "similar": 0.0, "paper": []}
    variants = {"A": entry([1.0, 2.0, 3.0]), "B": entry([1.5, 0.5], [2, 0]), "C": {}}
    report = {"claims": [claim], "datasets": {"toys": {"paper": None, "variants": variants}}}
    [found] = verdicts(report, ["accuracy"])  # C has no runs
    assert (found["than"], found["seeds"], found["difference"]) == ("B", 2, pytest.approx(((1 - 0.5) + (3 - 1.5)) / 2))


def test_a_claim_that_says_usually_is_about_the_mean():
    """B is 1 above A, C is 0.8 below it: each by itself nothing that holds for both, and on average 0.1 above."""
    entries = {"A": [1.0, 2.0, 3.0], "B": [2.01, 2.99, 4.0], "C": [0.2, 1.21, 2.19], "D": []}
    variants = {
        name: {"accuracy": {"all": scores}, "trained_seeds": [0, 1, 2]} if scores else {}
        for name, scores in entries.items()
    }
    asked = []

    def variances(name, better, than, seeds):
        asked.append((better, than, seeds))
        return {}

    claim = {"better": ["B", "C", "D"], "than": ["A"], "on_average": True, "similar": 0.0, "paper": []}
    report = {"claims": [claim], "datasets": {"toys": {"paper": None, "variants": variants}}}
    found = verdicts(report, ["accuracy"], variances)
    assert [one["better"] for one in found] == ["mean of 2", "B", "C"]  # D has no runs
    assert [one["verdict"] for one in found] == [CONFIRMED, CONFIRMED, REFUTED]
    assert found[0]["difference"] == pytest.approx(0.1)
    assert asked[0] == (["B", "C"], ["A"], [0, 1, 2])
    assert of_claim(found) == CONFIRMED
    report["claims"] = [{**claim, "on_average": False}]
    assert of_claim(verdicts(report, ["accuracy"])) == REFUTED


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
