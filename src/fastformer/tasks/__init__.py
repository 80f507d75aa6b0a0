"""Tasks: each a package with the same insides (data, metrics, presets, the verbs) on the shared encoder."""

import importlib
from types import ModuleType

from fastformer.errors import UserError

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
