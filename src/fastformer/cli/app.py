"""The command line: each command calls the function of the same name and prints what it returns."""

import os
import shutil
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.bench import bench_app
from fastformer.cli.one_task import ensemble, explain, import_clicks, recommend, search, summarize
from fastformer.cli.options import Json, Seed, print_json, print_table
from fastformer.cli.reproduce import reproduce_app
from fastformer.cli.runs import embed, evaluate, export, predict
from fastformer.cli.serve import serve
from fastformer.cli.train import train_app
from fastformer.errors import Interrupted, UserError, enough_memory, shortened
from fastformer.surroundings.ranks import Elsewhere, speaks
from fastformer.tasks.classification.declaration import CLASSIFICATION
from fastformer.version import __version__

app = typer.Typer(
    name="fastformer",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="Long text in linear time on any machine: train, evaluate and use Fastformer, and six other methods.\n\n"
    "Start with `fastformer quickstart`. `train` writes a run folder; "
    "`evaluate`, `predict` and the other commands need only its path.",
)
app.add_typer(train_app, name="train")
app.add_typer(bench_app, name="bench")
app.add_typer(reproduce_app, name="reproduce")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"fastformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


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
    from fastformer.bench.quickstart import quickstart as run

    result = run(output, seed=seed, show_progress=not json_)
    if json_:
        return print_json(result)
    rows = result["rows"]
    title = f"Built-in corpus: {rows['train']:,} training, {rows['test']:,} test docstrings"
    methods = ("fastformer", "tf-idf + logistic regression", "majority class")
    print_table(
        title, {name: result[name] for name in methods}, ("accuracy", "macro_f", "seconds"), CLASSIFICATION.short_names
    )
    for example in result["examples"]:
        text = " ".join(example["text"].split())
        sure = max(example["probabilities"].values())
        print(f"\n“{text[:160]}…”\n  predicted {example['label']} ({sure:.0%}), really {example['true']}")
    print(f"\nThe model is in {result['output']}. Try:\n  echo 'Compute the eigenvalues of a matrix.' | ", end="")
    us = started_as()
    print(f"{us} predict {result['output']} -\nor see it in a browser:\n  {us} serve {result['output']}")


def started_as() -> str:
    """How to start this program again: without an activated environment its name alone is not found."""
    given = Path(sys.argv[0])
    return "fastformer" if shutil.which("fastformer") or given.name != "fastformer" else str(given)


for _verb in (evaluate, predict, embed, search, recommend, import_clicks, ensemble, summarize, explain, export, serve):
    app.command()(_verb)


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, Ctrl-C is 130.

    75: another command is writing there, try later. 78: what is to be resumed had other settings or data.

    With FASTFORMER_DEBUG=1 in the environment a mistake shows its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # files are UTF-8 on every system; a terminal shows what it can
            # A file name may hold bytes that are not characters: they are shown as \xe9.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    try:
        with enough_memory():
            app()
    except UserError as error:
        if os.environ.get("FASTFORMER_DEBUG"):
            raise
        if not isinstance(error, Elsewhere):
            print(f"fastformer: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Interrupted as stop:
        if speaks():
            print(f"fastformer: {stop}", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # Ctrl-C, if there was nothing to keep
            print("fastformer: stopped", file=sys.stderr)
        raise
    except OSError as error:  # what the system refuses: no permission, a broken disk, …
        if os.environ.get("FASTFORMER_DEBUG"):
            raise
        what = f"{error.filename or 'the output'}: {error.strerror or error}"
        print(f"fastformer: {shortened(what)}; check the place, its permissions and the space left", file=sys.stderr)
        sys.exit(2)
