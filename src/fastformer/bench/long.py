"""A document of a million tokens: time for each token, memory, and whether chunks change the answer.

Memory is that of a fresh process (the high-water mark of a process never falls): `measure` runs there.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fastformer.bench.measuring import describe_machine, measuring, result_folder
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification, parts
from fastformer.surroundings import machine
from fastformer.surroundings.files import writing_text

LENGTHS = (65_536, 1_000_000)
TRAINING_LENGTH = 65_536
_WHOLE = 1 << 50


def long(output: str | Path | None = None, *, seed: int = 0, threads: int | None = None) -> dict[str, Any]:
    """Read documents of 65,536 and 1,000,000 tokens, and train on one of 65,536, each in its own process."""
    with measuring(threads) as used:
        result: dict[str, Any] = {"machine": describe_machine(used), "seed": seed, "reading": []}
        for length in LENGTHS:
            result["reading"].append(_in_fresh_process("read", length, seed, used))
        result["training"] = _in_fresh_process("train", TRAINING_LENGTH, seed, used)
    short, million = result["reading"]
    result["time_per_token_ratio"] = round(million["microseconds_a_token"] / short["microseconds_a_token"], 3)
    if output is not None:
        with writing_text(result_folder(output) / "long.json") as file:
            file.write(json.dumps(result, indent=1))
    return result


def _in_fresh_process(what: str, length: int, seed: int, threads: int) -> dict[str, Any]:
    code = f"from fastformer.bench.long import measure; measure({what!r}, {length}, {seed}, {threads})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measure(what: str, length: int, seed: int, threads: int) -> None:
    """Print as JSON what one document takes (width 256, 16 heads, 2 layers): run in a process of its own."""
    machine.tune()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    model = FastformerForSequenceClassification(FastformerConfig(position_embedding_type="sinusoidal"))
    ids = torch.randint(3, model.config.vocab_size, (1, length))
    model(ids[:, :512], labels=torch.tensor([0])).loss.backward()  # libraries set themselves up
    model.zero_grad()
    model.train(what == "train")
    machine.forget_peak_memory()
    before = machine.resident_memory()
    times = []
    for _ in range(3):
        started = time.perf_counter()
        logits = _step(model, ids, what)
        times.append(time.perf_counter() - started)
    grown = machine.peak_memory_beyond(before)
    answer = {
        "length": length,
        "seconds": round(sorted(times)[1], 3),
        "microseconds_a_token": round(1e6 * sorted(times)[1] / length, 3),
        "peak_gb_beyond_the_model": None if grown is None else round(grown / 1e9, 2),
    }
    if what == "read":
        parts.PART_TOKENS = _WHOLE
        answer["largest_difference_to_one_piece"] = (_step(model, ids, what) - logits).abs().max().item()
    print(json.dumps(answer))


def _step(model: FastformerForSequenceClassification, ids: torch.Tensor, what: str) -> torch.Tensor:
    if what == "read":
        with torch.inference_mode():
            return model(ids).logits
    result = model(ids, labels=torch.tensor([0]))
    result.loss.backward()
    model.zero_grad()
    return result.logits.detach()
