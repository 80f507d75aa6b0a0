"""Presets: settings by name, and `--preset FILE.toml`.

Presets are data: `presets.toml` beside the task has one table per preset. `like` names another preset to start from,
and a table `when.FIELD.VALUE` changes a preset if a field has that value, and those that are like it too, whatever they
say themselves: only their own `when` comes before it. `--preset FILE.toml` is the user's own, and each key is checked:

    [paper]
    max_length = 1024
    [paper.when.mixer.transformer]
    max_length = 512
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fastformer.engine.settings import TRAINING, TaskSettings, checked_value, problem_with, training_of, unknown
from fastformer.errors import UserError


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
        return self.settings.complete(self._values(keys))

    @cached_property
    def _fields(self) -> dict[str, Field]:
        return {one.name: one for one in fields(self.settings)}

    def _values(self, keys: Mapping[str, Any], table: str = "") -> dict[str, Any]:
        """The settings among the keys of a preset, or of a table in it, each checked."""
        found: dict[str, Any] = {}
        for name, value in keys.items():
            named = f"{table}.{name}" if table else name
            if name == "training":
                found[name] = training_of(_table(named, value), named)
            elif name in self._fields:
                found[name] = checked_value(named, value, self._fields[name].type, self._fields[name])
            elif name in TRAINING:
                raise UserError(f"{named} is a setting of training; write it under [{table and f'{table}.'}training]")
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
