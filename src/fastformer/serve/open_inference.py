"""The Open Inference Protocol, version 2, over HTTP: tensors in, tensors out, for KServe, Triton's clients and others.

An input is one of two: `text`, a text per place, or `json`, an example per place written as JSON. A field of the
answers becomes an output: text as BYTES, a number as FP64, a table of numbers as FP64 with the names of its columns
beside it, and anything else as JSON in BYTES. The output `vector` is given to clients that ask for it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from fastformer.serve.bodies import CleanBody, with_valid_unicode
from fastformer.serve.failures import invalid
from fastformer.serve.model import Example, ServedModel
from fastformer.serve.openai import find
from fastformer.version import __version__

_TEXT, _JSON, _VECTOR = "text", "json", "vector"
_MOST_DIMENSIONS = 8  # few enough to multiply while other requests wait


class InputTensor(BaseModel):
    """An input."""

    model_config = ConfigDict(extra="ignore")
    name: str
    shape: list[int]
    datatype: str
    data: list[Any]
    parameters: dict[str, Any] | None = None


class OutputName(BaseModel):
    """An output that is asked for."""

    model_config = ConfigDict(extra="ignore")
    name: str
    parameters: dict[str, Any] | None = None


class Infer(CleanBody):
    """Tensors to answer."""

    id: str | None = None
    inputs: list[InputTensor]
    outputs: list[OutputName] | None = None
    parameters: dict[str, Any] | None = Field(None, description="Options of `fastformer predict`; `truncate`.")


def examples_of(inputs: Sequence[InputTensor]) -> list[Example]:
    """The examples in the one input."""
    if len(inputs) != 1 or inputs[0].name not in (_TEXT, _JSON) or inputs[0].datatype != "BYTES":
        raise invalid(f"give one input, `{_TEXT}` or `{_JSON}`, of datatype BYTES")
    [tensor] = inputs
    if len(tensor.shape) > _MOST_DIMENSIONS or min(tensor.shape, default=0) < 0:
        raise invalid(f"the shape has {len(tensor.shape):,} sizes; give at most {_MOST_DIMENSIONS}, none negative")
    if math.prod(tensor.shape) != len(tensor.data):
        raise invalid(f"the shape {tensor.shape!s:.80} does not go with {len(tensor.data):,} values")
    if not all(isinstance(one, str) for one in tensor.data):
        raise invalid(f"every value of `{tensor.name}` must be a string")
    if tensor.name == _TEXT:
        return tensor.data
    try:
        found = [with_valid_unicode(json.loads(one)) for one in tensor.data]
    except (ValueError, RecursionError) as error:
        raise invalid(f"`{_JSON}`: {error}") from None
    if not all(isinstance(one, dict | str) for one in found):
        raise invalid(f"every value of `{_JSON}` must be an object or a string")
    return found


def outputs_of(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields of answers as tensors; an answer that lacks one has null there."""
    names = dict.fromkeys(name for answer in answers for name in answer)
    return [_output(name, [answer.get(name) for answer in answers]) for name in names]


def _output(name: str, values: list[Any]) -> dict[str, Any]:
    count = len(values)
    if all(isinstance(value, str) for value in values):
        return {"name": name, "datatype": "BYTES", "shape": [count], "data": values}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return {"name": name, "datatype": "FP64", "shape": [count], "data": [float(value) for value in values]}
    if all(isinstance(value, dict) and value and value.keys() == values[0].keys() for value in values):
        rows = [list(value.values()) for value in values]
        if all(isinstance(number, float | int) for row in rows for number in row):
            columns = {"columns": list(values[0])}
            flat = [float(number) for row in rows for number in row]
            shape = [count, len(rows[0])]
            return {"name": name, "datatype": "FP64", "shape": shape, "data": flat, "parameters": columns}
    written = [json.dumps(value, ensure_ascii=False) for value in values]
    return {"name": name, "datatype": "BYTES", "shape": [count], "data": written, "parameters": {"content": "json"}}


async def infer(model: ServedModel, body: Infer) -> list[dict[str, Any]]:
    """The outputs that are asked for, in that order; without a wish all of them but `vector`."""
    examples = examples_of(body.inputs)
    parameters = dict(body.parameters or {})
    truncate = parameters.pop("truncate", None)
    asked = None if body.outputs is None else [one.name for one in body.outputs]
    outputs: list[dict[str, Any]] = []
    if asked is None or set(asked) - {_VECTOR}:
        outputs = outputs_of(await model.predict(examples, parameters, truncate))
    if asked is None:
        return outputs
    if _VECTOR in asked:
        if not model.has_vectors:
            raise invalid(f"{model.name} has no vectors: it is a run of {model.task}")
        vectors = np.stack(await model.vectors(examples, truncate)).astype(np.float32)
        shape, data = list(vectors.shape), vectors.ravel().tolist()
        outputs.append({"name": _VECTOR, "datatype": "FP32", "shape": shape, "data": data})
    named = {one["name"]: one for one in outputs}
    if missing := [one for one in asked if one not in named]:
        raise invalid(f"no output {missing[0]!r}; there is: {', '.join(named)}")
    return [named[one] for one in dict.fromkeys(asked)]


def routes(models: Mapping[str, ServedModel], is_ready: Any) -> APIRouter:
    """The routes for all models."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
    first = next(iter(models.values()))
    sample = first.predictor.sample()
    tensor = {"name": _TEXT, "shape": [1], "datatype": "BYTES", "data": [sample]}
    if not isinstance(sample, str):
        tensor |= {"name": _JSON, "data": [json.dumps(sample, ensure_ascii=False)]}
    example = {"one": {"value": {"inputs": [tensor]}}}

    @router.get("", summary="What server this is", response_model=None)
    async def server_route() -> dict[str, Any]:
        """Name and version."""
        return {"name": "fastformer", "version": __version__, "extensions": []}

    @router.get("/health/live", summary="Whether the server runs", response_model=None)
    async def live_route() -> dict[str, bool]:
        """It does, if it answers."""
        return {"live": True}

    @router.get("/health/ready", summary="Whether the server takes requests", response_model=None)
    async def ready_route() -> JSONResponse:
        """200 if it does, 503 while it is being stopped."""
        ready = is_ready()
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    @router.get("/models/{name}", summary="What a model takes and gives", response_model=None)
    async def model_route(name: str) -> dict[str, Any]:
        """Inputs and outputs; -1 stands for any number."""
        model = find(models, name)
        takes = [_JSON, *([_TEXT] if model.takes_texts else [])]
        gives = [{**one, "shape": [-1, *one["shape"][1:]]} for one in outputs_of([model.shown])]
        if model.has_vectors:
            gives.append({"name": _VECTOR, "datatype": "FP32", "shape": [-1, model.predictor.width]})
        platform = "onnx_onnxv1" if "export" in model.predictor.trained.record else "pytorch_torch"
        return {
            "name": model.name,
            "versions": ["1"],
            "platform": platform,
            "inputs": [{"name": one, "datatype": "BYTES", "shape": [-1]} for one in takes],
            "outputs": [{key: value for key, value in one.items() if key != "data"} for one in gives],
        }

    @router.get("/models/{name}/ready", summary="Whether a model takes requests", response_model=None)
    async def model_ready_route(name: str) -> JSONResponse:
        """200 if it does, 503 while the server is being stopped."""
        ready = is_ready() and bool(find(models, name))
        return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)

    @router.post("/models/{name}/infer", summary="Answer tensors", response_model=None)
    async def infer_route(name: str, body: Annotated[Infer, Body(openapi_examples=example)]) -> JSONResponse:
        """An output per field of the answers, and `vector` where it is asked for."""
        identity = {} if body.id is None else {"id": body.id}
        outputs = await infer(find(models, name), body)
        return JSONResponse({"model_name": name, "model_version": "1", **identity, "outputs": outputs})

    return router
