"""What `reproduce measure WHAT FILE` does: one measurement of a table, in a process of its own.

Every function takes what the file holds, and gives what can be written as JSON.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from fastformer.bench.allocations import peak_bytes
from fastformer.bench.conversion import measure_latency, measure_lists
from fastformer.bench.measuring import in_turns, timing
from fastformer.data.batches import LengthBuckets, items_of
from fastformer.engine.fit import Workspace
from fastformer.engine.optimizer import DenseAndRowAdam, clip_gradients
from fastformer.engine.settings import settled
from fastformer.modeling import FastformerConfig
from fastformer.surroundings.machine import tune
from fastformer.tasks.base import Parts, get_declaration, get_task
from fastformer.tasks.conversion.baselines import floor_scores
from fastformer.tasks.conversion.data import EventsWriter, collect
from fastformer.tasks.conversion.events import Columns, EventSource
from fastformer.tasks.summarization.objective import SummaryLearner

LATENCY_EVENTS = 512  # test rows that requests are drawn from


def _settings(task: str, record: dict[str, Any]) -> Any:
    return get_declaration(task).presets.made(record)


def classification_step(
    files: dict[str, str], settings: dict[str, dict[str, Any]], batches: int, repetitions: int
) -> dict[str, Any]:
    """Seconds of a training step by variant: forward, backward, clipping and the optimizer.

    They are a mean over `batches` of a training's first epoch on these files, from short texts to long ones.
    """
    tune()
    task = get_task("classification")
    encoded: dict[tuple, Parts] = {}  # by all that decides on a text's tokens
    passes: dict[str, Callable[[], None]] = {}
    steps: dict[str, int] = {}
    with TemporaryDirectory() as place:
        for name, record in settings.items():
            one = _settings("classification", {**record, "init": None})
            key = one.tokenizer, one.vocab_size, one.min_frequency, one.max_length
            workspace = Workspace(Path(place, str(len(encoded))), show=False)
            if key not in encoded:
                workspace.folder.mkdir()
                data = {split: task.read(file, split, one) for split, file in files.items()}
                encoded[key] = task.encode(data, one, workspace)
            parts = replace(encoded[key], settings=one)
            torch.manual_seed(0)
            model = task.build(parts, workspace).train()
            chosen = short_to_long(parts.train.lengths, settled(one.training.batch_size), batches)
            inputs = [parts.collate(items_of(parts.train, batch)) for batch in chosen]
            rate = settled(one.training.learning_rate)
            optimizer = DenseAndRowAdam(model, rate, one.training.betas, one.training.weight_decay)
            passes[name] = partial(_train, model, optimizer, one.training.max_grad_norm, inputs)
            steps[name] = len(inputs)
        for step in passes.values():  # to warm up
            step()
        times = in_turns(passes, repetitions)
    return {"step": {name: timing([seconds / steps[name] for seconds in found]) for name, found in times.items()}}


def short_to_long(lengths: np.ndarray, batch_size: int, count: int) -> list[list[int]]:
    """`count` batches of an epoch at equal distances in the order of their longest texts; all, if there are fewer."""
    epoch = sorted(LengthBuckets(lengths, batch_size, seed=0), key=lambda batch: lengths[batch].max())
    places = (np.arange(count) + 0.5) / count * len(epoch)
    return [epoch[place] for place in np.unique(places.astype(int))]


def _train(
    model: PreTrainedModel, optimizer: DenseAndRowAdam, most: float, batches: Sequence[dict[str, torch.Tensor]]
) -> None:
    """A step on each batch."""
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        clip_gradients(model, most)
        optimizer.step()


def conversion_floors(train: str, test: str) -> dict[str, Any]:
    """Scores of what needs no neural network."""
    with TemporaryDirectory() as place, EventsWriter(Path(place), Columns(), 10**6) as writer:
        rows = [collect(EventSource(source), writer) for source in (train, test)]
        return floor_scores(writer.finish(), *rows)


def conversion_latency(test: str, settings: dict[str, Any], mixers: Sequence[str], requests: int) -> dict[str, Any]:
    """Requests drawn from the test rows, all methods in turns."""
    events = islice(EventSource(test), LATENCY_EVENTS)
    return measure_latency(events, _settings("conversion", settings), mixers, requests)


def conversion_lists(length: int, settings: dict[str, Any], mixers: Sequence[str], **sizes: int) -> dict[str, Any]:
    """Simulated lists of one length, all methods in turns."""
    return measure_lists(length, _settings("conversion", settings), mixers, **sizes)


def summarization_step(length: int, steps: int, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Seconds and peak memory of forward and backward through one article of `length` tokens, by method."""
    tune()
    made = {mixer: _settings("summarization", one) for mixer, one in settings.items()}
    calls: dict[str, Callable[[], None]] = {}
    random = torch.Generator().manual_seed(0)
    shortest = min(one.max_summary_length for one in made.values())
    vocab_size = min(one.vocab_size for one in made.values())
    article, summary = (torch.randint(3, vocab_size, (1, size), generator=random) for size in (length, shortest))
    inputs = {"input_ids": article, "attention_mask": torch.ones_like(article), "labels": summary}

    def step(model: SummaryLearner) -> None:
        model.zero_grad(set_to_none=True)
        model(**inputs).loss.backward()

    for mixer, one in made.items():
        torch.manual_seed(0)
        sizes = {"max_position_embeddings": length, "decoder_positions": one.max_summary_length}
        config = {**one.model, "mixer": mixer, "vocab_size": one.vocab_size, "eos_token_id": 1, **sizes}
        model = SummaryLearner(FastformerConfig(**config)).train()
        calls[mixer] = partial(step, model)
    found = {
        mixer: {"peak_memory_mb": round(peak_bytes(call) / 1e6, 1)} for mixer, call in calls.items()
    }  # warm-up too
    for mixer, times in in_turns(calls, steps).items():
        found[mixer] |= timing(times)
    return {"length": length, "summary_length": shortest, "step": found}


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__.replace("_", "-"): function
    for function in (classification_step, conversion_floors, conversion_latency, conversion_lists, summarization_step)
}
