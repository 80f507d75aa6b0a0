"""A run that is served: its predictor, the queue before it, and what it can be asked for."""

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastformer.data.passages import best_passages, passages_of
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError
from fastformer.runs.folder import open_run
from fastformer.serve.batching import Batcher
from fastformer.serve.failures import Failure, invalid, too_large, too_long
from fastformer.serve.limits import Limits, tokens_of
from fastformer.serve.metrics import Metrics
from fastformer.tasks.base import Declaration, Predictor, Service, get_declaration
from fastformer.tasks.verbs import load, options_for

_LOG = logging.getLogger("fastformer.serve")
_MOST_TOKENS = 18  # that one character may become, after a tokenizer's normalization
_TOO_LONG = object()  # in place of an answer
Example = str | dict[str, Any]
Run = Callable[[Predictor, list[Any]], Sequence[Any]]


class Gone(Exception):
    """Nobody waits for the answer any more."""


class ServedModel:
    """A run folder under a name. `predictor` may be replaced while it answers (`reload`)."""

    def __init__(
        self,
        name: str,
        folder: Path,
        keep: Path,
        limits: Limits,
        metrics: Metrics,
        device: str = "auto",
        dtype: str = "auto",
    ):
        self.name, self.folder, self.keep, self.limits = name, folder, keep, limits
        self.device, self.dtype = device, dtype
        self._loading = threading.Lock()
        self.predictor: Predictor
        self.services: dict[str, Service]
        self.shown: dict[str, Any]  # the answer to its sample
        self.offers: set[str] | None = None  # routes, which are made once
        self._take(self._load())
        self.batcher = Batcher(name, limits, metrics)

    def _load(self) -> Predictor:
        return load(open_run(self.folder), device=self.device, dtype=self.dtype)

    def _take(self, predictor: Predictor) -> None:
        services = {one.name: one for one in predictor.services(self.keep)}
        offers = {*services, "embed"} if _has_vectors(predictor) else {*services}
        if changed := sorted(offers ^ (offers if self.offers is None else self.offers)):
            raise UserError(f"{self.folder}: has other routes now ({', '.join(changed)}); start the server anew")
        sample = predictor.sample()
        example = predictor.example(sample) if isinstance(sample, str) else sample
        [shown] = predictor.predict([example])  # a run that cannot answer shows it now; the first client waits less
        self.predictor, self.services, self.shown, self.offers = predictor, services, shown, offers
        self._usual = options_for(self.task, "predicting", {})

    def reload(self) -> None:
        """Read the run folder again: what is asked from now on, the new model answers. A broken one changes nothing."""
        with self._loading:
            predictor = self._load()
            task = predictor.trained.record["task"]
            if task != self.task:
                raise UserError(f"{self.folder}: is a run of {task} now, not of {self.task}; start the server anew")
            self._take(predictor)

    def close(self) -> None:
        """Take on nothing new."""
        self.batcher.close()

    @property
    def task(self) -> str:
        """What it was trained for."""
        return self.predictor.trained.record["task"]

    @property
    def declaration(self) -> Declaration:
        """What its task says of itself."""
        return get_declaration(self.task)

    @property
    def has_vectors(self) -> bool:
        """Whether examples have vectors."""
        return _has_vectors(self.predictor)

    @property
    def takes_texts(self) -> bool:
        """Whether a text is all that an example needs."""
        return isinstance(self.predictor.sample(), str)

    @property
    def longest(self) -> int:
        """Tokens after which texts are cut."""
        return int(self.predictor.tokenizer.model_max_length)

    async def predict(
        self, inputs: Sequence[Example], parameters: Mapping[str, Any] | None = None, truncate: bool | None = None
    ) -> list[dict[str, Any]]:
        """An answer per input, as `fastformer predict` gives them."""
        self.check(inputs)
        try:
            options = options_for(self.task, "predicting", parameters) if parameters else self._usual
            examples = [self.predictor.example(one) if isinstance(one, str) else one for one in inputs]
        except UserError as error:
            raise invalid(str(error)) from None

        def run(predictor: Predictor, examples: list[Any]) -> list[dict[str, Any]]:
            return list(predictor.predict(examples, options))

        return await self._answer(inputs, ("predict", options), run, examples, truncate)

    async def vectors(self, inputs: Sequence[Example], truncate: bool | None = None) -> list[np.ndarray]:
        """A vector per input."""
        self.check(inputs)
        return await self._vectors(inputs, truncate)

    async def counted_vectors(self, texts: Sequence[str]) -> list[tuple[np.ndarray, int]]:
        """A vector per text, and how many tokens were read for it."""
        self.check(texts)

        def run(predictor: Predictor, texts: list[str]) -> list[tuple[np.ndarray, int]]:
            counts = _count(predictor, texts, predictor.tokenizer.model_max_length)
            return list(zip(predictor.vectors(texts), counts, strict=True))

        return await self._answer(texts, "counted vectors", run, list(texts))

    async def nearest_passages(
        self, query: str, texts: Sequence[str], truncate: bool | None = None
    ) -> list[tuple[float, str]]:
        """Of each text the passage nearest to a query, after the cosine of the angle between their vectors."""
        self.check([query, *texts])
        passages = await asyncio.to_thread(lambda: [passages_of(text) for text in texts])
        read = [query, *(passage for some in passages for passage in some)]
        found = unit(np.stack(await self._vectors(read, truncate)).astype(np.float64))
        return list(best_passages(passages, found[1:] @ found[0]))

    async def _vectors(self, inputs: Sequence[Example], truncate: bool | None) -> list[np.ndarray]:
        def run(predictor: Predictor, examples: list[Any]) -> list[np.ndarray]:
            return list(predictor.vectors(examples))

        return await self._answer(inputs, "vectors", run, list(inputs), truncate)

    async def ask(self, name: str, request: Any, tell: Callable[[Any], None] | None = None) -> Any:
        """The answer of a service."""

        def run(_: list[Any]) -> list[Any]:
            service = self.services[name]
            return [service.answer(request, tell) if service.streams else service.answer(request)]

        [answer] = await self.submit(None, run, [request])
        return answer

    async def show(self, name: str, request: Any) -> str:
        """The answer of a service as a page."""
        [page] = await self.submit(None, lambda _: [self.services[name].page(request)], [request])  # type: ignore[misc]
        return page

    async def _answer(
        self, inputs: Sequence[Example], kind: Hashable, run: Run, examples: list[Any], truncate: bool | None = None
    ) -> list[Any]:
        """What `run` makes of examples, if none has a text that would be cut, or `truncate` allows it.

        Objects come from outside: one that a task trips over is refused.
        """
        cut = self.limits.truncate if truncate is None else truncate

        def checked(examples: list[Any]) -> Sequence[Any]:
            predictor = self.predictor  # another may come meanwhile
            texts = predictor.texts(examples)
            long = set() if cut else _longer(predictor, texts)
            if not long:
                return run(predictor, examples)
            answers: list[Any] = [_TOO_LONG] * len(examples)
            read = [place for place in range(len(examples)) if place not in long]
            if read:  # the others of a batch
                for place, answer in zip(read, run(predictor, [examples[place] for place in read]), strict=True):
                    answers[place] = answer
            return answers

        try:
            answers = await self.submit((kind, cut, columns_of(inputs)), checked, examples)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            if all(isinstance(one, str) for one in inputs):
                raise
            _LOG.warning("an object was refused", exc_info=error)
            sample = self.predictor.sample()
            like = f"; give objects such as {sample}" if isinstance(sample, dict) else ""
            raise invalid(f"the inputs cannot be read ({type(error).__name__}: {error}){like}") from None
        for number, answer in enumerate(answers, 1):
            if answer is _TOO_LONG:
                raise too_long(
                    f"input {number} has a text of more than {self.longest:,} tokens, which are all that the model "
                    'reads; shorten it, or send "truncate": true'
                )
        return answers

    async def submit(self, kind: Hashable, run: Callable[[list[Any]], Sequence[Any]], examples: list[Any]) -> Any:
        """What `run` makes of examples, in the model's turn."""
        tokens = sum(map(tokens_of, examples))
        try:
            return await self.batcher.submit(kind, run, examples, tokens)
        except UserError as error:
            raise invalid(str(error)) from None
        except (Failure, Gone):
            raise
        except MemoryError:
            raise Failure(507, "Backend", "there is not enough memory for this request; send less at a time") from None

    def check(self, inputs: Sequence[Example]) -> None:
        """Refuse what is too much, or nothing."""
        if not inputs:
            raise invalid("`inputs` is empty; give at least one")
        if len(inputs) > self.limits.inputs:
            raise too_large(f"{len(inputs):,} inputs in one request; {self.limits.inputs:,} are the most")
        for number, one in enumerate(inputs, 1):
            if (length := len(one if isinstance(one, str) else str(one))) > self.limits.text:
                raise too_large(f"input {number} has {length:,} characters; {self.limits.text:,} are the most")


def _has_vectors(predictor: Predictor) -> bool:
    return type(predictor).vectors is not Predictor.vectors


def _count(predictor: Predictor, texts: Sequence[str], most: int) -> list[int]:
    """Tokens of each text, as far as `most`."""
    return [len(ids) for ids in encode_batch(predictor.tokenizer, texts, most)[0]]


def _longer(predictor: Predictor, texts: Sequence[Sequence[str]]) -> set[int]:
    """The places of examples with a text that would be cut."""
    longest = predictor.tokenizer.model_max_length
    doubtful = list({text for some in texts for text in some if _MOST_TOKENS * (1 + len(text)) > longest})
    counts = _count(predictor, doubtful, longest + 1)
    long = {text for text, count in zip(doubtful, counts, strict=True) if count > longest}
    return {place for place, some in enumerate(texts) if not long.isdisjoint(some)}


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1; one of zeros stays what it is."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def columns_of(inputs: Sequence[Example]) -> Hashable:
    """Whose requests may join: texts with texts, and dictionaries with those of the same columns.

    The first of several dictionaries decides which columns are read; so that company changes nothing, it must not be
    somebody else's.
    """
    if all(isinstance(one, str) for one in inputs):
        return str
    columns = {tuple(one) if isinstance(one, dict) else None for one in inputs}
    return columns.pop() if len(columns) == 1 else object()
