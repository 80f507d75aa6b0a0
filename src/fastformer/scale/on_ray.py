"""The files on a Ray cluster: actors that load the run once, each given one file after the other.

Actors rather than Ray Data: a file is the unit that is written, counted and done again, and the manifest is what a
command resumes from. An actor, or a node with its actors, that dies is replaced and its file given to another. Actors
that wait for a CPU are given nothing, so nodes that an autoscaler adds take part, and nobody waits for those that never
come.
"""

import os
import socket
from collections import Counter, deque
from collections.abc import Generator, Sequence
from typing import Any

from fastformer.errors import UserError, extra
from fastformer.scale.processes import cores
from fastformer.scale.shards import Shard
from fastformer.scale.work import Job, Outcome, ShardWorker, failed, one_thread
from fastformer.surroundings.progress import say

TRIES = 4  # of a file whose actor died: nodes come and go
ANSWER = 10.0  # seconds for a cluster to answer at its address
WAIT = 30.0  # seconds after which a message says that no actor works yet


class _Actor:
    """A `ShardWorker` on another machine."""

    def __init__(self, job: Job):
        self.job = job
        self.threads = one_thread()
        self.threads.__enter__()  # for as long as it lives

    def load(self) -> str | None:
        """Load the run; what is wrong, if it cannot be loaded here."""
        try:
            self.worker = ShardWorker(self.job)
        except Exception as error:
            return str(error) if isinstance(error, UserError) else f"{self.job.run}: {type(error).__name__}: {error}"
        return None

    def answer(self, shard: Shard) -> Outcome:
        """What becomes of a file."""
        return self.worker(shard)


def on_ray(job: Job, shards: Sequence[Shard], workers: int | None, address: str | None) -> Generator[Outcome]:
    """What becomes of every file, as they are done.

    The cluster is that of `address` or `RAY_ADDRESS`; without either, one of this machine that ends with the work. By
    default there is an actor per CPU of the cluster; an autoscaler brings those that `workers` asks for beyond.
    """
    if not shards:  # no reason to wake a cluster
        return
    with extra("ray"):
        import ray

    ours = not ray.is_initialized()
    if ours:
        _join(ray, address, min(workers or cores(), len(shards)))
    try:
        here = int(ray.cluster_resources().get("CPU", 1))
        yield from _in_actors(ray, job, shards, min(workers or here, len(shards)))
    finally:
        if ours:
            ray.shutdown()


def _join(ray: Any, address: str | None, workers: int) -> None:
    """Connect to a cluster, or start one here."""
    quiet = {"logging_level": "error", "log_to_driver": False}
    address = address or os.environ.get("RAY_ADDRESS")
    if address is not None:
        try:
            _check_answers(address)
            ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"--address {address}: no Ray cluster answers there ({reason}); check it") from error
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    os.environ.setdefault("RAY_worker_niceness", "0")  # its processes would step back for all others
    # Logical CPUs: Ray needs some for itself, and with none left it waits for ever.
    ray.init(address="local", num_cpus=workers + 1, include_dashboard=False, **quiet)


def _check_answers(address: str) -> None:
    """Fail if nobody answers: Ray itself would try for minutes. A name such as `auto` is left to Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()


def _in_actors(ray: Any, job: Job, shards: Sequence[Shard], workers: int) -> Generator[Outcome]:
    gone = ray.exceptions.RayActorError, ray.exceptions.NodeDiedError, ray.exceptions.OwnerDiedError
    kind = ray.remote(num_cpus=1)(_Actor)
    waiting, tries, lost = deque(shards), Counter[str](), 0
    at_work: dict[Any, tuple[Any, Shard | None]] = {}  # an answer that will come: whose, and to what
    try:
        while waiting or any(shard for _, shard in at_work.values()):
            busy = sum(shard is not None for _, shard in at_work.values())
            while len(at_work) < min(workers, busy + len(waiting)):
                actor = kind.remote(job)
                at_work[actor.load.remote()] = actor, None
            done, _ = ray.wait(list(at_work), timeout=WAIT)
            if not done and not busy:
                say("No actor has a CPU yet: the cluster is busy, or it needs more nodes; waiting.")
            for answer in done:
                actor, shard = at_work.pop(answer)
                try:
                    told = ray.get(answer)
                except gone as error:
                    lost += 1
                    if lost > workers + TRIES:
                        raise UserError(
                            f"actors died one after the other ({' '.join(str(error).split())[:300]}); check that every "
                            f"node has {job.run}, this package, and memory for the run"
                        ) from error
                    if shard is not None:
                        tries[shard.name] += 1
                        if tries[shard.name] < TRIES:
                            waiting.append(shard)
                        else:
                            yield failed(shard, f"{shard.source}: its actor died {TRIES} times, perhaps for memory")
                    continue
                if isinstance(told, str):
                    raise UserError(f"{told} (on a node of the cluster: every node needs the run at the same path)")
                if waiting:  # otherwise nobody holds the actor any more, and it ends
                    following = waiting.popleft()
                    at_work[actor.answer.remote(following)] = actor, following
                if told is not None:
                    lost = 0
                    yield told
    finally:
        for actor, _ in at_work.values():
            ray.kill(actor)
