"""The same files on a Ray cluster of two nodes, of which one is lost."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fastformer.errors import UserError
from fastformer.scale.scoring import score_files

from .conftest import write_files
from .test_scoring import answered_one_by_one, contents, lines

pytestmark = pytest.mark.slow
quiet = {"show_progress": False}


@pytest.fixture(autouse=True)
def not_nice(monkeypatch):
    """On a busy machine Ray's workers, which step back for everybody, would starve."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of two logical CPUs; logical, because a Ray without a CPU to spare waits for ever."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def actors() -> list[int]:
    """Processes that hold a run."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::_Actor" in command.read_bytes():
                found.append(int(command.parent.name))
        except OSError:
            continue
    return found


def test_a_lost_actor_and_a_lost_node_lose_no_row(run, tmp_path, cluster):
    source, output = write_files(tmp_path / "in", count=60, rows=100), tmp_path / "out"
    lost: list[str] = []

    def lose() -> None:
        while not output.exists() or len(lines(output)) < 3:
            time.sleep(0.1)
        os.kill(actors()[0], signal.SIGKILL)
        lost.append(f"an actor after {len(lines(output)) - 1} files")
        while len(lines(output)) < 12:
            time.sleep(0.1)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        lost.append(f"a node after {len(lines(output)) - 1} files")

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    done = score_files("predict", run, source, output, engine="ray", address=cluster.address, workers=3, **quiet)
    thread.join(10)
    assert len(lost) == 2, lost
    assert done.files == 62
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")  # none missing, none twice
    assert score_files("predict", run, source, output, engine="ray", address=cluster.address, **quiet).before == 62


def test_a_cluster_of_this_machine(run, tmp_path):
    pytest.importorskip("ray")
    source, output = write_files(tmp_path / "in"), tmp_path / "out"
    done = score_files("predict", run, source, output, engine="ray", workers=2, **quiet)
    assert done.rows == 100
    assert contents(output) == answered_one_by_one(run, source, tmp_path / "alone")


def test_nobody_at_the_address(run, tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="no Ray cluster answers there"):
        score_files(
            "predict", run, write_files(tmp_path / "in"), tmp_path / "out", engine="ray", address="127.0.0.1:1", **quiet
        )
