"""A tiny labelled file, and trainings that are counted and happen in this process."""

from pathlib import Path

import pytest

from fastformer.paper import comparison, grid

from ..tasks.conftest import make_rows, write_jsonl


def write_rows(path: Path, count: int, seed: int) -> str:
    return write_jsonl(path, ({"text": text, "label": label} for text, label in make_rows(count, seed)))


@pytest.fixture(scope="session")
def things(tmp_path_factory) -> str:
    """`--data` for 150 rows in one file."""
    return f"things:imdb={write_rows(tmp_path_factory.mktemp('data') / 'things.jsonl', 150, 0)}"


class Trainings:
    """The real trainings, in this process instead of one each, and their names in order."""

    def __init__(self):
        self.names: list[str] = []

    def __call__(self, train, job, folder, show):
        self.names.append(job.name)
        assert train is comparison.train_run
        return train(job, folder, show)


@pytest.fixture(scope="module")
def trainings():
    with pytest.MonkeyPatch.context() as patch:
        counting = Trainings()
        patch.setattr(grid, "in_own_process", counting)
        yield counting
