"""Several processes on this machine that talk to each other by gloo, for tests.

They are forked from a server that has imported the package once, so that a group of three is there within moments.
"""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

PATIENCE = 120  # seconds


def run_ranks(size: int, function: Callable[..., Any], *given: Any, join: bool = True) -> list[Any]:
    """What `function(*given)` returns in each of `size` processes, in the order of their ranks.

    `join`: they are a process group already; else only the environment says so, as with torchrun.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fastformer.tasks.verbs", "torch.distributed"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    ranks = [
        context.Process(target=_run, args=(rank, size, port, join, results, function, given), daemon=True)
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    try:
        found = dict(results.get(timeout=PATIENCE) for _ in ranks)
    finally:
        for process in ranks:
            process.join(5)
            process.kill()
    failed = [error for error in found.values() if isinstance(error, _Failure)]
    assert not failed, failed[0]
    return [found[rank] for rank in range(size)]


class _Failure(str):
    """A traceback."""


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun tells a process."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in told.items()}}


def _run(rank, size, port, join, results, function, given):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(environment(rank, size, port))
    try:
        if join:
            dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        found = function(*given)
        if join:
            dist.destroy_process_group()
    except BaseException:
        found = _Failure(traceback.format_exc())
    results.put((rank, found))
