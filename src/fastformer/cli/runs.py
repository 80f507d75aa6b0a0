"""Verbs for a run of any task."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import (
    DATA_HELP,
    AnyLabelColumn,
    AnyTextColumn,
    Format,
    InputFormat,
    Json,
    LabelColumn,
    RunFolder,
    TextColumn,
    Texts,
    print_json,
    print_shown,
    print_summaries,
    print_table,
)
from fastformer.errors import UserError
from fastformer.tasks.base import declared, get_task

RunBeams = Annotated[int | None, typer.Option(min=1, help="Summarization: beam size [default: the run's].")]


def evaluate(
    run: RunFolder,
    data: Annotated[str, typer.Argument(metavar="FILE", help=DATA_HELP)],
    text_column: AnyTextColumn = None,
    label_column: AnyLabelColumn = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Classification: write report.md, report.json and a picture here: precision, recall and F1 of each "
            "class, and which classes are confused; for numbers, predicted against true.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Conversion: write a plot (.png) of how far the probabilities are right.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Summarization: a two-letter code; words are stemmed if it is en [default: the run's]."),
    ] = None,
    beams: RunBeams = None,
    json_: Json = False,
) -> None:
    """Score a trained model on labelled data.

    Accuracy, macro-F, and ECE, the expected calibration error: how far probabilities are from how often they are right.
    For at most 20 classes, each class is shown too.

    A summarizer's summaries are scored by ROUGE, beside the first sentences of an article and random ones.

    Columns are those of the training unless given.
    """
    opened, task = _open(run)
    columns = {"text_column": text_column, "label_column": label_column}
    own = _only_for(opened, "conversion", plot=plot) | _only_for(opened, "classification", report=report)
    if opened.task == "classification":
        own["by_class"] = not json_
    own |= _only_for(opened, "summarization", language=language, beams=beams)
    result = task.evaluate(opened, data, **columns, **own, show_progress=not json_)
    if json_:
        return print_json(result)
    if opened.task == "summarization":
        return print_summaries(data, result)
    if opened.task in declared():
        for table in get_task(opened.task).evaluated_tables(result, data):
            print_shown(table)
        if report is not None:
            print(f"The report is {report / 'report.md'}.")
        return
    said = ("without_positive", "one_class")  # in a line of their own
    print_table(data, {str(run): result}, tuple(name for name in result if name not in said))


def predict(
    run: RunFolder,
    data: Texts = "-",
    output: Annotated[Path | None, typer.Option(help="Write here instead of to standard output.")] = None,
    text_column: AnyTextColumn = None,
    format: InputFormat = None,
    top: Annotated[
        int | None,
        typer.Option(metavar="K", help="Classification: only the K largest probabilities, in falling order."),
    ] = None,
    beams: RunBeams = None,
) -> None:
    """Predict labels: one JSON object per line with the label and all probabilities, in input order.

    Example: `fastformer predict runs/reviews new.csv > labels.jsonl`

    A recommender reads a folder of MIND and writes the leaderboard's `prediction.txt`, and its .zip beside --output.

    A summarizer writes the summary of each article and its score, the mean log-probability of the summary's words.
    """
    opened, task = _open(run)
    own = _only_for(opened, "classification", top=top) | _only_for(opened, "summarization", beams=beams)
    from fastformer.files import writing_text

    destination = nullcontext(sys.stdout) if output is None else writing_text(output)
    with destination as out:
        task.predict(
            opened,
            data,
            out,
            text_column=text_column,
            format=_format(data, format),
            **own,
            show_progress=output is not None or not sys.stdout.isatty(),
        )
    if output is not None and hasattr(task, "zip_prediction"):
        task.zip_prediction(output)


def embed(
    run: RunFolder,
    data: Texts,
    output: Annotated[Path, typer.Option(help="File to write: .npy or .parquet.")] = Path("vectors.npy"),
    text_column: AnyTextColumn = None,
    format: InputFormat = None,
    json_: Json = False,
) -> None:
    """Turn texts into vectors: one row a text, in input order.

    A classifier's are its text vectors, a recommender's those of news, a summarizer's the mean of the encoder's.
    """
    opened, task = _open(run)
    count, width = task.embed(
        opened, data, output, text_column=text_column, format=_format(data, format), show_progress=not json_
    )
    if json_:
        return print_json({"rows": count, "width": width, "output": str(output)})
    print(f"{count:,} vectors of width {width} in {output}.")


def export(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write [default: RUN-onnx or RUN-onnx-int8, beside the run].")
    ] = None,
    format: Annotated[str, typer.Option(help="onnx: one file, any batch and length.")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Store tables in 8 bits, multiply in 8 bits where it gains.")
    ] = False,
    evaluate_on: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled data to compare the run and its export on.")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export in --output.")] = False,
    json_: Json = False,
) -> None:
    """Export a classifier to a folder that `evaluate`, `predict` and `embed` read like the run itself.

    The exported model is checked against the run before it is written. Example: `fastformer export runs/reviews --int8
    --evaluate-on held-out.csv`
    """
    from fastformer.export import export as write

    result = write(
        run,
        output,
        format=format,
        int8=int8,
        evaluate_on=evaluate_on,
        text_column=text_column,
        label_column=label_column,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return print_json(result)
    if "evaluation" in result:
        print_table(f"{evaluate_on}", result["evaluation"], tuple(result["evaluation"]["run"]))
    sizes = f"{result['megabytes']:.1f} MB (the run: {result['megabytes_of_run']:.1f} MB)"
    print(f"{sizes}; outputs on random texts differ by {result['largest_difference']:.0e}. ", end="")
    print(f"The export is in {result['output']}.")


def _open(folder: Path) -> tuple[Any, Any]:
    from fastformer.run_folder import open_run
    from fastformer.tasks import task_module

    run = open_run(folder)
    return run, task_module(run.task)


def _only_for(run: Any, task: str, **options: Any) -> dict[str, Any]:
    """Those options of one task that are given; they are an error with a run of another."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and run.task != task:
        raise UserError(f"--{next(iter(given))}: a run of {run.task} has no use for it; only {task} has")
    return given


def _format(data: str, format: Format | None) -> str | None:
    return (format or Format.lines).value if data == "-" else (format and format.value)
