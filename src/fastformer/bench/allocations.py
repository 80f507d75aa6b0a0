"""Memory by counting: the most bytes of tensors that were alive at once while a function ran.

Every tensor that an operation returns is counted until its storage is freed, in forward and backward alike. It does
not see what a kernel uses inside; it is exact, the same on every run, and needs no second process.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_bytes(function: Callable[[], Any]) -> int:
    """Most bytes alive at once that were allocated while `function()` ran."""
    with _Counting() as counting:
        function()
    return counting.peak


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = {reference.cdata for reference, _ in _storages((args, kwargs))}
        result = function(*args, **kwargs)
        for reference, size in _storages(result):
            if reference.cdata not in given:
                self.live[reference.cdata] = reference, size
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


def _storages(tree: Any) -> Iterator[tuple[StorageWeakRef, int]]:
    """What the tensors of a tree are stored in, and its bytes."""
    for value in tree_leaves(tree):
        if isinstance(value, Tensor):
            parts = (value._indices(), value._values()) if value.layout == torch.sparse_coo else (value,)
            for part in parts:
                storage = part.untyped_storage()
                yield StorageWeakRef(storage), storage.nbytes()
