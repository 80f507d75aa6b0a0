"""What stands before every route: the key, the size of a request, the time that it may take, and whether anyone waits.

A request is read whole before it is looked at, so that a client that sends slowly keeps nobody but itself waiting. A
client that goes away takes its request along.
"""

import asyncio
import hmac
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastformer.serve.failures import Failure, response, stopping, too_large
from fastformer.serve.limits import Limits
from fastformer.serve.metrics import Metrics

_LOG = logging.getLogger("fastformer.serve")
OPEN = ("/", "/docs", "/openapi.json", "/health", "/v2/health/live", "/v2/health/ready")  # these need no key
_LOOK = 0.1  # seconds until somebody looks how a request gets on
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

        waiting = _Waiting(receive, self.limits, self.status)
        try:
            try:
                self._admit(scope)
                waiting.has_sent(await self._read(scope, receive))
                await self.app(scope, waiting.replay, watched)
            except asyncio.CancelledError:  # by `waiting`, or the server's time to stop is over
                raise waiting.over or stopping() from None
            finally:
                waiting.end()
        except Failure as failure:
            if not status:
                await response(scope["path"], failure)(scope, receive, watched)
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
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _gone()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large(f"the request has more than {most:,} bytes")
            if not message.get("more_body"):
                return b"".join(parts)


class _Waiting:
    """A client that waits for its answer, asked in the task that this is made in.

    The task is cancelled once waiting is `over`: the body does not arrive in time, or not before the server is stopped;
    the client goes away; the answer takes too long. Most requests end before anybody looks: they cost a timer, no task.
    """

    def __init__(self, receive: Receive, limits: Limits, status: Status):
        self.receive, self.limits, self.status = receive, limits, status
        self.over: Failure | None = None
        self._body: bytes | None = None
        self._since, self._is_replayed = time.monotonic(), False
        self._asking = asyncio.current_task()
        self._watching: asyncio.Task | None = None
        self._ring_in(min(_LOOK, limits.timeout))

    def has_sent(self, body: bytes) -> None:
        """All of the request is there."""
        self._body, self._since = body, time.monotonic()

    async def replay(self) -> Message:
        """The body, for the application; then that the client is gone, once it is."""
        if not self._is_replayed:
            self._is_replayed = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await asyncio.shield(self._watch())
        return {"type": "http.disconnect"}

    def end(self) -> None:
        """The request has its answer."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _ring_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        took, upload, timeout = time.monotonic() - self._since, self.limits.upload, self.limits.timeout
        if self._body is not None and took < timeout:
            self._watch()
            self._ring_in(timeout - took)
        elif self._body is not None:
            self._give_up(Failure(504, "Timeout", f"no answer within {timeout:g} seconds; send less at a time"))
        elif self.status.stopping:
            self._give_up(stopping())
        elif took > upload:
            self._give_up(Failure(408, "Validation", f"the request did not arrive within {upload:g} seconds"))
        else:
            self._ring_in(_LOOK)

    def _watch(self) -> asyncio.Task:
        self._watching = self._watching or asyncio.create_task(self._until_gone())
        return self._watching

    async def _until_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self._give_up(_gone())

    def _give_up(self, failure: Failure) -> None:
        self.over = failure
        if self._asking is not None:
            self._asking.cancel()


def _gone() -> Failure:
    return Failure(499, "Gone", "the client went away")
