"""Tasks: each a folder with a declaration, which is cheap to import, and a task, which is not (`base.py`).

Importing a declaration registers its task, so a sixth task is one folder and one line below.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType

from fastformer.errors import UserError
from fastformer.tasks.base import declared, get_task, register
from fastformer.tasks.conversion import declaration as _conversion  # noqa: F401
from fastformer.tasks.masked_words import declaration as _masked_words  # noqa: F401

__all__ = ["declared", "get_task", "register"]

TASKS = {
    "classification": "fastformer.tasks.classification",
    "recommendation": "fastformer.tasks.recommendation",
    "summarization": "fastformer.tasks.summarization",
}


def task_module(name: str) -> ModuleType:
    """The package of a task, which has the functions `train`, `evaluate`, `predict` and `embed`."""
    if name in declared():
        from fastformer.tasks import verbs

        return verbs
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; this version knows {', '.join(TASKS)}")
    return importlib.import_module(TASKS[name])


def check_training(mixers: Iterable[str], sources: Iterable[str | None]) -> None:
    """What every training checks before it reads anything: that the mixers are known, and the sources files."""
    from fastformer.mixers import available_mixers

    for name in mixers:
        if name not in available_mixers():
            raise UserError(f"unknown mixer {name!r}; choose from {', '.join(available_mixers())}")
    if "-" in sources:
        raise UserError("training reads its data more than once: give files, not standard input")


def perplexity(loss: float) -> float:
    """See `scores`."""
    from fastformer.tasks.scores import perplexity

    return perplexity(loss)
