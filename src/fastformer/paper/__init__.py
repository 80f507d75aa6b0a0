"""The paper's tables and figures: one runner, one recipe each, and the paper's numbers beside ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastformer.engine.settings import options_given, unknown
from fastformer.errors import UserError
from fastformer.paper.recipes import BUILTIN, NAMES, Options, load_recipe


def reproduce(
    name: str, data: Sequence[str] | None = None, *, output: str | Path, show_progress: bool = True, **given: Any
) -> dict[str, Any]:
    """Make a table or figure of the paper on `data` (`NAME[:PAPER]=PATH`); leave NAME.md and .json in `output`.

    `given` are fields of `recipes.Options`. Without `data` the built-in one is taken.
    """
    from fastformer.paper.studies import STUDIES

    if name not in NAMES:
        raise UserError(unknown("table or figure", name, NAMES))
    recipe = load_recipe(name)
    for option, value in given.items():
        if option not in recipe.options() and value is not None:
            raise UserError(f"--{option.replace('_', '-')}: {name} has no use for it; leave it out")
    usual = () if name == "table-complexity" else BUILTIN
    data, only = usual if data is None else tuple(data), tuple(given.pop("only", None) or ())
    options = options_given(Options, {**given, "data": data, "only": only, "output": Path(output)})
    return STUDIES.get(name, STUDIES[recipe.task])(recipe, options, show_progress).run()


def reproduce_all(
    data: Mapping[str, Sequence[str] | None], *, output: str | Path, show_progress: bool = True, **given: Any
) -> dict[str, dict[str, Any]]:
    """Every table and figure of the paper, by name; `data` is by task. A run that fails ends none of them."""
    reports, failed = {}, []
    for name, recipe in ((name, load_recipe(name)) for name in NAMES):
        if not recipe.in_paper:
            continue
        known = {option: value for option, value in given.items() if option in recipe.options()}
        if not recipe.variants:
            known.pop("seeds", None)  # there they are draws of the rows
        try:
            reports[name] = reproduce(name, data.get(recipe.task), output=output, show_progress=show_progress, **known)
        except UserError as error:
            failed.append(str(error))
    if failed:
        raise UserError("; ".join(failed))
    return reports


__all__ = ["reproduce", "reproduce_all"]
