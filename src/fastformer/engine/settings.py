"""Settings of a task: one dataclass whose fields are command-line options, keys of presets and entries of run.json.

    @dataclass(frozen=True)
    class Settings(TaskSettings):
        max_length: int = option(512, "Cut texts after this many tokens.", least=1)

A field without `option` is a key of presets and of run.json only, which may be `limited(default, least=1)`;
`found(default)` is a field that the data decides.
Presets are data: `presets.toml` beside the task has one table per preset. `like` names another preset to start from,
and a table `when.FIELD.VALUE` changes a preset if a field has that value, and those that are like it too, whatever they
say themselves: only their own `when` comes before it. `--preset FILE.toml` is the user's own, and each key is checked:

    [paper]
    max_length = 1024
    [paper.when.mixer.transformer]
    max_length = 512

Nothing here imports torch: `--help` must not wait for it.
"""

import difflib
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import cached_property
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
            if name not in known.keys() | _TRAINING.keys():
                raise UserError(unknown("setting", name, sorted(known.keys() | _TRAINING.keys())))
            if value is not None:
                value = plain(value)
                _check_range(name, value, _limits(_TRAINING.get(name) or known[name]))
                (training if name in _TRAINING else own)[name] = value
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
                found[one.name] = _of_record(named, places[where][key], kind, one)
        training = {name: value for name, value in found["training"].items() if name in _TRAINING}
        return cls._complete(found | {"training": _training(training, "settings.training")})

    @classmethod
    def _complete(cls, values: dict[str, Any]) -> Self:
        """The settings that have these values; one without a default must be among them."""
        try:
            return cls(**values)
        except TypeError as error:
            raise UserError(f"a setting is missing ({error})") from None


def _training(values: Mapping[str, Any], named: str) -> TrainingSettings:
    """The settings of training in a file, each checked; `named` is the table that they are in."""
    for name in values:
        if name not in _TRAINING:
            raise UserError(unknown(f"setting of {named}", name, sorted(_TRAINING)))
    return TrainingSettings(
        **{
            name: _of_record(f"{named}.{name}", value, _TRAINING[name].type, _TRAINING[name])
            for name, value in values.items()
        }
    )


def _of_record(named: str, value: Any, kind: Any, one: Field) -> Any:
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


_TRAINING = {one.name: one for one in fields(TrainingSettings)}


def options_of(settings: type) -> dict[str, tuple[Any, Option]]:
    """The options of a dataclass by field name, with their types: its own, and those of `training` behind them."""
    found = {one.name: (one.type, one.metadata["option"]) for one in fields(settings) if "option" in one.metadata}
    if any(one.name == "training" for one in fields(settings)):
        found |= {
            name: (one.type, one.metadata["option"])
            for name, one in _TRAINING.items()
            if "option" in one.metadata and name not in found
        }
    return found


class Presets(Mapping[str, dict[str, Any]]):
    """The presets of a task, read from a TOML file when one is asked for; without a file there is one, `default`.

    A file may be that of another task, the `lender`: then keys that only its settings have are passed over.
    """

    def __init__(self, settings: type[TaskSettings], path: Path, lender: type[TaskSettings] | None = None):
        self.settings, self.path = settings, path
        self.passed_over = set() if lender is None else {one.name for one in fields(lender)}

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The keys of a preset, with those of the preset that it is `like`.

        A user's .toml file is like `default` unless it says otherwise; a .json file has all settings itself.
        """
        return self._keys(name, ())

    def _keys(self, name: str, after: Sequence[str]) -> dict[str, Any]:
        """The keys of a preset. `after` led to it: each of them is like the next, and the last is like this one."""
        tables = self._tables()
        with told_of(after[-1] if after else ""):
            if name in after:
                raise UserError(f"like leads back to {name} ({' -> '.join([*after, name])}); name another preset")
            if not _is_file(name) and name not in tables:
                raise UserError(unknown("preset", name, list(tables)))
        if _is_file(name):
            own = _read_preset(Path(name))
            with told_of(name):
                self._check(own)
            own = {"like": "default", **own} if name.endswith(".toml") else own
        else:
            own = dict(tables[name])
        return own if "like" not in own else _merged(self._keys(own.pop("like"), [*after, name]), own)

    def _check(self, own: dict[str, Any]) -> None:
        """Refuse a preset of the user's own that cannot be one, whatever it is like and whatever else is given."""
        if wrong := problem_with(own.get("like", ""), str):
            raise UserError(f"like {wrong}")
        self._values({name: value for name, value in own.items() if name not in ("like", "when")})
        fields_of_own = sorted(self._fields.keys() - {"training", "model"})
        for name, cases in _table("when", own.get("when", {})).items():
            if name not in fields_of_own and name not in self.passed_over - {"training", "model"}:
                raise UserError(unknown("setting of when", name, fields_of_own))
            for value, changes in _table(f"when.{name}", cases).items():
                case = f"when.{name}.{value}"
                self._values(_table(case, changes), case)

    def __iter__(self):
        return iter(self._tables())

    def __len__(self) -> int:
        return len(self._tables())

    def _tables(self) -> dict[str, dict[str, Any]]:
        if not self.path.is_file():
            return {"default": {}}
        return tomllib.loads(self.path.read_text(encoding="utf-8"))

    def get_settings(self, name: str, **given: Any) -> TaskSettings:
        """The settings of a preset, changed as its `when` tables say and then by what is `given`."""
        keys = dict(self[name])
        when = keys.pop("when", {})
        with told_of(name):
            settings = self.made(keys)
        chosen = settings.with_options(**given)
        for field_name, cases in when.items():
            if field_name in self._fields:
                keys = _merged(keys, cases.get(str(getattr(chosen, field_name)), {}))
        return self.made(keys).with_options(**given)

    def made(self, keys: dict[str, Any]) -> TaskSettings:
        """Settings from all their keys, as a preset or `asdict` has them."""
        return self.settings._complete(self._values(keys))

    @cached_property
    def _fields(self) -> dict[str, Field]:
        return {one.name: one for one in fields(self.settings)}

    def _values(self, keys: Mapping[str, Any], table: str = "") -> dict[str, Any]:
        """The settings among the keys of a preset, or of a table in it, each checked."""
        found: dict[str, Any] = {}
        for name, value in keys.items():
            named = f"{table}.{name}" if table else name
            if name == "training":
                found[name] = _training(_table(named, value), named)
            elif name in self._fields:
                found[name] = _of_record(named, value, self._fields[name].type, self._fields[name])
            elif name not in self.passed_over:
                raise UserError(unknown(f"setting of {table}" if table else "setting", name, sorted(self._fields)))
        return found


def _table(named: str, value: Any) -> dict[str, Any]:
    """A value of a preset that must be a table."""
    if wrong := problem_with(value, dict):
        raise UserError(f"{named} {wrong}")
    return value


def _is_file(preset: str) -> bool:
    return preset.endswith((".toml", ".json"))


@contextmanager
def told_of(preset: Any) -> Iterator[None]:
    """Around checks of a preset: if it is a file of the user's own, an error names it."""
    try:
        yield
    except UserError as error:
        if isinstance(preset, str) and _is_file(preset):
            raise UserError(f"{preset}: {error}") from None
        raise


def _read_preset(path: Path) -> dict[str, Any]:
    """A preset of the user's own: its keys, in a TOML or JSON file."""
    try:
        read = tomllib.loads if path.suffix == ".toml" else json.loads
        found = read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give --preset a name, or a .toml file") from None
    except ValueError as error:
        raise UserError(f"{path}: is no {path.suffix[1:].upper()} ({error}); correct it") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: has no settings; write NAME = VALUE lines")
    return found


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`base` changed by `more`, table by table."""
    merged = dict(base)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = _merged(base[name], value) if both else value
    return merged


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
            name: _of_record(f"--{name.replace('_', '-')}", plain(value), known[name].type, known[name])
            for name, value in given.items()
            if value is not None
        }
    )


def plain(value: Any) -> Any:
    """A number of NumPy's, as a grid search may give, as one of Python's, which JSON can hold."""
    return value.item() if hasattr(value, "item") else value
