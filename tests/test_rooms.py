"""Who may import whom (docs/architecture.md), and that no shared room knows a task by its name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastformer
from fastformer.tasks.base import declared

ROOT = Path(fastformer.__file__).parent
CONTRACT = {"tasks.base", "tasks.answering", "tasks.verbs"}
SMALL = {"errors", "lazy", "version", "surroundings"}
MAY_IMPORT = {
    "mixers": set(),
    "modeling": {"mixers"},
    "surroundings": {"errors"},
    "data": SMALL,
    "engine": SMALL | {"data", "mixers", "modeling", "runs", "export", "tasks.base"},
    "runs": SMALL | {"data", "modeling", "engine", "export", "tasks.base"},
    "explain": SMALL | {"data", "engine", "modeling"},
    "export": SMALL | {"mixers", "modeling", "runs"} | CONTRACT,
    "serve": SMALL | {"data", "runs"} | CONTRACT,
    "scale": SMALL | {"data", "runs"} | CONTRACT,
}
MEASURING = {"bench": {"paper", "cli"}, "paper": {"cli"}}  # room -> who may import it


def files(room: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Rooms, and of `tasks` its parts, that a module imports anywhere, below `fastformer`."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        for name in names:
            package, *parts = name.split(".")
            if package == "fastformer" and parts:
                yield ".".join(parts[: 2 if parts[0] == "tasks" else 1])


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_what_it_may(room):
    for path, tree in files(room):
        others = {one for one in imported(tree) if one != room}
        assert others <= MAY_IMPORT[room], path


@pytest.mark.parametrize("room", MEASURING)
def test_measurements_are_for_whoever_measures(room):
    for other in (path.name for path in ROOT.iterdir() if path.is_dir()):
        if other != room and other not in MEASURING[room]:
            assert not [path for path, tree in files(other) if room in imported(tree)]


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_no_shared_room_names_a_task(room):
    for path, tree in files(room):
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        assert not said & (set(declared()) - {"encoder"}), path  # an encoder is also a part of a model
