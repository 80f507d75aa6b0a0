"""The command itself, killed in the middle, and again; and stopped by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import write_files
from .test_scoring import answered_one_by_one, contents, lines

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
HALF = ".saving"


def start(run: Path, source: Path, output: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "fastformer", "predict", str(run), str(source), "--output", f"{output}/"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [*command, "--workers", "2"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by who is in the background
    )


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(done, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def files_done(output: Path) -> int:
    return len(lines(output)) - 1 if (output / "manifest.jsonl").exists() else 0


def test_killed_twice_and_stopped_once(run, tmp_path):
    source, output = write_files(tmp_path / "in", count=60, rows=400), tmp_path / "out"
    for _ in range(2):
        before = files_done(output)
        command = start(run, source, output)
        wait_for(lambda: files_done(output) >= before + 5)  # noqa: B023
        workers = children(command.pid)
        assert workers
        command.kill()
        command.wait()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)  # noqa: B023
        assert before + 5 <= files_done(output) < 62
    before = files_done(output)
    command = start(run, source, output)
    wait_for(lambda: files_done(output) >= before + 5)
    all_of_it = [command.pid, *children(command.pid)]
    for pid in all_of_it:
        os.kill(pid, signal.SIGSTOP)  # it, or its workers without it, would be done before the other has begun
    other = start(run, source, output)
    assert "another command is writing there" in other.communicate(timeout=300)[1]
    assert other.returncode == 75
    command.send_signal(signal.SIGINT)
    for pid in all_of_it:
        os.kill(pid, signal.SIGCONT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "of 62 files are done, and the same command continues" in said
    assert not [name for name in contents(output) if name.endswith(HALF)]
    command = start(run, source, output)
    printed, said = command.communicate(timeout=600)
    assert command.returncode == 0, said
    assert "were done before" in printed
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")
