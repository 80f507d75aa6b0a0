"""Reports as Markdown: numbers with deviations, the paper's beside them, and which of its claims hold."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import machine_line
from fastformer.paper import claims
from fastformer.paper.recipes import Recipe
from fastformer.paper.verdicts import CONFIRMED, MOST_RUNS, REFUTED, UNDECIDED
from fastformer.surroundings.files import writing_aside, writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import how_many

NONE = "–"
MOST_ROWS = 100.0  # times as many: nobody has them, so how many more does not matter
COSTS = {  # title -> entry and form; a table has those that one of its rows has
    "training": ("seconds", "{:,.0f} s"),
    "step": ("step_ms", "{:,.0f} ms"),
    "peak memory": ("peak_memory_gb", "{:.2f} GB"),
    "parameters": ("parameters", "{:,}"),
}


def write_report(folder: Path, recipe: Recipe, report: dict[str, Any]) -> None:
    """Write NAME.json, NAME.md, and for a figure NAME.png."""
    if recipe.picture:
        from fastformer.paper.plots import plot_bars

        with writing_aside(folder / f"{recipe.name}.png") as path:
            plot_bars(report, recipe.scores, path)
    write_files(folder, report, markdown(recipe, report))


def write_files(folder: Path, report: dict[str, Any], text: str) -> None:
    """Write NAME.json and NAME.md."""
    with writing_text(folder / f"{report['what']}.json") as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
    with writing_text(folder / f"{report['what']}.md") as file:
        file.write(text)


def number(spread: Mapping[str, Any] | None, decimals: int = 2) -> str:
    """A mean, with its deviation if it has one, as the paper prints it."""
    if spread is None:
        return NONE
    deviation = "" if spread["std"] is None else f" ± {spread['std']:.{decimals}f}"
    return f"{spread['mean']:.{decimals}f}{deviation}"


def cell(value: Any, form: str) -> str:
    """A value in its form, if there is one."""
    return NONE if value is None else form.format(value)


def markdown(recipe: Recipe, report: dict[str, Any]) -> str:
    """The report as people read it: one table per dataset, what else was measured, the paper's sentences."""
    from fastformer.paper.conversion import costs, lists  # they use what is above
    from fastformer.paper.summarization import step

    parts = [f"# {report['title']}\n", _introduction(recipe, report)]
    if recipe.picture:
        parts.append(f"![{report['title']}]({report['what']}.png)\n")
    for name, dataset in report["datasets"].items():
        parts += [f"## {name}\n", _about(recipe, dataset), _table(recipe, dataset)]
        parts += [" ".join(dataset["says"]) + "\n"] if dataset.get("says") else []
        parts += costs(dataset, report) if "requests" in report else []
    parts += [*(lists(report) if "lists" in report else ()), *step(report), *_claims(recipe, report)]
    return "\n".join([*parts, f"```bash\n{report['command']}\n```\n"])


def _introduction(recipe: Recipe, report: dict[str, Any]) -> str:
    """Reduction, what numbers are, from where the word vectors start, and what is missing."""
    mean = mean_of_seeds(report)
    seeds = f"{mean} ± sample standard deviation" if mean else "one seed"
    start = (
        f"Word vectors start from GloVe (`{Path(report['glove']).name}`)."
        if report["glove"]
        else "**Word vectors start at random, not from GloVe as in the paper** (`--glove FILE` gives them)."
    )
    said = [f"After {report['source']}. Scale `{report['scale']}`.", report["reduction"], start]
    said += report.get("says", [])
    percent = " in percent" if recipe.decimals == 2 else ""
    said.append(f"{recipe.scored.capitalize()} scores{percent}, {seeds}; validation picks the epoch.")
    said += [f"{machine_line(report['machine'])}."] if report["machine"] else []
    if report.get("missing"):
        said.append(f"**{how_many(len(report['missing']), 'runs', 'are')} missing.**")
    return " ".join(said) + "\n"


def _about(recipe: Recipe, dataset: dict[str, Any]) -> str:
    """What the data is and what it is not."""
    about, paper = dataset["about"], dataset["paper"]
    splits = {split: count for split, count in about["rows"].items() if split != "test" or recipe.scored == "test"}
    rows = ", ".join(f"{count:,} {split}" for split, count in splits.items())
    said = [f"{rows} {recipe.unit} from `{about['source']}`, split {about['split']}.", *about["says"]]
    if paper is None:
        said.append("It stands for none of the paper's datasets, so none of its numbers are beside ours.")
    elif any(one["paper"] for one in dataset["variants"].values()):
        said.append(
            f"It stands for the paper's {recipe.papers[paper]}; its numbers are beside ours: other rows, other splits, "
            "other settings, not to be compared digit by digit."
        )
    else:
        numbers = "prints no numbers with this figure" if recipe.in_paper else "has no such table"
        said.append(f"It stands for the paper's {recipe.papers[paper]}; the paper {numbers}.")
    return " ".join(said) + "\n"


def _table(recipe: Recipe, dataset: dict[str, Any]) -> str:
    """One row per variant: scores, the paper's if it has some, the best of each column in bold; costs."""
    variants = dataset["variants"]
    columns: dict[str, dict[str, str]] = {}
    for score, title in recipe.scores.items():
        higher = score in recipe.judged
        columns[title] = _cells({name: one.get(score) for name, one in variants.items()}, recipe.decimals, higher)
        printed = {name: _printed(one["paper"], score) for name, one in variants.items()}
        if any(printed.values()):
            columns[f"paper's {title}"] = _cells(printed, recipe.decimals, higher)
    for name in recipe.more:
        columns[name] = {variant: number(one.get(name), 1) for variant, one in variants.items()}
    if len(set((seeds := _seed_counts(dataset)).values())) > 1:
        columns["seeds"] = {name: str(seeds.get(name, NONE)) for name in variants}
    for title, (key, form) in COSTS.items():
        if any(key in one for one in variants.values()):
            columns[title] = {name: cell(one.get(key), form) for name, one in variants.items()}
    rows = [[name, *(column[name] for column in columns.values())] for name in variants]
    return markdown_table([recipe.first_column, *columns], rows)


def mean_of_seeds(report: Mapping[str, Any]) -> str | None:
    """How many seeds the numbers are a mean of; None if each is of one."""
    counts = sorted(count for dataset in report["datasets"].values() for count in _seed_counts(dataset).values())
    least, most = (counts[0], counts[-1]) if counts else (report["seeds"],) * 2
    told = f"{most}" if least == most else f"{least} to {most}"
    return f"mean of {told} seeds" if most > 1 else None


def _seed_counts(dataset: Mapping[str, Any]) -> dict[str, int]:
    """The number of seeds of each variant that was trained."""
    return {name: len(one["trained_seeds"]) for name, one in dataset["variants"].items() if one.get("trained_seeds")}


def _printed(paper: Mapping[str, Any] | None, score: str) -> dict[str, Any] | None:
    """The paper's number as a spread: it prints a mean, or a mean and a deviation."""
    if not paper or score not in paper:
        return None
    value = paper[score]
    return {"mean": value[0], "std": value[1]} if isinstance(value, list) else {"mean": value, "std": None}


def _cells(spreads: Mapping[str, Any], decimals: int, bold: bool) -> dict[str, str]:
    """Scores as the paper prints them, the best in bold if larger is better."""
    means = [round(one["mean"], decimals) for one in spreads.values() if one]
    best = max(means, default=None) if bold else None
    cells = {name: number(one, decimals) for name, one in spreads.items()}
    return {
        name: f"**{text}**" if spreads[name] and round(spreads[name]["mean"], decimals) == best else text
        for name, text in cells.items()
    }


# ---- what the paper says ---------------------------------------------------------------------------------------------


def _claims(recipe: Recipe, report: dict[str, Any]) -> list[str]:
    """Each sentence of the paper, the verdict on it, and the comparisons behind that."""
    found = report["verdicts"]
    parts = [f"## {recipe.claims_title}\n"]
    for place, claim in enumerate(report["claims"]):
        found_here = [one for one in found if one["claim"] == place]
        if not found_here:
            continue
        parts.append(f"> {claim['quote']}\n")
        said: dict[str, list[str]] = {}
        for name, score, some in claims.by_data(found_here, recipe.judged):
            said.setdefault(name, []).append(f"{recipe.scores[score]} {_told(claim, some)}")
        lines = (f"- {name}: {'; '.join(told)}." for name, told in said.items())
        parts += ["\n".join(lines) + "\n", _comparisons(recipe, found_here)]
    return [*parts, _how_judged(recipe, found)] if found else []


def _told(claim: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> str:
    """A verdict, and how many comparisons say what."""
    verdict, single = f"**{claims.verdict_on(claim, comparisons)}**", claims.each_method(comparisons)
    if len(single) == 1 and not claims.about_mean(claim):
        return verdict
    counts = {kind: sum(one["verdict"] == kind for one in single) for kind in (CONFIRMED, REFUTED)}
    each = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"{verdict} ({f'{each}; ' if each else ''}{how_many_above(single)})"


def how_many_above(single: Sequence[Mapping[str, Any]]) -> str:
    """In how many comparisons the method that should be better is above the other, by any amount."""
    return f"above in {sum(one['difference'] > 0 for one in single)} of {len(single)}"


def _comparisons(recipe: Recipe, comparisons: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for one in comparisons:
        difference, interval = difference_of(recipe, one), interval_of(recipe, one)
        would = needed(recipe, one, one["seeds"]) if one["verdict"] == UNDECIDED else NONE
        score = recipe.scores[one["score"]]
        rows.append([one["dataset"], compared(one), score, difference, interval, one["verdict"], would])
    header = ["data", "compared", "score", "difference", "95% interval", "verdict", "what would decide"]
    return markdown_table(header, rows)


def compared(one: Mapping[str, Any]) -> str:
    """The two sides of a comparison."""
    return f"{one['better']} − {one['than']}"


def difference_of(recipe: Recipe, one: Mapping[str, Any]) -> str:
    """The difference of a comparison."""
    return f"{one['difference']:+.{recipe.decimals}f}"


def interval_of(recipe: Recipe, one: Mapping[str, Any]) -> str:
    """Its 95% interval, if there is one."""
    return NONE if "low" not in one else f"{one['low']:+.{recipe.decimals}f} to {one['high']:+.{recipe.decimals}f}"


def needed(recipe: Recipe, needs: Mapping[str, Any], seeds: int) -> str:
    """What would decide, in words."""
    if seeds < 2:
        return "more seeds"
    told = [f"{how_many(needs['more_runs'], 'runs')} more of each"] if "more_runs" in needs else []
    if "more_rows" in needs:
        told.append(f"more than {min(needs['more_rows'], MOST_ROWS):,.1f} × the {recipe.scored} rows")
    return " and ".join(told) or f"over {MOST_RUNS:,} runs"


def _how_judged(recipe: Recipe, found: Sequence[Mapping[str, Any]]) -> str:
    with_rows = [one["rows_shared_std"] is not None for one in found]
    about_means = any("averaged" in one for one in found)
    usually = (
        " One that says *usually* or *many* is about their mean, and more than half must agree." if about_means else ""
    )
    over = f"seeds and over {recipe.scored} rows drawn with replacement" if all(with_rows) else "seeds"
    return (
        f"Methods are compared seed by seed. An interval is Student's, from the spread over {over}; a claim is decided "
        "where it is on one side of zero, or of the margin where the paper says that two are similar. A claim about "
        "several methods is confirmed where each comparison is, refuted where one is at 5% divided by their number."
        f"{usually if about_means else ''}\n"
    )
