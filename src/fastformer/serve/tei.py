"""The routes of Hugging Face's text-embeddings-inference: /predict, /embed, /rerank, /tokenize and /info.

A list in is a list out, in order. Three things differ: `["a", "b"]` are two texts, not a pair, since no model here
reads pairs; where an answer is no table of labels, it is what `fastformer predict` writes; and texts that are too long
are cut at their end only.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from fastformer.data.spans import place_tokens
from fastformer.serve.bodies import CleanBody
from fastformer.serve.failures import invalid, too_large
from fastformer.serve.model import Example, ServedModel, unit
from fastformer.serve.shortcut import JSON, Direct
from fastformer.version import __version__

_LABELS = "probabilities"  # of an answer, where it chooses among labels
MOST_TOKENS = 50_000  # that /tokenize tells of: each is an object of the answer

OneOrMany = Annotated[
    str | dict[str, Any] | list[str | dict[str, Any] | list[str]],
    Field(description="A text, or a list of them; for a model that reads more than a text, objects."),
]


class _Texts(CleanBody):
    """What requests with texts to read share."""

    truncate: bool | None = Field(
        None, description="Cut texts that are longer than the model reads, instead of refusing them. Default: `/info`."
    )
    truncation_direction: Literal["right", "Right"] | None = Field(None, description="Texts are cut at their end.")


class Predict(_Texts):
    """What to predict."""

    inputs: OneOrMany
    raw_scores: bool = Field(False, description="Not offered: answers are probabilities.")
    full: bool = Field(False, description="The whole answer, as `fastformer predict` writes it, not labels alone.")
    parameters: dict[str, Any] | None = Field(
        None, description="`top_k`: only so many labels; and the options of `fastformer predict`, such as `threshold`."
    )


class Embed(_Texts):
    """What to make vectors of."""

    inputs: OneOrMany
    normalize: bool = Field(True, description="Make every vector as long as 1.")


class Rerank(_Texts):
    """A query, and texts to put in order by how near they are to it."""

    query: str
    texts: list[str]
    raw_scores: bool = Field(False, description="Makes no difference: scores are cosines, from -1 to 1.")
    return_text: bool = Field(False, description="Give the texts along.")


class Tokenize(CleanBody):
    """Texts to split."""

    inputs: str | list[str]
    add_special_tokens: bool = True


def as_list(inputs: Any) -> tuple[list[Example], bool]:
    """Inputs as a list, and whether they were one. A list of one text is how TEI writes a text of a batch."""
    if not isinstance(inputs, list):
        return [inputs], False
    found: list[Example] = []
    for number, one in enumerate(inputs, 1):
        if isinstance(one, list):
            if len(one) != 1:
                raise invalid(f"input {number} is a list of {len(one)} texts; no model here reads pairs: give one text")
            one = one[0]
        found.append(one)
    return found, True


def ranked(answer: dict[str, Any], top: int | None, least: float | None) -> dict[str, float] | None:
    """Labels with their probabilities, the likeliest first: `top`, none less probable than `least`.

    None where the answer has no labels.
    """
    if not isinstance(answer.get(_LABELS), dict):
        return None
    found = sorted(answer[_LABELS].items(), key=lambda item: -item[1])[:top]
    return {name: chance for name, chance in found if least is None or chance >= least}


async def predict(model: ServedModel, body: Predict) -> tuple[list[Any], bool]:
    """An answer per input, and whether a list was asked for."""
    inputs, many = as_list(body.inputs)
    parameters = {name: value for name, value in (body.parameters or {}).items() if value is not None}
    top = parameters.pop("top_k", None)
    if body.raw_scores or parameters.pop("function_to_apply", None) == "none":
        raise invalid("raw scores are not offered: answers are probabilities; leave `raw_scores` out")
    if top is not None and (not isinstance(top, int) or top < 1):
        raise invalid(f"`top_k` is {top!r}; give 1 or more")
    if top is not None and not isinstance(model.shown.get(_LABELS), dict):
        raise invalid(f"`top_k`: {model.name}, a run of {model.task}, does not answer with labels; leave it out")
    answers = await model.predict(inputs, parameters, body.truncate)
    if body.full:
        return [answer if top is None else {**answer, _LABELS: ranked(answer, top, None)} for answer in answers], many
    least = parameters.get("threshold")
    return [_as_labels(answer, ranked(answer, top, least)) for answer in answers], many


def _as_labels(answer: dict[str, Any], labels: dict[str, float] | None) -> Any:
    return answer if labels is None else [{"label": name, "score": chance} for name, chance in labels.items()]


async def predicted(model: ServedModel, body: Predict) -> Any:
    """The answer to a request: a list where a list was asked for."""
    answers, many = await predict(model, body)
    return answers if many else answers[0]


async def embedded(model: ServedModel, body: Embed) -> list[list[float]]:
    """The vectors that a request asks for."""
    return (await embed(model, body.inputs, body.truncate, body.normalize)).tolist()


async def embed(model: ServedModel, inputs: Any, truncate: bool | None, normalize: bool) -> np.ndarray:
    """The vectors of some inputs (inputs, width)."""
    vectors = np.stack(await model.vectors(as_list(inputs)[0], truncate)).astype(np.float32)
    return unit(vectors) if normalize else vectors


def tokens(model: ServedModel, texts: Sequence[str], special: bool) -> list[list[dict[str, Any]]]:
    """The tokens of each text and where they stand in it."""
    tokenizer, found, count = model.predictor.tokenizer, [], 0
    marks = set(tokenizer.all_special_ids)
    for text in texts:
        placed = place_tokens(tokenizer, text, MOST_TOKENS)
        count += len(placed.ids)
        if placed.cut or count > MOST_TOKENS:
            raise too_large(f"there are more than {MOST_TOKENS:,} tokens, which are the most; send less at a time")
        found.append(
            [
                {"id": int(token), "text": name, "special": bool(mark), "start": start, "stop": stop}
                for token, name, (start, stop) in zip(
                    placed.ids.tolist(), placed.names, placed.spans.tolist(), strict=True
                )
                if not (mark := token in marks and start == stop) or special
            ]
        )
    return found


async def tokenized(model: ServedModel, body: Tokenize) -> bytes:
    """The tokens that a request asks for, as JSON, which is written in the model's turn: there may be many."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    model.check(texts)

    def run(_: list[Any]) -> list[bytes]:
        return [JSON.encode(tokens(model, texts, body.add_special_tokens)).encode()]

    [content] = await model.submit(None, run, [texts])
    return content


def about(model: ServedModel) -> dict[str, Any]:
    """What /info says of a model: TEI's fields, and ours behind them."""
    predictor, limits = model.predictor, model.limits
    kind: dict[str, Any] = {}
    if model.has_vectors:
        kind["embedding"] = {"pooling": "model"}
    if labels := model.shown.get(_LABELS):
        kind["classifier"] = {
            "id2label": {str(number): name for number, name in enumerate(labels)},
            "label2id": {name: number for number, name in enumerate(labels)},
        }
    return {
        "model_id": model.name,
        "model_sha": None,
        "model_dtype": "float32" if model.dtype == "auto" else model.dtype,
        "model_type": kind,
        "max_concurrent_requests": limits.queue,
        "max_input_length": model.longest,
        "max_batch_tokens": limits.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.inputs,
        "auto_truncate": limits.truncate,
        "tokenization_workers": 1,
        "version": __version__,
        "task": model.task,
        "takes_texts": model.takes_texts,
        "sample": predictor.sample(),
        "fields": {name: _kind(value) for name, value in model.shown.items()},
        "has_vectors": model.has_vectors,
        "services": {
            one.name: {"help": one.help, "panel": one.panel, "streams": one.streams, "example": dict(one.example)}
            for one in model.services.values()
        },
    }


def _kind(value: Any) -> str:
    """What a field of an answer holds."""
    if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
        return "vector"
    kinds = {str: "text", int: "number", float: "number", dict: "table", list: "list"}
    return kinds.get(type(value), "other")


def direct(model: ServedModel) -> list[Direct]:
    """Those of the routes that are asked most."""
    found = [Direct("/predict", Predict, partial(predicted, model))]
    if model.has_vectors:
        found.append(Direct("/embed", Embed, partial(embedded, model)))
    return found


def routes(model: ServedModel) -> APIRouter:
    """The routes of one model."""
    router = APIRouter()
    sample = model.predictor.sample()
    one, two = {"inputs": sample}, {"inputs": [sample, sample]}
    examples = {"one": {"value": one}, "a list": {"value": two}}

    @router.post("/predict", summary="Predict", response_model=None)
    async def predict_route(body: Annotated[Predict, Body(openapi_examples=examples)]) -> JSONResponse:
        """The answer to each input. Labels come with their probabilities, the likeliest first.

        A single input has a single answer; a list of inputs has a list of answers, in order.
        """
        return JSONResponse(await predicted(model, body))  # FastAPI would look at every number of it

    if model.has_vectors:
        of_text = sample if isinstance(sample, str) else "A text."

        @router.post("/embed", summary="Vectors of texts", response_model=None)
        async def embed_route(
            body: Annotated[Embed, Body(openapi_examples={"one": {"value": {"inputs": of_text}}})],
        ) -> JSONResponse:
            """A list of vectors, one per input, in order."""
            return JSONResponse(await embedded(model, body))

        query = {"query": of_text, "texts": [of_text, "Something else."]}

        @router.post("/rerank", summary="Texts by how near they are to a query", response_model=None)
        async def rerank_route(
            body: Annotated[Rerank, Body(openapi_examples={"one": {"value": query}})],
        ) -> list[dict[str, Any]]:
            """The texts' numbers, the nearest to the query first: the cosine of the angle between their vectors.

            A text of more than 100 words is as near as the nearest of its passages of so many words. That `passage`
            comes along where the text does.
            """
            found = enumerate(await model.nearest_passages(body.query, body.texts, body.truncate))
            return [
                {"index": index, "score": score}
                | ({"text": body.texts[index], "passage": passage} if body.return_text else {})
                for index, (score, passage) in sorted(found, key=lambda one: -one[1][0])
            ]

    @router.post("/tokenize", summary="Tokens of texts", response_model=None)
    async def tokenize_route(body: Tokenize) -> Response:
        """The tokens of each text: number, spelling, and the characters `text[start:stop]` that they stand for."""
        return Response(await tokenized(model, body), media_type="application/json")

    @router.get("/info", summary="What is served", response_model=None)
    async def info_route() -> dict[str, Any]:
        """What the model is, what it can be asked for, and the limits."""
        return about(model)

    return router
