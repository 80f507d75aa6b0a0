"""What a task does for whoever asks, as routes: a request's fields are those of the service's dataclass."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import MISSING, fields
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from fastformer.serve.bodies import CleanBody
from fastformer.serve.failures import Failure, too_large
from fastformer.serve.model import Gone, ServedModel
from fastformer.tasks.base import Service

_END = object()
_HTML, _STREAM = "html", "stream"


class _Own(CleanBody):
    """The body of a request to a task's own route: no other server's clients send it, so a mistyped field is told."""

    model_config = ConfigDict(extra="forbid")


def body_of(service: Service) -> type[BaseModel]:
    """The body of a request: the fields of the service's dataclass, and in which form the answer comes."""
    made: dict[str, Any] = {}
    for one in fields(service.request):
        about = one.metadata["option"]
        default = one.default if one.default is not MISSING else ...
        if one.default_factory is not MISSING:
            default = one.default_factory()
        default = list(default) if isinstance(default, tuple) else default
        made[one.name] = one.type, Field(default, description=about.help, ge=about.least, le=about.most)
    if service.page is not None:
        made[_HTML] = bool, Field(False, description="Answer with a page instead of JSON.")
    if service.streams:
        made[_STREAM] = bool, Field(False, description="Answer with server-sent events while it works.")
    name = service.name.title().replace("-", "").replace("_", "")
    return create_model(name, __base__=_Own, __doc__=service.help, **made)


def routes(model: ServedModel) -> APIRouter:
    """The routes of one model's services."""
    router = APIRouter()
    for service in model.services.values():
        _add(router, model, service)
    return router


def _add(router: APIRouter, model: ServedModel, service: Service) -> None:
    body_type, name = body_of(service), service.name
    examples = {"one": {"value": dict(service.example)}}

    async def route(body: Annotated[body_type, Body(openapi_examples=examples)]) -> Any:  # type: ignore[valid-type]
        given = body.model_dump()  # type: ignore[attr-defined]
        form = {key: given.pop(key, False) for key in (_HTML, _STREAM)}
        _check_size(given, model)
        request = service.request(**given)
        if form[_HTML]:
            return HTMLResponse(await model.show(name, request))
        if form[_STREAM]:
            return await _streamed(model, name, request)
        return JSONResponse(await model.ask(name, request))

    summary = service.help.split("\n", 1)[0].rstrip(".")
    about: dict[str, Any] = {"summary": summary, "description": service.help}
    router.add_api_route(f"/{name}", route, methods=["POST"], response_model=None, **about)


def _check_size(given: Any, model: ServedModel) -> None:
    """Refuse texts that are too long, wherever in a request they are, and lists of too many."""
    if isinstance(given, str) and len(given) > model.limits.text:
        raise too_large(f"a text has {len(given):,} characters; {model.limits.text:,} are the most")
    if isinstance(given, list) and len(given) > model.limits.inputs:
        raise too_large(f"a list of {len(given):,}; {model.limits.inputs:,} are the most")
    if isinstance(given, list | dict):
        for one in given if isinstance(given, list) else given.values():
            _check_size(one, model)


async def _streamed(model: ServedModel, name: str, request: Any) -> StreamingResponse:
    """`part` events while it works, each with all there is so far; then `done` with the answer, or `error`."""
    parts: asyncio.Queue = asyncio.Queue()
    loop = asyncio.get_running_loop()
    gone: list[bool] = []

    def tell(part: Any) -> None:  # in the model's thread
        if gone:
            raise Gone
        loop.call_soon_threadsafe(parts.put_nowait, part)

    task = asyncio.create_task(model.ask(name, request, tell))
    task.add_done_callback(lambda _: parts.put_nowait(_END))
    try:
        first = await parts.get()  # a request that is refused has its own status
        if first is _END:
            task.result()
    except BaseException:
        gone.append(True)
        task.cancel()
        raise

    async def events() -> AsyncIterator[str]:
        part = first
        try:
            while part is not _END:
                yield _event("part", part)
                part = await parts.get()
            try:
                yield _event("done", task.result())
            except Failure as failure:
                yield _event("error", {"error": str(failure), "error_type": failure.kind})
        finally:
            gone.append(True)
            task.cancel()

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _event(kind: str, content: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"
