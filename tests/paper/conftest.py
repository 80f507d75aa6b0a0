"""A tiny labelled file, and our commands run in this process, which has imported everything already."""

from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastformer.cli.app import app
from fastformer.errors import UserError
from fastformer.paper import grid

from ..tasks.conftest import make_rows, write_jsonl


def write_rows(path: Path, count: int, seed: int) -> str:
    return write_jsonl(path, ({"text": text, "label": label} for text, label in make_rows(count, seed)))


@pytest.fixture(scope="session")
def things(tmp_path_factory) -> str:
    """`--data` for 150 rows in one file."""
    return f"things:imdb={write_rows(tmp_path_factory.mktemp('data') / 'things.jsonl', 150, 0)}"


class Commands:
    """`grid.start` without a process: the same command lines, the same files, and the trainings in order."""

    def __init__(self):
        self.given: list[list[str]] = []

    def __call__(self, command: grid.Command, log: Path):
        self.given.append(list(command.arguments))
        printed = grid._printed(command.prints) if command.prints else log
        with log.open("a") as errors, printed.open("w") as out, redirect_stdout(out), redirect_stderr(errors):
            try:
                app(list(command.arguments), standalone_mode=False)
                code = 0
            except UserError as error:
                print(f"fastformer: {error}", file=errors)
                code = error.exit_code
        return SimpleNamespace(returncode=code, poll=lambda: code)

    @property
    def trained(self) -> list[str]:
        """Names of the runs."""
        places = [one[one.index("--output") + 1] for one in self.given if one[0] == "train"]
        return ["/".join(Path(place).parts[-2:]).rpartition("-")[0] for place in places]


@pytest.fixture(scope="module")
def commands():
    with pytest.MonkeyPatch.context() as patch:
        running = Commands()
        patch.setattr(grid, "start", running)
        patch.setattr(grid, "_LOOK_SECONDS", 0)
        yield running
