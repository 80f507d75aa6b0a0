"""How close the mixer and the encoder come to their floor: the matrix products that nothing can avoid, timed alone.

The mixer's floor is one product with a width×width matrix and four with a width×heads one; forward and backward
together three and twelve. The encoder's is that of its mixers and two products for each feed-forward block, and one
for pooling. All are timed as x @ W with matrices of that size, in turns with what they are compared with, on the same
input, and the ratio of medians counts.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fastformer.bench.allocations import peak_bytes
from fastformer.bench.comparators import as_released, unfolded
from fastformer.bench.measuring import (
    Step,
    describe_machine,
    in_turns,
    machine_line,
    measuring,
    result_folder,
    timing,
)
from fastformer.mixers import build_mixer
from fastformer.mixers.fastformer_reference import reference
from fastformer.modeling import FastformerConfig, FastformerModel
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import progress_bar

SIZES = ((8, 2048), (2, 8192), (1, 65_536))
TITLES = (256, 48)
WIDTH, HEADS, LAYERS, VOCABULARY = 256, 16, 2, 30_000
_FILE = "floor.json"


def floor(
    output: str | Path, *, repetitions: int = 15, seed: int = 0, threads: int | None = None, show_progress: bool = True
) -> dict[str, Any]:
    """Time the mixer and the encoder against their floors; writes floor.json and floor.md to `output`."""
    folder = result_folder(output)
    sections: list[dict[str, Any]] = []
    with measuring(threads) as used, progress_bar("Measuring", total=3 * len(SIZES) + 2, show=show_progress) as advance:
        jobs = [
            *((mixer_forward, size) for size in (*SIZES, TITLES)),
            *((mixer_training, size) for size in (*SIZES, TITLES)),
            *((encoder_forward, size) for size in SIZES),
        ]
        for job, (batch, length) in jobs:
            torch.manual_seed(seed)
            name, steps = job(batch, length)
            for warm_up in steps.values():
                warm_up()
            times = in_turns(steps, repetitions if length < 60_000 else max(3, repetitions // 2))
            measured = {step: timing(seconds) for step, seconds in times.items()}
            for step, entry in measured.items():
                entry["of_floor"] = round(entry["seconds"] / measured["floor"]["seconds"], 3)
                entry["peak_mb"] = round(peak_bytes(steps[step]) / 1e6, 1)
            sections.append({"what": name, "batch": batch, "length": length, "measured": measured})
            advance(1, note=f"{name}, {length:,} tokens")
    result = {
        "machine": describe_machine(used),
        "width": WIDTH,
        "heads": HEADS,
        "repetitions": repetitions,
        "seed": seed,
        "sections": sections,
    }
    with writing_text(folder / _FILE) as file:
        file.write(json.dumps(result, indent=1))
    with writing_text(folder / "floor.md") as file:
        file.write(markdown(result))
    return result


def _mixer(form: str):
    return build_mixer("fastformer", FastformerConfig(hidden_size=WIDTH, num_attention_heads=HEADS, head_form=form))


def _products(x: torch.Tensor, wide: int, thin: int) -> Step:
    square, narrow = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, HEADS)

    @torch.no_grad()
    def run() -> None:
        for _ in range(wide):
            x @ square
        for _ in range(thin):
            x @ narrow

    return run


def mixer_forward(batch: int, length: int) -> tuple[str, dict[str, Step]]:
    """The mixer without gradients, in both forms, and the same function written without folding."""
    x, mask = torch.randn(batch, length, WIDTH), torch.ones(batch, length, dtype=torch.bool)
    headwise, full = _mixer("headwise").eval(), _mixer("full").eval()

    def forward(function: Callable, *arguments: Any) -> Step:
        @torch.inference_mode()
        def run() -> None:
            function(*arguments)

        return run

    steps = {
        "floor": _products(x, 1, 4),
        "headwise": forward(headwise, x, mask),
        "full": forward(full, x, mask),
        "headwise, unfolded": forward(unfolded, headwise, x, mask),
        "full, unfolded": forward(unfolded, full, x, mask),
        "full, as released": forward(as_released, full, x, mask),
    }
    if (batch, length) == TITLES:
        steps["headwise, equations"] = forward(reference, headwise, x, mask)
        steps["transformer"] = forward(_transformer(), x, mask)
    return "mixer, forward", steps


def mixer_training(batch: int, length: int) -> tuple[str, dict[str, Step]]:
    """The mixer forward and backward."""
    x = torch.randn(batch, length, WIDTH, requires_grad=True)
    mask, gradient = torch.ones(batch, length, dtype=torch.bool), torch.randn(batch, length, WIDTH)
    headwise, full = _mixer("headwise"), _mixer("full")

    def both(function: Callable, *arguments: Any) -> Step:
        def run() -> None:
            x.grad = None
            function(*arguments).backward(gradient)

        return run

    steps = {
        "floor": _products(x, 3, 12),
        "headwise": both(headwise, x, mask),
        "full": both(full, x, mask),
        "headwise, unfolded": both(unfolded, headwise, x, mask),
        "full, as released": both(as_released, full, x, mask),
    }
    if (batch, length) == TITLES:
        steps["transformer"] = both(_transformer(), x, mask)
    return "mixer, forward and backward", steps


def _transformer():
    return build_mixer("transformer", FastformerConfig(hidden_size=WIDTH, num_attention_heads=HEADS))


def encoder_forward(batch: int, length: int) -> tuple[str, dict[str, Step]]:
    """The encoder of two layers, from token ids to the text vector, without gradients."""
    config = FastformerConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        max_position_embeddings=length,
    )
    model = FastformerModel(config).eval()
    ids = torch.randint(3, VOCABULARY, (batch, length))

    @torch.inference_mode()
    def run() -> None:
        model(ids)

    return "encoder, forward", {
        "floor": _products(torch.randn(batch, length, WIDTH), 3 * LAYERS + 1, 4 * LAYERS),
        "encoder": run,
    }


def markdown(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{machine_line(result['machine'])}; width {result['width']}, {result['heads']} heads\n"]
    for what in dict.fromkeys(section["what"] for section in result["sections"]):
        sections = [section for section in result["sections"] if section["what"] == what]
        header = [what, *(f"{section['length']:,} × {section['batch']}" for section in sections)]
        names = dict.fromkeys(name for section in sections for name in section["measured"])
        rows = [[name, *(_cell(section["measured"].get(name)) for section in sections)] for name in names]
        lines.append(f"\n{markdown_table(header, rows)}")
    lines.append("\nTimes the floor (ms; MB of tensors alive at once). Columns: tokens × texts.\n")
    return "".join(lines)


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    return f"{entry['of_floor']:.2f} ({1000 * entry['seconds']:.1f}; {entry['peak_mb']:.0f})"
