"""What tables and figures say in words: numbers with their deviation, the paper's beside them, and whether they agree.

A verdict is made from the numbers: two variants differ if their means are further apart than one standard deviation
(the root mean square of both). With a single seed there is no deviation, and only the difference is given.
"""

import json
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import machine_line
from fastformer.paper.comparison import SCORES
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table

PAPER_NAMES = {"amazon": "Amazon", "imdb": "IMDB", "mind": "MIND"}
AGREES, WITHIN, DISAGREES, UNDECIDED = "agrees", "within one deviation", "does not agree", "one seed"


def write_report(folder: str | Path, report: dict[str, Any], text: str) -> None:
    """Write NAME.json and NAME.md."""
    folder = Path(folder)
    with writing_text(folder / f"{report['what']}.json") as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
    with writing_text(folder / f"{report['what']}.md") as file:
        file.write(text)


def percent(mean: float, deviation: float | None) -> str:
    """A score as the paper prints it."""
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def start_of_words(report: dict[str, Any]) -> str:
    """From where the word vectors start, in a sentence."""
    if report["glove"]:
        return f"Word vectors start from GloVe (`{Path(report['glove']).name}`)."
    return "**Word vectors start at random, not from GloVe as in the paper** (`--glove FILE` gives them)."


def introduction(report: dict[str, Any], scores: str = "Test scores") -> list[str]:
    """Title, reduction, what numbers are, and from where the word vectors start."""
    seeds = f"mean of {report['seeds']} seeds ± sample standard deviation" if report["seeds"] > 1 else "one seed"
    return [
        f"# {report['title']}\n",
        f"After {report['source']}. Scale `{report['scale']}`. {report['reduction']} {start_of_words(report)} {scores} "
        f"in percent, {seeds}; validation picks the epoch. {machine_line(report['machine'])}.\n",
    ]


def about_dataset(name: str, dataset: dict[str, Any]) -> str:
    """Heading and a sentence that says what the data is and what it is not."""
    about = dataset["about"]
    rows = ", ".join(f"{count:,} {split}" for split, count in about["rows"].items())
    said = [f"{rows} rows, {about['classes']} classes, from `{about['source']}` (split {about['split']})."]
    if about.get("note"):
        said.append(about["note"])
    if left_out := sum(about["unseen_labels"].values()):
        said.append(f"{left_out:,} rows were left out whose label no training row has.")
    if dataset["paper"] is None:
        said.append("It stands for none of the paper's datasets, so none of its numbers are beside ours.")
    elif any(one["paper"] for one in dataset["variants"].values()):
        said.append(
            f"It stands for the paper's {PAPER_NAMES[dataset['paper']]}, whose numbers are beside ours: other rows, "
            "other splits, not to be compared digit by digit."
        )
    else:
        said.append(
            f"It stands for the paper's {PAPER_NAMES[dataset['paper']]}; the paper prints no numbers with this figure."
        )
    return f"## {name}\n\n{' '.join(said)}\n"


def scores_table(dataset: dict[str, Any], first_column: str) -> str:
    """One row a variant: scores, the paper's where it has some (best of each column in bold), time, memory, size."""
    variants = dataset["variants"]
    with_paper = any(one["paper"] for one in variants.values())
    columns = []
    for score, title in SCORES.items():
        columns.append((title, {name: (one[score]["mean"], one[score]["std"]) for name, one in variants.items()}))
        if with_paper:
            paper = {name: tuple(one["paper"][score]) for name, one in variants.items() if one["paper"]}
            columns.append((f"paper's {title}", paper))
    cells = {title: with_best_in_bold(values) for title, values in columns}
    rows = [
        [
            name,
            *(cells[title].get(name, "–") for title in cells),
            f"{one['seconds']:,.0f} s",
            "–" if one["peak_memory_gb"] is None else f"{one['peak_memory_gb']:.2f} GB",
            f"{one['parameters']:,}",
        ]
        for name, one in variants.items()
    ]
    return markdown_table([first_column, *cells, "training", "peak memory", "parameters"], rows)


def with_best_in_bold(values: dict[str, tuple[float, float | None]]) -> dict[str, str]:
    """Scores (mean, deviation) by name -> as the paper prints them."""
    best = max(round(mean, 2) for mean, _ in values.values())
    return {
        name: f"**{percent(*value)}**" if round(value[0], 2) == best else percent(*value)
        for name, value in values.items()
    }


def claims(report: dict[str, Any], scores: dict[str, str] = SCORES) -> str:
    """What the paper says, each sentence followed by what these runs say of it, by each of `scores` (name -> title)."""
    lines = ["## What the paper says, and these runs\n"]
    for claim in report["claims"]:
        about = claim.get("paper")
        datasets = {name: one for name, one in report["datasets"].items() if not about or one["paper"] in about}
        if not datasets:
            continue
        lines.append(f"> {claim['quote']}\n")
        for name, dataset in datasets.items():
            said = [_verdict(claim, dataset["variants"], score, title) for score, title in scores.items()]
            lines.append(f"- {name}: {'; '.join(said)}.")
        lines.append("")
    return "\n".join(lines)


def compare_two(better: dict[str, Any], than: dict[str, Any], similar: bool) -> str:
    """Whether one spread of scores is above another, as a claim says."""
    if better["std"] is None or than["std"] is None:
        return UNDECIDED
    difference = better["mean"] - than["mean"]
    deviation = ((better["std"] ** 2 + than["std"] ** 2) / 2) ** 0.5
    if abs(difference) <= deviation:
        return AGREES if similar else WITHIN
    return AGREES if difference > 0 else DISAGREES


def _verdict(claim: dict[str, Any], variants: dict[str, Any], score: str, title: str) -> str:
    pairs = {
        (better, than): compare_two(variants[better][score], variants[than][score], claim["similar"])
        for better in claim["better"]
        for than in claim["than"]
    }
    if len(pairs) == 1:
        [((better, than), found)] = pairs.items()
        numbers = [percent(variants[one][score]["mean"], variants[one][score]["std"]) for one in (better, than)]
        if found == UNDECIDED:
            found = "one seed, no verdict"
        return f"{title} {better} {numbers[0]}, {than} {numbers[1]}: {found}"
    several_better = len(claim["better"]) > 1
    parts = []
    for verdict in (AGREES, WITHIN, DISAGREES):
        names = [pair[0] if several_better else pair[1] for pair, found in pairs.items() if found == verdict]
        if names:
            parts.append(f"{verdict} for {len(names)} of {len(pairs)} ({', '.join(names)})")
    if not parts:
        above = sum(variants[better][score]["mean"] > variants[than][score]["mean"] for better, than in pairs)
        parts = [f"above in {above} of {len(pairs)}, one seed, no verdict"]
    return f"{title} {', '.join(parts)}"
