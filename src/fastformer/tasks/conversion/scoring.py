"""Probabilities from a trained run: texts become vectors once and are kept, then lists of vectors become users."""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import pad_batch, token_budget_batches
from fastformer.data.standard_input import some_at_a_time
from fastformer.data.tokenizers import encode_batch
from fastformer.engine.fit import Trained
from fastformer.engine.inference import BATCH_TOKENS, cut_note
from fastformer.engine.settings import settled
from fastformer.errors import UserError
from fastformer.modeling import FastformerForConversion
from fastformer.modeling.conversion import Side
from fastformer.runs.folder import Run
from fastformer.surroundings.machine import tune
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.base import Predictor, Service
from fastformer.tasks.conversion.declaration import ConversionSettings
from fastformer.tasks.conversion.events import Event, EventSource
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.metrics import plot_reliability, scores

CHUNK_EVENTS = 2048
MAX_ITEMS = 200_000


class ItemVectors:
    """Text -> vector of the text encoder. Keeps the `limit` texts that were asked for last, each encoded once.

    Threads may ask at once: the lock is held while looking up and keeping, not while encoding, so that two that miss
    the same text may both encode it.
    """

    def __init__(self, model: FastformerForConversion, tokenizer: PreTrainedTokenizerBase, limit: int = MAX_ITEMS):
        self.model, self.tokenizer, self.limit = model, tokenizer, limit
        self.kept: OrderedDict[str, Tensor] = OrderedDict()
        self.encoded = self.cut = 0  # texts that went through the encoder; those longer than its maximum
        self.lock = threading.RLock()

    def __call__(self, texts: Iterable[str]) -> dict[str, Tensor]:
        """The vector (width,) of every distinct text."""
        found, missing = {}, []
        with self.lock:
            for text in dict.fromkeys(texts):
                if text in self.kept:
                    self.kept.move_to_end(text)
                    found[text] = self.kept[text]
                else:
                    missing.append(text)
        return found | self._encode(missing) if missing else found

    def keep(self, text: str, vector: Tensor) -> None:
        """Remember a vector; the text that nobody asked for the longest gives way."""
        with self.lock:
            self.kept[text] = vector
            self.kept.move_to_end(text)
            if len(self.kept) > self.limit:
                self.kept.popitem(last=False)

    @torch.inference_mode()
    def _encode(self, texts: list[str]) -> dict[str, Tensor]:
        ids, cut = encode_batch(self.tokenizer, texts, self.tokenizer.model_max_length)
        vectors: dict[str, Tensor] = {}
        for batch in token_budget_batches(np.array([len(one) for one in ids], dtype=np.int64), BATCH_TOKENS):
            inputs = pad_batch([ids[index] for index in batch], self.tokenizer.pad_token_id)
            rows = self.model.encode_texts(**{name: one.to(self.model.device) for name, one in inputs.items()})
            vectors |= {texts[index]: row.clone() for index, row in zip(batch, rows, strict=True)}
        with self.lock:
            self.encoded, self.cut = self.encoded + len(texts), self.cut + cut
            for text in texts:
                self.keep(text, vectors[text])
        return vectors


class EventPredictor(Predictor[ConversionSettings]):
    """A trained model that judges events, as `read` gives them or as dictionaries."""

    def __init__(self, trained: Trained[ConversionSettings], max_items: int = MAX_ITEMS):
        super().__init__(trained)
        tune()
        self.model.eval()
        self.features = SideFeatures(**trained.record["features"])
        self.items = ItemVectors(self.model, self.tokenizer, max_items)

    @classmethod
    def of(cls, run: Run, max_items: int = MAX_ITEMS) -> "EventPredictor":
        """Load a run folder."""
        if run.task != "conversion":
            raise UserError(f"{run.folder}: a run of {run.task}, not of conversion; give a run of `train conversion`")
        return cls(Trained.of(run, FastformerForConversion), max_items)

    def predict(self, examples: Iterable[Event | dict[str, Any]], options: Any = None) -> Iterator[dict[str, float]]:
        """`{"probability": 0.25}`: how likely a conversion is. Labels are not read."""
        for chance in self.probabilities(self._events(examples)):
            yield {"probability": round(chance, 6)}

    def texts(self, examples: Sequence[Event | dict[str, Any]]) -> list[list[str]]:
        """The behaviours of each event that are read, and the ad."""
        return [[*self._recent(event), event.ad] for event in self._events(examples)]

    def sample(self) -> dict[str, Any]:
        """An event, with its side features unknown."""
        side = dict.fromkeys((*self.features.columns.numeric, *self.features.columns.categorical))
        did = ["searched for hiking boots", "read about a walk in the hills"]
        return {"behaviors": did, "ad": "Boots for every weather", **side}

    def services(self, keep: Path) -> Sequence[Service]:
        """`score`, and `behaviors` to note what users do."""
        from fastformer.tasks.conversion.serving import conversion_services

        return conversion_services(self, keep)

    def vectors(self, examples: Iterable[Event | dict[str, Any]]) -> Iterator[np.ndarray]:
        """The user vector of each event: what its behaviours say, whatever the ad."""
        for chunk in some_at_a_time(self._events(examples), CHUNK_EVENTS):
            vectors = self.items(text for event in chunk for text in self._recent(event))
            yield from self._in_batches(chunk, vectors, self._users).float().cpu().numpy()

    def evaluate(self, examples: Iterable[Event | dict[str, Any]], options: Any = None) -> dict[str, float]:
        """AUC, log loss and calibration error; `plot` is the file for a plot of the calibration."""
        labels: list[int] = []

        def noting_labels() -> Iterator[Event]:
            for event in self._events(examples, labelled=True):
                labels.append(settled(event.label))
                yield event

        found = []
        with progress_bar("Evaluating", show=self.show) as advance:
            for chance in self.probabilities(noting_labels()):
                found.append(chance)
                advance(1)
        chances, converted = np.array(found), np.array(labels)
        if options is not None and options.plot is not None:
            title = f"Reliability of {Path(self.trained.name).resolve().name}"
            plot_reliability(chances, converted, options.plot, title)
        return {"rows": len(labels), **scores(chances, converted)}

    def notes(self) -> Iterator[str]:
        """How many texts were cut since this was last asked."""
        cut, self.items.cut = self.items.cut, 0
        if cut:
            yield cut_note(cut, self.tokenizer.model_max_length)

    def probabilities(self, events: Iterable[Event]) -> Iterator[float]:
        """The probability of a conversion, event by event; a few thousand are in memory."""
        for chunk in some_at_a_time(events, CHUNK_EVENTS):
            vectors = self.items(text for event in chunk for text in (*self._recent(event), event.ad))
            yield from self._in_batches(chunk, vectors, self._score).tolist()

    def _events(self, examples: Iterable[Event | dict[str, Any]], labelled: bool = False) -> Iterator[Event]:
        """The examples, those that are dictionaries checked as a file's rows are."""
        waiting = iter(examples)
        for first in waiting:
            given: Iterator[Any] = itertools.chain([first], waiting)  # all are of one kind
            return given if isinstance(first, Event) else iter(EventSource(given, self.features.columns, labelled))
        return iter(())

    def _recent(self, event: Event) -> list[str]:
        return event.behaviors[-self.model.config.max_behaviors :]

    @torch.inference_mode()
    def _in_batches(self, events: Sequence[Event], vectors: dict[str, Tensor], function) -> Tensor:
        """`function(events, vectors)` of all events, those with similarly many behaviours together."""
        lengths = np.array([len(self._recent(event)) for event in events])
        batches = token_budget_batches(lengths + 1, BATCH_TOKENS)
        found = torch.cat([function([events[row] for row in batch], vectors) for batch in batches])
        return found[torch.from_numpy(np.concatenate(batches).argsort())]

    def _users(self, events: Sequence[Event], vectors: dict[str, Tensor]) -> Tensor:
        lists = [
            torch.stack([vectors[text] for text in recent]) if (recent := self._recent(event)) else None
            for event in events
        ]
        return encode_lists(self.model, lists)

    def _score(self, events: Sequence[Event], vectors: dict[str, Tensor]) -> Tensor:
        ads = torch.stack([vectors[event.ad] for event in events])
        side = Side(**self.features.of_events(events))
        return self.model.score(self._users(events, vectors), ads, side).double().sigmoid()


def encode_lists(model: FastformerForConversion, lists: Sequence[Tensor | None]) -> Tensor:
    """User vectors of lists of behaviour vectors, each (behaviours, width); None for a user without any."""
    longest = max([1, *(len(one) for one in lists if one is not None)])
    vectors = torch.zeros(len(lists), longest, model.config.hidden_size, device=model.device, dtype=model.dtype)
    mask = torch.zeros(len(lists), longest, device=model.device, dtype=torch.long)
    for row, one in enumerate(lists):
        if one is not None:
            vectors[row, : len(one)] = one
            mask[row, : len(one)] = 1
    return model.encode_users(vectors, mask)
