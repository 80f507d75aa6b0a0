"""What conversion models cost: latency of a request, and a training step by the number of behaviours.

Methods are measured in turns with random weights, whose values do not change the time. A request is a batch of events,
from token ids to probabilities; with `stored` item vectors, as a `BehaviorStore` keeps them, only the user encoder and
the MLP remain.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from fastformer.bench.allocations import peak_bytes
from fastformer.bench.measuring import in_turns, measuring, timing
from fastformer.data.batches import EncodedTextsWriter
from fastformer.data.ragged import Ragged
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.settings import settled
from fastformer.modeling import FastformerForConversion
from fastformer.tasks.conversion.data import Events, EventsWriter, collect
from fastformer.tasks.conversion.declaration import ConversionSettings
from fastformer.tasks.conversion.events import Columns, Event, event_of
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.simulate import simulate
from fastformer.tasks.conversion.task import build_model

BATCHES = (1, 64)
ENOUGH_FOR_P99 = 100  # requests
NO_FEATURES = SideFeatures({}, {})


class Workload:
    """Some events, encoded, and a model of every method to run them through."""

    def __init__(
        self, events: Iterable[Event], settings: ConversionSettings, mixers: Sequence[str], folder: Path, seed: int = 0
    ):
        self.events, self.tokenizer = _encode(events, settings, folder)
        self.models: dict[str, FastformerForConversion] = {}
        for mixer in mixers:
            torch.manual_seed(seed)
            one = settings.with_options(mixer=mixer, user_mixer=mixer)
            self.models[mixer] = build_model(one, self.tokenizer, NO_FEATURES).eval()

    def batch(self, rows: Sequence[int] | np.ndarray) -> dict[str, Tensor]:
        """Model inputs."""
        return self.events.batch(rows, self.tokenizer.pad_token_id)

    def latency(self, batch: int, requests: int, seed: int = 0) -> dict[str, dict[str, Any]]:
        """Milliseconds of requests of `batch` events, by method; with all texts to encode, and with none."""
        random = np.random.default_rng(seed)
        drawn = [random.integers(len(self.events.ads), size=batch) for _ in range(requests + 2)]
        steps: dict[str, Callable[[], Any]] = {}
        for mixer, model in self.models.items():
            steps[f"{mixer}/whole"] = _each(drawn, partial(self._whole, model))
            steps[f"{mixer}/stored"] = _each(drawn, self._stored(model))
        with torch.inference_mode():
            in_turns(steps, 2)  # warm-up
            times = in_turns(steps, requests)
        return {
            mixer: {kind: _percentiles(times[f"{mixer}/{kind}"]) for kind in ("whole", "stored")}
            for mixer in self.models
        }

    def _whole(self, model: FastformerForConversion, rows: np.ndarray) -> Tensor:
        """The request when all texts are to be encoded."""
        return model(**self.batch(rows)).logits.sigmoid()

    @torch.inference_mode()
    def _stored(self, model: FastformerForConversion) -> Callable[[np.ndarray], Tensor]:
        """The request when all item vectors are there."""
        every = self.batch(np.arange(len(self.events.ads)))
        texts = np.unique(np.concatenate([self.events.behaviors.values, self.events.ads]))
        table = torch.zeros(len(settled(self.events.tokens).lengths), model.config.hidden_size)
        table[torch.from_numpy(texts)] = model.encode_texts(every["input_ids"], every["attention_mask"])

        def request(rows: np.ndarray) -> Tensor:
            numbers, mask = self.events.behaviors.take(rows).padded()
            behaviors = nn.functional.embedding(torch.from_numpy(numbers.astype(np.int64)), table)
            users = model.encode_users(behaviors, torch.from_numpy(mask))
            return model.score(users, table[torch.from_numpy(self.events.ads[rows].astype(np.int64))]).sigmoid()

        return request

    def training_step(self, rows: int, repetitions: int) -> dict[str, dict[str, Any]]:
        """Seconds and peak memory of forward and backward through the first `rows` events, by method."""
        batch = self.batch(np.arange(rows))

        def step(model: FastformerForConversion) -> None:
            model.train().zero_grad(set_to_none=True)
            model(**batch).loss.backward()

        steps = {mixer: partial(step, model) for mixer, model in self.models.items()}
        found = {}
        for mixer, one in steps.items():  # also the warm-up
            found[mixer] = {"peak_memory_mb": round(peak_bytes(one) / 1e6, 1)}
        for mixer, times in in_turns(steps, repetitions).items():
            found[mixer] |= timing(times)
        for model in self.models.values():
            model.eval().zero_grad(set_to_none=True)
        return found


def measure_latency(
    events: Iterable[Event], settings: ConversionSettings, mixers: Sequence[str], requests: int
) -> dict[str, Any]:
    """Latency of real events at both batch sizes: batch -> method -> `whole` and `stored` -> p50 and p99 or maximum."""
    with TemporaryDirectory() as folder, measuring():
        work = Workload(events, settings, mixers, Path(folder))
        return {str(batch): work.latency(batch, requests) for batch in BATCHES}


def measure_lists(
    length: int, settings: ConversionSettings, mixers: Sequence[str], *, behaviors: int, requests: int, steps: int
) -> dict[str, Any]:
    """A training step and the latency of one event when every list has `length` behaviours, simulated.

    A step has about `behaviors` behaviours in all, at least one list; texts repeat, so the user encoder is most of it.
    """
    rows = max(1, behaviors // length)
    simulated = simulate(max(8, rows), behaviors=length, shortest=length)
    events = (event_of("", record, Columns(), labelled=True) for record in simulated)
    with TemporaryDirectory() as folder, measuring():
        work = Workload(events, settings.with_options(max_behaviors=length), mixers, Path(folder))
        return {"rows": rows, "step": work.training_step(rows, steps), "latency": work.latency(1, requests)}


def _encode(
    events: Iterable[Event], settings: ConversionSettings, folder: Path
) -> tuple[Events, PreTrainedTokenizerBase]:
    with EventsWriter(folder, Columns(), settings.max_behaviors) as writer:
        collect(events, writer)
        found = writer.finish()
    tokenizer = train_tokenizer(
        settings.tokenizer, found.texts, vocab_size=settings.vocab_size, min_frequency=settings.min_frequency
    )
    with EncodedTextsWriter(folder / "texts.tokens") as texts:
        for ids in encode_batch(tokenizer, found.texts, settings.max_length)[0]:
            texts.add(ids)
        written = texts.finish(None)
    found.tokens = Ragged(written.tokens, written.offsets)
    return found, tokenizer


def _each(requests: Sequence[np.ndarray], function: Callable[[np.ndarray], Any]) -> Callable[[], Any]:
    """A step that does the next request at every call."""
    waiting = itertools.cycle(requests)
    return lambda: function(next(waiting))


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median and p99 in milliseconds; of too few for a p99 the maximum."""
    share, tail = (99, "p99_ms") if len(seconds) >= ENOUGH_FOR_P99 else (100, "max_ms")
    middle, slow = np.percentile(np.array(seconds) * 1000, [50, share])
    return {"p50_ms": float(f"{middle:.4g}"), tail: float(f"{slow:.4g}")}
