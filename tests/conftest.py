"""Shared by all tests: one thread a worker (two workers share two cores), and where real data may be."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and fixtures beside the project, or a skip."""
    folder = Path(__file__).parents[1].parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder of real data beside the project (../shared)")
    return folder
