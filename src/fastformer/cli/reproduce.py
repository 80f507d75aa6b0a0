"""`fastformer reproduce WHAT`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import ArticleColumn, Json, LabelColumn, SummaryColumn, TextColumn, print_json

reproduce_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Tables and figures of the paper, made again on any data, its numbers beside ours.",
)

Data = Annotated[
    list[str],
    typer.Option(
        metavar="NAME[:PAPER]=PATH",
        help="A classification dataset and what to call it; may be given several times. PAPER is the dataset of the "
        "paper that it stands for: amazon, imdb or mind. PATH is whatever `train classification` reads, or a folder "
        "with train, validation and test files; without splits it is 80/10/10 at random.",
    ),
]
ScaleName = Annotated[str, typer.Option(help="full: the paper's settings; cpu: reduced for 2 cores; small: minutes.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Runs of a kind, with seeds 0, 1, … [default: full 5, cpu 3, small 2].")
]
Draws = Annotated[int | None, typer.Option(min=1, help="Average the length over this many draws of the rows.")]
Glove = Annotated[str | None, typer.Option(help="GloVe file (text, .gz or .zip) that word vectors start from.")]
DataSeed = Annotated[int, typer.Option(min=0, help="Seed of the rows drawn and of random splits.")]
KeepModels = Annotated[
    bool, typer.Option("--keep-models", help="Keep the trained models; else only settings and metrics stay.")
]
Output = Annotated[Path, typer.Option(help="Folder for reports, runs and prepared data. Commands may share it.")]
BUILTIN, OUTPUT = ["builtin=builtin"], Path("runs/reproduce")

_GOES_ON = (
    "A run that is done is not made again, whichever table or figure asks for it, and after Ctrl-C the same command "
    "goes on. Example: `fastformer reproduce {} --data imdb:imdb=data/aclImdb --seeds 3 --scale cpu`"
)


def _training_command(name: str, does: str) -> None:
    """A command that trains: all of these have the same options."""

    def command(
        data: Data = BUILTIN,
        scale: ScaleName = "cpu",
        seeds: Seeds = None,
        glove: Glove = None,
        text_column: TextColumn = None,
        label_column: LabelColumn = None,
        data_seed: DataSeed = 0,
        keep_models: KeepModels = False,
        output: Output = OUTPUT,
        json_: Json = False,
    ) -> None:
        _run(
            name,
            json_,
            data,
            output=output,
            scale=scale,
            seeds=seeds,
            glove=glove,
            text_column=text_column,
            label_column=label_column,
            data_seed=data_seed,
            keep_models=keep_models,
            show_progress=not json_,
        )

    reproduce_app.command(name, help=f"{does}\n\n{_GOES_ON.format(name)}")(command)


_training_command("all", "All tables and figures of text classification.")
_training_command(
    "table-classification", "Accuracy and macro-F of the seven methods, time and memory: the paper's main table."
)
_training_command(
    "figure-interaction", "Product against add and concat: the paper's figure on the interaction function."
)
_training_command("figure-sharing", "Which parameters are shared: the paper's figure on parameter sharing.")


def _counting_command(name: str, does: str, default: list[str]) -> None:
    """A command that trains nothing: these have the same options but for the data they take by default."""

    def command(
        data: Data = default,
        scale: ScaleName = "cpu",
        seeds: Draws = None,
        text_column: TextColumn = None,
        label_column: LabelColumn = None,
        data_seed: DataSeed = 0,
        output: Output = OUTPUT,
        json_: Json = False,
    ) -> None:
        _run(
            name,
            json_,
            data,
            output=output,
            scale=scale,
            seeds=seeds,
            text_column=text_column,
            label_column=label_column,
            data_seed=data_seed,
            show_progress=not json_,
        )

    reproduce_app.command(name, help=does)(command)


_counting_command(
    "table-complexity",
    "Multiply-adds and parameters of the seven methods beside the paper's complexity table.\n\n"
    "With --data also what a text of average length costs each of them.",
    [],
)
_counting_command(
    "table-datasets",
    "Rows, average length and classes of the data, beside the paper's three tables of statistics.\n\n"
    "They are those that the other commands use at the same --scale; `full` counts all.",
    BUILTIN,
)


@reproduce_app.command("table-conversion")
def table_conversion(
    data: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FOLDER",
            help="A folder with train, validation and test files as `train conversion` reads them, and what to call "
            "it; or `builtin`, simulated. May be given several times.",
        ),
    ] = BUILTIN,
    scale: ScaleName = "cpu",
    seeds: Seeds = None,
    glove: Glove = None,
    data_seed: DataSeed = 0,
    keep_models: KeepModels = False,
    output: Output = OUTPUT,
    json_: Json = False,
) -> None:
    """Conversion prediction, Transformer and Fastformer: AUC, memory and latency, as the paper's last table.

    Also what lists of 50, 500 and 5,000 behaviours cost, simulated. A run that is done is not made again, and after
    Ctrl-C the same command goes on. Let nothing else run while latency is measured.
    """
    _run(
        "table-conversion",
        json_,
        data,
        output=output,
        scale=scale,
        seeds=seeds,
        glove=glove,
        data_seed=data_seed,
        keep_models=keep_models,
        show_progress=not json_,
    )


ClicksData = Annotated[
    list[str],
    typer.Option(
        metavar="NAME[:mind]=PATH",
        help="A folder with MIND's train and dev folders in it, and what to call it; may be given several times. With "
        "`:mind` it stands for the paper's data, whose numbers are then beside ours. `builtin` is simulated.",
    ),
]
Plm = Annotated[
    str | None, typer.Option(help="Folder with a transformers encoder, for the methods that start from one.")
]


@reproduce_app.command("table-recommendation")
def table_recommendation(
    data: ClicksData = BUILTIN,
    scale: ScaleName = "cpu",
    seeds: Seeds = None,
    glove: Glove = None,
    plm: Plm = None,
    keep_models: KeepModels = False,
    output: Output = OUTPUT,
    json_: Json = False,
) -> None:
    """AUC, MRR and nDCG of news recommenders, beside the paper's and beside rankers that read no text.

    A run that is done is not made again, and after Ctrl-C the same command goes on. Example: `fastformer reproduce
    table-recommendation --data mind:mind=data/MIND --seeds 3 --scale cpu`
    """
    _run(
        "table-recommendation",
        json_,
        data,
        output=output,
        scale=scale,
        seeds=seeds,
        glove=glove,
        plm=plm,
        keep_models=keep_models,
        show_progress=not json_,
    )


@reproduce_app.command("table-summarization")
def table_summarization(
    data: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:PAPER]=FOLDER",
            help="A folder with train, validation and test files as `train summarization` reads them, and what to call "
            "it; may be given several times. PAPER is the dataset of the paper that it stands for: cnn-dailymail or "
            "pubmed. `builtin` is docstrings.",
        ),
    ] = BUILTIN,
    scale: ScaleName = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of a kind, with seeds 0, 1, … [default: full 5, cpu 1, small 1].")
    ] = None,
    glove: Glove = None,
    article_column: ArticleColumn = None,
    summary_column: SummaryColumn = None,
    data_seed: DataSeed = 0,
    keep_models: KeepModels = False,
    output: Output = OUTPUT,
    json_: Json = False,
) -> None:
    """ROUGE of the seven methods, beside the first sentences and random ones; what 4,096 tokens cost each method.

    A run that is done is not made again, and after Ctrl-C the same command goes on. Example: `fastformer reproduce
    table-summarization --data cnn:cnn-dailymail=data/cnn --scale cpu`
    """
    _run(
        "table-summarization",
        json_,
        data,
        output=output,
        scale=scale,
        seeds=seeds,
        glove=glove,
        article_column=article_column,
        summary_column=summary_column,
        data_seed=data_seed,
        keep_models=keep_models,
        show_progress=not json_,
    )


def _run(name: str, json_: bool, *data: list[str], output: Path, **options: Any) -> None:
    from fastformer.paper import REPRODUCE

    function: Callable[..., dict[str, Any]] = REPRODUCE[name]
    report = function(*data, output=output, **options)
    if json_:
        return print_json(report)
    names = list(report) if name == "all" else [name]
    for one in names:
        print((output / f"{one}.md").read_text(encoding="utf-8"))
    print(f"Reports, plots and the JSON of every run are in {output}.")
