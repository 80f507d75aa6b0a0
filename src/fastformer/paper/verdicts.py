"""Whether one method is above another: paired differences over seeds, and a bootstrap over test rows.

The claim is Δ > 0, or Δ > -margin if it says "similar". Both methods are trained with the seeds s = 1 … n and scored on
the same rows. With d_s the difference of their scores,

    D   = mean of d_s
    SE² = S² / n + V         S² the sample variance of d_s: other seeds; V that of D over rows drawn with replacement
    ν   = SE⁴ / ((S² / n)² / (n - 1))                 degrees of freedom, V taken for known (Welch, Satterthwaite)

The 95% interval of Δ is D ± t(0.975, ν) SE. The claim is *confirmed* if all of it is on the claim's side, *refuted* if
none of it is, else *not decided*; with one seed it is never decided.

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


def what_would_decide(one: Mapping[str, Any], margin: float = 0.0, level: float = LEVEL) -> dict[str, Any]:
    """What would decide a comparison that `judge` left open, with the differences that it has.

    `more_runs` of each method, or `more_rows`: how many times as many test rows; nothing if neither would.
    """
    if one["seeds"] < 2:
        return {"more_runs": 2 - one["seeds"]}
    spread, known = one["seeds_std"] ** 2, (one["rows_std"] or 0.0) ** 2
    return _what_would_decide(spread, known, one["difference"] + margin, one["seeds"], level)


def _interval(spread: float, known: float, count: int, level: float = LEVEL) -> tuple[float, float, float]:
    """Half an interval, the standard error, and the degrees of freedom."""
    of_seeds = spread / count
    error = (of_seeds + known) ** 0.5
    freedom = error**4 / (of_seeds**2 / (count - 1)) if of_seeds > 0 else np.inf
    return float(stats.t.ppf(1 - level / 2, freedom)) * error, error, freedom


def _what_would_decide(spread: float, known: float, away: float, count: int, level: float = LEVEL) -> dict[str, Any]:
    if abs(away) < _SMALL:
        return {}
    at_least = float(stats.norm.ppf(1 - level / 2)) ** 2 * known / away**2
    if at_least >= 1:
        return {"more_rows": at_least}
    for runs in range(count + 1, MOST_RUNS):
        if _interval(spread, known, runs, level)[0] < abs(away):
            return {"more_runs": runs - count}
    return {}


def score_again(run: Resampled, rows: int, draws: int = DRAWS, seed: int = 0) -> Mapping[str, np.ndarray]:
    """The scores of a run on test rows drawn with replacement, the same draws for every run."""
    random, found = np.random.default_rng(seed), []
    for _ in range(0, draws, _DRAWS_AT_ONCE):
        weights = random.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS_AT_ONCE).astype(np.float32)
        found.append(run(weights))
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def rows_variances(
    better: Sequence[Mapping[str, np.ndarray]], than: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, float]:
    """The variance over these draws of the difference between the means of two groups of runs."""
    ours, theirs = ({name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]} for runs in (better, than))
    return {name: float(np.var(ours[name] - theirs[name], ddof=1)) for name in ours}


def mean_of_rows(found: Mapping[str, np.ndarray]) -> Resampled:
    """For scores that are means over rows; a row without one (nan) does not count."""
    values = {name: (np.nan_to_num(one), ~np.isnan(one)) for name, one in found.items()}
    return lambda weights: {name: weights @ one / (weights @ has) for name, (one, has) in values.items()}
