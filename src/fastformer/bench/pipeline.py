"""Does the pipeline keep up? `predict` from file to file, against the model alone on the same tokens, and fastText.

fastText, if it is installed, learns words and word pairs from the file that the run was trained on, in a process of
its own. It then does what `predict` does: it reads the same file with the same reader, splits its texts into words,
and writes the probabilities of all labels as JSON lines, on its one thread. The two take turns.
"""

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import numpy as np
import torch

from fastformer.bench.measuring import describe_machine, measuring, result_folder
from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tables import read_rows
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.inference import BATCH_TOKENS, chunks
from fastformer.errors import UserError
from fastformer.runs.folder import Run
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.machine import in_threads
from fastformer.surroundings.processes import one_process
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.classification.baselines import plain_words
from fastformer.tasks.classification.predictor import Classifier
from fastformer.tasks.verbs import load, predict

ROUNDS = 3


def pipeline(
    run: Run, source: str, output: str | Path | None = None, *, threads: int | None = None, show_progress: bool = True
) -> dict[str, Any]:
    """Tokens per second of reading and tokenizing, of the model on batches that are ready, and of `predict` as a whole.

    The first two take turns on parts of the file; then `predict` reads it from the beginning, ROUNDS times, in turns
    with fastText (`fasttext`; None if it cannot take part). `cpu_seconds_a_1000` counts all threads.
    """
    if source == "-":
        raise UserError("the data is read several times; give a file, not standard input")
    classifier: Any = load(run)  # a Classifier
    model, tokenizer, column = classifier.model, classifier.tokenizer, classifier.settings.text_column

    @torch.inference_mode()
    def run_model(batch: dict[str, torch.Tensor]) -> None:
        model(**batch)

    seconds = dict.fromkeys(("read_and_tokenize", "model", "predict"), 0.0)
    texts = tokens = 0
    with measuring(threads) as used, progress_bar("Measuring", show=show_progress) as advance:
        rows = read_rows(source, text_column=column, label_kind="none", split="test")
        started = time.perf_counter()
        for chunk in chunks(row.text for row in rows):
            encoded, _ = encode_batch(tokenizer, chunk, classifier.runner.max_length)
            seconds["read_and_tokenize"] += time.perf_counter() - started

            lengths = np.array([len(ids) for ids in encoded])
            ready = [
                pad_batch([encoded[index] for index in batch], tokenizer.pad_token_id)
                for batch in token_budget_batches(lengths, BATCH_TOKENS)
            ]
            started = time.perf_counter()
            in_threads(run_model, ready)  # as `predict` does
            seconds["model"] += time.perf_counter() - started
            texts, tokens = texts + len(chunk), tokens + int(lengths.sum())
            advance(len(chunk))
            started = time.perf_counter()
    with measuring(threads), ExitStack() as stack:
        steps = {"predict": lambda: _to_file(lambda out: predict(run, source, out, show_progress=False))}
        if (learner := _fasttext(classifier, stack)) is not None:
            steps["fasttext"] = lambda: learner.submit(_fasttext_predict, source, column).result()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for _ in range(ROUNDS):
            for name, step in steps.items():
                times[name].append(step())
    walls, cpus = ({name: median(each) for name, each in part.items()} for part in _apart(times))
    seconds["predict"] = walls["predict"]
    rates = {part: round(tokens / taken) for part, taken in seconds.items()}
    result = {
        "machine": describe_machine(used),
        "texts": texts,
        "tokens": tokens,
        "seconds": {part: round(taken, 2) for part, taken in seconds.items()},
        "tokens_a_second": rates,
        "predict_of_model": round(rates["predict"] / rates["model"], 3),
        "cpu_seconds_a_1000": {name: round(1000 * taken / texts, 4) for name, taken in cpus.items()},
        "fasttext": {
            "seconds": round(walls["fasttext"], 2),
            "predict_takes": round(cpus["predict"] / cpus["fasttext"], 3),
        }
        if "fasttext" in walls
        else None,
    }
    if output is not None:
        with writing_text(result_folder(output) / "pipeline.json") as file:
            file.write(json.dumps(result, indent=1))
    return result


def _apart(times: dict[str, list[tuple[float, float]]]) -> list[dict[str, list[float]]]:
    """Wall and CPU seconds by name."""
    return [{name: [each[part] for each in found] for name, found in times.items()} for part in (0, 1)]


def _to_file(write: Callable[[TextIO], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of writing a file."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        wall, cpu = time.perf_counter(), time.process_time()
        write(out)
        return time.perf_counter() - wall, time.process_time() - cpu


def _fasttext(classifier: Classifier, stack: ExitStack) -> ProcessPoolExecutor | None:
    """A process that has a trained fastText; None without the library, the run's training file, or single labels."""
    source = classifier.trained.record["data"].get("train")
    if find_spec("fasttext") is None or classifier.space.kind != "single" or not Path(source or "").is_file():
        return None
    process = stack.enter_context(one_process())
    process.submit(_fasttext_train, source, classifier.settings.text_column, classifier.settings.label_column).result()
    return process


_learned: dict[str, Any] = {}  # in fastText's process


def _fasttext_train(source: str, text_column: str | None, label_column: str | None) -> None:
    import fasttext

    rows = list(read_rows(source, text_column=text_column, label_column=label_column, split="train"))
    numbers = {name: number for number, name in enumerate(sorted({str(row.label) for row in rows}))}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        lines = (f"__label__{numbers[str(row.label)]} {plain_words(row.text)}\n" for row in rows)
        path.write_text("".join(lines), encoding="utf-8")
        # The settings of `bench classifiers`; rate and passes do not matter to the time of a prediction.
        options = {"wordNgrams": 2, "bucket": 200_000, "lr": 0.5, "epoch": 5, "thread": 1, "verbose": 0}
        _learned["model"] = fasttext.train_supervised(str(path), **options)
    _learned["names"] = {f"__label__{number}": name for name, number in numbers.items()}


def _fasttext_predict(source: str, text_column: str | None) -> tuple[float, float]:
    model, names = _learned["model"], _learned["names"]

    def write(out: TextIO) -> None:
        for row in read_rows(source, text_column=text_column, label_kind="none", split="test"):
            found = model.f.predict(plain_words(row.text) + "\n", -1, 0.0, "strict")
            chances = {names[label]: round(chance, 6) for chance, label in found}
            line = {"label": next(iter(chances), None), "probabilities": chances}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")

    return _to_file(write)
