"""The server as a process: it listens, holds under load and with bad clients, reloads, and stops as it is told."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fastformer.errors import UserError
from fastformer.serve import Limits
from fastformer.serve import server as server_module
from fastformer.serve.server import named_runs, serve

ROOT = Path(__file__).parents[2]


class Process:
    """`fastformer serve` on a free port."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fastformer", "serve", *map(str, arguments), "--port", "0", "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = self.process.stdout.readline()
        assert "Serving" in self.said, self.process.stderr.read()
        self.address = self.said.split(" at ")[1].split()[0]
        self.port = int(self.address.rsplit(":", 1)[1])

    def ask(self, path, body=None, timeout=30):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def text(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as answer:
            return answer.read().decode()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def started():
    processes = []

    def start(*arguments):
        processes.append(Process(*arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def test_it_listens_here_only_sheds_load_reloads_and_stops(started, classifier, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(classifier, run)
    server = started(run, f"second={classifier}", "--grace", "10", "--queue", "2", "--wait", "0")
    assert server.address.startswith("http://127.0.0.1:")
    assert "run (classification), second (classification)" in server.said
    before = server.ask("/predict", {"inputs": "a hammer"})
    assert before[0] == 200

    # What the guide asks, it answers.
    guide = (ROOT / "docs" / "guide" / "serving.md").read_text(encoding="utf-8")
    asked = [line for line in guide.replace("\\\n", " ").splitlines() if line.startswith("curl ")]
    assert asked
    for command in asked if shutil.which("curl") else ():
        command = command.replace("localhost:8000", server.address)
        found = subprocess.run(f"{command} --silent --fail", shell=True, capture_output=True, text=True, timeout=30)
        assert found.returncode == 0, command
        assert found.stdout

    # More than it can is refused, and answers stay right.
    body = {"inputs": ["soup and bread " * 400] * 10}
    expected, answers = server.ask("/predict", body)[1], []
    threads = [threading.Thread(target=lambda: answers.append(server.ask("/predict", body))) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200, 429}
    for status, found in answers:
        if status == 200:
            assert [one[0]["label"] for one in found] == [one[0]["label"] for one in expected]
        else:
            assert found["error_type"] == "Overloaded"
    assert server.ask("/health") == (200, {"status": "ok"})

    # A broken run does not take the place of one that answers.
    (run / "model.safetensors").write_bytes(b"broken")
    status, said = server.ask("/reload", {})
    assert status == 409
    assert "still answers" in said["error"]
    assert server.ask("/predict", {"inputs": "a hammer"}) == before
    shutil.copy(classifier / "model.safetensors", run)
    assert server.ask("/reload", {}) == (200, {"reloaded": ["run", "second"]})
    server.process.send_signal(signal.SIGHUP)

    # A client that sends half a request, and one that goes away, keep nobody waiting.
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    gone = socket.create_connection(("127.0.0.1", server.port))
    body = json.dumps({"inputs": ["soup " * 2000] * 20}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    gone.sendall(head.encode() + body)
    gone.close()
    assert server.ask("/predict", {"inputs": "a hammer"}) == before

    # What runs is finished; what comes later finds nobody.
    answers.clear()
    long = {"inputs": [f"{number} " + "soup and bread " * 3000 for number in range(200)]}
    working = threading.Thread(target=lambda: answers.append(server.ask("/predict", long)))
    working.start()
    while "fastformer_open_requests 3.0" not in server.text(
        "/metrics"
    ):  # this one, the slow client's, and the long one
        time.sleep(0.01)
    assert not answers
    assert server.stop() == 0
    working.join()
    [(status, found)] = answers
    assert status == 200
    assert len(found) == 200
    slow.close()
    with pytest.raises(OSError, match="refused"):
        server.ask("/health")


def test_uvicorn_is_told_how_many_connections_may_be_open(classifier, monkeypatch):
    told = []
    monkeypatch.setattr(server_module._Server, "run", lambda self, sockets: told.append(self.config.limit_concurrency))
    monkeypatch.setattr(server_module, "_settle", lambda: None)  # of this process, which goes on
    serve({"model": classifier}, port=0, limits=Limits(queue=3, connections=4))
    serve({"model": classifier}, port=0)
    assert told == [7, 1536]


@pytest.mark.parametrize("host", ["caf\udce9", "a\0b", "x" * 100 + ".org", "999.1.1.1"])
def test_a_host_that_cannot_be_one_is_said(host, tmp_path):
    with pytest.raises(UserError, match="cannot listen there"):
        serve({"run": tmp_path}, host=host, port=0)


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: cannot listen there"):
            serve({"nothing": tmp_path}, port=port)


def test_names_of_models(tmp_path):
    (tmp_path / "run").mkdir()
    runs = named_runs([str(tmp_path / "run"), f"other={tmp_path}/x"])
    assert [*runs] == ["run", "other"]
    with pytest.raises(UserError, match="two models are called run"):
        named_runs([str(tmp_path / "run"), f"run={tmp_path}"])
    with pytest.raises(UserError, match="without a slash"):
        named_runs(["a/b=c"])
