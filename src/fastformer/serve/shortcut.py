"""A short way to the routes that are asked most, `/predict` and `/embed`.

FastAPI describes them, and says what is wrong with a request. A request with nothing wrong passes it by: FastAPI's way
took half of all the Python between the socket and the model (docs/RESULTS.md, Serving).
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))  # as JSONResponse writes it


@dataclass(frozen=True)
class Direct:
    """A route: its path as it is described, the form of a request, and what makes an answer of it."""

    path: str
    body: type[BaseModel]
    answer: Callable[[Any], Awaitable[Any]]


class Shortcut:
    """ASGI middleware, right behind the guard. `routes` are by the path that is asked."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, Direct]):
        self.app, self.routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self.routes.get(scope["path"]) if scope.get("method") == "POST" and _is_json(scope) else None
        if route is None:
            return await self.app(scope, receive, send)
        message = await receive()  # the guard gives the whole body
        try:
            asked = route.body.model_validate_json(message["body"])
        except ValidationError:
            return await self.app(scope, _with_first(message, receive), send)
        scope["route"] = route  # what the meters call it
        content = JSON.encode(await route.answer(asked)).encode()
        headers = [(b"content-length", b"%d" % len(content)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _is_json(scope: Scope) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(kinds) == 1 and kinds[0].partition(b";")[0] == b"application/json"


def _with_first(message: Message, receive: Receive) -> Receive:
    """What `receive` gives, after a message that was taken from it."""
    waiting = [message]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
