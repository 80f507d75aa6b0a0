"""Tasks: each a folder with a declaration, which is cheap to import, and a task, which is not (`base.py`).

Importing a declaration registers its task, so another task is one folder and one line below.
"""

from fastformer.tasks.base import declared, get_task, register
from fastformer.tasks.classification import declaration as _classification  # noqa: F401
from fastformer.tasks.conversion import declaration as _conversion  # noqa: F401
from fastformer.tasks.encoder import declaration as _encoder  # noqa: F401
from fastformer.tasks.masked_words import declaration as _masked_words  # noqa: F401
from fastformer.tasks.recommendation import declaration as _recommendation  # noqa: F401
from fastformer.tasks.summarization import declaration as _summarization  # noqa: F401

__all__ = ["declared", "get_task", "register"]
