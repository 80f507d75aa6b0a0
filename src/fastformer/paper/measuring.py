"""What `reproduce measure WHAT FILE` does: one measurement of a table, in a process of its own.

Every function takes what the file holds, and gives what can be written as JSON.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from fastformer.bench.allocations import peak_bytes
from fastformer.bench.conversion import measure_latency, measure_lists
from fastformer.bench.measuring import in_turns, timing
from fastformer.data.batches import LengthBuckets
from fastformer.data.tables import read_rows
from fastformer.engine.fit import explained_configuration
from fastformer.engine.optimizer import DenseAndRowAdam
from fastformer.engine.settings import settled
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.surroundings.machine import tune
from fastformer.tasks.base import get_declaration
from fastformer.tasks.conversion.baselines import floor_scores
from fastformer.tasks.conversion.data import EventsWriter, collect
from fastformer.tasks.conversion.events import Columns, EventSource
from fastformer.tasks.summarization.objective import SummaryLearner

LATENCY_EVENTS = 512  # test rows that requests are drawn from
_WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")


def _settings(task: str, record: dict[str, Any]) -> Any:
    return get_declaration(task).presets.made(record)


def classification_step(
    train: str, classes: int, settings: dict[str, Any], batches: int, repetitions: int
) -> dict[str, Any]:
    """Seconds of a training step by variant: forward, backward and the optimizer, on batches as the training has them.

    They are `batches` of an epoch, from short texts to long ones, cut as the variant cuts them; tokens are random.
    """
    tune()
    rows = read_rows(train, text_column="text", label_column="label")
    words = np.array([1 + len(_WORDS_AND_MARKS.findall(row.text)) for row in rows])
    passes: dict[str, Callable[[], None]] = {}
    for name, record in settings.items():
        one = _settings("classification", record)
        torch.manual_seed(0)
        sizes = {"vocab_size": one.vocab_size, "max_position_embeddings": one.max_length, "num_labels": classes}
        with explained_configuration():
            config = FastformerConfig(**one.model, mixer=one.mixer, **sizes)
        model = FastformerForSequenceClassification(config).train()
        rate = settled(one.training.learning_rate)
        optimizer = DenseAndRowAdam(model, rate, one.training.betas, one.training.weight_decay)
        lengths = words.clip(max=one.max_length)
        chosen = short_to_long(lengths, settled(one.training.batch_size), batches)
        inputs = [_random_texts(lengths[batch], one.vocab_size, classes) for batch in chosen]
        passes[name] = partial(_train, model, optimizer, inputs)
        steps = len(inputs)
        passes[name]()  # to warm up
    times = in_turns(passes, repetitions)
    return {"step": {name: timing([seconds / steps for seconds in found]) for name, found in times.items()}}


def short_to_long(lengths: np.ndarray, batch_size: int, count: int) -> list[list[int]]:
    """`count` batches of an epoch at equal distances in the order of their longest texts; all, if there are fewer."""
    epoch = sorted(LengthBuckets(lengths, batch_size, seed=0), key=lambda batch: lengths[batch].max())
    places = (np.arange(count) + 0.5) / count * len(epoch)
    return [epoch[place] for place in np.unique(places.astype(int))]


def _random_texts(lengths: np.ndarray, vocab_size: int, classes: int) -> dict[str, torch.Tensor]:
    """A batch of texts of these lengths."""
    random = torch.Generator().manual_seed(0)
    shape = len(lengths), int(lengths.max())
    return {
        "input_ids": torch.randint(3, vocab_size, shape, generator=random),
        "attention_mask": (torch.arange(shape[1]) < torch.from_numpy(lengths)[:, None]).long(),
        "labels": torch.randint(classes, (len(lengths),), generator=random),
    }


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[dict[str, torch.Tensor]]) -> None:
    """A step on each batch."""
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        model(**batch).loss.backward()
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
