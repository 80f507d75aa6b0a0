"""A server under load, measured with tools that nobody here wrote: wrk for what it can, hey for a rate that is given.

Requests a second and latencies by the number of clients and the length of texts, with batches and one request at a
time, beside the same model in Python: on all texts at once, and in a loop. Then half of what it can, for the latency
that people see, and twice of it, for what is refused, what is answered wrongly (nothing) and what memory does.

Server and clients share the machine: give --threads fewer than it has cores.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastformer.bench.measuring import describe_machine, measuring, result_folder
from fastformer.bench.serving_plot import plot_serving
from fastformer.data.corpus import builtin_rows
from fastformer.errors import UserError
from fastformer.runs.folder import Run
from fastformer.surroundings.files import write_json
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.verbs import load

TEXTS = 256  # different ones, in turn
_ALONE = ("--batch-tokens", "1", "--wait", "0")
_CROWD = 1024  # clients at twice what it can: more than may wait, so that some are refused
_QUANTILES = (50, 95, 99)
_MEMORY_POINTS = 20  # of its memory in the report, from first to last
# wrk sends these texts in turn, and says what it found as JSON.
_SCRIPT = """
local bodies, place = {}, 0
for line in io.lines("%s") do bodies[#bodies + 1] = line end
request = function()
  place = place %% #bodies + 1
  return wrk.format("POST", "%s", {["Content-Type"] = "application/json"}, bodies[place])
end
done = function(summary, latency)
  local e = summary.errors
  io.stdout:write(string.format(
    '\\nRESULT {"requests": %%d, "seconds": %%f, "p50": %%f, "p95": %%f, "p99": %%f, "failed": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def serving(
    run: Run,
    output: str | Path | None = None,
    *,
    clients: Sequence[int] = (1, 16, 64),
    words: Sequence[int] = (50, 500),
    seconds: float = 10,
    overload_seconds: float = 60,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Measure a run that takes texts; with `output` serving.json there has the numbers, serving.png the picture."""
    for tool in ("wrk", "hey"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not installed; run: apt-get install {tool}")
    predictor = load(run)
    route = "/predict" if "label_kind" in run.record else "/embed"
    answer = predictor.predict if route == "/predict" else predictor.vectors
    rows: list[dict[str, Any]] = []
    with (
        measuring(threads) as used,
        tempfile.TemporaryDirectory() as place,
        progress_bar("Measuring", show=show_progress) as advance,
    ):
        for length in words:
            texts = texts_of_words(length, TEXTS)
            bodies = Path(place) / f"{length}.jsonl"
            bodies.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in texts), encoding="utf-8")
            list(answer(texts[:8]))
            rows.append({"words": length, "how": "python, all at once", **_offline(answer, [texts], seconds)})
            rows.append(
                {"words": length, "how": "python, in a loop", **_offline(answer, [[t] for t in texts], seconds)}
            )
            advance(2)
            for how, options in (("batches", ()), ("one at a time", _ALONE)):
                with _started(run, used, *options) as (address, _):
                    for number in clients:
                        found = _wrk(address, route, bodies, number, seconds)
                        rows.append({"words": length, "how": how, "clients": number, **found})
                        advance(1)
        shortest = min(words)
        best = max(row["requests_per_second"] for row in rows if row["words"] == shortest and row["how"] == "batches")
        bodies = Path(place) / f"{shortest}.jsonl"
        with _started(run, used) as (address, process):
            half = _hey(address, route, bodies, best / 2, seconds)
            advance(1)
            twice = _overload(address, route, bodies, process, 2 * best, overload_seconds)
            advance(1)
        result = {
            "run": str(run.folder),
            "route": route,
            "threads": used,
            "seconds": seconds,
            "rows": rows,
            "half_load": half,
            "twice_the_capacity": twice,
            "machine": describe_machine(used),
        }
    if output is not None:
        folder = result_folder(output)
        write_json(folder / "serving.json", result)
        plot_serving(result, folder / "serving.png")
    return result


def texts_of_words(length: int, count: int) -> list[str]:
    """Texts of so many words, cut from the built-in corpus."""
    words = [word for row in builtin_rows("test") for word in row[0].split()]
    return [" ".join(words[(start * length) % (len(words) - length) :][:length]) for start in range(count)]


def _offline(answer: Any, calls: list[list[str]], seconds: float) -> dict[str, float]:
    """Texts a second in Python, calls again and again."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds / 2:
        for texts in calls:
            done += sum(1 for _ in answer(texts))
            if time.perf_counter() - start > seconds:
                break
    return {"requests_per_second": round(done / (time.perf_counter() - start), 1)}


@contextmanager
def _started(run: Run, threads: int, *options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """A server of a run in a process of its own: its address."""
    command = [sys.executable, "-m", "fastformer", "serve", f"model={run.folder}", "--port", "0"]
    process = subprocess.Popen([*command, "--threads", str(threads), *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if " at " not in said:
            raise UserError(f"{run.folder}: the server did not start")
        yield said.split(" at ")[1].split()[0], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wrk(address: str, route: str, bodies: Path, clients: int, seconds: float) -> dict[str, float]:
    """As many requests as clients that wait for each answer can send."""
    script = bodies.with_suffix(".lua")
    script.write_text(_SCRIPT % (bodies, route), encoding="utf-8")
    command = ["wrk", "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "60s", "-s", str(script)]
    said = subprocess.run([*command, address], capture_output=True, text=True, check=True).stdout
    found = json.loads(next(line for line in said.splitlines() if line.startswith("RESULT ")).removeprefix("RESULT "))
    per_second = round(found.pop("requests") / found.pop("seconds"), 1)
    return {"requests_per_second": per_second, **{name: round(value, 2) for name, value in found.items()}}


def _hey(address: str, route: str, bodies: Path, rate: float, seconds: float, workers: int = 64) -> dict[str, Any]:
    """So many requests per second, however long answers take; latencies in milliseconds of those that were answered."""
    body = bodies.with_suffix(".json")
    body.write_text(bodies.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    command = [
        "hey",
        "-z",
        f"{max(1, round(seconds))}s",
        "-c",
        str(workers),
        "-q",
        f"{rate / workers:.3f}",
        "-o",
        "csv",
    ]
    command += ["-m", "POST", "-T", "application/json", "-D", str(body), address + route]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = lines[0].split(",")
    found = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]
    took = sorted(1000 * float(one["response-time"]) for one in found if one["status-code"] == "200")
    quantiles = {f"p{share}": round(took[min(len(took) - 1, len(took) * share // 100)], 2) for share in _QUANTILES}
    statuses = Counter(one["status-code"] for one in found)
    return {"asked_per_second": round(rate, 1), "statuses": dict(statuses), **(quantiles if took else {})}


def _overload(
    address: str, route: str, bodies: Path, process: subprocess.Popen, rate: float, seconds: float
) -> dict[str, Any]:
    """More than it can, while somebody looks at the answers and at its memory."""
    body = bodies.read_text(encoding="utf-8").splitlines()[1].encode()
    expected = _ask(address + route, body)[1]
    stop, memory = threading.Event(), []
    seen: Counter[str] = Counter()

    def look() -> None:
        while not stop.wait(0.2):
            status, content = _ask(address + route, body)
            seen["wrong" if status == 200 and not _same(content, expected) else str(status)] += 1
            memory.append(_resident(process.pid))

    looking = threading.Thread(target=look)
    looking.start()
    found = _hey(address, route, bodies, rate, seconds, _CROWD)
    stop.set()
    looking.join()
    after = _ask(address + route, body)
    return {
        **found,
        "seconds": seconds,
        "looked_at": dict(seen),
        "megabytes": memory[:: max(1, len(memory) // _MEMORY_POINTS)],
        "answers_afterwards": after[0] == 200 and _same(after[1], expected),
    }


def _ask(url: str, body: bytes) -> tuple[int, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, None


def _same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return abs(one - other) < 1e-4 if isinstance(one, float) and isinstance(other, float) else one == other


def _resident(process: int) -> int:
    """Megabytes that a process holds."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))
