"""`create_app`: run folders as an ASGI application."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastformer.errors import UserError, extra

with extra("serve"):
    from fastapi import APIRouter, FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.responses import HTMLResponse, JSONResponse, Response
    from starlette.exceptions import HTTPException

from fastformer.serve import failures, open_inference, openai, services, tei
from fastformer.serve.failures import Failure
from fastformer.serve.guard import Guard, Status
from fastformer.serve.limits import Limits
from fastformer.serve.metrics import Metrics
from fastformer.serve.model import ServedModel
from fastformer.serve.page import page, routes_page
from fastformer.serve.shortcut import Direct, Shortcut
from fastformer.version import __version__

_ABOUT = "Trained runs of fastformer. The first model answers at the root; each has its own routes under /models/NAME."


def create_app(
    runs: Mapping[str, str | Path],
    *,
    limits: Limits | None = None,
    api_key: str | None = None,
    cors: Sequence[str] = (),
    state: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> FastAPI:
    """An application that serves run folders under their names; the first answers at the root.

    `state` is a folder for what must outlive the server, such as what users did; without it that is gone when it ends.
    `device` and `dtype` say where models run.
    """
    if not runs:
        raise UserError("nothing to serve; give a run folder")
    limits, metrics = limits or Limits(), Metrics()
    temporary: tempfile.TemporaryDirectory[str] | None = None
    if state is None:
        temporary = tempfile.TemporaryDirectory(prefix="fastformer-serve-")
        state = temporary.name
    keep = Path(state)
    models = {
        name: ServedModel(name, Path(run), keep / name, limits, metrics, device, dtype) for name, run in runs.items()
    }

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as ending:
            if temporary is not None:
                ending.callback(temporary.cleanup)
            for model in models.values():
                ending.callback(model.close)
            yield

    app = FastAPI(
        title="fastformer", version=__version__, description=_ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    status = Status()
    app.state.models, app.state.status = models, status
    first = next(iter(models.values()))
    direct: dict[str, Direct] = {}
    for model in models.values():
        router = APIRouter(tags=[model.name])
        router.include_router(tei.routes(model))
        router.include_router(services.routes(model))
        if model is first:
            app.include_router(router)
        app.include_router(router, prefix=f"/models/{model.name}", include_in_schema=model is not first)
        for route in tei.direct(model):
            direct |= {f"/models/{model.name}{route.path}": route} | ({route.path: route} if model is first else {})
    app.include_router(openai.routes(models))
    app.include_router(open_inference.routes(models, lambda: not status.stopping))
    app.include_router(_common(models, metrics, status, cors))
    app.add_exception_handler(Failure, failures.answer)
    app.add_exception_handler(RequestValidationError, _explain_invalid)
    app.add_exception_handler(HTTPException, _explain_http)
    app.add_middleware(Shortcut, routes=direct)
    app.add_middleware(Guard, status=status, limits=limits, metrics=metrics, api_key=api_key)
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"])
    return app


def _common(models: Mapping[str, ServedModel], metrics: Metrics, status: Status, cors: Sequence[str]) -> APIRouter:
    """Routes that are no model's own."""
    router = APIRouter(tags=["server"])
    first = next(iter(models.values()))

    @router.get("/health", summary="Whether the server takes requests", response_model=None)
    async def health_route() -> JSONResponse:
        """200 if it does, 503 while it is being stopped."""
        return JSONResponse({"status": "stopping" if status.stopping else "ok"}, 503 if status.stopping else 200)

    @router.get("/metrics", summary="Meters for Prometheus", response_model=None)
    async def metrics_route() -> Response:
        """Requests, times, queue and batches, in Prometheus's text form."""
        waiting = {name: model.batcher.waiting for name, model in models.items()}
        return Response(metrics.text(waiting), media_type=metrics.content_type)

    @router.post("/reload", summary="Read the run folders again", response_model=None)
    async def reload_route(request: Request) -> dict[str, Any]:
        """Requests that are on their way lose nothing: the old model answers until the new one is there.

        A web page of another origin gets 403, unless `--cors` names it: this is the one request that a browser sends
        without asking first.
        """
        origin = request.headers.get("origin")
        own = origin is None or origin.partition("://")[2] == request.headers.get("host")
        if not own and "*" not in cors and origin not in cors:
            raise Failure(403, "Validation", f"a page of {origin:.100} may not reload this server; --cors lets it")
        try:
            await asyncio.to_thread(reload_all, models)
        except UserError as error:
            raise Failure(409, "Validation", f"{error} (the model that was there still answers)") from None
        return {"reloaded": list(models)}

    @router.get("/", include_in_schema=False)
    async def page_route() -> HTMLResponse:
        """The page for people."""
        return HTMLResponse(page())

    @router.get("/docs", include_in_schema=False)
    async def docs_route(request: Request) -> HTMLResponse:
        """The routes, for people."""
        return HTMLResponse(routes_page(request.app.openapi(), str(request.base_url)))

    @router.post("/", summary="Predict, as Hugging Face's clients ask", response_model=None)
    async def root_route(body: tei.Predict) -> Any:
        """What /predict answers; the labels of a single text come in a list of one, as a hosted pipeline has them."""
        answers, many = await tei.predict(first, body)
        return answers if many or isinstance(answers[0], list) else answers[0]

    return router


def reload_all(models: Mapping[str, ServedModel]) -> None:
    """Read all run folders again."""
    for model in models.values():
        model.reload()


async def _explain_invalid(request: Request, error: Exception) -> JSONResponse:
    """What is wrong with a request, in one line."""
    assert isinstance(error, RequestValidationError)
    [first, *others] = error.errors()
    place = ".".join(str(part) for part in first["loc"][1:])
    more = f" ({len(others)} more)" if others else ""
    message = f"`{place}`: {first['msg']}{more}" if place and first["type"] != "json_invalid" else first["msg"]
    return failures.response(request.url.path, failures.invalid(message))


async def _explain_http(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}: {error.detail}; GET /docs lists what there is"
    return failures.response(request.url.path, Failure(error.status_code, "Validation", what, error.headers))
