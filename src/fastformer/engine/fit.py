"""One `fit` for every task: examples -> parts -> a trained model, resumable at any moment.

A `Workspace` is the folder in which a training works, with what every task does there in the same way: the tokenizer
that a resumed training finds again, texts as token ids in a file, a training of a model. A `Trained` is what comes
out, and what a run folder holds.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from huggingface_hub.errors import StrictDataclassError
from pyarrow import parquet
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from fastformer.data.batches import EncodedTexts, EncodedTextsWriter
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import KINDS, encode_batch, load_tokenizer
from fastformer.engine.devices import Place, choose, current_place
from fastformer.engine.inference import chunks, cut_note
from fastformer.engine.settings import Settings, TaskSettings, problem_with, unknown
from fastformer.engine.training import train_model
from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.runs.folder import Run
from fastformer.runs.resuming import begin, check_same_arrays, seconds_spent
from fastformer.surroundings import ranks
from fastformer.surroundings.files import explain_full_disk
from fastformer.surroundings.machine import peak_memory_gb
from fastformer.surroundings.progress import progress_bar, say

if TYPE_CHECKING:
    import pyarrow as pa

    from fastformer.tasks.base import Parts, Task


@dataclass
class Trained(Generic[Settings]):
    """A trained model and what belongs to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    settings: Settings
    record: dict[str, Any]  # run.json
    metrics: dict[str, Any]  # metrics.json
    tables: Mapping[str, "pa.Table"] = field(default_factory=dict)  # NAME.parquet
    name: str = "model"  # what messages call it
    run: Run | None = None

    @classmethod
    def of(cls, run: Run, model_class: type[PreTrainedModel]) -> "Trained[Any]":
        """What a run folder holds."""
        from fastformer.tasks.base import declared

        settings: Any = settings_of(run, declared()[run.task].settings)  # of the type that the run's task has
        model, tokenizer = run.load_model(model_class), run.load_tokenizer()
        check_vocabulary(run.folder, tokenizer, model.config)
        if isinstance(model, PreTrainedModel):
            current_place().put(model)
        else:
            current_place().refuse_unless_usual(run.folder)
        tables = RunTables(run)
        return cls(model, tokenizer, settings, run.record, run.load_metrics(), tables, str(run.folder), run)


def check_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, config: Any) -> None:
    """Refuse a tokenizer with token ids that the model has no vectors for."""
    rows, last = getattr(config, "vocab_size", None), max(tokenizer.get_vocab().values(), default=-1)
    if isinstance(rows, int) and not last < rows:
        raise UserError(
            f"{folder}: its tokenizer has token ids up to {last:,}, its model only {rows:,} vectors; train it again"
        )


class RunTables(Mapping[str, "pa.Table"]):
    """The tables that a run folder keeps, each read when it is asked for."""

    def __init__(self, run: Run):
        self.folder = run.folder
        files = run.record.get("files") or (
            path.name for path in run.folder.glob("*.parquet")
        )  # older runs do not tell
        self.names = [name.removesuffix(".parquet") for name in files if name.endswith(".parquet")]

    def __getitem__(self, name: str) -> "pa.Table":
        path = self.folder / f"{name}.parquet"
        try:
            return parquet.read_table(path)
        except (OSError, ValueError) as error:  # Arrow's are ValueErrors
            raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())}); train the run again") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def settings_of(run: Run, kind: type[TaskSettings]) -> TaskSettings:
    """The settings that a run was trained with."""
    try:
        return kind.from_record(run.record)
    except (KeyError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{run.folder}/run.json: its settings cannot be read ({error}); train the run again") from None


class Workspace:
    """Where a training works. `resume`: an interrupted one is continued; `place`: the device, or what there is."""

    def __init__(self, folder: Path, *, resume: bool = False, show: bool = True, place: Place | None = None):
        self.folder, self.resume, self.show, self.place = folder, resume, show, place or choose()
        self.started = time.monotonic()

    def begin(self, settings: dict[str, Any]) -> None:
        """Make the folder, or check that what is continued had the same settings."""
        self.resume = begin(self.folder, settings, self.resume)
        self.started -= seconds_spent(self.folder)

    @property
    def seconds(self) -> float:
        """How long the training has worked, before an interruption too."""
        return time.monotonic() - self.started

    def watched(self, examples: Iterable[Any], title: str = "Reading") -> Iterator[Any]:
        """The examples, while a progress bar counts them."""
        with progress_bar(title, show=self.show) as advance:
            for example in examples:
                yield example
                advance(1)

    def tokenizer(
        self,
        choice: str,
        texts: Iterable[str],
        *,
        max_length: int,
        prepare: Callable[[PreTrainedTokenizerBase], None] = lambda tokenizer: None,
        **training: Any,
    ) -> PreTrainedTokenizerBase:
        """A tokenizer trained on `texts`, all of which are read, or the saved one that `choice` names.

        A resumed training has the very same one as before.
        """
        folder = self.folder / "tokenizer"
        texts = iter(texts)
        if folder.is_dir():  # of a training that is resumed, or made by the first of several processes
            tokenizer = load_tokenizer(folder)
        else:
            tokenizer = train_tokenizer(choice, texts, **training) if choice in KINDS else load_tokenizer(choice)
            prepare(tokenizer)
            tokenizer.model_max_length = max_length
            tokenizer.save_pretrained(folder)
        for _ in texts:  # by now a counter on the way has seen all of them
            pass
        return tokenizer

    def encode(
        self,
        name: str,
        texts: Iterable[str],
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        called: str | None = None,
        total: int | None = None,
    ) -> EncodedTexts:
        """Token ids of all texts, in a file of the workspace; a line says how many were cut."""
        cut = 0
        path = self.folder / f"{name}.tokens"
        if not ranks.is_first():
            for _ in texts:  # by now a counter on the way has seen all of them
                pass
            return EncodedTexts.open(path)
        with (
            progress_bar("Encoding", total=total, show=self.show) as advance,
            EncodedTextsWriter(path) as writer,
        ):
            for chunk in chunks(texts):
                encoded, cut_here = encode_batch(tokenizer, chunk, max_length)
                cut += cut_here
                for ids in encoded:
                    writer.add(ids)
                advance(len(chunk))
            written = writer.finish(None)
        if cut:
            where = "" if called is None else f"{called}: "
            say(f"{where}{cut_note(cut, max_length, total=len(written))}")
        return written

    def train(self, model: PreTrainedModel, parts: "Parts", *, part: str = "", **other: Any) -> list[dict[str, Any]]:
        """Train a model in place; return the scores of every epoch. `part` names a second training beside the first."""
        asked = {
            "settings": parts.settings.training,
            "collate": parts.collate,
            "counted": parts.counted,
            "compute_metrics": parts.compute_metrics,
            "best_metric": parts.score,
            "shown": parts.scores[0],
            "train": parts.train,
            "validation": parts.validation,
        } | other
        history = train_model(
            model,
            asked.pop("train"),
            asked.pop("validation"),
            **asked,
            folder=self.folder / part if part else self.folder,
            started=self.started,
            place=self.place,
            resume=self.resume,
            show_progress=self.show,
        )
        return [
            {name.removeprefix("eval_"): value for name, value in epoch.items() if name.startswith("eval_")}
            for epoch in history
        ]


@contextmanager
def explained_configuration() -> Iterator[None]:
    """Turn a complaint of the model's configuration about a setting into an error for the user."""
    try:
        yield
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise UserError(" ".join(str(error).split())) from error


def checked_model(given: Mapping[str, Any], *configurations: type[PreTrainedConfig]) -> dict[str, Any]:
    """Settings of a model, if each is a field of one of these configurations, and what that may be.

    What transformers adds to every configuration is no setting. A whole number is made a float where the field is one:
    the configurations themselves refuse it.
    """
    not_ours = {one.name for one in fields(PreTrainedConfig)}
    known = {one.name: one for kind in configurations for one in fields(kind) if one.name not in not_ours}
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(unknown("setting of the model", name, sorted(known)))
        kind, check = known[name].type, known[name].metadata.get("validator")
        if wrong := problem_with(value, kind):
            raise UserError(f"model.{name} {wrong}")
        if check is not None:
            try:
                check(value)
            except ValueError as error:
                raise UserError(f"model.{name} {error}") from None
        checked[name] = float(value) if kind in (float, float | None) and type(value) is int else value
    return checked


def check_mixers(*names: str | None) -> None:
    """Refuse a method that nobody knows, before anything is read."""
    for name in names:
        if name is not None and name not in available_mixers():
            raise UserError(unknown("mixer", name, available_mixers()))


def fit(task: "Task", data: Mapping[str, Iterable[Any]], settings: TaskSettings, workspace: Workspace) -> Trained:
    """Train a task on examples that can be read more than once.

    `data` has `train`, and if they are given `validation`, `test` (whose labels are only checked) and further
    sources. The workspace holds encoded data and checkpoints; the caller deletes it once the result is safe.

    Several processes (`surroundings/ranks.py`) train together; what comes out is for the first, the others get None.
    """
    with ranks.after_first(), explain_full_disk(workspace.folder):
        workspace.begin({"task": task.name, **asdict(settings)})
        parts = task.encode(data, settings, workspace)
        check_same_arrays(workspace.folder, parts.fingerprint, workspace.resume)
        set_seed(parts.settings.training.seed)
        model = task.build(parts, workspace)
    history = workspace.train(model, parts)
    return ranks.first(lambda: _finish(task, model, parts, history, workspace), share=False)


def _finish(
    task: "Task", model: PreTrainedModel, parts: "Parts", history: list[dict[str, Any]], workspace: Workspace
) -> Trained:
    model, validation = task.finish(model, parts, history, workspace)
    metrics = {
        "train_seconds": round(workspace.seconds, 1),
        "peak_memory_gb": peak_memory_gb(),
        "rows": parts.rows,
        **parts.about,
        "parameters": model.num_parameters(),
        "validation": validation,
        "epochs": [{name: epoch[name] for name in parts.scores if name in epoch} for epoch in history],
    }
    record = {"task": task.name, **parts.settings.record(), **parts.record}
    return Trained(model.eval(), parts.tokenizer, parts.settings, record, metrics, parts.tables)
