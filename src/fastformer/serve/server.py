"""`fastformer serve`: the application in a process that starts, reloads and stops as operators expect.

SIGTERM and Ctrl-C stop it: it takes on nothing new, finishes what runs, and ends in the time given. SIGHUP reads the
run folders again.
"""

import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fastformer.errors import UserError, extra

with extra("serve"):
    import uvicorn
    from fastapi import FastAPI

import torch

from fastformer.serve.app import create_app, reload_all
from fastformer.serve.limits import Limits
from fastformer.surroundings.progress import say

_LOG = logging.getLogger("fastformer.serve")
_TURN = 0.001  # seconds that one thread may keep Python to itself while others wait for it; Python has 5 ms


def named_runs(given: Sequence[str]) -> dict[str, Path]:
    """`RUN` or `NAME=RUN` -> folders by name; a run without a name is called after its folder."""
    runs: dict[str, Path] = {}
    for one in given:
        name, separator, folder = one.partition("=")
        if not separator or Path(one).is_dir():
            folder, name = one, os.path.basename(os.path.realpath(one))
        if not name or "/" in name or not name.isprintable():
            raise UserError(f"{one}: a model needs a name without a slash; give NAME=RUN")
        if name in runs:
            raise UserError(f"two models are called {name}; give them names: first={runs[name]} second={folder}")
        runs[name] = Path(folder)
    return runs


def serve(
    runs: Mapping[str, str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    api_key: str | None = None,
    cors: Sequence[str] = (),
    state: str | Path | None = None,
    grace: float = 30.0,
    threads: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> None:
    """Serve run folders until the process is told to stop; `grace` seconds are for what runs then."""
    limits = limits or Limits()
    if threads is not None:
        torch.set_num_threads(threads)
    with _listening(host, port) as listener:  # a port that is taken is said before anything is loaded
        app = create_app(runs, limits=limits, api_key=api_key, cors=cors, state=state, device=device, dtype=dtype)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        models = ", ".join(f"{model.name} ({model.task})" for model in app.state.models.values())
        if api_key is None and not _is_local(host):
            say("There is no --api-key: whoever reaches this machine may ask.")
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=limits.queue + limits.connections,
            timeout_graceful_shutdown=max(1, round(grace)),
        )
        _settle()
        ready = f"Serving {models} at {address} (the page; {address}/docs has the routes). Ctrl-C stops it."
        _Server(config, app, lambda: print(ready, flush=True)).run(sockets=[listener])
    if any(model.batcher.is_working for model in app.state.models.values()):
        os._exit(0)  # the time to stop is over, and Python would wait for its thread


def _settle() -> None:
    """Make what was loaded no concern of the garbage collector, and threads take shorter turns.

    A whole collection walks through all that the libraries and the models are made of, for a quarter of a second in
    which nobody is answered: 64 clients waited 360 ms for one answer in a hundred, and wait 40 now (docs/RESULTS.md).
    """
    sys.setswitchinterval(_TURN)
    gc.collect()
    gc.freeze()


class _Server(uvicorn.Server):
    """uvicorn's server, with our signals, which says when it is ready."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, ready: Callable[[], None]):
        super().__init__(config)
        self.app, self.ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop and reload on signals. uvicorn's own would end the process by the signal once all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
        if hasattr(signal, "SIGHUP"):
            wanted[signal.SIGHUP] = self._reload
        before = {number: signal.signal(number, handle) for number, handle in wanted.items()}
        try:
            yield
        finally:
            for number, handle in before.items():
                signal.signal(number, handle)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.app.state.status.stopping = True
        self.force_exit = self.should_exit and number == signal.SIGINT  # asked twice
        self.should_exit = True

    def _reload(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._reload_all, daemon=True).start()

    def _reload_all(self) -> None:
        try:
            reload_all(self.app.state.models)
        except UserError as error:
            say(f"Not reloaded: {error}")
        else:
            say("The runs were read again.")


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that clients connect to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, TypeError, ValueError) as error:  # a name that cannot be written is the latter two
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{host}:{port}: cannot listen there ({reason}); give another --port or --host") from None
    with listener:
        yield listener


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
