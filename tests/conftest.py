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
def shared() -> Path:
    """The folder of real data and fixtures beside the project, or a skip."""
    folder = Path(__file__).parents[1].parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder of real data beside the project (../shared)")
    return folder
