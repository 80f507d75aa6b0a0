"""Settings of a task: one dataclass whose fields are command-line options, keys of presets and entries of run.json.

    @dataclass(frozen=True)
    class Settings(TaskSettings):
        max_length: int = option(512, "Cut texts after this many tokens.", least=1)

A field without `option` is a key of presets and of run.json only, which may be `limited(default, least=1)`;
`found(default)` is a field that the data decides. `engine.presets` has settings by name.

Nothing here or there imports torch: `--help` must not wait for it.
"""

import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from fastformer.errors import UserError

_ABSENT = object()
Value = TypeVar("Value")


@dataclass(frozen=True)
class Option:
    """What the command line shows of a field."""

    help: str
    name: str | None = None  # on the command line, and as a key of run.json, where it is not the field's own
    key: str | None = None  # of run.json, where it is neither
    also: tuple[str, ...] = ()  # further names on the command line
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    place: Literal["settings", "record", "data"] = "settings"  # where run.json has it


@dataclass(frozen=True)
class Limits:
    """The least and the most that a number may be."""

    least: float | None = None
    most: float | None = None


def option(default: Any = _ABSENT, help: str = "", **about: Any) -> Any:
    """A field that is an option too; without a default every preset must give it."""
    given = {} if default is _ABSENT else {"default": default}
    return field(**given, metadata={"option": Option(help, **about)})


def limited(default: Any, least: float | None = None, most: float | None = None) -> Any:
    """A field that is no option, for a number in these limits."""
    return field(default=default, metadata={"limits": Limits(least, most)})


def found(default: Any) -> Any:
    """A field that nobody gives: the data decides, and run.json has it beside the options about the data."""
    return field(default=default, metadata={"place": "data"})


# Those of transformers' schedules that need no numbers of their own.
Schedule = Literal[
    "linear",
    "constant",
    "constant_with_warmup",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "greedy",
]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a model is trained; the optimizer is Adam (with decoupled weight decay if that is not zero)."""

    # None in a preset: settled by the size of the data before training.
    epochs: int | None = option(None, "Passes over the training data.", least=1, most=10**6)
    batch_size: int | None = option(None, "Rows per step.", least=1)
    learning_rate: float | None = option(None, "Adam's learning rate.", least=1e-9)
    weight_decay: float = limited(0.0, least=0)
    betas: tuple[float, float] = limited((0.9, 0.999), least=0, most=0.999_999)
    warmup: float = limited(0.0, least=0, most=0.99)  # fraction of all steps
    schedule: Schedule = "linear"
    max_grad_norm: float = limited(1.0, least=1e-9)
    fill_by: Literal["rows", "tokens"] = "rows"  # what batches have equally many of; `batch_size` is then the mean
    table_rate: float = limited(1.0, least=0)  # learning rate of the vectors of words, as a share of the others'
    pretrained_rate: float = limited(1.0, least=0)  # that of `model.pretrained`, an encoder from elsewhere
    lazy_embeddings: bool = False  # update only the rows of a large embedding that a batch met
    seed: int = option(0, "Random seed: the same seed gives the same model.", least=0, most=2**32 - 1)


Settings = TypeVar("Settings", bound="TaskSettings")  # those of one task


def settled(value: Value | None) -> Value:
    """A value that may be None in a preset, as epochs may, once it must be settled; None is an error then."""
    if value is None:
        raise ValueError("something is used before it is settled")
    return value


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What every task has."""

    training: TrainingSettings = TrainingSettings()
    model: dict[str, Any] = field(default_factory=dict)  # fields of the model's configuration

    def with_options(self, **given: Any) -> Self:
        """A copy with every setting that is given (not None): of the task, of its `training`, or keys of `model`."""
        own: dict[str, Any] = {}
        training: dict[str, Any] = {}
        known = {one.name: one for one in fields(self)}
        for name, value in given.items():
            if name not in known.keys() | TRAINING.keys():
                raise UserError(unknown("setting", name, sorted(known.keys() | TRAINING.keys())))
            if value is not None:
                value = plain(value)
                _check_range(name, value, _limits(TRAINING.get(name) or known[name]))
                (training if name in TRAINING else own)[name] = value
        if "model" in own:
            own["model"] = {**self.model, **own["model"]}
        if isinstance(own.get("training"), TrainingSettings):
            training = asdict(own["training"]) | training
        return replace(self, **own | {"training": replace(self.training, **training)})

    def record(self) -> dict[str, Any]:
        """What run.json has of it: `settings`, `data`, and at the top what a person looks for first."""
        placed: dict[str, dict[str, Any]] = {"settings": {}, "data": {}, "record": {}}
        values = asdict(self)
        for one in fields(self):
            where, key = _place(one)
            placed[where][key] = values[one.name]
        return {**placed["record"], "settings": placed["settings"], "data": placed["data"]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The settings in a run.json, each checked for its type; keys of other versions are ignored."""
        places = {"settings": record["settings"], "data": record.get("data", {}), "record": record}
        found: dict[str, Any] = {}
        for one in fields(cls):
            where, key = _place(one)
            if key in places[where]:
                named = key if where == "record" else f"{where}.{key}"
                kind = dict[str, Any] if one.name == "training" else one.type
                found[one.name] = checked_value(named, places[where][key], kind, one)
        training = {name: value for name, value in found["training"].items() if name in TRAINING}
        return cls.complete(found | {"training": training_of(training, "settings.training")})

    @classmethod
    def complete(cls, values: dict[str, Any]) -> Self:
        """The settings that have these values; one without a default must be among them."""
        try:
            return cls(**values)
        except TypeError as error:
            raise UserError(f"a setting is missing ({error})") from None


def training_of(values: Mapping[str, Any], named: str) -> TrainingSettings:
    """The settings of training in a file, each checked; `named` is the table that they are in."""
    for name in values:
        if name not in TRAINING:
            raise UserError(unknown(f"setting of {named}", name, sorted(TRAINING)))
    return TrainingSettings(
        **{
            name: checked_value(f"{named}.{name}", value, TRAINING[name].type, TRAINING[name])
            for name, value in values.items()
        }
    )


def checked_value(named: str, value: Any, kind: Any, one: Field) -> Any:
    """A value of run.json, of a preset or of an option, if it is what the field may be."""
    if wrong := problem_with(value, kind):
        raise UserError(f"{named} {wrong}")
    _check_range(named, value, _limits(one))
    return tuple(value) if isinstance(value, list) else value


def _limits(one: Field) -> Option | Limits | None:
    return one.metadata.get("option") or one.metadata.get("limits")


def _check_range(name: str, value: Any, limits: Option | Limits | None) -> None:
    """Refuse a number that is too small or too large, or one in a list, wherever it comes from."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if limits is None or isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if limits.least is not None and not number >= limits.least:
            raise UserError(f"{name} is {number}; give at least {limits.least:,}")
        if limits.most is not None and not number <= limits.most:
            raise UserError(f"{name} is {number}; give at most {limits.most:,}")


_CALLED: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    dict: "a table",
    dict[str, Any]: "a table",
}


def problem_with(value: Any, kind: Any) -> str | None:
    """What is wrong with a value of JSON or TOML that should be of a type; None if nothing is."""
    if _fits(value, kind):
        return None
    return f"is {_quoted(value)}, not {_CALLED.get(kind) or _called(kind)}"


def _quoted(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a table"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    said = str(value) if is_number else json.dumps(value, default=str)
    return said if len(said) <= 60 else f"{said[:60]}…"


def _called(kind: Any) -> str:
    parts = typing.get_args(kind)
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join(_CALLED.get(one) or _called(one) for one in parts)
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, parts))
    if typing.get_origin(kind) is tuple and parts[-1] is not Ellipsis:
        return f"[{', '.join(_CALLED.get(one) or _called(one) for one in parts)}]"
    return {dict: "a table of such values", list: "such a list", tuple: "such a list"}.get(
        typing.get_origin(kind) or kind, "what it should be"
    )


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that JSON gave is of a type; a float may be written as a whole number, a tuple as a list."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        return any(_fits(value, one) for one in parts)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in parts)
    if origin is dict or kind is dict:
        return isinstance(value, dict) and all(_fits(one, parts[1] if parts else Any) for one in value.values())
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and parts[-1] is not Ellipsis:
            return len(value) == len(parts) and all(map(_fits, value, parts))
        return all(_fits(one, parts[0]) for one in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    if kind in (str, Path):  # a path is as good as its name
        return isinstance(value, str | Path)
    return type(value) is kind


def _place(one: Field) -> tuple[str, str]:
    """Where run.json has a field, and under which key."""
    about = one.metadata.get("option")
    if about is None:
        return one.metadata.get("place", "settings"), one.name
    return about.place, (about.key or about.name or one.name).replace("-", "_")


TRAINING = {one.name: one for one in fields(TrainingSettings)}


def options_of(settings: type) -> dict[str, tuple[Any, Option]]:
    """The options of a dataclass by field name, with their types: its own, and those of `training` behind them."""
    found = {one.name: (one.type, one.metadata["option"]) for one in fields(settings) if "option" in one.metadata}
    if any(one.name == "training" for one in fields(settings)):
        found |= {
            name: (one.type, one.metadata["option"])
            for name, one in TRAINING.items()
            if "option" in one.metadata and name not in found
        }
    return found


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """The message for an unknown name: the nearest known one, and all of them."""
    known = list(known)
    near = difflib.get_close_matches(str(given), known, n=1)
    return f"unknown {what} {given!r}; {f'did you mean {near[0]!r}? C' if near else 'c'}hoose from {', '.join(known)}"


def options_given(options: type, given: Mapping[str, Any]) -> Any:
    """An instance of a dataclass of options, from those that are given (not None), each checked."""
    known = {one.name: one for one in fields(options)}
    return options(
        **{
            name: checked_value(f"--{name.replace('_', '-')}", plain(value), known[name].type, known[name])
            for name, value in given.items()
            if value is not None
        }
    )


def plain(value: Any) -> Any:
    """A number of NumPy's, as a grid search may give, as one of Python's, which JSON can hold."""
    return value.item() if hasattr(value, "item") else value
