"""Memory that is kept for the next step is given back in the end."""

import sys

import pytest
import torch

from fastformer import machine


def resident_megabytes() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


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
