"""Answering: what `predict` does with a predictor of any task, without importing PyTorch.

An export needs neither PyTorch nor transformers, whose imports take longer than most answers. `predict` here asks the
task for a light predictor of it, and falls back to `verbs.predict` if there is none.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from fastformer.data.answers import Write, check_ending, write_lines, writing_answers
from fastformer.data.frames import as_records, check_several
from fastformer.data.keeping import Keep, carrying
from fastformer.data.row_counts import how_many_rows
from fastformer.data.standard_input import input_pauses
from fastformer.data.text_files import WITH_NAMES, TextFiles
from fastformer.engine.settings import TaskSettings, options_given, options_of
from fastformer.errors import UserError
from fastformer.runs.record import is_replaced, mark_of, read_record
from fastformer.surroundings.files import check_apart
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks.base import Declaration, LightPredictor, Predictor, declared, get_declaration

AT_ONCE = 256  # answers between two moves of the progress bar


def predict(
    run: Predictor | str | Path,
    source: Any = None,
    output: str | Path | TextIO | None = None,
    *,
    document: str | Path | None = None,
    text: str | None = None,
    text_column: str | None = None,
    format: Any = None,
    separator: str | None = None,
    header: bool | None = None,
    strict: bool | None = None,
    keep: tuple[str, ...] = (),
    keep_all: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    show_progress: bool = True,
    **options: Any,
) -> int:
    """`verbs.predict`, without PyTorch if the run can do without."""
    given: dict[str, Any] = {"text_column": text_column, "separator": separator, "header": header, "strict": strict}
    texts: dict[str, Any] = {"document": document, "text": text, "show_progress": show_progress}
    usual = device in ("auto", "cpu") and dtype in ("auto", "float32")
    predictor = light_predictor(run) if usual else None
    if predictor is None:
        from fastformer.tasks.verbs import predict

        place = {"device": device, "dtype": dtype}
        how: dict[str, Any] = {"format": format, "keep": keep, "keep_all": keep_all, **place}
        return predict(run, source, output, **given, **texts, **how, **options)
    if isinstance(output, str | Path):
        check_ending(output)
    predictor.show = show_progress
    return answer_all(
        predictor,
        lambda source, settings: predictor.read(source, settings, format),
        source,
        output,
        **texts,
        settings=settings_with(predictor, **given),
        options=options_for(predictor.task, "predicting", options),
        keep=Keep(keep, keep_all),
    )


def light_predictor(run: Predictor | str | Path) -> LightPredictor | None:
    """A predictor of an export that needs neither PyTorch nor transformers; None if there is none."""
    if isinstance(run, Predictor):
        return run if isinstance(run, LightPredictor) else None
    mark = mark_of(Path(run))
    try:
        record = read_record(Path(run))
        light = declared()[record["task"]].light if "export" in record else None
    except (OSError, UserError, KeyError):  # the regular way to open it reports what is wrong
        return None
    if light is None:
        return None
    module, _, name = light.partition(":")
    predictor = getattr(importlib.import_module(module), name).open(Path(run), record)
    if predictor is None or is_replaced(Path(run), mark):  # the regular way to open it waits for what replaces it
        return None
    predictor.folder = Path(run)
    return predictor


class Export:
    """An export that answers in Python as `fastformer predict` does, by onnxruntime and tokenizers alone."""

    def __init__(self, predictor: LightPredictor):
        self.predictor = predictor

    @property
    def task(self) -> str:
        """The task that it was trained for."""
        return self.predictor.task

    def predict(self, examples: Iterable[Any], **options: Any) -> list[dict[str, Any]]:
        """An answer per example, in their order; options are those of `fastformer predict`."""
        check_several(examples)
        chosen = options_for(self.task, "predicting", options)
        return list(self.predictor.predict(as_records(examples), chosen))


def load_export(folder: str | Path) -> Export:
    """An export, loaded without importing PyTorch or transformers: `load_export("exported").predict(["a text"])`."""
    if (predictor := light_predictor(folder)) is not None:
        return Export(predictor)
    if not (Path(folder) / "model.onnx").is_file():
        raise UserError(f"{folder}: not an export; `fastformer export RUN --output {folder}` makes one")
    raise UserError(f"{folder}: its tokenizer needs transformers; load it with the class of its task, as a run")


def answer_all(
    predictor: Predictor,
    read: Callable[[Any, Any], Iterable[Any]],
    source: Any,
    output: str | Path | TextIO | None,
    *,
    document: str | Path | None,
    text: str | None,
    settings: TaskSettings,
    options: Any,
    keep: Keep,
    show_progress: bool,
) -> int:
    """Write an answer per example of a source, of documents or of a text; return how many. See `verbs.predict`."""
    check_apart(output, source, document)

    def answer(examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
        return _finite(predictor.predict(examples, options))

    if document is None and text is None:
        _check_is_no_text(source, get_declaration(predictor.task))
        examples = read("-" if source is None else source, settings)
    else:
        examples = _given_texts(get_declaration(predictor.task), source, document, text)
        keep = keep or (WITH_NAMES if document is not None else keep)
    found = carrying(answer, examples, keep) if keep else answer(examples)
    count = 0
    show = show_progress and not predictor.counts_itself
    total = how_many_rows(source if document is None and text is None else examples)
    with _destination(output, predictor) as write, progress_bar("Predicting", total, show) as advance:
        for answers in _batched(found):
            write(answers)
            count += len(answers)
            advance(len(answers))
    if isinstance(output, str | Path) and not keep:
        predictor.wrote(Path(output))
    say_notes(predictor)
    return count


def _finite(answers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers, as long as their numbers are finite: NaN is not an answer, and not JSON."""
    for answer in answers:
        for value in answer.values():
            numbers = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
            if any(number.__class__ is float and number - number != 0 for number in numbers):  # NaN or infinite
                raise UserError("the model's scores are not finite numbers: it is damaged, or diverged; train it again")
        yield answer


def _check_is_no_text(source: Any, task: Declaration) -> None:
    """Refuse a text where a file should be, and say how a text is given: `explain` and `summarize` take one there."""
    if not task.reads_texts or not isinstance(source, str) or " " not in source.strip():
        return
    if not os.path.exists(source) and not os.path.exists(source.rpartition(":")[0]):  # a split, or a sheet
        raise UserError(f"{source[:100]}: no such file or folder; check the path, or give a text itself with --text")


def _given_texts(
    task: Declaration, source: Any, document: str | Path | None, text: str | None
) -> TextFiles | list[str]:
    """Documents, or a text from the command line."""
    if not task.reads_texts:
        what = "--text" if document is None else "--document"
        raise UserError(f"{what}: an example of {task.name} is more than a text; give a file of examples")
    check_one_source(source, document, text)
    if document is not None:
        return TextFiles(document)
    if not text or text.isspace():
        raise UserError("--text: no word to answer; give a text with some")
    return [text]


def check_one_source(*given: Any) -> None:
    """Refuse more than one of a source, documents and a text."""
    if sum(one is not None for one in given) > 1:
        raise UserError("there are several things to answer; give only one of FILE, --document and --text")


def _destination(output: str | Path | TextIO | None, predictor: Predictor) -> AbstractContextManager[Write]:
    """Where answers go: a file, or as lines to a stream."""
    if isinstance(output, str | Path):
        return writing_answers(output, predictor.line)
    stream = output or sys.stdout

    def write(answers: list[Any]) -> None:
        write_lines(stream, answers, predictor.line)
        stream.flush()

    return nullcontext(write)


def options_for(task: str, verb: str, given: Mapping[str, Any]) -> Any:
    """The options of a verb (`predicting`, `evaluating`) as a task has them; those of other tasks are refused."""
    kind = getattr(get_declaration(task), verb)
    known = options_of(kind)
    for name, value in given.items():
        if value is not None and name not in known:
            raise UserError(f"--{name.replace('_', '-')}: a run of {task} has no use for it; leave it out")
    return options_given(kind, {name: value for name, value in given.items() if name in known})


def settings_with(predictor: Predictor, **given: Any) -> TaskSettings:
    """The settings of a run, with what is given (not None) of how other data is read."""
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in options_of(type(predictor.settings)):
            raise UserError(f"--{name.replace('_', '-')}: data of {predictor.task} has fixed columns; leave it out")
    return predictor.settings.with_options(**given)


def _batched(answers: Iterator[Any]) -> Iterator[list[Any]]:
    """Some answers at a time; fewer if standard input pauses, so that nobody waits for them."""
    some: list[Any] = []
    for answer in answers:
        some.append(answer)
        if len(some) == AT_ONCE or input_pauses():
            yield some
            some = []
    if some:
        yield some


def say_notes(predictor: Predictor) -> None:
    """Print the predictor's notes, once all is answered."""
    for note in predictor.notes():
        say(note)
