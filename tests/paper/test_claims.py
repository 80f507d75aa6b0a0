"""Claims: from comparisons to a verdict, and what would give one."""

import pytest

from fastformer.paper.claims import by_data, compare, needs, verdict_on, without_runs
from fastformer.paper.verdicts import CONFIRMED, REFUTED, UNDECIDED, OfRows


def claim(better, than, *, on_average=False, similar=0.0):
    return {"better": list(better), "than": list(than), "on_average": on_average, "similar": similar, "paper": []}


def compared(one, **scores):
    """The comparisons of a claim; scores are by method, each a list over seeds or a dictionary from seed to score."""
    variants = {}
    for name, found in scores.items():
        by_seed = found if isinstance(found, dict) else dict(enumerate(found))
        spread = {"accuracy": {"all": list(by_seed.values())}, "trained_seeds": list(by_seed)}
        variants[name] = spread if by_seed else {}
    return compare({"claims": [one], "datasets": {"toys": {"paper": None, "variants": variants}}}, ["accuracy"])


def single(*verdicts, p=0.001):
    """Comparisons of A with B, C, …, with these verdicts."""
    return [
        {"better": "A", "than": than, "verdict": verdict, "p": p, "difference": 1.0}
        for than, verdict in zip("BCD", verdicts, strict=False)
    ]


@pytest.mark.parametrize(
    ("verdicts", "p", "expected"),
    [
        ((CONFIRMED, CONFIRMED), 0.001, CONFIRMED),
        ((CONFIRMED, UNDECIDED), 0.001, UNDECIDED),
        ((REFUTED,), 0.04, REFUTED),
        ((REFUTED, CONFIRMED), 0.04, UNDECIDED),  # 0.04 is not below 0.05 / 2
        ((REFUTED, CONFIRMED), 0.01, REFUTED),
    ],
)
def test_a_claim_about_several_methods(verdicts, p, expected):
    assert verdict_on(claim("A", "BCD"[: len(verdicts)]), single(*verdicts, p=p)) == expected


def test_runs_are_paired_by_their_seeds():
    [found] = compared(claim("A", "BC"), A=[1.0, 2.0, 3.0], B={2: 1.5, 0: 0.5}, C=[])
    assert (found["than"], found["seeds"], found["difference"]) == ("B", 2, pytest.approx(((1 - 0.5) + (3 - 1.5)) / 2))


def test_a_method_without_runs_leaves_it_open():
    one = claim("A", "BC")
    found = compared(one, A=[1.0, 1.1, 0.9], B=[0.1, 0.2, 0.0], C=[])
    assert found[0]["verdict"] == CONFIRMED
    assert verdict_on(one, found) == UNDECIDED
    assert without_runs(one, found) == ["C"]


class TestUsually:
    """Such a claim is about the mean of its methods."""

    one = claim("BC", "A", on_average=True)
    A = (1.0, 2.0, 3.0)

    def test_a_method_may_be_below(self):
        """B is 1 above A, C is 0.1 below it, both by about the same for every seed."""
        found = compared(claim("BCD", "A", on_average=True), A=self.A, B=[2.0, 3.01, 4.0], C=[0.9, 1.9, 2.91], D=self.A)
        assert [one["better"] for one in found] == ["mean of 3", "B", "C", "D"]
        assert found[0]["difference"] == pytest.approx(0.3, abs=0.01)
        assert [one["verdict"] for one in found] == [CONFIRMED, CONFIRMED, REFUTED, UNDECIDED]
        assert verdict_on(claim("BCD", "A"), found[1:]) == REFUTED

    def test_one_large_difference_does_not_stand_for_all(self):
        found = compared(self.one, A=self.A, B=[11.0, 12.1, 13.0], C=[0.5, 1.5, 2.51])
        assert found[0]["verdict"] == CONFIRMED
        assert verdict_on(self.one, found) == UNDECIDED
        assert needs(self.one, found) is None

    def test_it_is_confirmed_and_refuted(self):
        above = compared(self.one, A=self.A, B=[2.0, 3.01, 4.0], C=[1.5, 2.5, 3.51])
        below = compared(self.one, A=self.A, B=[0.0, 1.01, 2.0], C=[0.5, 1.5, 2.51])
        assert (verdict_on(self.one, above), verdict_on(self.one, below)) == (CONFIRMED, REFUTED)

    def test_methods_with_other_seeds_or_without_runs_leave_it_open(self):
        found = compared(self.one, A={0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, B={0: 3.0, 1: 4.0}, C={2: 5.0, 3: 6.01})
        assert len(found) == 2
        assert verdict_on(self.one, found) == UNDECIDED
        found = compared(self.one, A=self.A, B=[2.0, 3.01, 4.0], C=[])
        assert verdict_on(self.one, found) == UNDECIDED

    def test_the_rows_are_asked_for_once_for_all_methods(self):
        asked = []
        report = {"claims": [self.one], "datasets": {"toys": {"paper": None, "variants": {}}}}
        for name, shift in (("A", 0), ("B", 1), ("C", 2)):
            entry = {"accuracy": {"all": [shift, shift + 1]}, "trained_seeds": [0, 1]}
            report["datasets"]["toys"]["variants"][name] = entry
        compare(report, ["accuracy"], lambda *which: asked.append(which) or {"accuracy": OfRows(0.01)})
        assert asked[0] == ("toys", ["B", "C"], ["A"], [0, 1])
        assert [which[1] for which in asked[1:]] == [["B"], ["C"]]


class TestWhatWouldDecide:
    def test_all_must_be_decided_to_confirm(self):
        one = claim("A", "BC")
        found = compared(one, A=[1.0, 1.1, 0.9], B=[0.9, 0.2, 0.7], C=[0.8, 0.7, 0.9])
        each = [one["more_runs"] for one in found]
        assert needs(one, found) == {"more_runs": max(each)}

    def test_one_on_the_wrong_side_can_only_be_refuted(self):
        one = claim("A", "BCD")
        found = compared(one, A=[1.0, 1.1, 0.9], B=[1.9, 1.0, 1.7], C=[1.2, 1.4, 1.5], D=[0.8, 0.7, 0.9])
        assert verdict_on(one, found) == UNDECIDED
        alone = [
            compared(claim("A", than), A=[1.0, 1.1, 0.9], **{than: values})
            for than, values in (("B", [1.9, 1.0, 1.7]), ("C", [1.2, 1.4, 1.5]))
        ]
        fewest = min(pair[0].get("more_runs", 0) for pair in alone)
        assert needs(one, found)["more_runs"] >= fewest  # at 5% / 3
        assert needs(one, found)["more_runs"] < max(pair[0].get("more_runs", 0) for pair in alone)


def test_comparisons_are_grouped_by_data_and_score():
    found = [{"dataset": name, "score": score} for score in ("f", "a") for name in ("y", "x")]
    assert [one[:2] for one in by_data(found, ["a", "f", "g"])] == [("y", "a"), ("y", "f"), ("x", "a"), ("x", "f")]
