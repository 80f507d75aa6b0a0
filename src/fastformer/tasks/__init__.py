"""Tasks: each a package with the same insides (data, metrics, presets, the verbs) on the shared encoder."""

import importlib
import math
from collections.abc import Iterable
from types import ModuleType

from fastformer.errors import UserError, diverged
from fastformer.mixers import available_mixers

TASKS = {
    "classification": "fastformer.tasks.classification",
    "conversion": "fastformer.tasks.conversion",
    "masked-words": "fastformer.tasks.masked_words",
    "recommendation": "fastformer.tasks.recommendation",
    "summarization": "fastformer.tasks.summarization",
}


def task_module(name: str) -> ModuleType:
    """The package of a task, which has the functions `train`, `evaluate`, `predict` and `embed`."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; this version knows {', '.join(TASKS)}")
    return importlib.import_module(TASKS[name])


def check_training(mixers: Iterable[str], sources: Iterable[str | None]) -> None:
    """What every training checks before it reads anything: that the mixers are known, and the sources files."""
    for name in mixers:
        if name not in available_mixers():
            raise UserError(f"unknown mixer {name!r}; choose from {', '.join(available_mixers())}")
    if "-" in sources:
        raise UserError("training reads its data more than once: give files, not standard input")


def perplexity(loss: float) -> float:
    """exp of the mean loss of a word: among how many equally likely words the model is left to guess."""
    if not loss < 700:  # nan, or more than a float holds
        raise diverged()
    return math.exp(loss)
