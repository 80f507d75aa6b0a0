"""A task as a Python object: `fit`, `load`, `save`, `predict`, `evaluate` and `embed`, the same for every task."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fastformer.data.frames import as_records, check_several
from fastformer.engine.fit import Workspace, fit
from fastformer.errors import Interrupted, UserError
from fastformer.runs.claiming import claim_output, unharmed
from fastformer.runs.folder import open_run
from fastformer.tasks.base import Predictor, get_task, load_run
from fastformer.tasks.verbs import options_for, save, score

OwnPredictor = TypeVar("OwnPredictor", bound=Predictor)


class TaskModel(Generic[OwnPredictor]):
    """A model of one task. Settings are those of `fastformer train TASK`, by the same names.

    Data is what the command line takes, a file or a folder, or a list of dictionaries or a data frame with the same
    fields.
    """

    task: ClassVar[str]

    def __init__(self, *, preset: str = "default", verbose: bool = False, **settings: Any):
        self.preset, self.verbose, self.settings = preset, verbose, settings
        self._predictor: OwnPredictor | None = None

    def fit(self, train: Any, validation: Any = None, **sources: Any) -> Self:
        """Train; without `validation` a part of `train` chooses the epoch."""
        task = get_task(self.task)
        task.show = self.verbose
        settings = task.settings(self.preset, **self.settings)
        sources = {name: as_records(one) for name, one in {"train": train, "validation": validation, **sources}.items()}
        data = {name: task.read(source, name, settings) for name, source in sources.items() if source is not None}
        with temporary_workspace(self.verbose) as workspace:
            trained = fit(task, data, settings, workspace)
        trained.record["preset"] = self.preset
        trained.record["data"] = {
            "train": train if isinstance(train, str) else f"{type(self).__name__}.fit",
            **trained.record["data"],
        }
        self._take(task.predictor(trained))
        return self

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a run folder, saved here or trained on the command line."""
        run = open_run(folder)
        if run.task != cls.task:
            raise UserError(f"{folder}: a run of {run.task}; {cls.__name__} loads runs of {cls.task} only")
        predictor = load_run(run)
        self = cls(preset=run.record.get("preset", "default"))
        self._take(predictor)
        return self

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Save as a run folder, which the command line reads too; a finished run there is kept unless `overwrite`."""
        folder = claim_output(folder, resume=False, overwrite=overwrite)
        with unharmed(folder):
            save(get_task(self.task), self.predictor.trained, folder)

    @property
    def predictor(self) -> OwnPredictor:
        """The trained model."""
        if self._predictor is None:
            raise UserError(f"this {type(self).__name__} is not trained yet; call fit, or load a run")
        return self._predictor

    def predict(self, examples: Iterable[Any], **options: Any) -> list[dict[str, Any]]:
        """An answer per example, in their order; options are those of `fastformer predict`."""
        check_several(examples)
        chosen = options_for(self.task, "predicting", options)
        return list(self.predictor.predict(as_records(examples), chosen))

    def evaluate(self, source: Any, **options: Any) -> dict[str, Any]:
        """Scores on labelled data; options are those of `fastformer evaluate`: `text_column`, `strict`, the task's."""
        return score(self.predictor, as_records(source), **options)

    def embed(self, examples: Iterable[Any]) -> np.ndarray:
        """A vector per example (examples, width), float32."""
        check_several(examples)
        vectors = list(self.predictor.vectors(as_records(examples)))
        return np.stack(vectors) if vectors else np.zeros((0, self.predictor.width), dtype=np.float32)

    def _take(self, predictor: Any) -> None:
        self._predictor = predictor


@contextmanager
def temporary_workspace(show: bool) -> Iterator[Workspace]:
    """A place to train in that is gone afterwards; nothing is left to resume, so Ctrl-C is what it is in Python."""
    # Windows cannot delete a file that is still mapped: it stays behind for the system to clean.
    with tempfile.TemporaryDirectory(prefix="fastformer-", ignore_cleanup_errors=True) as folder:
        try:
            yield Workspace(Path(folder) / "checkpoints", show=show)
        except Interrupted:
            raise KeyboardInterrupt from None
