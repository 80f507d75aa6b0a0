"""The commands train, evaluate, predict and embed, once for all tasks, on sources and run folders."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from fastformer.data.answers import check_ending
from fastformer.data.keeping import Keep
from fastformer.data.opening import Format, reads_once
from fastformer.data.overlap import MUCH, overlap
from fastformer.engine.devices import choose, loading_to
from fastformer.engine.fit import Trained, Workspace, fit
from fastformer.engine.settings import TaskSettings
from fastformer.errors import Interrupted, UserError
from fastformer.runs.card import write_card
from fastformer.runs.checkpoints import CHECKPOINTS
from fastformer.runs.claiming import claim_output, unharmed
from fastformer.runs.folder import Run, open_run
from fastformer.runs.record import RUN_FILE
from fastformer.runs.saving import save_results, save_run
from fastformer.runs.vectors import write_vectors
from fastformer.surroundings import ranks
from fastformer.surroundings.files import check_apart
from fastformer.surroundings.progress import how_many, say
from fastformer.tasks.answering import answer_all, options_for, say_notes, settings_with
from fastformer.tasks.base import Predictor, Task, get_task, load_run


def train(
    task: str,
    train: Any,
    validation: Any = None,
    test: Any = None,
    *,
    output: str | Path,
    preset: str | TaskSettings = "default",
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    show_progress: bool = True,
    **given: Any,
) -> dict[str, Any]:
    """Train a task on its data and leave a run folder; return its metrics.

    Without `validation` a part of `train` chooses the epoch. `test` is only scored, at the end, when the model is safe.
    `given` are settings of the task and its further sources; `preset` is a name, or settings. Processes
    that a launcher started train one model together. `device` and `dtype` are those of `engine/devices.py`.
    """
    with ranks.joined(), ExitStack() as held:
        with ranks.after_first():
            place = choose(device, dtype)
            taught = _watched(task, show_progress)
            sources = _sources(taught, {"train": train, "validation": validation, "test": test}, given)
            settings = taught.settings(preset, **given)
            folder = Path(output)
            if ranks.is_first():
                claim_output(folder, resume=resume, overwrite=overwrite)
                held.enter_context(unharmed(folder))
            data = {split: taught.read(source, split, settings) for split, source in sources.items()}
            if ranks.is_first():
                _say_overlaps(taught, data, sources)
        processes = ranks.size()
        workspace = Workspace(folder / CHECKPOINTS, resume=resume, show=show_progress, place=place)
        trained = fit(taught, data, settings, workspace)

        def leave() -> dict[str, Any]:
            trained.record["preset"] = preset if isinstance(preset, str) else "custom"
            told = {name: _told(source) for name, source in {"validation": None, "test": None, **sources}.items()}
            trained.record["data"] = {**told, **trained.record["data"]}
            trained.metrics["trained_on"] = {"processes": processes, **place.told()}
            save(taught, trained, folder)
            if test is not None:
                predictor = load(open_run(folder), show_progress, device=place.device)
                _score_test(taught, trained, folder, data["test"], str(test), predictor)
            return trained.metrics

        return ranks.first(leave)


def _sources(task: Task, sources: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The sources that there are, those of the task taken out of what else is given; what cannot be read is refused."""
    declaration = task.declaration
    sources |= {name: given.pop(name, None) for name in declaration.sources}
    sources = {name: source for name, source in sources.items() if source is not None}
    if "test" in sources and declaration.test_help is None:
        raise UserError(f"{task.name} has no test data: score the run with `fastformer evaluate` afterwards")
    for source in sources.values():
        if any(map(reads_once, source if isinstance(source, list | tuple) else [source])):
            raise UserError("training reads its data more than once; give files, not standard input or a pipe")
    return sources


def _say_overlaps(task: Task, data: Mapping[str, Any], sources: Mapping[str, Any]) -> None:
    """Say if examples to score on are trained on too."""
    for split in ("validation", "test"):
        if type(data.get(split)) is type(data["train"]):  # some tasks are scored on data of another kind
            found, count = overlap(task.same(data["train"]), task.same(data[split]))
            if found > MUCH * count:
                examples = how_many(found, f"{task.declaration.unit}s", "are", count)
                name = sources[split] if isinstance(sources[split], str | Path) else f"the {split} data"
                say(f"{name}: {examples} in the training data too, so scores on them say little about new ones.")


def _same_file(one: str | Path, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):  # not there any more, or no file at all
        return False


def _told(source: Any) -> Any:
    """A source as run.json has it: named, if it has a name."""
    if source is None or isinstance(source, str):
        return source
    if isinstance(source, Path):
        return str(source)
    return [str(one) for one in source] if all(isinstance(one, str | Path) for one in source) else None


def save(task: Task, trained: Trained, folder: Path) -> None:
    """Leave a run folder."""
    card = write_card(task, trained, folder.resolve().name)
    pictures = task.pictures(trained)
    save_run(
        folder,
        trained.model,
        task.tokenizer_to_save(trained),
        record={**trained.record, "files": list(pictures)},  # those that are written come to it by themselves
        metrics=trained.metrics,
        card=card,
        tables=trained.tables,
    )
    for name, draw in pictures.items():  # last: the run is safe, whatever happens
        draw(folder / name)


def _score_test(task: Task, trained: Trained, folder: Path, examples: Any, called: str, predictor: Predictor) -> None:
    """Score the saved run on its test data; whatever happens, the model is safe."""
    try:
        found = predictor.evaluate(examples)
    except KeyboardInterrupt:
        again = f"`fastformer evaluate {folder} {called}` scores it"
        raise Interrupted(f"stopped while {called} was scored; the model is in {folder}, and {again}") from None
    say_notes(predictor)
    trained.metrics["test"] = found
    if "rows" in found:
        trained.metrics["rows"]["test"] = found["rows"]
    save_results(folder, trained.metrics, write_card(task, trained, folder.resolve().name))


def load(
    run: Run | Predictor | str | Path, show_progress: bool = False, *, device: str = "cpu", dtype: str = "auto"
) -> Predictor:
    """A run, ready to answer, on a device; one that is loaded already stays where it is."""
    run = _opened(run)
    with loading_to(choose(device, dtype)):
        predictor = run if isinstance(run, Predictor) else load_run(run)
    predictor.show = show_progress
    return predictor


def load_once(folder: str) -> Predictor:
    """A run, ready to answer, which this process loads once however often it is sent here."""
    run = open_run(folder)
    marks = [path.stat().st_mtime_ns for name in (RUN_FILE, "config.json") if (path := run.folder / name).is_file()]
    return _loaded(str(run.folder), *marks)


@lru_cache(maxsize=2)
def _loaded(folder: str, *changed: int) -> Predictor:
    return load(folder)


def _opened(run: Run | Predictor | str | Path) -> Run | Predictor:
    return run if isinstance(run, Run | Predictor) else open_run(run)


_OF_READING = frozenset({"text_column", "label_column", "separator", "header", "strict"})


def evaluate(
    run: Run | Predictor | str | Path,
    source: Any,
    *,
    device: str = "auto",
    dtype: str = "auto",
    show_progress: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Score a run on labelled data; options are those of `score`."""
    run = _opened(run)
    own = {name: value for name, value in options.items() if name not in _OF_READING}
    options_for(run.task, "evaluating", own)  # a wrong one is reported before the model is loaded
    predictor = load(run, show_progress, device=device, dtype=dtype)
    trained_on = predictor.trained.record.get("data", {}).get("train")
    if isinstance(source, str | Path) and isinstance(trained_on, str) and _same_file(source, trained_on):
        say(f"{source}: the run was trained on it, so its scores say nothing about new data.")
    result = score(predictor, source, **options)
    say_notes(predictor)
    return result


def score(
    predictor: Predictor,
    source: Any,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    separator: str | None = None,
    header: bool | None = None,
    strict: bool | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores on labelled data, read like the training data unless said otherwise; `options` are the task's own."""
    chosen = options_for(predictor.task, "evaluating", options)
    how = {"separator": separator, "header": header, "strict": strict}
    examples = labelled(predictor, source, text_column=text_column, label_column=label_column, **how)
    return predictor.evaluate(examples, chosen)


def labelled(predictor: Predictor, source: Any, **columns: Any) -> Iterable[Any]:
    """Data to score a run on; `columns` are settings of how it is read, if they are not those of the training."""
    if source == "-":
        raise UserError("scoring needs a file: standard input does not say which column is the label")
    return _watched(predictor.task, predictor.show).read(source, "test", settings_with(predictor, **columns))


def predict(
    run: Run | Predictor | str | Path,
    source: Any = None,
    output: str | Path | TextIO | None = None,
    *,
    document: str | Path | None = None,
    text: str | None = None,
    text_column: str | None = None,
    format: Format | None = None,
    separator: str | None = None,
    header: bool | None = None,
    strict: bool | None = None,
    keep: Sequence[str] = (),
    keep_all: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    show_progress: bool = True,
    **options: Any,
) -> int:
    """Write an answer per example, in their order; return how many. Without `output` they go to standard output.

    Instead of a `source` there may be a `document`, which is one text, or a folder of .txt files, whose answers have
    the files' names; or a `text` itself. The ending of `output` chooses the format: see `data/answers.py`. Those fields
    of the input that `keep` names, or all of them, are copied to the answers.
    """
    if isinstance(output, str | Path):
        check_ending(output)
    run = _opened(run)
    task = _watched(run.task, show_progress)
    chosen = options_for(run.task, "predicting", options)
    predictor = load(run, show_progress, device=device, dtype=dtype)
    given = {"text_column": text_column, "separator": separator, "header": header, "strict": strict}
    return answer_all(
        predictor,
        lambda source, settings: task.read(source, "test", settings, labelled=False, format=format),
        source,
        output,
        document=document,
        text=text,
        settings=settings_with(predictor, **given),
        options=chosen,
        keep=Keep(tuple(keep), keep_all),
        show_progress=show_progress,
    )


def embed(
    run: Run | Predictor | str | Path,
    source: Any,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: Format | None = None,
    separator: str | None = None,
    header: bool | None = None,
    strict: bool | None = None,
    device: str = "auto",
    dtype: str = "auto",
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write a vector per example to `.npy` or `.parquet`, in their order; return their number and width."""
    check_apart(output, source)
    run = _opened(run)
    task = _watched(run.task, show_progress)
    predictor = load(run, show_progress, device=device, dtype=dtype)
    settings = settings_with(predictor, text_column=text_column, separator=separator, header=header, strict=strict)
    examples = task.read(source, "test", settings, labelled=False, format=format)
    vectors = predictor.vectors(examples)
    count = write_vectors(output, vectors, predictor.width, show_progress, ids=predictor.vector_ids(examples))
    say_notes(predictor)
    return count, predictor.width


def _watched(name: str, show_progress: bool) -> Task:
    task = get_task(name)
    task.show = show_progress
    return task
