"""Does the pipeline keep up? `predict` from file to output, against the model alone on the same tokens."""

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastformer.benchmark.measuring import describe_machine, measuring, result_folder
from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.tables import read_rows
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.files import writing_text
from fastformer.inference import BATCH_TOKENS, chunks
from fastformer.machine import in_threads
from fastformer.progress import progress_bar
from fastformer.run_folder import Run
from fastformer.tasks.verbs import load, predict


def pipeline(
    run: Run, source: str, output: str | Path | None = None, *, threads: int | None = None, show_progress: bool = True
) -> dict[str, Any]:
    """Tokens a second of reading and tokenizing, of the model on batches that are ready, and of `predict` as a whole.

    The first two take turns on parts of the file; then `predict` reads it from the beginning.
    """
    if source == "-":
        raise UserError("the file is read twice: give a file, not standard input")
    classifier = load(run)
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
        started = time.perf_counter()
        predict(run, source, io.StringIO(), show_progress=False)
        seconds["predict"] = time.perf_counter() - started
    rates = {part: round(tokens / taken) for part, taken in seconds.items()}
    result = {
        "machine": describe_machine(used),
        "texts": texts,
        "tokens": tokens,
        "seconds": {part: round(taken, 2) for part, taken in seconds.items()},
        "tokens_a_second": rates,
        "predict_of_model": round(rates["predict"] / rates["model"], 3),
    }
    if output is not None:
        with writing_text(result_folder(output) / "pipeline.json") as file:
            file.write(json.dumps(result, indent=1))
    return result
