"""The command line: a verb calls the function of the same name and prints what it returns."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.bench import bench_app
from fastformer.cli.options import (
    DATA_HELP,
    AnyLabelColumn,
    AnyTextColumn,
    Beams,
    Format,
    InputFormat,
    Json,
    LabelColumn,
    RunFolder,
    Seed,
    TextColumn,
    Texts,
    print_json,
    print_summaries,
    print_table,
)
from fastformer.cli.reproduce import reproduce_app
from fastformer.cli.train import train_app
from fastformer.errors import Interrupted, UserError

app = typer.Typer(
    name="fastformer",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Long text in linear time on any machine: train, evaluate and use Fastformer and its six rivals.\n\n"
    "Start with `fastformer quickstart`. Training leaves a run folder; every other verb needs only its path.",
)
app.add_typer(train_app, name="train")
app.add_typer(bench_app, name="bench")
app.add_typer(reproduce_app, name="reproduce")


@app.command()
def quickstart(
    output: Annotated[Path, typer.Option(help="Run folder to write (replaced if it is there).")] = Path(
        "runs/quickstart"
    ),
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Train a classifier on the built-in corpus, compare it with TF-IDF, and show three predictions.

    The corpus is the docstrings of the Python packages installed here; the label is the library they come from, with
    library names masked. Nothing is downloaded. Takes two to three minutes on two cores.
    """
    from fastformer.quickstart import quickstart as run

    result = run(output, seed=seed, show_progress=not json_)
    if json_:
        return print_json(result)
    rows = result["rows"]
    title = f"Built-in corpus: {rows['train']:,} training, {rows['test']:,} test docstrings"
    methods = ("fastformer", "tf-idf + logistic regression", "majority class")
    print_table(title, {name: result[name] for name in methods}, ("accuracy", "macro_f", "seconds"))
    for example in result["examples"]:
        text = " ".join(example["text"].split())
        sure = max(example["probabilities"].values())
        print(f"\n“{text[:160]}…”\n  predicted {example['label']} ({sure:.0%}), really {example['true']}")
    print(f"\nThe model is in {result['output']}. Try:\n  echo 'Compute the eigenvalues of a matrix.' | ", end="")
    print(f"fastformer predict {result['output']} -")


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[str, typer.Argument(metavar="FILE", help=DATA_HELP)],
    text_column: AnyTextColumn = None,
    label_column: AnyLabelColumn = None,
    plot: Annotated[
        Path | None, typer.Option(help="Conversion: write a plot (.png) of how far the probabilities are right.")
    ] = None,
    json_: Json = False,
) -> None:
    """Score a trained model on labelled data.

    Accuracy, macro-F, and ECE, the expected calibration error: how far probabilities are from how often they are right.

    A summarizer's summaries are scored by ROUGE, beside the first sentences of an article and random ones.

    Columns are those of the training unless given.
    """
    opened, task = _open(run)
    columns = {"text_column": text_column, "label_column": label_column}
    if plot is not None:
        if opened.task != "conversion":
            raise UserError(f"--plot: a run of {opened.task} has no such plot; only conversion has")
        columns["plot"] = plot
    result = task.evaluate(opened, data, **columns, show_progress=not json_)
    if json_:
        return print_json(result)
    if opened.task == "summarization":
        return print_summaries(data, result)
    print_table(data, {str(run): result}, tuple(result))


@app.command()
def predict(
    run: RunFolder,
    data: Texts = "-",
    output: Annotated[Path | None, typer.Option(help="Write here instead of to standard output.")] = None,
    text_column: AnyTextColumn = None,
    format: InputFormat = None,
) -> None:
    """Predict labels: one JSON object a line with the label and all probabilities, in input order.

    Example: `fastformer predict runs/reviews new.csv > labels.jsonl`

    A recommender reads a folder of MIND and writes the leaderboard's `prediction.txt`, and its .zip beside --output.

    A summarizer writes the summary of each article and its score, the mean log-probability of the summary's words.
    """
    opened, task = _open(run)
    from fastformer.files import writing_text

    destination = nullcontext(sys.stdout) if output is None else writing_text(output)
    with destination as out:
        task.predict(
            opened,
            data,
            out,
            text_column=text_column,
            format=_format(data, format),
            show_progress=output is not None or not sys.stdout.isatty(),
        )
    if output is not None and hasattr(task, "zip_prediction"):
        task.zip_prediction(output)


@app.command()
def embed(
    run: RunFolder,
    data: Texts,
    output: Annotated[Path, typer.Option(help="File to write: .npy or .parquet.")] = Path("vectors.npy"),
    text_column: TextColumn = None,
    format: InputFormat = None,
    json_: Json = False,
) -> None:
    """Turn texts into vectors: one row a text, in input order."""
    opened, task = _open(run)
    count, width = task.embed(
        opened, data, output, text_column=text_column, format=_format(data, format), show_progress=not json_
    )
    if json_:
        return print_json({"rows": count, "width": width, "output": str(output)})
    print(f"{count:,} vectors of width {width} in {output}.")


@app.command()
def recommend(
    run: RunFolder,
    history: Annotated[
        str, typer.Option(metavar="ID,ID,…", help="News that were clicked, oldest first; leave out for a new user.")
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="How many news to print.")] = 10,
    news: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of MIND to choose from [default: the news of the training]."),
    ] = None,
    json_: Json = False,
) -> None:
    """Recommend news to somebody who clicked some: the best ones, with their titles.

    Example: `fastformer recommend runs/news --history N1012,N57 --top 5`
    """
    from fastformer.run_folder import open_run
    from fastformer.tasks.recommendation import recommend as find

    found = find(open_run(run), history, top=top, news=news, show_progress=not json_)
    if json_:
        return print_json(found)
    for place, one in enumerate(found, 1):
        print(f"{place:>3}. {one['title']}  ({one['category']}, {one['id']}, {one['score']:.3f})")


@app.command()
def ensemble(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Two or more recommenders.")],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
) -> None:
    """Put recommenders together: a run folder whose scores are the average of theirs, for all the verbs of a run.

    Example: `fastformer ensemble runs/news-0 runs/news-1 runs/news-2 --output runs/news-ensemble`
    """
    from fastformer.tasks.recommendation import ensemble as combine

    print(f"An ensemble of {len(runs)} runs is in {combine(runs, output)}.")


@app.command()
def summarize(
    run: RunFolder,
    document: Annotated[str, typer.Argument(metavar="FILE", help="A text file, or - for standard input.")] = "-",
    beams: Beams = None,
) -> None:
    """Print the summary of one document.

    Example: `fastformer summarize runs/news article.txt`
    """
    from fastformer.run_folder import open_run
    from fastformer.tasks.summarization import summarize as write

    print(write(open_run(run), document, beams=beams))


@app.command()
def explain(
    run: RunFolder,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text itself, or - for standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A text file to explain, in place of TEXT.")] = None,
    label: Annotated[str | None, typer.Option(help="Label to explain [default: the most probable one].")] = None,
    baseline: Annotated[
        str, typer.Option(help="Measure tokens from `zero` or from the `mean` token of the text.")
    ] = "zero",
    output: Annotated[Path, typer.Option(help="Page to write.")] = Path("explanation.html"),
    json_: Json = False,
) -> None:
    """Show why a classifier answers as it does: a page with every token shaded by its effect and its weights.

    Example: `fastformer explain runs/reviews "Dull and far too long." --output why.html`
    """
    from fastformer.run_folder import open_run
    from fastformer.tasks.classification import explain as write

    explanation = write(open_run(run), text, output, file=file, label=label, baseline=baseline)
    if json_:
        return print_json({**explanation.summary(), "output": str(output)})
    print(f"{explanation}\nThe page is in {output}.")


@app.command()
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
    """Export a run to a folder that `evaluate`, `predict` and `embed` read like the run itself.

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


def _format(data: str, format: Format | None) -> str | None:
    return (format or Format.lines).value if data == "-" else (format and format.value)


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, Ctrl-C is 130."""
    try:
        app()
    except UserError as error:
        print(f"fastformer: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stop:
        print(f"fastformer: {stop}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # the machine's word against it: no permission, a broken disk, …
        print(f"fastformer: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
