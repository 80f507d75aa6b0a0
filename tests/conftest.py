"""Shared by all tests: one thread per worker (two workers share two cores), and where real data may be."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The commands of README and guide first: they take longest, and no worker should wait for them at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Small files of our own that tests read."""
    return Path(__file__).parent / "fixtures"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data that slow tests read: `FASTFORMER_DATA=FOLDER pytest -m slow`."""
    named = os.environ.get("FASTFORMER_DATA")
    if not named:
        pytest.skip("needs real data: set FASTFORMER_DATA to the folder that holds imdb/train.jsonl.gz and others")
    return Path(named)
