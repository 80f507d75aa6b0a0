"""Commands for a run of any task. Options that only some tasks have come from their declarations."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import (
    Address,
    AnyLabelColumn,
    AnyTextColumn,
    AnyTexts,
    Device,
    Dtype,
    Engine,
    Format,
    Header,
    InputFormat,
    Json,
    LabelColumn,
    RunFolder,
    Separator,
    StrictFiles,
    TextColumn,
    TextsOfFiles,
    Workers,
    print_json,
    print_scored,
    print_shown,
    print_table,
    split_commas,
)
from fastformer.cli.train import option_parameter
from fastformer.engine.settings import options_of
from fastformer.surroundings.progress import how_many, say
from fastformer.tasks.base import declared
from fastformer.tasks.texts import DATA_HELP


def with_task_options(verb: str) -> Callable:
    """Add the options that tasks have for a verb (`predicting`, `evaluating`) to a function's own."""

    def extend(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        found: dict[str, tuple[Any, list[str]]] = {}
        for task in declared().values():
            for name, about in options_of(getattr(task, verb)).items():
                found.setdefault(name, (about, []))[1].append(task.name)
        more = [
            option_parameter(name, kind, option, about=f"{', '.join(tasks).capitalize()}: ")
            for name, ((kind, option), tasks) in found.items()
        ]
        kept = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*kept, *more)]
        )
        function.__annotations__ = {}  # those of the signature count
        return function

    return extend


def _with_lines(doc: str | None, lines: list[str]) -> str:
    """A docstring with further paragraphs, those of the tasks."""
    return "\n\n".join([inspect.cleandoc(doc or ""), *filter(None, lines)])


@with_task_options("evaluating")
def evaluate(
    run: RunFolder,
    data: Annotated[str, typer.Argument(metavar="FILE", help=DATA_HELP)],
    text_column: AnyTextColumn = None,
    label_column: AnyLabelColumn = None,
    separator: Separator = None,
    header: Header = None,
    strict: StrictFiles = None,
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Many files: a folder for the scores of each, as JSON.")
    ] = None,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
    **options: Any,
) -> None:
    """Score a trained model on labelled data.

    Columns are those of the training unless given.
    """
    from fastformer.runs.folder import open_run
    from fastformer.scale.shards import are_many
    from fastformer.tasks.base import get_task
    from fastformer.tasks.verbs import evaluate

    opened = open_run(run)
    columns: dict[str, Any] = {"text_column": text_column, "label_column": label_column}
    how: dict[str, Any] = {"separator": separator, "header": header, "strict": strict, **columns, **options}
    how |= {"device": device, "dtype": dtype}
    spread: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    if are_many(data, output, output=output, **spread):
        return _score_files("evaluate", run, data, output, **how, **spread, json_=json_)
    result = evaluate(opened, data, **how, show_progress=not json_)
    if json_:
        return print_json(result)
    for table in get_task(opened.task).evaluated_tables(result, data):
        print_shown(table, declared()[opened.task])


evaluate.__doc__ = _with_lines(evaluate.__doc__, [one.evaluate_help for one in declared().values()])


@with_task_options("predicting")
def predict(
    run: RunFolder,
    data: AnyTexts = None,
    document: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="A text file to answer as one text, or a folder of .txt files, with one answer per file.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text itself, instead of FILE.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write here instead of to standard output: .jsonl, .json or .txt for JSON lines, .csv or .parquet for "
            "a table; for many files, a folder.",
        ),
    ] = None,
    text_column: AnyTextColumn = None,
    format: InputFormat = None,
    separator: Separator = None,
    header: Header = None,
    strict: StrictFiles = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN,…", help="Copy these fields of the input to each answer, such as an id."),
    ] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Copy all fields of the input.")] = False,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    **options: Any,
) -> None:
    """Answer every example: one JSON object per line, in input order.

    Example: `fastformer predict runs/reviews new.csv --keep id --output labels.csv`
    """
    from fastformer.scale.shards import are_many
    from fastformer.tasks.answering import predict

    how: dict[str, Any] = {
        "text_column": text_column,
        "format": _format(data or "-", format),
        "separator": separator,
        "header": header,
        "strict": strict,
        "keep": split_commas(keep),
        "keep_all": keep_all,
        "device": device,
        "dtype": dtype,
        **options,
    }
    spread: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    if are_many(data, output, **spread):
        return _score_files("predict", run, data, output, document=document, text=text, **how, **spread)
    show_progress = output is not None or not sys.stdout.isatty()
    count = predict(run, data, output, document=document, text=text, **how, show_progress=show_progress)
    if output is not None:
        say(f"{how_many(count, 'answers')} in {output}.")  # standard output has answers, and nothing else


predict.__doc__ = _with_lines(predict.__doc__, [one.predict_help for one in declared().values()])


def embed(
    run: RunFolder,
    data: TextsOfFiles,
    output: Annotated[
        str, typer.Option(metavar="PATH", help="File to write: .npy or .parquet; for many files, a folder.")
    ] = "vectors.npy",
    text_column: AnyTextColumn = None,
    format: InputFormat = None,
    separator: Separator = None,
    header: Header = None,
    strict: StrictFiles = None,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
) -> None:
    """Turn texts into vectors: one row per text, in input order."""
    from fastformer.scale.shards import are_many
    from fastformer.tasks.verbs import embed

    how: dict[str, Any] = {"separator": separator, "header": header, "strict": strict, "text_column": text_column}
    how |= {"format": _format(data, format), "device": device, "dtype": dtype}
    spread: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    if are_many(data, output, **spread):
        return _score_files("embed", run, data, output, **how, **spread, json_=json_)
    count, width = embed(run, data, output, **how, show_progress=not json_)
    if json_:
        return print_json({"rows": count, "width": width, "output": str(output)})
    print(f"{how_many(count, 'vectors')} of width {width} in {output}.")


embed.__doc__ = _with_lines(embed.__doc__, [one.embed_help for one in declared().values()])


def export(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write [default: RUN-onnx or RUN-onnx-int8, beside the run].")
    ] = None,
    format: Annotated[str, typer.Option(help="onnx: one file, any batch and length.")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Store tables in 8 bits, and multiply in 8 bits where that is faster.")
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
    from fastformer.export.exporting import export as write
    from fastformer.runs.folder import open_run

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
        short = {**declared()[open_run(run).task].short_names, "megabytes": "MB"}
        print_table(f"{evaluate_on}", result["evaluation"], tuple(result["evaluation"]["run"]), short)
    sizes = f"{result['megabytes']:.1f} MB (the run: {result['megabytes_of_run']:.1f} MB)"
    print(f"{sizes}; outputs on random texts differ by {result['largest_difference']:.0e}. ", end="")
    print(f"The export is in {result['output']}.")


def _score_files(verb: str, *given: Any, json_: bool = False, **how: Any) -> None:
    """Run the command on many files."""
    from dataclasses import asdict

    from fastformer.scale.scoring import score_files

    scored = score_files(verb, *given, **how, show_progress=not json_)
    return print_json(asdict(scored)) if json_ else print_scored(scored)


def _format(data: str, format: Format | None) -> Any:
    return (format or Format.lines).value if data == "-" else (format and format.value)
