"""What stands before every route, around an application that answers when it is told."""

import asyncio
import json

import pytest

from fastformer.serve import Limits
from fastformer.serve import guard as guarding
from fastformer.serve.guard import Guard, Status
from fastformer.serve.metrics import Metrics


class Application:
    """Answers once `ready` is set; notes whether it was cancelled."""

    def __init__(self):
        self.asked, self.ready, self.cancelled = asyncio.Event(), asyncio.Event(), False

    async def __call__(self, scope, receive, send):
        body = (await receive())["body"]
        self.asked.set()
        try:
            await self.ready.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


class Client:
    """Sends a request in pieces, and may go away."""

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}

    def __init__(self, *pieces):
        self.messages, self.answers = asyncio.Queue(), []
        for number, piece in enumerate(pieces, 1):
            self.send(piece, number < len(pieces))

    def send(self, piece, more=False):
        self.messages.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    def go(self):
        self.messages.put_nowait({"type": "http.disconnect"})

    async def ask(self, application, status=None, **limits):
        async def send(message):
            self.answers.append(message)

        guard = Guard(application, Limits(**limits), Metrics(), status or Status(), None)
        await guard(dict(self.scope), self.messages.get, send)

    @property
    def status(self):
        return self.answers[0]["status"]

    @property
    def error(self):
        return json.loads(self.answers[1]["body"])["error"]


@pytest.fixture(params=[0, 10], ids=["watched", "not watched yet"])
def look(request, monkeypatch):
    monkeypatch.setattr(guarding, "_LOOK", request.param)


def test_a_request_in_pieces_is_answered_whole(look):
    async def main():
        application, client = Application(), Client(b"a ", b"hammer")
        asking = asyncio.create_task(client.ask(application))
        await application.asked.wait()
        await asyncio.sleep(0.02)
        application.ready.set()
        await asking
        assert (client.status, client.answers[1]["body"]) == (200, b"a hammer")
        assert not application.cancelled
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_who_goes_away_takes_the_request_along():
    async def main():
        application, client = Application(), Client(b"a hammer")
        asking = asyncio.create_task(client.ask(application))
        await application.asked.wait()
        client.go()
        await asking
        assert application.cancelled
        assert client.status == 499  # which nobody hears; the meters count it
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_who_sends_too_slowly_is_given_up():
    async def main():
        application, client = Application(), Client()
        client.send(b"a ham", more=True)
        await client.ask(application, upload=0.15)
        assert (client.status, client.error) == (408, "the request did not arrive within 0.15 seconds")
        assert not application.asked.is_set()

    asyncio.run(main())


def test_who_still_sends_when_the_server_is_stopped_is_told():
    async def main():
        application, client, status = Application(), Client(), Status()
        client.send(b"a ham", more=True)
        asking = asyncio.create_task(client.ask(application, status))
        await asyncio.sleep(0)
        status.stopping = True
        await asking
        assert (client.status, client.error) == (503, "the server is being stopped")

    asyncio.run(main())


def test_who_goes_away_before_the_request_is_whole_is_not_answered():
    async def main():
        application, client = Application(), Client()
        client.send(b"a ham", more=True)
        client.go()
        await client.ask(application)
        assert not application.asked.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [0.001, 0.1])
def test_an_answer_that_takes_too_long_is_given_up(timeout):
    async def main():
        application, client = Application(), Client(b"a hammer")
        await client.ask(application, timeout=timeout)
        assert application.cancelled
        assert (client.status, client.error) == (504, f"no answer within {timeout} seconds; send less at a time")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_server_that_stops_cancels_what_it_does_not_finish(look):
    async def main():
        application, client = Application(), Client(b"a hammer")
        asking = asyncio.create_task(client.ask(application))
        await application.asked.wait()
        asking.cancel()
        await asking
        assert application.cancelled
        assert (client.status, client.error) == (503, "the server is being stopped")

    asyncio.run(main())
