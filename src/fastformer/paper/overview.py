"""All claims on one page: what the runs of a folder say of every sentence of the paper that its reports judge.

It is made again from NAME.json of the folder whenever a report is written, so that it shows them all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastformer.paper import verdicts
from fastformer.paper.recipes import NAMES, Recipe, load_recipe
from fastformer.paper.report import NONE, difference_of, interval_of, needed
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import say

FILE = "verdicts.md"
_HEADER = ["data", "score", "verdict", "difference", "what would decide"]


def write_overview(folder: Path) -> None:
    """Write verdicts.md, if a report of the folder judges a claim."""
    parts = [part for name in NAMES for part in _of_report(load_recipe(name), folder / f"{name}.json")]
    if parts:
        told = (
            "A difference has its 95% interval, or, if several methods are compared, the least and the greatest "
            "difference. Each report has every comparison, and how it is judged."
        )
        with writing_text(folder / FILE) as file:
            file.write("\n".join(["# What these runs say of each claim\n", f"{told}\n", *parts]))


def _of_report(recipe: Recipe, path: Path) -> Iterator[str]:
    """A heading, and for each claim its sentence and a table."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        found, claims = report.get("verdicts", ()), report.get("claims", ())
        if not found:
            return
        yield f"## [{report['title']}]({path.stem}.md), scale `{report['scale']}`\n"
        for place, claim in enumerate(claims):
            pairs = [one for one in found if one["claim"] == place]
            if pairs:
                yield f"> {claim['quote']}\n"
                yield markdown_table(_HEADER, list(_rows(recipe, pairs)))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        say(f"{path}: is not a report as this version writes it; {FILE} leaves it out")


def _rows(recipe: Recipe, pairs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for name in dict.fromkeys(one["dataset"] for one in pairs):
        for score in recipe.claimed:
            some = [one for one in pairs if (one["dataset"], one["score"]) == (name, score)]
            if some:
                verdict = verdicts.of_claim(some)
                yield [name, recipe.scores[score], verdict, _difference(recipe, some), needed(recipe, some)]


def _difference(recipe: Recipe, pairs: Sequence[Mapping[str, Any]]) -> str:
    pairs = verdicts.deciding(pairs)
    ordered = sorted(pairs, key=lambda one: one["difference"])
    least, greatest = (difference_of(recipe, one) for one in (ordered[0], ordered[-1]))
    if len(pairs) > 1:
        return f"{least} to {greatest}, {len(pairs)} comparisons"
    interval, mean = interval_of(recipe, pairs[0]), f"{pairs[0]['better']}: " if pairs[0].get("averaged") else ""
    return f"{mean}{least}" if interval == NONE else f"{mean}{least} ({interval})"
