"""Processes of our own, none of which outlives the one that started it."""

import ctypes
import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor


def end_with_parent() -> None:
    """In a child: be told to stop, as SIGTERM does, when the parent is gone, whatever ended it. On Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def one_process() -> ProcessPoolExecutor:
    """One process to work in, which begins as a new Python does: what was changed here is not changed there."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent)
