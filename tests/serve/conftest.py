"""Small runs of every task that is served, each trained once for all tests of this folder."""

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

import fastformer.cli.app  # noqa: F401  made before a task is registered here: the tests of docs/cli.md know five
from fastformer.tasks.base import register
from fastformer.tasks.verbs import load, train

from ..tasks.samples import SAMPLES
from ..tasks.toy import LOUDNESS


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """`trained(task)`: the folder of a small run."""
    register(LOUDNESS)
    made: dict[str, Path] = {}

    def run(task: str) -> Path:
        if task not in made:
            sample = SAMPLES[task](tmp_path_factory.mktemp(f"data-{task}"))
            folder = tmp_path_factory.mktemp("runs") / task
            train(task, sample.train, output=folder, **sample.options, show_progress=False)
            made[task] = folder
        return made[task]

    return run


@pytest.fixture(scope="session")
def classifier(trained):
    return trained("classification")


@pytest.fixture(scope="session")
def offline(classifier):
    """The same model in Python."""
    return load(classifier)


@contextmanager
def running(app):
    """An application on a free port of this machine, in a thread: its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
