"""The default engine: processes of this machine, one core each.

Each process loads the run once and is given one file after the other. One that is killed is replaced and its file given
to another; the processes end with the one that started them.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from fastformer.errors import UserError
from fastformer.scale.shards import Shard
from fastformer.scale.work import Job, Outcome, ShardWorker, failed, one_thread

TRIES = 2  # of a file whose process was killed
PATIENCE = 5  # seconds for a process to end by itself


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_this_machine(job: Job, shards: Sequence[Shard], workers: int | None) -> Generator[Outcome]:
    """What becomes of every file, as they are done; by default on every core."""
    workers = min(workers or cores(), len(shards))
    with one_thread():
        if workers == 1:
            worker = ShardWorker(job)
            yield from map(worker, shards)
        else:
            yield from _in_processes(job, shards, workers)


@dataclass
class _Member:
    process: Any
    shard: Shard | None = None  # at work on it


def _in_processes(job: Job, shards: Sequence[Shard], workers: int) -> Generator[Outcome]:
    context = multiprocessing.get_context("spawn")  # a fork would share the threads' locks
    waiting, tries, team = deque(shards), Counter[str](), dict[Connection, _Member]()
    killed = 0  # in a row
    try:
        while waiting or any(member.shard for member in team.values()):
            busy = sum(member.shard is not None for member in team.values())
            while len(team) < min(workers, busy + len(waiting)):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, job), daemon=True)
                process.start()
                theirs.close()  # or nobody would hear that it was killed
                team[ours] = _Member(process)
            heard: list[Any] = wait(list(team))  # typed as if there were sockets among them
            for connection in heard:
                member = team[connection]
                try:
                    told = connection.recv()
                except (EOFError, OSError):
                    del team[connection]
                    killed += 1
                    if killed > workers + TRIES:
                        raise UserError(
                            "processes were killed one after the other, perhaps because memory ran out; each holds the "
                            "whole run: give fewer --workers"
                        ) from None
                    if (shard := member.shard) is not None:
                        tries[shard.name] += 1
                        if tries[shard.name] < TRIES:
                            waiting.append(shard)
                        else:
                            yield failed(
                                shard, f"{shard.source}: its process was killed {TRIES} times, perhaps for memory"
                            )
                    continue
                if isinstance(told, Exception):
                    raise told
                member.shard = waiting.popleft() if waiting else None
                if member.shard is None:
                    _dismiss({connection: team.pop(connection)})
                else:
                    with suppress(OSError):  # it was killed: `wait` will report it
                        connection.send(member.shard)
                if isinstance(told, Outcome):
                    killed = 0
                    yield told
    finally:
        _dismiss(team)


def _dismiss(team: dict[Connection, _Member]) -> None:
    """End the processes that are left, at work or not."""
    for member in team.values():
        member.process.terminate()
    for connection, member in team.items():
        member.process.join(PATIENCE)
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
        connection.close()


def _serve(connection: Connection, job: Job) -> None:
    """The life of a process: load the run, then answer what comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which undoes what is half written
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with one_thread():
        try:
            worker = ShardWorker(job)
        except Exception as error:
            said = str(error) if isinstance(error, UserError) else f"{job.run}: {type(error).__name__}: {error}"
            connection.send(UserError(said))
            return
        connection.send(None)
        while True:
            connection.send(worker(connection.recv()))


def _end_with_parent() -> None:
    """End this process if its parent is gone: nobody waits for its work, and the same command does it again."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
