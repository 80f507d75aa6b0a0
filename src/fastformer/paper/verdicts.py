"""Whether the paper's claims hold: paired differences over seeds, and a bootstrap over test rows.

A claim says that one method is above another: Δ > 0, or Δ > -margin if it says "similar". Both are trained with the
seeds s = 1 … n and scored on the same rows. With d_s the difference of their scores,

    D   = mean of d_s
    SE² = S² / n + V         S² the sample variance of d_s: other seeds; V that of D over rows drawn with replacement
    ν   = SE⁴ / ((S² / n)² / (n - 1))                 degrees of freedom, V taken for known (Welch, Satterthwaite)

The 95% interval of Δ is D ± t(0.975, ν) SE. The claim is *confirmed* if all of it is on the claim's side, *refuted* if
none of it is, else *not decided*; with one seed it is never decided. A claim about several pairs is confirmed if each
is; it is refuted if one of them is at a level of 5% divided by their number, so that more comparisons give chance no
advantage. A claim that methods are *usually* better is one about their average: d_s is the mean over them.

Runs that would decide: the smallest n for which the interval with these D, S² and V is on one side. If V alone is
too large no number of runs does, but more test rows would: V falls as their number grows.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, variance
from typing import Any

import numpy as np
from scipy import stats

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "not decided"
LEVEL = 0.05
DRAWS = 1000  # of the bootstrap
MOST_RUNS = 1000  # beyond this nobody will make them
_DRAWS_AT_ONCE = 100
_SMALL = 1e-9  # of a difference: none at all

# Weights of the test rows (draws, rows) -> scores (draws,) by name; weights of 1 give the score of the run.
Resampled = Callable[[np.ndarray], Mapping[str, np.ndarray]]
# Dataset, the methods of both sides, seeds -> the variance over test rows of the difference of each score.
Variances = Callable[[str, Sequence[str], Sequence[str], Sequence[int]], Mapping[str, float]]


def judge(differences: Sequence[float], rows_variance: float | None = None, margin: float = 0.0) -> dict[str, Any]:
    """The verdict on Δ > -margin from a difference per seed."""
    count, known = len(differences), rows_variance or 0.0
    found: dict[str, Any] = {
        "difference": mean(differences),
        "seeds": count,
        "rows_std": None if rows_variance is None else rows_variance**0.5,
    }
    if count < 2:
        return {**found, "verdict": UNDECIDED}
    spread, away = variance(differences), found["difference"] + margin
    half, error, freedom = _interval(spread, known, count)
    p = 2 * float(stats.t.sf(abs(away) / error, freedom)) if error > 0 else float(abs(away) < _SMALL)
    found |= {
        "seeds_std": spread**0.5,
        "low": found["difference"] - half,
        "high": found["difference"] + half,
        "p": p,
        "verdict": UNDECIDED if p >= LEVEL else CONFIRMED if away > 0 else REFUTED,
    }
    return found | (_what_would_decide(spread, known, away, count) if p >= LEVEL else {})


def _interval(spread: float, known: float, count: int) -> tuple[float, float, float]:
    """Half a 95% interval, the standard error, and the degrees of freedom."""
    of_seeds = spread / count
    error = (of_seeds + known) ** 0.5
    freedom = error**4 / (of_seeds**2 / (count - 1)) if of_seeds > 0 else np.inf
    return float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error, error, freedom


def _what_would_decide(spread: float, known: float, away: float, count: int) -> dict[str, Any]:
    """`more_runs` with each method, or `more_rows`: how many times as many test rows; nothing if the two are equal."""
    if abs(away) < _SMALL:
        return {}
    at_least = float(stats.norm.ppf(1 - LEVEL / 2)) ** 2 * known / away**2
    if at_least >= 1:
        return {"more_rows": at_least}
    for runs in range(count + 1, MOST_RUNS):
        if _interval(spread, known, runs)[0] < abs(away):
            return {"more_runs": runs - count}
    return {}


def rows_variances(
    better: Sequence[Resampled], than: Sequence[Resampled], rows: int, draws: int = DRAWS, seed: int = 0
) -> dict[str, float]:
    """The variance, over test rows drawn with replacement, of the difference between the means of two groups."""
    random, found = np.random.default_rng(seed), []
    for _ in range(0, draws, _DRAWS_AT_ONCE):
        weights = random.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS_AT_ONCE).astype(np.float32)
        ours, theirs = ([run(weights) for run in runs] for runs in (better, than))
        found.append({name: _mean(ours, name) - _mean(theirs, name) for name in ours[0]})
    return {name: float(np.var(np.concatenate([one[name] for one in found]), ddof=1)) for name in found[0]}


def _mean(runs: Sequence[Mapping[str, np.ndarray]], score: str) -> np.ndarray:
    return np.mean([run[score] for run in runs], axis=0)


def mean_of_rows(found: Mapping[str, np.ndarray]) -> Resampled:
    """For scores that are means over rows; a row without one (nan) does not count."""
    values = {name: (np.nan_to_num(one), ~np.isnan(one)) for name, one in found.items()}
    return lambda weights: {name: weights @ one / (weights @ has) for name, (one, has) in values.items()}


def deciding(pairs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The comparisons that a claim rests on: that of the average alone, if it is about that."""
    return [one for one in pairs if one.get("averaged")] or pairs


def of_claim(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on a claim from those on its comparisons."""
    pairs = deciding(pairs)
    if all(one["verdict"] == CONFIRMED for one in pairs):
        return CONFIRMED
    refuted = (one["p"] for one in pairs if one["verdict"] == REFUTED)
    return REFUTED if any(p < LEVEL / len(pairs) for p in refuted) else UNDECIDED


def verdicts(
    report: Mapping[str, Any], judged: Sequence[str], variances: Variances = lambda *_: {}
) -> list[dict[str, Any]]:
    """A verdict per claim, dataset, score and comparison; of an average, also on each method in it."""
    found = []
    for place, claim in enumerate(report["claims"]):
        for name, dataset in report["datasets"].items():
            if claim["paper"] and dataset["paper"] not in claim["paper"]:
                continue
            trained = {method: _by_seed(one, judged) for method, one in dataset["variants"].items()}
            better, than = ([method for method in claim[side] if trained.get(method)] for side in ("better", "than"))
            compared = [([ours], [theirs]) for ours in better for theirs in than]
            if claim.get("on_average") and len(compared) > 1:
                compared.insert(0, (better, than))
            for sides in compared:
                seeds = sorted(set.intersection(*(set(trained[method]) for side in sides for method in side)))
                if not seeds:
                    continue
                of_rows = variances(name, *sides, seeds)
                who = {"claim": place, "dataset": name, "better": _called(sides[0]), "than": _called(sides[1])}
                averaged = {"averaged": True} if max(map(len, sides)) > 1 else {}
                for score in judged:
                    ours, theirs = ([mean(trained[m][s][score] for m in side) for s in seeds] for side in sides)
                    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
                    verdict = judge(differences, of_rows.get(score), claim["similar"])
                    found.append({**who, "score": score, **averaged, **verdict})
    return found


def _called(methods: Sequence[str]) -> str:
    return methods[0] if len(methods) == 1 else f"mean of {len(methods)}"


def _by_seed(entry: Mapping[str, Any], judged: Sequence[str]) -> dict[int, dict[str, float]]:
    """The scores of a method's runs."""
    if judged[0] not in entry:
        return {}
    seeds = entry.get("trained_seeds") or range(len(entry[judged[0]]["all"]))
    return {seed: {score: entry[score]["all"][place] for score in judged} for place, seed in enumerate(seeds)}
