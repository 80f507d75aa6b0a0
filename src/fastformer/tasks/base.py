"""The contract of a task: what a task declares about itself, and what everything else is built on.

A task is a folder with two main files. `declaration.py` has its name, its settings, and what the command line says
about it; it imports nothing heavy, so that `--help` answers at once. `task.py` has the `Task`, which reads, encodes
and builds, and its `Predictor`, a trained model that answers. Settings, fitting, resuming, run folders, cards, the
command line and scoring are written once, for all tasks (`engine`, `tasks/verbs.py`, `cli`).

    read     a source -> examples, which can be read more than once
    encode   examples -> `Parts`: what to train and to choose the epoch on, and a fingerprint for resuming
    build    parts -> a model with random weights
    finish   the trained model -> the model that is kept (calibration, further parts); by default itself
    predictor  a `Trained` -> a `Predictor`: `predict`, `vectors`, `evaluate`, `notes`
"""

import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastformer.engine.presets import Presets, told_of
from fastformer.engine.settings import Settings, TaskSettings, unknown
from fastformer.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from fastformer.data.opening import Format
    from fastformer.engine.fit import Trained, Workspace
    from fastformer.runs.folder import Run


LOADINGS = 10  # of a run that others replace meanwhile
_JSON = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)  # one for all lines


def without_nan(value: Any) -> Any:
    """A value that JSON can hold: null in place of NaN and of what is infinite."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class NoOptions:
    """Of a verb that a task has no options for."""


@dataclass(frozen=True)
class Declaration:
    """What a task declares about itself, without importing it."""

    name: str  # the verb `train NAME`, and run.json["task"]
    help: str  # of that verb, in Markdown; its first line stands in the list of tasks
    settings: type[TaskSettings]
    task: str  # where the task is: `package.module:Class`
    presets_file: Path
    data_help: str  # what --train may be
    held_out: str  # what the epoch is chosen on if no --validation is given
    test_help: str | None = "Data that is only scored, at the end."  # None: nothing can be given
    sources: Mapping[str, str] = field(default_factory=dict)  # further data of a training, and the help of its option
    many_files: bool = False  # --train may be given several times
    borrows_presets: str | None = None  # the task whose file it is, if it is another's
    unit: str = "row"  # what it is trained on, for "12 s for 4,000 rows"
    predicting: type = NoOptions  # options of `predict`
    evaluating: type = NoOptions  # options of `evaluate`
    predict_help: str = ""  # what `predict` writes for it
    evaluate_help: str = ""  # which scores `evaluate` gives
    embed_help: str = ""  # which vectors `embed` writes
    architectures: Sequence[str] = ()  # models that `save_pretrained` leaves in a folder, and that are runs of it
    light: str | None = None  # where a `LightPredictor` of its exports is: `package.module:Class`
    reads_texts: bool = False  # an example is one text: `predict` takes --document and --text
    short_names: Mapping[str, str] = field(default_factory=dict)  # of scores, for a table of 80 characters
    record: Mapping[str, Any] = field(default_factory=dict)  # further entries of run.json, and their types

    @cached_property
    def presets(self) -> Presets:
        """Its settings by name."""
        lender = None if self.borrows_presets is None else get_declaration(self.borrows_presets).settings
        return Presets(self.settings, self.presets_file, lender)

    def load(self) -> "Task":
        """Import the task."""
        module, _, name = self.task.partition(":")
        return getattr(importlib.import_module(module), name)(self)


_DECLARED: dict[str, Declaration] = {}


def register(declaration: Declaration) -> Declaration:
    """Make a task known by its name."""
    _DECLARED[declaration.name] = declaration
    return declaration


def declared() -> dict[str, Declaration]:
    """All tasks by name."""
    import fastformer.tasks  # noqa: F401  registers those that come with the package

    return dict(_DECLARED)


def get_declaration(name: str) -> Declaration:
    """The declaration of the task called `name`."""
    known = declared()
    if name not in known:
        raise UserError(unknown("task", name, known))
    return known[name]


def get_task(name: str) -> "Task":
    """The task called `name`."""
    return get_declaration(name).load()


def load_run(run: "Run") -> "Predictor":
    """A run, ready to answer; a damaged folder is an error of one line, whatever a library raises.

    If another run replaces it meanwhile, it is loaded again: its files may be of both.
    """
    from fastformer.runs.folder import open_run
    from fastformer.runs.saving import InUse

    for _ in range(LOADINGS):
        task = get_task(run.task)
        try:
            with run.loading():
                predictor = task.load(run)
        except UserError:
            if not run.is_replaced:
                raise
        else:
            if not run.is_replaced:
                return predictor
        run = open_run(run.folder)
    raise InUse(f"{run.folder}: is replaced by another run again and again; try later")


@dataclass(kw_only=True)
class Parts(Generic[Settings]):
    """What `encode` makes of the data; tasks add what is their own.

    The datasets have `lengths`; one with `set_epoch` is told which epoch it is read for. `validation` may also be a
    function that scores the model in a way of its own; otherwise `compute_metrics` scores what the model gives for it.
    """

    settings: Settings  # with what the size of the data settles
    tokenizer: "PreTrainedTokenizerBase"
    train: Any
    validation: Any
    collate: Callable
    score: str  # picks the epoch; larger is better
    scores: Sequence[str]  # what people see, the one on the progress bar first
    fingerprint: Mapping[str, Sequence["np.ndarray"]]  # training on other data cannot be resumed
    rows: dict[str, int]
    compute_metrics: Callable | None = None
    counted: Callable[[dict[str, Any]], Any] = lambda batch: len(batch["labels"])  # what a batch's loss is a mean over
    about: dict[str, Any] = field(default_factory=dict)  # further entries of metrics.json
    record: dict[str, Any] = field(default_factory=dict)  # further entries of run.json
    tables: dict[str, "pa.Table"] = field(default_factory=dict)  # kept in the run as NAME.parquet


@dataclass(frozen=True)
class Card:
    """What a task adds to the card of a run; the template is `runs/card.md`."""

    what: str  # the first paragraph: what it predicts
    usage: str  # Markdown: how to use it
    tags: Sequence[str] = ()
    pipeline_tag: str | None = None
    notes: Sequence[str] = ()  # sentences after "Trained on …"
    scores: str | None = None  # Markdown, in place of the table of scores


@dataclass(frozen=True)
class Shown:
    """A table for people: a row per name, a column per score; a note stands below it."""

    title: str
    rows: Mapping[str, Mapping[str, Any]]
    columns: Sequence[str]
    note: str = ""


@dataclass(frozen=True)
class Service:
    """Something that a run does when it is asked, beside `predict` and `vectors`: `POST /NAME` of a server.

    `request` is a dataclass of `option` fields (`engine/settings.py`), which are the fields of the request's body. The
    answer is made of what JSON has. A service that `streams` is called with a second argument, a function that takes
    what there is so far, and raises if nobody waits for it any more.
    """

    name: str
    help: str
    request: type
    answer: Callable[..., Any]
    example: Mapping[str, Any]  # a request, for people and for a first try
    streams: bool = False
    page: Callable[[Any], str] | None = None  # the answer as a page of HTML
    panel: str | None = None  # what shows it on the server's page: see `serve/page.js`


OwnParts = TypeVar("OwnParts", bound=Parts)


class Task(ABC, Generic[Settings, OwnParts]):
    """What a task must give, with the types of its settings and its parts. `declaration` is its declaration."""

    show = False  # progress of reading, if that takes long

    def __init__(self, declaration: Declaration):
        self.declaration = declaration

    @property
    def name(self) -> str:
        """The verb `train NAME`, and run.json["task"]."""
        return self.declaration.name

    def settings(self, preset: str | Settings = "default", **given: Any) -> Settings:
        """The settings of a preset, or these settings, changed by what else is given (not None), checked."""
        from fastformer.engine.fit import checked_model

        settings: Any  # of the type that the declaration says
        if isinstance(preset, str):
            settings = self.declaration.presets.get_settings(preset, **given)
        else:
            settings = preset.with_options(**given)
        with told_of(preset):
            model = checked_model(settings.model, *self.configurations(settings))
        return self.check(replace(settings, model=model))

    def check(self, settings: Settings) -> Settings:
        """Refuse settings that do not go together, before anything is read; settle what follows from others."""
        return settings

    def configurations(self, settings: Settings) -> Sequence[type["PreTrainedConfig"]]:
        """Whose fields the keys of `settings.model` may be."""
        return [self.model_class(settings.record()).config_class]

    @abstractmethod
    def read(
        self, source: Any, split: str, settings: Settings, *, labelled: bool = True, format: "Format | None" = None
    ) -> Iterable[Any]:
        """Examples of a source, which can be read more than once; a wrong file or column fails here.

        A source is what the command line takes, or a list of dictionaries. Examples that are not dictionaries
        themselves have `with_fields` (`data/keeping.py`), so that fields of the input can be copied to the answers.
        """

    def same(self, examples: Any) -> Iterable[Hashable]:
        """A key that equal examples share, to find those that are in two sources; by default the example itself."""
        return (example if isinstance(example, Hashable) else repr(example) for example in examples)

    @abstractmethod
    def encode(self, data: Mapping[str, Any], settings: Settings, workspace: "Workspace") -> OwnParts:
        """What to train on. `data` has `train`, and if they are given `validation`, `test` and further sources."""

    @abstractmethod
    def build(self, parts: OwnParts, workspace: "Workspace") -> "PreTrainedModel":
        """A model to train; the seed is set."""

    def finish(
        self, model: "PreTrainedModel", parts: OwnParts, history: list[dict[str, float]], workspace: "Workspace"
    ) -> tuple["PreTrainedModel", dict[str, float]]:
        """The model that is kept, and its scores on the validation data: by default those of its best epoch."""
        best = max(history, key=lambda scores: scores[parts.score])
        return model, {name: best[name] for name in parts.scores if name in best}

    def record_of(self, config: "PreTrainedConfig") -> dict[str, Any]:
        """What run.json would say, beside the settings, of a model that others trained and saved."""
        return {}

    def load(self, run: "Run") -> "Predictor":
        """A run, ready to answer."""
        from fastformer.engine.fit import Trained

        return self.predictor(Trained.of(run, self.model_class(run.record)))

    @abstractmethod
    def model_class(self, record: Mapping[str, Any]) -> type["PreTrainedModel"]:
        """What a run's weights are weights of."""

    @abstractmethod
    def predictor(self, trained: "Trained[Settings]") -> "Predictor[Settings]":
        """A trained model, ready to answer."""

    @abstractmethod
    def card(self, trained: "Trained[Settings]", name: str) -> Card:
        """What the run's README says of this task."""

    def tokenizer_to_save(self, trained: "Trained[Settings]") -> "PreTrainedTokenizerBase":
        """The tokenizer as other libraries should read it from the run's folder; by default the one that was used."""
        return trained.tokenizer

    def pictures(self, trained: "Trained[Settings]") -> Mapping[str, Callable[[Path], None]]:
        """What is drawn once a run is saved: file names in its folder, and what draws each; by default nothing."""
        return {}

    def trained_tables(self, metrics: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """What is printed after a training."""
        rows = {part: metrics[part] for part in ("validation", "test") if part in metrics}
        yield Shown(title, rows, tuple(metrics["validation"]))

    def evaluated_tables(self, result: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """What is printed after an evaluation."""
        numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
        yield Shown(title, {"": numbers}, tuple(numbers))


class Predictor(ABC, Generic[Settings]):
    """A trained model that answers: what Python, `predict`, a server and a cluster's worker hold.

    Examples are what the task's `read` gives, or dictionaries, or if one text is all there is, strings. Answers
    come in their order, and do not depend on each other.
    """

    show = False  # progress
    counts_itself = False  # `predict` has a progress bar of its own, as where few answers take long
    may_be_cut = False  # the first numbers of a vector are a vector too

    def __init__(self, trained: "Trained[Settings]"):
        self.trained = trained
        self.model, self.tokenizer, self.settings = trained.model, trained.tokenizer, trained.settings

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a loaded run as its path; a model that was never saved is pickled whole."""
        from fastformer.tasks.verbs import load_once

        run = self.trained.run
        return super().__reduce_ex__(protocol) if run is None else (load_once, (str(run.folder.resolve()),))

    @property
    def task(self) -> str:
        """The task that it was trained for."""
        return self.trained.record["task"]

    @abstractmethod
    def predict(self, examples: Iterable[Any], options: Any = None) -> Iterator[dict[str, Any]]:
        """An answer per example."""

    def vectors(self, examples: Iterable[Any]) -> Iterator["np.ndarray"]:
        """A vector per example."""
        raise UserError(f"{self.trained.name}: a run of {self.trained.record['task']} has no vectors")

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.model.config.hidden_size

    def vector_ids(self, examples: Iterable[Any]) -> list[str] | None:
        """Whose vectors they are, if examples have names."""
        return None

    def example(self, text: str) -> Any:
        """A text as an example for `predict`; a task that needs more than a text refuses it."""
        return {"text": text}

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The texts in each example, all those that are cut if they are longer than the model reads.

        An example that lacks a field which is read is an error. By default examples are those of `example`, or strings.
        """
        return [[one["text"] if isinstance(one, dict) else one] for one in examples]

    def sample(self) -> Any:
        """An example to show and to try it with: a text, or a dictionary."""
        return "What a wonderful day it was: we walked along the river, and nobody was in a hurry."

    def services(self, keep: Path) -> Sequence[Service]:
        """What a server offers beside `predict` and `vectors`; by default nothing.

        `keep` is a folder for what must be there again when the server is started anew.
        """
        return ()

    @abstractmethod
    def evaluate(self, examples: Iterable[Any], options: Any = None) -> dict[str, Any]:
        """Scores on labelled examples."""

    def scores_of(self, result: Mapping[str, Any]) -> dict[str, float]:
        """The scores in what `evaluate` gave whose mean over files says something; by default all but whole numbers."""
        return {name: value for name, value in result.items() if isinstance(value, float)}

    def exportable(self) -> "PreTrainedModel":
        """What `fastformer export` writes. A predictor that has this also has `compare`, which scores several forms."""
        raise UserError(f"{self.trained.name}: a run of {self.trained.record['task']} cannot be exported")

    def compare(self, models: Mapping[str, Any], examples: Iterable[Any]) -> dict[str, dict[str, float]]:
        """Scores of several forms of what is exported, by their names, on labelled examples."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Messages once all is answered, such as that texts were cut. Each call reports what is new since the last."""
        return iter(())

    def line(self, answer: dict[str, Any]) -> str:
        """An answer as a line of text: JSON. Copied fields may have types that JSON lacks.

        NaN becomes null.
        """
        try:
            return _JSON.encode(answer)
        except ValueError:
            return _JSON.encode(without_nan(answer))

    def wrote(self, path: Path) -> None:
        """Called when answers, and nothing else, are in a file; by default nothing is added."""
        return None


class LightPredictor(Predictor[Settings]):
    """A predictor of an export that imports neither PyTorch nor transformers, and does nothing but answer."""

    folder: Path  # of the export

    def __init__(self, task: str, settings: Settings):
        self._task, self.settings = task, settings

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as its path."""
        from fastformer.tasks.answering import light_predictor

        return light_predictor, (str(self.folder.resolve()),)

    @property
    def task(self) -> str:
        """The task that the run was trained for."""
        return self._task

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, record: dict[str, Any]) -> "LightPredictor | None":
        """The predictor of an export; None if this one needs the other libraries after all."""

    @abstractmethod
    def read(self, source: Any, settings: Settings, format: Any = None) -> Iterable[Any]:
        """Examples of a source, as the task reads them without labels."""

    def evaluate(self, examples: Iterable[Any], options: Any = None) -> dict[str, Any]:
        """Not here."""
        raise NotImplementedError("a light predictor only answers")
