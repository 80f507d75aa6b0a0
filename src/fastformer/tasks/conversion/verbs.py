"""The verbs of the command line for conversion prediction, as functions on files and run folders."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fastformer.errors import UserError
from fastformer.progress import progress_bar
from fastformer.run_folder import CHECKPOINTS, Run, claim_output, save_run, unharmed
from fastformer.tasks import check_training
from fastformer.tasks.conversion.card import model_card
from fastformer.tasks.conversion.events import Columns, Event, read_events
from fastformer.tasks.conversion.fit import fit_conversion
from fastformer.tasks.conversion.metrics import plot_reliability, scores
from fastformer.tasks.conversion.presets import Preset, get_preset
from fastformer.tasks.conversion.scoring import Predictor
from fastformer.vectors import write_vectors

_RESERVED = ("behaviors", "ad", "label", "time")


def train(
    train: str,
    validation: str | None = None,
    test: str | None = None,
    *,
    output: str | Path,
    mixer: str = "fastformer",
    user_mixer: str | None = None,
    preset: str | Preset = "default",
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    tokenizer: str | None = None,
    init: str | None = None,
    max_length: int | None = None,
    max_behaviors: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train on a file of events and leave a run folder; return its metrics.

    Without `validation` the last tenth by `time` chooses the epoch, or a random tenth where no row has a time. `test`
    is only scored, at the end. `init` is a GloVe file, or an encoder's folder, that the vectors of words start from.
    `user_mixer` is `mixer` unless given; `preset` is a name, or settings of one's own.
    """
    user_mixer = user_mixer or mixer
    check_training((mixer, user_mixer), (train, validation, test))
    columns = _columns(numeric, categorical)
    settings = (preset if isinstance(preset, Preset) else get_preset(preset)).with_overrides(
        tokenizer=tokenizer,
        max_length=max_length,
        max_behaviors=max_behaviors,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    sources = {"train": train, "validation": validation, "test": test}
    folder = claim_output(output, resume=resume, overwrite=overwrite)
    with unharmed(folder):
        events = {}
        for split, source in sources.items():
            if source:
                next(read_events(source, columns, split=split))  # a wrong file or column fails here, before any work
                events[split] = read_events(source, columns, split=split)
        fitted = fit_conversion(
            events["train"],
            events.get("validation"),
            columns=columns,
            preset=settings,
            mixer=mixer,
            user_mixer=user_mixer,
            checkpoints=folder / CHECKPOINTS,
            init=init,
            resume=resume,
            show_progress=show_progress,
        )
        metrics = fitted.metrics()
        if test:
            predictor = Predictor(fitted.model, fitted.tokenizer, fitted.features)
            chances, labels = _run_labelled(predictor, events["test"], show_progress)
            metrics["test"] = scores(chances, labels)
            metrics["rows"]["test"] = len(labels)
        record = {
            "task": "conversion",
            "mixer": mixer,
            "user_mixer": user_mixer,
            "preset": preset if isinstance(preset, str) else "custom",
            "init": init,
            "settings": asdict(fitted.preset),
            "features": asdict(fitted.features),
            "data": {split: source and str(source) for split, source in sources.items()},
        }
        card = model_card(record, metrics, folder.resolve().name)
        save_run(folder, fitted.model, fitted.tokenizer, record=record, metrics=metrics, card=card)
    return metrics


def evaluate(
    run: Run,
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    plot: str | Path | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """Score a run on a file with labels; `plot` is where to write the reliability plot (.png)."""
    _no_other_columns(text_column, label_column)
    predictor = Predictor.of(run)
    events = read_events(source, predictor.features.columns, split="test")
    chances, labels = _run_labelled(predictor, events, show_progress)
    predictor.warn_about_cut_texts()
    if plot is not None:
        plot_reliability(chances, labels, plot, f"Reliability of {run.folder.resolve().name}")
    return {"rows": len(labels), **scores(chances, labels)}


def predict(
    run: Run,
    source: str,
    out: TextIO,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> int:
    """Write `{"probability": …}`, one JSON line an event, in input order; return how many. Labels are not read."""
    predictor, count = Predictor.of(run), 0
    events = _unlabelled(predictor, source, text_column, format)
    with progress_bar("Predicting", show=show_progress) as advance:
        for chance in predictor.probabilities(events):
            out.write(json.dumps({"probability": round(chance, 6)}) + "\n")
            advance(1)
            count += 1
    predictor.warn_about_cut_texts()
    return count


def embed(
    run: Run,
    source: str,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write the user vector of every event to `.npy` or `.parquet`, in input order; return their number and width."""
    predictor = Predictor.of(run)
    events, width = _unlabelled(predictor, source, text_column, format), predictor.model.config.hidden_size
    vectors = predictor.user_vectors(events)
    count = write_vectors(output, vectors, width, show_progress)
    predictor.warn_about_cut_texts()
    return count, width


def _columns(numeric: Sequence[str], categorical: Sequence[str]) -> Columns:
    columns = Columns(tuple(numeric), tuple(categorical))
    names = [*columns.numeric, *columns.categorical]
    for name in names:
        if name in _RESERVED:
            raise UserError(f"{name!r} is no side feature: the model has it already; name another column")
        if names.count(name) > 1:
            raise UserError(f"the side feature {name!r} is named twice; name it once, as --numeric or --categorical")
    return columns


def _no_other_columns(*given: str | None) -> None:
    if any(given):
        raise UserError("conversion data has the columns behaviors, ad and label; rename yours, and name no others")


def _unlabelled(predictor: Predictor, source: str, text_column: str | None, format: str | None) -> Iterator[Event]:
    _no_other_columns(text_column)
    if source == "-" and format in ("csv", "tsv"):
        raise UserError("events on standard input are JSON, one object per line; drop --format")
    return read_events(source, predictor.features.columns, labelled=False, split="test")


def _run_labelled(predictor: Predictor, events: Iterator[Event], show: bool) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels."""
    labels: list[int] = []

    def noting_labels() -> Iterator[Event]:
        for event in events:
            labels.append(event.label)
            yield event

    chances = []
    with progress_bar("Evaluating", show=show) as advance:
        for chance in predictor.probabilities(noting_labels()):
            chances.append(chance)
            advance(1)
    return np.array(chances), np.array(labels)
