"""Settings of the process that make numerical work on a CPU fast, and the memory that it holds."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# glibc's <malloc.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_MEGABYTE = 1 << 20
_PROC = Path("/proc/self")

_KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_KEPT_KERNELS = "16"

RELEASE_SECONDS = 30
_last_release = time.monotonic()
_counting, _inside, _threads = threading.Lock(), 0, 0  # how many callers are in `in_threads`, and the number to restore


def tune() -> None:
    """Treat denormal numbers as zero, and keep freed memory for the next step instead of returning it at once.

    Denormals made an optimizer step 15 times slower. By default glibc asks the kernel for every large tensor anew and
    gives it back when freed, so that each step pays page faults for all its memory. Called wherever we train or
    predict; it holds for the whole process. Other C libraries are left as they are.
    """
    torch.set_flush_denormal(True)  # for this thread: set it every time
    _keep_freed_memory()
    _keep_few_kernels()


@cache
def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 numbers itself; elsewhere they are slower than float32."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def release(at_once: bool = False) -> None:
    """Return freed memory to the system after all, twice a minute at most unless `at_once`; called between batches.

    Batches of all sizes leave gaps that no later tensor fits in.
    """
    global _last_release
    if at_once or time.monotonic() - _last_release > RELEASE_SECONDS:
        if (library := _glibc()) is not None:
            library.malloc_trim(0)
        _last_release = time.monotonic()


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`function` of every item, in order, on as many threads as torch has, each with one core to itself.

    Work that falls into many equal parts goes faster so than part by part on all cores: there, every small operation
    ends with a wait for the slowest core, and if something else has one of the cores that wait never ends.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    pool = _pool(threads, os.getpid())
    with _one_core_each(threads):
        return list(pool.map(function, items))


@contextmanager
def on_one_core() -> Iterator[None]:
    """Small work: cores that wait for each other at every operation take longer than one alone, and much longer if
    something else has one of them."""
    if torch.get_num_threads() == 1:
        yield
        return
    with _one_core_each(torch.get_num_threads()):
        yield


@contextmanager
def _one_core_each(threads: int) -> Iterator[None]:
    """One thread of torch's for each of ours: torch has one number for all, which the last to leave puts back."""
    global _inside, _threads
    with _counting:
        _inside, _threads = _inside + 1, max(threads, _threads)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_threads)
                _threads = 0


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # a forked process has none of its parent's threads
    return ThreadPoolExecutor(threads, "fastformer", initializer=tune)


@cache
def _keep_freed_memory() -> None:
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(_TOP_PAD, 64 * _MEGABYTE)


@cache
def _keep_few_kernels() -> None:
    """See that oneDNN, which computes GELU, keeps the kernels of its last few inputs only.

    It makes one for every shape and keeps 1,024. Batches have ever new shapes, so none is used again, and each lies in
    the middle of memory that was free: a summarizer's heap had doubled after 1,000 steps, all of it gaps, and still
    grew. oneDNN reads this when it makes its first kernel.
    """
    os.environ.setdefault(_KERNELS, _KEPT_KERNELS)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "mallopt") and hasattr(library, "gnu_get_libc_version") else None


# ---- the one meter of the system's: pages really touched, allocator and all ------------------------------------------


def physical_memory() -> int:
    """Bytes of memory of the machine; 8 GB if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 10**9


def forget_peak_memory() -> None:
    """Measure peaks from here on: what was done before, and the freed memory that we keep of it, does not count.

    If the system cannot forget (macOS), the peak stays that of the whole process.
    """
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
    with suppress(OSError):
        _PROC.joinpath("clear_refs").write_text("5", encoding="ascii")


def resident_memory() -> int | None:
    """Bytes that this process holds; the most it ever held if there is no /proc; None if the system does not say."""
    return _status("VmRSS")


def peak_memory() -> int | None:
    """Most bytes that this process has held since `forget_peak_memory`, or else since it began."""
    return _status("VmHWM")


def peak_memory_beyond(before: int | None) -> int | None:
    """By how much `peak_memory` exceeds `before`, a number of bytes; None if the system does not say."""
    peak = peak_memory()
    return None if peak is None or before is None else peak - before


def peak_memory_gb() -> float | None:
    """`peak_memory` as people read it."""
    peak = peak_memory()
    return None if peak is None else round(peak / 1e9, 2)


def _status(field: str) -> int | None:
    with suppress(OSError, StopIteration):  # some sandboxes (gVisor) leave lines out
        lines = _PROC.joinpath("status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
