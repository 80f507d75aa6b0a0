"""A process of our own ends with the one that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTS_ONE = """
import os, time
from fastformer.surroundings.processes import one_process

if __name__ == "__main__":
    process = one_process()
    print(process.submit(os.getpid).result(), flush=True)
    process.submit(time.sleep, 600)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child that its parent is gone")
def test_it_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(STARTS_ONE)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # it is there
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 60
    while _lives(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(child)


def _lives(process: int) -> bool:
    """Whether it runs: one that has ended and that nobody waits for (Z) does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
