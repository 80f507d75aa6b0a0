"""Whether the paper's claims hold: paired differences over seeds, and a bootstrap over test rows.

A claim says that one method is above another: Δ > 0, or Δ > -margin if it says "similar". Both are trained with the
seeds s = 1 … n and scored on the same rows. With d_s the difference of their scores,

    D   = mean of d_s
    SE² = S² / n + V         S² the sample variance of d_s: other seeds; V that of D over rows drawn with replacement
    ν   = SE⁴ / ((S² / n)² / (n - 1))                 degrees of freedom, V taken for known (Welch, Satterthwaite)

The 95% interval of Δ is D ± t(0.975, ν) SE. The claim is *confirmed* if all of it is on the claim's side, *refuted* if
none of it is, else *not decided*; with one seed it is never decided. A claim about several pairs is confirmed if each
is; it is refuted if one of them is at a level of 5% divided by their number, so that more comparisons give chance no
advantage.

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
    """The variance, over test rows drawn with replacement, of the mean difference between runs of the same seeds."""
    random, found = np.random.default_rng(seed), []
    for _ in range(0, draws, _DRAWS_AT_ONCE):
        weights = random.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS_AT_ONCE).astype(np.float32)
        ours, theirs = ([run(weights) for run in runs] for runs in (better, than))
        found.append(
            {name: np.mean([a[name] - b[name] for a, b in zip(ours, theirs, strict=True)], axis=0) for name in ours[0]}
        )
    return {name: float(np.var(np.concatenate([one[name] for one in found]), ddof=1)) for name in found[0]}


def mean_of_rows(found: Mapping[str, np.ndarray]) -> Resampled:
    """For scores that are means over rows; a row without one (nan) does not count."""
    values = {name: (np.nan_to_num(one), ~np.isnan(one)) for name, one in found.items()}
    return lambda weights: {name: weights @ one / (weights @ has) for name, (one, has) in values.items()}


def of_claim(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on a claim from those on its pairs."""
    if all(one["verdict"] == CONFIRMED for one in pairs):
        return CONFIRMED
    refuted = (one["p"] for one in pairs if one["verdict"] == REFUTED)
    return REFUTED if any(p < LEVEL / len(pairs) for p in refuted) else UNDECIDED


def verdicts(
    report: Mapping[str, Any],
    judged: Sequence[str],
    variances: Callable[[str, str, str, Sequence[int]], Mapping[str, float]] = lambda *_: {},
) -> list[dict[str, Any]]:
    """A verdict per claim, dataset, score and pair of methods; `variances(dataset, better, than, seeds)` over rows."""
    found = []
    for place, claim in enumerate(report["claims"]):
        for name, dataset in report["datasets"].items():
            if claim["paper"] and dataset["paper"] not in claim["paper"]:
                continue
            for better in claim["better"]:
                for than in claim["than"]:
                    pair = [dataset["variants"][method] for method in (better, than)]
                    seeds = sorted(set(_seeds(pair[0], judged)) & set(_seeds(pair[1], judged)))
                    if not seeds:
                        continue
                    of_rows = variances(name, better, than, seeds)
                    for score in judged:
                        ours, theirs = (dict(zip(_seeds(one, judged), one[score]["all"], strict=True)) for one in pair)
                        differences = [ours[seed] - theirs[seed] for seed in seeds]
                        who = {"claim": place, "dataset": name, "score": score, "better": better, "than": than}
                        found.append({**who, **judge(differences, of_rows.get(score), claim["similar"])})
    return found


def _seeds(entry: Mapping[str, Any], judged: Sequence[str]) -> Sequence[int]:
    if judged[0] not in entry:
        return ()
    return entry.get("trained_seeds") or range(len(entry[judged[0]]["all"]))
