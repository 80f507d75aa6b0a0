"""Recipes: what a table or figure of the paper compares, what the paper says of it, and at which scales we repeat it.

The files in recipes/ hold all of it: one a table or figure, and scales.toml, which they share.
"""

import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastformer.errors import UserError
from fastformer.surroundings.files import content_hash

PAPER_DATASETS = ("amazon", "imdb", "mind")


@dataclass(frozen=True)
class Scale:
    """How large an experiment is; what is None or empty is as in the paper's Table "hyper"."""

    name: str
    says: str  # the reduction in words, for reports
    seeds: int  # as many as the command does not say otherwise
    version: int  # of the recipes: part of what determines a run
    rows: dict[str, int] = field(default_factory=dict)  # at most so many, by split
    sample: dict[str, int] = field(default_factory=dict)  # by the paper's dataset: drawn before splitting
    tokenizer: str | None = None
    max_length: int | None = None
    batch_size: int | None = None
    epochs: int | None = None
    model: dict[str, Any] = field(default_factory=dict)
    show_runs: bool = False


@dataclass(frozen=True)
class Variant:
    """One row of a table or one bar of a figure: a mixer, and what its configuration has other than the preset's."""

    name: str
    mixer: str = "fastformer"
    model: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # dataset -> score -> mean, deviation

    @property
    def run_name(self) -> str:
        """A name for files: the same wherever the same model is compared."""
        return ",".join([self.mixer, *(f"{name}={str(value).lower()}" for name, value in sorted(self.model.items()))])


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: each of `better` is above each of `than` (with `similar`: not below)."""

    quote: str
    better: list[str]
    than: list[str]
    similar: bool = False
    paper: list[str] = field(default_factory=list)  # the datasets it is about; none: all


def load_recipe(name: str) -> dict[str, Any]:
    """The recipe of a table or figure; `variants` and `claims`, where it has them, as their classes."""
    recipe = tomllib.loads((files(__package__) / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    for key, one in (("variants", Variant), ("claims", Claim)):
        recipe[key] = [one(**fields) for fields in recipe.get(key, ())]
    return recipe


def start_settings(settings: dict[str, Any], glove: str | None) -> dict[str, Any]:
    """The settings of a run under `settings`, and what its word vectors start from under `glove`.

    Without GloVe there is no such key, and how a start is fitted to the data decides nothing: finished runs stay valid.
    """
    if glove is None:
        return {"settings": {name: value for name, value in settings.items() if name != "adapt_init"}}
    return {"settings": settings, "glove": content_hash(glove)}


def load_scale(name: str) -> Scale:
    """The scale called `name` of the classification tables and figures."""
    recipe = load_recipe("scales")
    return Scale(name=name, version=recipe["version"], **scale_fields(recipe, name))


def scale_fields(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    """What a recipe says of the scale called `name`."""
    if name not in recipe["scales"]:
        raise UserError(f"unknown --scale {name!r}; choose from {', '.join(recipe['scales'])}")
    return recipe["scales"][name]


def command(what: str, datasets: Iterable[Any], **options: Any) -> str:
    """The command line that makes a report again; options that are None were not given."""
    given = [("data", dataset) for dataset in datasets]
    given += [(name.replace("_", "-"), value) for name, value in options.items() if value is not None]
    parts = [part for name, value in given for part in (f"--{name}", str(value))]
    return shlex.join(["fastformer", "reproduce", what, *parts])


def check_glove(glove: str | None) -> None:
    """A wrong path is said now rather than after the data is read."""
    if glove is not None and not Path(glove).is_file():
        raise UserError(f"{glove}: no such GloVe file; check the path")
