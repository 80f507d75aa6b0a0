"""All claims on one page: what the runs of a folder say of every sentence of the paper that its reports judge.

It is made again from NAME.json of the folder whenever a report is written, so that it shows them all.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastformer.paper import claims
from fastformer.paper.recipes import NAMES, Recipe, load_recipe
from fastformer.paper.report import NONE, compared, difference_of, how_many_above, interval_of, needed
from fastformer.paper.verdicts import UNDECIDED
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import how_many, say

FILE = "verdicts.md"
_TOLD = """
A difference has its 95% interval; with one seed it has none. If a claim is about several methods, the page has the
least and the greatest of their differences, or that of their mean if the claim says *usually* or *many*. What would
decide a claim is what would confirm it, or refute it if a difference is on the wrong side. Each report has every
comparison, and how it is judged.
"""
_HEADER = ["data", "score", "verdict", "difference", "what would decide"]


def write_overview(folder: Path) -> None:
    """Write verdicts.md, or remove it if no report of the folder judges a claim."""
    parts = [part for name in NAMES for part in _of_report(load_recipe(name), folder / f"{name}.json")]
    if not parts:
        return (folder / FILE).unlink(missing_ok=True)
    with writing_text(folder / FILE) as file:
        file.write("\n".join(["# What these runs say of each claim", _TOLD, *parts]))


def _of_report(recipe: Recipe, path: Path) -> list[str]:
    """A heading, and for each claim its sentence and a table; nothing if the file is not there or judges none."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        parts = []
        for place, claim in enumerate(report.get("claims", ())):
            found = [one for one in report["verdicts"] if one["claim"] == place]
            if rows := [_row(recipe, claim, *one) for one in claims.by_data(found, recipe.judged)]:
                parts += [f"> {claim['quote']}\n", markdown_table(_HEADER, rows)]
        if not parts:
            return []
        missing = f", {how_many(len(report['missing']), 'runs', 'are')} missing" if report["missing"] else ""
        return [f"## [{report['title']}]({path.stem}.md), scale `{report['scale']}`{missing}\n", *parts]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        say(f"{path}: is not a report as this version writes it; {FILE} leaves it out")
        return []


def _row(
    recipe: Recipe, claim: Mapping[str, Any], name: str, score: str, found: Sequence[claims.Comparison]
) -> list[str]:
    verdict = claims.verdict_on(claim, found)
    would = NONE
    if verdict == UNDECIDED:
        if without := claims.without_runs(claim, found):
            would = f"runs of {', '.join(without)}"
        elif (needs := claims.needs(claim, found)) is not None:
            would = needed(recipe, needs, seeds=min(one["seeds"] for one in found))
    return [name, recipe.scores[score], verdict, _difference(recipe, found), would]


def _difference(recipe: Recipe, found: Sequence[claims.Comparison]) -> str:
    single, of_mean = claims.each_method(found), claims.of_mean(found)
    if of_mean is not None:
        return f"{compared(of_mean)}: {_with_interval(recipe, of_mean)}, {how_many_above(single)}"
    if len(single) == 1:
        return _with_interval(recipe, single[0])
    ordered = sorted(single, key=lambda one: one["difference"])
    least, greatest = (difference_of(recipe, one) for one in (ordered[0], ordered[-1]))
    return f"{least} to {greatest}, {how_many_above(single)}"


def _with_interval(recipe: Recipe, one: claims.Comparison) -> str:
    difference, interval = difference_of(recipe, one), interval_of(recipe, one)
    return difference if interval == NONE else f"{difference} ({interval})"
