"""Shared by all tests: one thread per worker (two workers share two cores), and where real data may be."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fastformer.tasks.classification import encoding
from fastformer.tasks.encoder.words import Meanings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The commands of README and guide first: they take longest, and no worker should wait for them at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(scope="session", autouse=True)
def few_known_words() -> Iterator[None]:
    """Classifiers know 500 words beforehand, not 20,000: all goes the same way, in little more than half the time."""

    @functools.cache
    def shipped(name: str) -> Meanings:
        known = Meanings.of_run(name)
        vars(known)["words"] = known.words[:500]
        return known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_shipped", shipped)
        yield


@pytest.fixture
def all_known_words(monkeypatch) -> None:
    """For a test that is about what a classifier is like outside of tests."""
    pytest.importorskip("fastformer_base_en")
    monkeypatch.setattr(encoding, "_shipped", Meanings.of_run)


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
