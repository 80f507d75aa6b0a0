"""OpenAI's POST /v1/embeddings, and GET /v1/models."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body
from fastapi.responses import JSONResponse
from pydantic import Field

from fastformer.serve.bodies import CleanBody
from fastformer.serve.failures import Failure, invalid
from fastformer.serve.model import ServedModel, unit


class Embeddings(CleanBody):
    """What OpenAI's clients send."""

    input: str | list[str] = Field(description="A text, or a list of them; numbers of tokens are not taken.")
    model: str = Field(description="The name of a model, as /v1/models lists them.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(
        None, description="As many as the model has, or left out; an encoder's may be fewer."
    )
    user: str | None = None


def find(models: Mapping[str, ServedModel], name: str) -> ServedModel:
    """The model of a name."""
    if name not in models:
        raise Failure(404, "Validation", f"there is no model {name!r}; there is: {', '.join(models)}")
    return models[name]


def routes(models: Mapping[str, ServedModel]) -> APIRouter:
    """The routes for all models."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    example = {"one": {"value": {"model": next(iter(models)), "input": "A text."}}}

    @router.post("/embeddings", summary="Vectors of texts, as OpenAI has them", response_model=None)
    async def embeddings_route(body: Annotated[Embeddings, Body(openapi_examples=example)]) -> JSONResponse:
        """Vectors of length 1, one per text, in order."""
        model = find(models, body.model)
        if not model.has_vectors:
            raise invalid(f"{model.name} has no vectors: it is a run of {model.task}")
        found = await model.counted_vectors([body.input] if isinstance(body.input, str) else body.input)
        vectors = unit(np.stack([vector for vector, _ in found]).astype(np.float32))
        if body.dimensions not in (None, whole := vectors.shape[1]):
            if not (model.predictor.may_be_cut and 1 <= body.dimensions < whole):
                raise invalid(f"`dimensions` is {body.dimensions}; the vectors of {model.name} have {whole}")
            vectors = unit(vectors[:, : body.dimensions])
        if body.encoding_format == "base64":
            written: list[Any] = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        else:
            written = vectors.tolist()
        count = sum(tokens for _, tokens in found)
        content = {
            "object": "list",
            "model": model.name,
            "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(written)],
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
        return JSONResponse(content)

    @router.get("/models", summary="The models that are served", response_model=None)
    async def models_route() -> dict[str, Any]:
        """Their names."""
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "fastformer"} for name in models]
        return {"object": "list", "data": data}

    return router
