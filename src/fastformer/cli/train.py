"""`fastformer train TASK`: one command per declared task, made from the fields of its settings."""

import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import Device, Dtype, Json, Overwrite, Resume, print_json, print_shown, split_commas
from fastformer.engine.settings import Option, options_of
from fastformer.surroundings.progress import how_many
from fastformer.surroundings.ranks import speaks
from fastformer.tasks.base import Declaration, declared

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}  # a terminal has 80 columns

train_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Train a model for a task, and write a run folder."
)


def train_command(declaration: Declaration) -> Callable[..., None]:
    """The function behind `train NAME`: its parameters are the task's data, its settings, and where to write."""

    def run(json_: bool, output: Path, **given: Any) -> None:
        from fastformer.tasks.base import get_task
        from fastformer.tasks.verbs import train

        metrics = train(declaration.name, output=output, show_progress=not json_, **_joined(given))
        if not speaks():
            return None
        if json_:
            return print_json(metrics)
        for table in get_task(declaration.name).trained_tables(metrics, str(output)):
            print_shown(table, declaration)
        rows = metrics["rows"]
        learned = how_many(rows["train"], f"{declaration.unit}s")
        judged = f", validated on {rows['validation']:,}" if rows.get("validation") else ""
        print(f"{metrics['train_seconds']:.0f} s for {learned}{judged}. The model is in {output}.")

    run.__name__ = f"train_{declaration.name.replace('-', '_')}"
    run.__doc__ = declaration.help
    run.__signature__ = inspect.Signature(list(_parameters(declaration)))  # type: ignore[attr-defined]
    return run


def _joined(given: dict[str, Any]) -> dict[str, Any]:
    """Options of several values: `a,b`, or given several times."""
    return {
        name: split_commas(value) or None if isinstance(value, list) and name != "train" else value
        for name, value in given.items()
    }


def _parameters(declaration: Declaration) -> typing.Iterator[inspect.Parameter]:
    files = list[str] if declaration.many_files else str
    yield _parameter("train", files, typer.Option(metavar="FILE", help=declaration.data_help))
    yield _parameter("output", Path, typer.Option(metavar="FOLDER", help="Run folder to write."))
    chosen = f"Data to choose the epoch on [default: {declaration.held_out}]."
    yield _parameter("validation", str | None, typer.Option(metavar="FILE", help=chosen), None)
    if declaration.test_help is not None:
        yield _parameter("test", str | None, typer.Option(metavar="FILE", help=declaration.test_help), None)
    for name, help in declaration.sources.items():
        yield _parameter(name, str | None, typer.Option(metavar="FILE", help=help), None)
    presets = f"{', '.join(declaration.presets)}, or a .toml file with settings of your own."
    yield _parameter("preset", str, typer.Option(metavar="NAME", help=presets), "default")
    default = declaration.presets.get_settings("default")
    for name, (kind, option) in options_of(declaration.settings).items():
        usual = getattr(default, name, getattr(default.training, name, None))
        yield option_parameter(name, kind, option, usual)
    for name, kind in (("device", Device), ("dtype", Dtype)):
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=kind)
    yield inspect.Parameter("resume", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Resume)
    yield inspect.Parameter("overwrite", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Overwrite)
    yield inspect.Parameter("json_", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)


def option_parameter(name: str, kind: Any, option: Option, usual: Any = None, about: str = "") -> inspect.Parameter:
    """A field as a parameter that typer reads; None, its default, is "as the preset says"."""
    plain = _without_none(kind)
    called = option.name or name.replace("_", "-")
    help = f"{about}{option.help}"
    if usual not in (None, (), False) and "[default" not in help:
        help = f"{help.removesuffix('.')} [default: {','.join(usual) if isinstance(usual, tuple) else usual}]."
    names = [f"--{called}", *(f"--{other}" for other in option.also)]
    if plain is bool:
        names[0] += f"/--no-{called}"
    if typing.get_origin(plain) is tuple:
        plain = list[str]
    return _parameter(
        name,
        plain | None,
        typer.Option(
            *names, help=help, min=option.least, max=option.most, metavar=option.metavar or _METAVARS.get(plain)
        ),
        None,
    )


def _without_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        [kind] = [one for one in typing.get_args(kind) if one is not type(None)]
    return str if typing.get_origin(kind) is typing.Literal else kind


def _parameter(name: str, kind: Any, option: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


for _name, _declaration in declared().items():
    train_app.command(_name)(train_command(_declaration))
