"""What several commands share: their options, and how results are printed."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fastformer.surroundings.progress import how_many
from fastformer.tasks.base import without_nan

if TYPE_CHECKING:
    from fastformer.scale.scoring import Scored
    from fastformer.tasks.base import Declaration, Shown


class Format(StrEnum):
    """Formats of standard input."""

    lines = "lines"
    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and show no progress.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Random seed: the same seed gives the same model.")
]
TextColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column that holds the text; `title,body` joins several. Guessed when obvious."),
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column that holds the label. Guessed when obvious.")
]
ArticleColumn = Annotated[
    str | None,
    typer.Option(
        "--article-column", "--text-column", metavar="NAME", help="Column that holds the article. Guessed when obvious."
    ),
]
SummaryColumn = Annotated[
    str | None,
    typer.Option(
        "--summary-column",
        "--label-column",
        metavar="NAME",
        help="Column that holds the summary. Guessed when obvious.",
    ),
]
# In commands for every task the same columns have both names.
AnyTextColumn = Annotated[
    str | None,
    typer.Option(
        "--text-column",
        "--article-column",
        metavar="NAME",
        help="Column that holds the text; `title,body` joins several, except for a summarizer. Guessed when obvious.",
    ),
]
AnyLabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        "--summary-column",
        metavar="NAME",
        help="Column that holds the label, or the summary. Guessed when obvious.",
    ),
]
Separator = Annotated[
    str | None, typer.Option(metavar="CHAR", help="Character between the fields of CSV: `;`, `tab`, …")
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row names the columns [default: as trained]."),
]
Strict = Annotated[
    bool | None,
    typer.Option("--strict/--no-strict", help="Stop at a row without a text or a label [default: as trained]."),
]
StrictFiles = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict",
        help="Stop at a row without a text or a label [default: as trained], and at the first of many files that "
        "cannot be read.",
    ),
]
Beams = Annotated[
    int | None, typer.Option(min=1, max=100, metavar="N", help="Beam size [default: the preset's, or the run's].")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, which `fastformer train` writes.")]
MANY_FILES = "; or with a folder as --output, a folder of such files or a pattern in quotes, as 'data/*.parquet'"
TEXTS_HELP = "A table, a .txt of one text per line, or - for standard input"
Texts = Annotated[str, typer.Argument(metavar="FILE", help=f"{TEXTS_HELP}.")]
TextsOfFiles = Annotated[str, typer.Argument(metavar="FILE", help=f"{TEXTS_HELP}{MANY_FILES}.")]
AnyTexts = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help=f"{TEXTS_HELP} [default: -]{MANY_FILES}.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Many files: this many at a time, each on one core [default: the cores of this machine, or the CPUs of "
        "the cluster].",
        show_default=False,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(metavar="ray", help="Many files: answer them on a Ray cluster instead of this machine alone."),
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of the Ray cluster [default: RAY_ADDRESS, or one on this machine]."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training in --output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --output when done.")]
Repetitions = Annotated[
    int, typer.Option(min=1, max=1_000_000, metavar="N", help="Measured steps; their median counts.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, metavar="N", help="Threads of torch [default: as torch chooses].")
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps; auto is cuda if PyTorch sees a GPU, else cpu.")
]
Dtype = Annotated[str, typer.Option(metavar="NAME", help="auto, float32 or bfloat16; auto is float32.")]
InputFormat = Annotated[
    Format | None, typer.Option(help="Format of standard input; a file tells its own by its ending.")
]


def print_scored(scored: "Scored") -> None:
    """Print what was done of many files."""
    files = how_many(scored.files, "files")
    before = f" ({scored.before:,} were done before)" if scored.before else ""
    if scored.scores:
        print_table("", {"mean of the files, by rows": scored.scores}, tuple(scored.scores), {})
    print(f"{how_many(scored.rows, 'rows')} of {files} in {scored.output}{before}.")


def split_commas(given: list[str] | None) -> tuple[str, ...]:
    """The values of an option that takes several: `a,b`, or given several times."""
    return tuple(part.strip() for one in given or () for part in one.split(","))


def print_json(result: Any) -> None:
    """Print a result for other programs; a score that is not defined is null."""
    print(json.dumps(without_nan(result), indent=2, ensure_ascii=False))


def print_table(
    title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], short: Mapping[str, str]
) -> None:
    """Print scores for people: one row per name. `short` are names for columns: a terminal has 80 characters."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(short.get(column, column.replace("_", " ")), justify="right")
    for name, scores in rows.items():
        table.add_row(escape(name), *(_cell(scores.get(column)) for column in columns))
    Console().print(table)


def print_shown(shown: "Shown", task: "Declaration") -> None:
    """Print a table that a task gives, and its note."""
    print_table(shown.title, shown.rows, shown.columns, task.short_names)
    if shown.note:
        print(shown.note)


def _cell(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
