"""What stands before every route: the key, the size of a request, the time that it may take, and whether anyone waits.

A request is read whole before it is looked at, so that a client that sends slowly keeps nobody but itself waiting. A
client that goes away takes its request along.
"""

import asyncio
import hmac
import logging
import time
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastformer.serve.failures import Failure, response, stopping, too_large
from fastformer.serve.limits import Limits
from fastformer.serve.metrics import Metrics

_LOG = logging.getLogger("fastformer.serve")
OPEN = ("/", "/docs", "/openapi.json", "/health", "/v2/health/live", "/v2/health/ready")  # these need no key
_LOOK = 0.5  # seconds between two looks at whether to go on waiting for a slow client
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class Status:
    """What a server tells its application: that it is being stopped."""

    stopping = False


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, status: Status, api_key: str | None):
        self.app, self.limits, self.metrics, self.status, self.api_key = app, limits, metrics, status, api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.monotonic(), 0
        self.metrics.opened()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            try:
                self._admit(scope)
                body = await self._read(scope, receive)
                await self._answer(scope, body, receive, watched)
            except Failure as failure:
                if not status:
                    await response(scope["path"], failure)(scope, receive, watched)
        except asyncio.CancelledError:  # the server's time to stop is over
            if not status:
                await response(scope["path"], stopping())(scope, receive, watched)
        except Exception:
            _LOG.exception("%s %s", scope["method"], scope["path"])
            if not status:
                failed = Failure(500, "Backend", "something went wrong here; the server's log says what")
                await response(scope["path"], failed)(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.answered(route, status or 499, time.monotonic() - started)

    def _admit(self, scope: Scope) -> None:
        """Refuse whoever has no key, and everybody once the server is being stopped."""
        path = scope["path"]
        if self.status.stopping and scope["method"] == "POST":
            raise stopping()
        if self.api_key is None or (path in OPEN and scope["method"] in ("GET", "HEAD")):
            return
        if scope["method"] == "OPTIONS":  # a browser asks what it may ask; it sends no key with it
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self.api_key.encode()):
            headers = {"WWW-Authenticate": "Bearer"}
            raise Failure(401, "Unauthorized", "send the server's key: `Authorization: Bearer KEY`", headers)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body of a request."""
        most = self.limits.body
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told) > most:
            raise too_large(f"the request has {int(told):,} bytes; {most:,} are the most")
        parts, size, since = [], 0, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_LOOK):
                    message = await receive()
            except TimeoutError:
                if self.status.stopping:
                    raise stopping() from None
                if time.monotonic() - since > self.limits.upload:
                    seconds = f"{self.limits.upload:g} seconds"
                    raise Failure(408, "Validation", f"the request did not arrive within {seconds}") from None
                continue
            if message["type"] == "http.disconnect":
                raise Failure(499, "Gone", "the client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large(f"the request has more than {most:,} bytes")
            if not message.get("more_body"):
                return b"".join(parts)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer, as long as there is time and somebody waits."""
        read, gone = False, asyncio.ensure_future(_disconnected(receive))

        async def replay() -> Message:
            nonlocal read
            if not read:
                read = True
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.shield(gone)
            return {"type": "http.disconnect"}

        task = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({task, gone}, timeout=self.limits.timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if not gone.done():
                raise Failure(504, "Timeout", f"no answer within {self.limits.timeout:g} seconds; send less at a time")
        finally:
            gone.cancel()
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
