"""Memory by counting: the most bytes of tensors that were alive at once while a function ran.

Every tensor that an operation returns is counted until its storage is freed, in forward and backward alike. It does
not see what a kernel uses inside; it is exact, the same on every run, and needs no second process.
"""

from collections.abc import Callable
from typing import Any

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
        given = {_storage(value).cdata for value in tree_leaves((args, kwargs)) if hasattr(value, "untyped_storage")}
        result = function(*args, **kwargs)
        for value in tree_leaves(result):
            if hasattr(value, "untyped_storage") and (reference := _storage(value)).cdata not in given:
                self.live[reference.cdata] = reference, value.untyped_storage().nbytes()
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


def _storage(value: Any) -> StorageWeakRef:
    return StorageWeakRef(value.untyped_storage())
