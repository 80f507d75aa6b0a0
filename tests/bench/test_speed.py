"""The speed experiment: what it writes, what it skips, and that it can be stopped and continued."""

import importlib
import json
import socket
from contextlib import nullcontext

import pytest
from PIL import Image

from fastformer.bench.speed import markdown, speed
from fastformer.errors import Interrupted, UserError
from fastformer.mixers import available_mixers

module = importlib.import_module("fastformer.bench.speed")


class PaperProbe:
    """Costs on paper instead of real ones: `transformer` quadratic, the others linear, 1 ms and 1 MB a token."""

    jobs: list = []  # of all probes, so that tests can look
    stop_at = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def measure(self, mixer, length, batch, mode, **_):
        if length == self.stop_at:
            raise KeyboardInterrupt
        self.jobs.append((mixer, length, mode))
        cost = length * batch * (length / 64 if mixer == "transformer" else 1)
        return {"seconds": cost / 1000, "peak_memory_mb": cost}


@pytest.fixture
def on_paper(monkeypatch):
    """Replace real work: probes answer from a formula, and steps take as long as the probe said."""
    monkeypatch.setattr(module, "MemoryProbe", PaperProbe)
    monkeypatch.setattr(PaperProbe, "jobs", [])
    monkeypatch.setattr(module, "plot_speed", lambda report, mode, path: path.write_bytes(b""))
    monkeypatch.setattr(module, "build_model", lambda mixer, length, seed: mixer)
    monkeypatch.setattr(module, "build_step", lambda mixer, mode, batch, length, seed: lambda: None)

    def in_turns(steps, repetitions, advance):
        costs = {mixer: length * (length / 64 if mixer == "transformer" else 1) for mixer, length, _ in PaperProbe.jobs}
        return {mixer: [costs[mixer] / 1000] * repetitions for mixer in steps}

    monkeypatch.setattr(module, "in_turns", in_turns)
    return PaperProbe


def run(output, **options):
    return speed(output, **{"tokens": 1, "repetitions": 2, "show_progress": False, "threads": 1, **options})


def test_a_tiny_run_leaves_numbers_a_table_and_plots(tmp_path, toy, probe, monkeypatch):
    monkeypatch.setattr(module, "MemoryProbe", lambda: nullcontext(probe))
    report = run(tmp_path, lengths="16,32", mixers=f"fastformer,{toy}", tokens=64)
    text = (tmp_path / "speed.json").read_text()
    assert json.loads(text) == report
    assert len(report["results"]) == 2 * 2 * 2
    for result in report["results"]:
        assert result["batch"] * result["length"] == 64
        assert result["seconds"] > 0
        assert len(result["all_seconds"]) == 2
        assert result["peak_memory_mb"] > 0
    assert {"cpu", "cores", "threads", "torch"} <= set(report["machine"])
    assert socket.gethostname() not in text
    assert "--lengths 16,32 --mixers fastformer,toy --tokens 64" in report["command"]
    assert (tmp_path / "speed.md").read_text() == markdown(report)
    for mode in ("training", "inference"):
        with Image.open(tmp_path / f"speed-{mode}.png") as image:
            assert image.format == "PNG"
            assert image.width > 1000
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".png", ".png"]


def test_a_registered_mixer_appears_by_itself(tmp_path, toy, on_paper):
    report = run(tmp_path, lengths=[64])
    assert [one["mixer"] for one in report["results"] if one["mode"] == "training"] == available_mixers()
    assert markdown(report).count(f"| {toy} ") == 4  # time and memory of both modes


def skipped(report):
    return {(one["mixer"], one["length"]): one["skipped"] for one in report["results"] if "skipped" in one}


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"time_budget": 1.5}, "would take longer than the time budget"), ({"memory_budget": 1.5}, "the memory budget")],
)
def test_a_budget_stops_one_method_and_says_so(tmp_path, on_paper, budget, reason):
    budgets = {"time_budget": 1e9, "memory_budget": 1e9, **budget}
    report = run(tmp_path, lengths=[64, 128, 256, 512, 1024], mixers="transformer,linear", **budgets)
    reasons = skipped(report)
    assert list(reasons) == [("transformer", 512), ("transformer", 1024)]  # seen to take 1.02, predicted 4.1
    assert reason in reasons["transformer", 512]
    assert reasons["transformer", 1024] == "skipped: already 512 tokens were too much"
    assert ("transformer", 512, "training") not in on_paper.jobs  # predicted, not tried
    assert f"transformer, training, 512 tokens: {reasons['transformer', 512]}" in (tmp_path / "speed.md").read_text()


def test_the_first_length_may_be_too_much_already(tmp_path, on_paper):
    report = run(tmp_path, lengths=[256, 512], mixers="transformer,linear", time_budget=0.4)
    assert "takes longer than the time budget" in skipped(report)["transformer", 256]
    assert ("linear", 512) in skipped(report)


def test_stopped_and_resumed_measures_nothing_twice(tmp_path, on_paper, monkeypatch):
    monkeypatch.setattr(on_paper, "stop_at", 256)
    options = {"lengths": [64, 128, 256], "mixers": "linear,fastformer"}
    with pytest.raises(Interrupted, match="--resume"):
        run(tmp_path, **options)
    stopped = json.loads((tmp_path / "speed.json").read_text())
    assert {one["length"] for one in stopped["results"]} == {64, 128}

    with pytest.raises(UserError, match="--resume continues"):
        run(tmp_path, **options)
    with pytest.raises(UserError, match="another tokens"):
        run(tmp_path, **options, resume=True, tokens=2)

    monkeypatch.setattr(on_paper, "stop_at", None)
    on_paper.jobs.clear()
    resumed = run(tmp_path, **options, resume=True)
    assert {length for _, length, _ in on_paper.jobs} == {256}
    assert [one for one in resumed["results"] if one["length"] < 256] == stopped["results"]
    run(tmp_path, **{**options, "mixers": "linear"}, resume=True)
    assert len(on_paper.jobs) == 4
    assert len(json.loads((tmp_path / "speed.json").read_text())["results"]) == 12  # what is there stays there


def test_a_larger_budget_reaches_further_on_resume(tmp_path, on_paper):
    options = {"lengths": [64, 128, 256], "mixers": "transformer"}
    assert skipped(run(tmp_path, **options, time_budget=0.3))
    assert not skipped(run(tmp_path, **options, time_budget=3, resume=True))


def test_mistakes_are_explained(tmp_path):
    with pytest.raises(UserError, match="unknown mixer 'nonsense'"):
        run(tmp_path, mixers="linear,nonsense")
    for lengths in ("128;256", "0,128", ""):
        with pytest.raises(UserError, match="--lengths"):
            run(tmp_path, lengths=lengths)
    (tmp_path / "speed.json").write_text("{")
    with pytest.raises(UserError, match="was not written by"):
        run(tmp_path, resume=True)
    with pytest.raises(UserError, match="cannot be made a folder"):
        run(tmp_path / "speed.json")
