"""What can go wrong with a request, each with its status and a kind, in the form of text-embeddings-inference.

    {"error": "the queue is full; try again in 2 seconds", "error_type": "Overloaded"}

Routes under /v1 answer in OpenAI's form: `{"error": {"message": …, "type": …, "code": …}}`.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse


class Failure(Exception):
    """A request that gets no answer, and why."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers


def invalid(message: str) -> Failure:
    """The request cannot be understood, or asks for something that is not there."""
    return Failure(422, "Validation", message)


def too_large(message: str) -> Failure:
    """The request is larger than the server takes."""
    return Failure(413, "Validation", message)


def too_long(message: str) -> Failure:
    """A text is longer than the model reads."""
    return Failure(422, "Tokenizer", message)


def overloaded(seconds: int) -> Failure:
    """More requests wait already than may."""
    what = f"too many requests wait already; try again in {seconds} second{'s' * (seconds != 1)}"
    return Failure(429, "Overloaded", what, {"Retry-After": str(seconds)})


def stopping() -> Failure:
    """The server finishes what it has, and takes on nothing new."""
    return Failure(503, "Unhealthy", "the server is being stopped", {"Retry-After": "5"})


def response(path: str, failure: Failure) -> JSONResponse:
    """A failure as its route tells it."""
    message = str(failure)
    content: dict[str, Any] = {"error": message, "error_type": failure.kind}
    if path.startswith("/v1/"):
        content = {"error": {"message": message, "type": failure.kind, "code": failure.status}}
    return JSONResponse(content, failure.status, failure.headers)


async def answer(request: Request, failure: Exception) -> JSONResponse:
    """What FastAPI calls with a failure."""
    assert isinstance(failure, Failure)
    return response(request.url.path, failure)
