"""Memory that is kept for the next step is given back in the end and does not grow; threads share the work."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from fastformer.runs.resuming import begin
from fastformer.surroundings import machine


def resident_megabytes() -> float:
    return machine.resident_memory() / 1e6


@pytest.mark.skipif(sys.platform != "linux" or machine._glibc() is None, reason="glibc's settings")
def test_gaps_between_tensors_are_given_back_once_in_a_while(monkeypatch):
    machine.tune()
    tensors = [torch.ones(250_000) for _ in range(400)]  # a megabyte each
    left = tensors[::2]
    del tensors
    kept = resident_megabytes()
    monkeypatch.setattr(machine, "_last_release", machine.time.monotonic())
    machine.release()  # too early
    assert resident_megabytes() > kept - 50
    monkeypatch.setattr(machine, "RELEASE_SECONDS", -1)
    machine.release()
    assert resident_megabytes() < kept - 150
    assert all((tensor == 1).all() for tensor in left)


USED_BY_SHAPES = """
import ctypes, os, sys, torch
from torch.nn.functional import gelu
from fastformer.surroundings.machine import tune

class Info(ctypes.Structure):
    _fields_ = [(str(place), ctypes.c_size_t) for place in range(10)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
if sys.argv[1] == "tuned":
    tune()
gelu(torch.ones(2, 8))
before = getattr(libc.mallinfo2(), "7")  # bytes in use
for rows in range(3, 503):
    gelu(torch.ones(rows, 8))
print(getattr(libc.mallinfo2(), "7") - before)
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(machine._glibc(), "mallinfo2"), reason="glibc's numbers")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_batches_of_ever_new_shapes_leave_nothing_behind():
    environment = {name: value for name, value in os.environ.items() if name != machine._KERNELS}
    command = [sys.executable, "-c", USED_BY_SHAPES]
    used = {
        how: int(subprocess.run([*command, how], env=environment, check=True, capture_output=True, text=True).stdout)
        for how in ("plain", "tuned")
    }
    assert used["tuned"] < 1_000_000
    assert used["plain"] > 2 * used["tuned"]  # else it is not needed any more


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_threads_share_the_work_in_order_with_one_core_each(four_threads):
    together = threading.Barrier(4)

    def work(item):
        together.wait(timeout=30)  # all four are at work at once
        return item, threading.get_ident(), torch.get_num_threads()

    items, threads, cores = zip(*machine.in_threads(work, range(8)), strict=True)
    assert items == tuple(range(8))
    assert len(set(threads)) == 4
    assert set(cores) == {1}
    assert torch.get_num_threads() == 4


def test_an_error_in_a_thread_comes_out(four_threads):
    with pytest.raises(ZeroDivisionError):
        machine.in_threads(lambda item: 1 / item, [1, 0, 2])
    assert torch.get_num_threads() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(four_threads):
    machine.in_threads(lambda item: item, range(8))
    child = os.fork()
    if child == 0:
        os._exit(0 if machine.in_threads(lambda item: item + 1, range(8)) == list(range(1, 9)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_where_proc_does_not_tell_the_peak_the_system_is_asked(tmp_path, monkeypatch):
    pytest.importorskip("resource")
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t    1000 kB\n", encoding="ascii")  # as gVisor has it
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    assert machine.resident_memory() == 1_024_000
    assert machine.peak_memory() > 10_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak")
def test_a_training_does_not_report_the_peak_of_the_one_before(tmp_path):
    machine.tune()
    torch.ones(100_000_000)  # 400 MB, freed at once
    before = machine.peak_memory_gb()
    begin(tmp_path / "checkpoints", {}, resume=False)
    assert machine.peak_memory_gb() < before - 0.3
    low = machine.peak_memory()
    torch.ones(50_000_000)
    assert low + 190e6 < machine.peak_memory() < low + 250e6
