"""`fastformer reproduce WHAT`: one command per recipe, made from the fields of `paper.recipes.Options`."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fastformer.cli.options import Json, print_json
from fastformer.cli.train import option_parameter
from fastformer.engine.settings import Option, options_of
from fastformer.paper.recipes import NAMES, Options, Recipe, load_recipe

reproduce_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Reproduce the paper's tables and figures on any data, with its numbers beside ours.",
)
_GOES_ON = (
    "A finished run is not made again, whichever table or figure needs it. After Ctrl-C, or if runs have failed, the "
    "same command continues."
)


def _parameters(names: Iterable[str], data_help: str, seeds: str) -> Iterator[inspect.Parameter]:
    usual = Options()
    for name, (kind, option) in options_of(Options).items():
        if name in names:
            about = {"data": data_help, "seeds": f"{option.help} [default: {seeds}]."}.get(name, "")
            if about:
                option = replace(option, help=about)
            yield option_parameter(name, kind, option, None if name == "data" else getattr(usual, name))
    yield inspect.Parameter("json_", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)


def _seeds(recipe: Recipe) -> str:
    if not recipe.variants:
        return "1: lengths are of one draw of the rows"
    return ", ".join(f"{name} {scale.seeds}" for name, scale in recipe.scales.items())


def _add(name: str, run: Callable[..., None], help: str, parameters: Iterable[inspect.Parameter]) -> None:
    run.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    reproduce_app.command(name, help=help)(run)


def _print(names: Iterable[str], output: Path) -> None:
    for name in names:
        print((output / f"{name}.md").read_text(encoding="utf-8"))
    print(f"Reports, plots and the JSON of every run are in {output}.")


def _add_one(recipe: Recipe) -> None:
    def run(json_: bool, output: Path | None, data: list[str] | None, **given: Any) -> None:
        from fastformer.paper import reproduce

        output = output or Options().output
        report = reproduce(recipe.name, data or None, output=output, show_progress=not json_, **given)
        return print_json(report) if json_ else _print([recipe.name], output)

    command = " ".join(filter(None, ("fastformer reproduce", recipe.name, recipe.example, "--seeds 3")))
    example = f"\n\nExample: `{command}`" if recipe.variants else ""
    help = f"{recipe.help.strip()}\n\n{_GOES_ON}{example}" if recipe.variants else recipe.help.strip()
    _add(recipe.name, run, help, _parameters(recipe.options(), recipe.data_help, _seeds(recipe)))


def _add_all(recipes: dict[str, Recipe]) -> None:
    def run(json_: bool, output: Path | None, data: list[str] | None, **given: Any) -> None:
        from fastformer.paper import reproduce_all

        output = output or Options().output
        by_task = {task: given.pop(f"{task}_data") or None for task in others} | {"classification": data or None}
        reports = reproduce_all(by_task, output=output, show_progress=not json_, **given)
        return print_json(reports) if json_ else _print(reports, output)

    tables = {recipe.task: recipe for recipe in recipes.values() if recipe.name.startswith("table-")}
    others = [task for task in tables if task != "classification"]
    names = {option for recipe in recipes.values() for option in recipe.options()} - {
        "text_column",
        "label_column",
        "only",
    }
    classification = recipes["table-classification"]
    parameters = list(_parameters(names, classification.data_help, _seeds(classification)))
    kind, option = options_of(Options)["data"]
    parameters[1:1] = [
        option_parameter(f"{task}_data", kind, Option(f"Of {task}: {tables[task].data_help}", metavar=option.metavar))
        for task in others
    ]
    _add("all", run, f"Every table and figure of the paper.\n\n{_GOES_ON}", parameters)


_RECIPES = {name: load_recipe(name) for name in NAMES}
_add_all(_RECIPES)
for _recipe in _RECIPES.values():
    _add_one(_recipe)


@reproduce_app.command(hidden=True)  # a grid's own
def measure(what: str, file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Make one measurement of a table and print it as JSON."""
    from fastformer.paper.measuring import MEASURES

    print_json(MEASURES[what](**json.loads(file.read_text(encoding="utf-8"))))
