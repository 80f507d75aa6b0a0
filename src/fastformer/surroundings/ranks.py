"""The processes that a launcher, `torchrun` or `accelerate launch`, started beside this one to train one model.

Process 0, the first, reads, encodes and writes; the others wait for it and read what it wrote. If one of them fails,
all fail, and the reason is printed once. Everything here is a plain call if there is one process, and imports PyTorch
only if there are several.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from fastformer.errors import Interrupted, UserError

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")

PATIENCE = timedelta(days=7)  # for the first process, which may encode for hours; a dead one is noticed at once
LAST_WORDS = 3.0  # seconds that a process which failed has to clean up and say why
_TOLD = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")  # by a launcher
_joined = False
if int(os.environ.get("WORLD_SIZE", 1)) > 1:  # PyTorch reads it when it is imported: what it warns of concerns nobody
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


class Elsewhere(UserError):
    """Another process failed, and says why."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def rank() -> int:
    """The number of this process among those that train together; 0 if it works alone."""
    return int(os.environ["RANK"]) if _joined else 0


def is_first() -> bool:
    """Whether this process reads and writes for all."""
    return rank() == 0


def speaks() -> bool:
    """Whether this process prints messages: of all that were launched together only the first does."""
    return int(os.environ.get("WORLD_SIZE", 1)) == 1 or int(os.environ.get("RANK", 0)) == 0


def size() -> int:
    """How many processes train together; one if this one works alone."""
    if not _joined:
        return 1
    import torch.distributed as dist

    return dist.get_world_size()


@contextmanager
def joined() -> Iterator[None]:
    """Within it the processes of a launcher are one group."""
    global _joined
    if _joined or int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    with _noticing():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    _joined = True
    try:
        yield
        dist.destroy_process_group()
    finally:
        _joined = False


@contextmanager
def alone() -> Iterator[None]:
    """Within it this process knows of no other, and neither does any library."""
    global _joined
    told = {name: os.environ.pop(name) for name in _TOLD if name in os.environ}
    before, _joined = _joined, False
    try:
        yield
    finally:
        _joined = before
        os.environ.update(told)


def first(function: Callable[[], Result], share: bool = True) -> Result:
    """What `function()` gives in the first process, alone; the others wait, and get it too unless `share` is off."""
    if size() == 1:
        return function()
    if not is_first():
        return _hear()
    try:
        with alone():
            result = function()
    except BaseException as error:
        _tell(error)
        raise
    _tell(None, result if share else None)
    return result


@contextmanager
def after_first() -> Iterator[None]:
    """The first process goes through the block, then the others do; if one fails, all do."""
    if size() == 1:
        yield
        return
    if not is_first():
        _hear()
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
    if is_first():
        _tell(error)
    if error is not None and is_first():
        raise error
    found = [one for one in gathered(_described(error)) if one is not None]
    if error is not None and not isinstance(error, UserError | Interrupted):
        raise error
    if found:
        message, code = found[0]
        raise UserError(message) if is_first() else Elsewhere(message, code)


def gathered(value: Any) -> list[Any]:
    """What every process has, in their order."""
    import torch.distributed as dist

    found = [None] * size()
    with _noticing():
        dist.all_gather_object(found, value)
    return found


def summed(value: "Tensor") -> "Tensor":
    """The sum over all processes of a tensor, on whichever device it is."""
    import torch.distributed as dist

    value = value.clone()
    with _noticing():
        dist.all_reduce(value)
    return value


def anywhere(*flags: bool) -> list[bool]:
    """Each flag, whether it is set in any process."""
    if size() == 1:
        return list(flags)
    import torch

    return [bool(count) for count in summed(torch.tensor(flags, dtype=torch.int32)).tolist()]


def is_loss_of_another(error: BaseException) -> bool:
    """Whether an exception says that another process is gone."""
    import torch.distributed as dist

    known = (dist.DistBackendError, dist.DistNetworkError)
    return isinstance(error, known) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())


def lost() -> Interrupted:
    """The error for a lost process."""
    return Interrupted("another process of this training has ended; run the same command with --resume to continue")


def check_shared(path: os.PathLike) -> None:
    """Refuse a folder that this process does not share with the first, which wrote the file `path` there."""
    if not os.path.exists(path):
        raise UserError(
            f"{path}: is not there for process {rank()} on {socket.gethostname()}, but process 0 wrote it; give "
            "--output a folder that all machines share"
        )


def _tell(error: BaseException | None, value: Any = None) -> None:
    _broadcast((_described(error), value))


def _hear() -> Any:
    described, value = _broadcast(None)
    if described is not None:
        time.sleep(LAST_WORDS)  # a launcher ends all processes with the first that ends: that must not be this one
        raise Elsewhere(*described)
    return value


def _described(error: BaseException | None) -> tuple[str, int] | None:
    if error is None:
        return None
    code = 130 if isinstance(error, Interrupted | KeyboardInterrupt) else getattr(error, "exit_code", 1)
    return str(error) or type(error).__name__, code


def _broadcast(value: Any) -> Any:
    import torch.distributed as dist

    carried = [value]
    with _noticing():
        dist.broadcast_object_list(carried, src=0)
    return carried[0]


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if is_loss_of_another(error):
            raise lost() from error
        raise
