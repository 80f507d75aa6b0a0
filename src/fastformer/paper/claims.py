"""What runs say of the paper's claims: each rests on comparisons of two methods (`verdicts.py`), or on one of a mean.

- "A is above B, C, …" is confirmed if every comparison confirms it. It is refuted if one of k comparisons refutes it at
  a level of 5% / k, so that more comparisons give chance no advantage.
- "A, B, … are usually above Z" (`on_average`) is about the mean of these methods, compared as if it were one. More than
  half of the methods must be on the same side, so that one large difference does not stand for all.
- If a method that the claim names has no runs, nothing is decided.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from fastformer.paper.verdicts import CONFIRMED, LEVEL, REFUTED, UNDECIDED, OfRows, judge, what_would_decide

Comparison = Mapping[str, Any]
# Dataset, the methods of both sides, seeds -> what test rows do to the difference of each score.
Variances = Callable[[str, Sequence[str], Sequence[str], Sequence[int]], Mapping[str, OfRows]]


def compare(
    report: Mapping[str, Any], judged: Sequence[str], variances: Variances = lambda *_: {}
) -> list[dict[str, Any]]:
    """A verdict per claim, dataset, comparison and score; where a claim is about a mean, that one first."""
    found = []
    for place, claim in enumerate(report["claims"]):
        for name, dataset in report["datasets"].items():
            if claim["paper"] and dataset["paper"] not in claim["paper"]:
                continue
            trained = {method: _by_seed(one, judged) for method, one in dataset["variants"].items()}
            compared = [([ours], [theirs]) for ours in claim["better"] for theirs in claim["than"]]
            if about_mean(claim):
                compared.insert(0, (claim["better"], claim["than"]))
            for sides in compared:
                seeds = sorted(set.intersection(*(set(trained.get(method, ())) for side in sides for method in side)))
                if not seeds:
                    continue
                rows = variances(name, *sides, seeds)
                who = {"claim": place, "dataset": name, "better": called(sides[0]), "than": called(sides[1])}
                averaged = {"averaged": True} if max(map(len, sides)) > 1 else {}
                for score in judged:
                    ours, theirs = ([mean(trained[m][s][score] for m in side) for s in seeds] for side in sides)
                    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
                    verdict = judge(differences, rows.get(score), claim["similar"])
                    found.append({**who, "score": score, **averaged, **verdict})
    return found


def called(methods: Sequence[str]) -> str:
    """The name of a method, or of the mean of several."""
    return methods[0] if len(methods) == 1 else f"mean of {len(methods)}"


def about_mean(claim: Mapping[str, Any]) -> bool:
    """Whether it is about the mean of several methods."""
    return claim["on_average"] and len(claim["better"]) * len(claim["than"]) > 1


def by_data(
    comparisons: Sequence[Comparison], judged: Sequence[str]
) -> Iterator[tuple[str, str, Sequence[Comparison]]]:
    """The comparisons of a claim for each dataset and score."""
    for name in dict.fromkeys(one["dataset"] for one in comparisons):
        for score in judged:
            some = [one for one in comparisons if (one["dataset"], one["score"]) == (name, score)]
            if some:
                yield name, score, some


def each_method(comparisons: Sequence[Comparison]) -> Sequence[Comparison]:
    """Those of two methods."""
    return [one for one in comparisons if not one.get("averaged")]


def of_mean(comparisons: Sequence[Comparison]) -> Comparison | None:
    """That of a mean, if there is one."""
    return next((one for one in comparisons if one.get("averaged")), None)


def verdict_on(claim: Mapping[str, Any], comparisons: Sequence[Comparison]) -> str:
    """The verdict on a claim, for one dataset and score."""
    single = each_method(comparisons)
    if without_runs(claim, single):
        return UNDECIDED
    if about_mean(claim):
        found = of_mean(comparisons)
        verdict = UNDECIDED if found is None else found["verdict"]
        sign = {CONFIRMED: 1, REFUTED: -1, UNDECIDED: 0}[verdict]
        agree = sum(sign * (one["difference"] + claim["similar"]) > 0 for one in single)
        return verdict if 2 * agree > len(single) else UNDECIDED
    if all(one["verdict"] == CONFIRMED for one in single):
        return CONFIRMED
    refuted = (one["p"] for one in single if one["verdict"] == REFUTED)
    return REFUTED if any(p < LEVEL / len(single) for p in refuted) else UNDECIDED


def without_runs(claim: Mapping[str, Any], comparisons: Sequence[Comparison]) -> list[str]:
    """Methods of a claim of whose comparisons none is there."""
    compared = {method for one in each_method(comparisons) for method in (one["better"], one["than"])}
    return [method for method in (*claim["better"], *claim["than"]) if method not in compared]


def needs(claim: Mapping[str, Any], comparisons: Sequence[Comparison]) -> Mapping[str, Any] | None:
    """What would decide a claim that is open, with the differences that there are.

    `more_runs` of each method, `more_rows` (how many times as many test rows), or both; empty if neither would. If a
    difference is on the wrong side, the claim can only be refuted, and one comparison is enough for that. None if it is
    open for another reason: a mean is decided, and half of its methods are on the other side.
    """
    single, margin = each_method(comparisons), claim["similar"]
    if about_mean(claim):
        found = of_mean(comparisons)
        return what_would_decide(found, margin) if found and found["verdict"] == UNDECIDED else None
    if wrong := [one for one in single if one["difference"] + margin < 0]:
        return min((what_would_decide(one, margin, LEVEL / len(single)) for one in wrong), key=_effort)
    every = [what_would_decide(one, margin) for one in single if one["verdict"] == UNDECIDED]
    if not all(every):
        return {}
    kinds = dict.fromkeys(kind for one in every for kind in one)
    return {kind: max(one[kind] for one in every if kind in one) for kind in kinds}


def _effort(needed: Mapping[str, Any]) -> tuple[int, float]:
    if "more_runs" in needed:
        return 0, needed["more_runs"]
    return (1, needed["more_rows"]) if "more_rows" in needed else (2, 0)


def _by_seed(entry: Mapping[str, Any], judged: Sequence[str]) -> dict[int, dict[str, float]]:
    """The scores of a method's runs."""
    if judged[0] not in entry:
        return {}
    seeds = entry.get("trained_seeds") or range(len(entry[judged[0]]["all"]))
    return {seed: {score: entry[score]["all"][place] for score in judged} for place, seed in enumerate(seeds)}
