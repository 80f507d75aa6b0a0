"""What a method costs on paper and in this package: parameters and multiply-adds of the real modules.

Multiply-adds are counted by torch while the mixer runs on a text, one for each multiplication in a matrix product or an
attention kernel; softmax, norms and everything else elementwise are not counted. The paper's formulas stand beside.

They differ, and this is why. The paper's orders leave out the linear maps from and to tokens ("not taken into account
by many prior works"), which are most of the count at usual lengths: 4·N·d² for the methods with queries, keys, values
and an output map, N·d² for the folded Fastformer. Its parameter formulas 3hd² + 2hd and 4hd² let d be the width of one
head and count the maps of a head as d×d, as if a head read its own slice of the token. In the real modules, the
paper's equations among them, a head's query, key and value maps read the whole token, hd numbers: hd×d per head, (hd)²
for all. Only Fastformer's W_r is d×d per head. Biases, which the formulas leave out, are counted too.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from fastformer.bench.measuring import result_folder
from fastformer.bench.steps import PRESET, configuration
from fastformer.errors import UserError
from fastformer.mixers import available_mixers, build_mixer
from fastformer.modeling import FastformerConfig
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table

# The paper's complexity table, in its symbols; evaluated with what stands for them here: N and d are length and width,
# K the tokens that one token attends to, 1/ε² Linformer's projection size, w Poolingformer's larger window.
_ORDERS: dict[str, tuple[str, Callable[[int, FastformerConfig], int]]] = {
    "transformer": ("N²·d", lambda n, c: n * n * c.hidden_size),
    "longformer": ("N·K·d", lambda n, c: n * (c.window_size + c.num_global_tokens) * c.hidden_size),
    "bigbird": (
        "N·K·d",
        lambda n, c: n * (c.window_size + c.num_global_tokens + c.num_random_tokens) * c.hidden_size,
    ),
    "linformer": ("N·d/ε²", lambda n, c: n * c.hidden_size * c.projection_size),
    "linear": ("N·d²", lambda n, c: n * c.hidden_size**2),
    "poolingformer": ("N·d·w", lambda n, c: n * c.hidden_size * c.pooling_window_size),
    "fastformer": ("N·d", lambda n, c: n * c.hidden_size),
}
# Its parameter formulas: h heads of width d.
_PARAMETERS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "transformer": ("4hd²", lambda h, d: 4 * h * d * d),
    "fastformer": ("3hd²+2hd", lambda h, d: 3 * h * d * d + 2 * h * d),
}


def complexity(
    *, width: int = 256, heads: int = 16, length: int = 1024, output: str | Path | None = None
) -> dict[str, Any]:
    """Count parameters and multiply-adds of every registered mixer for one text of `length` tokens.

    The other settings are those of the `paper-mind` preset. With `output`, a folder, complexity.json and complexity.md
    are written there.
    """
    if width % heads:
        raise UserError(f"--width {width} is not divisible by --heads {heads}")
    methods = {}
    for name in available_mixers():
        config, longer = (
            configuration(name, size, hidden_size=width, num_attention_heads=heads) for size in (length, 2 * length)
        )
        mixer = build_mixer(name, config)
        count = count_multiply_adds(mixer, length, width)
        order, evaluate = _ORDERS.get(name, (None, None))
        formula, parameters = _PARAMETERS.get(name, (None, None))
        methods[name] = {
            "parameters": sum(parameter.numel() for parameter in mixer.parameters()),
            "paper_parameters_formula": formula,
            "paper_parameters": parameters and parameters(heads, width // heads),
            "multiply_adds": count,
            "growth_at_twice_the_length": count_multiply_adds(build_mixer(name, longer), 2 * length, width) / count,
            "paper_order": order,
            "paper_order_evaluated": evaluate and evaluate(length, config),
        }
    report = {
        "command": f"fastformer bench complexity --width {width} --heads {heads} --length {length}",
        "preset": PRESET,
        "width": width,
        "heads": heads,
        "length": length,
        "methods": methods,
    }
    if output is not None:
        folder = result_folder(output)
        with writing_text(folder / "complexity.json") as file:
            json.dump(report, file, indent=2, ensure_ascii=False)
        with writing_text(folder / "complexity.md") as file:
            file.write(markdown(report))
    return report


@torch.no_grad()
def count_multiply_adds(mixer: torch.nn.Module, length: int, width: int) -> int:
    """Multiplications in the matrix products of one real forward over a text of `length` tokens.

    torch counts the operations that the dispatcher sees, so it does not matter how the mixer is written. It knows
    every product that our mixers use but the CPU's attention kernel, which is added here.
    """
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={kernel: _attention_operations}) as counter:
        mixer.eval()(torch.randn(1, length, width), torch.ones(1, length, dtype=torch.bool))
    return counter.get_total_flops() // 2  # torch counts a multiplication and an addition as two


def _attention_operations(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Both products of softmax attention, from the shapes of its inputs."""
    return sdpa_flop_count(query, key, value)


def markdown(report: dict[str, Any]) -> str:
    """The report as people read it."""
    size = f"width {report['width']}, {report['heads']} heads, {report['length']:,} tokens"
    return f"# Complexity of a mixer: {size}\n\n{counted(report)}\n```bash\n{report['command']}\n```\n"


def counted(report: dict[str, Any]) -> str:
    """The counts as a Markdown table, with the reasons why formulas and modules differ."""
    head_width = report["width"] // report["heads"]
    rows = [
        [
            name,
            f"{one['parameters']:,}",
            _beside(one["paper_parameters_formula"], one["paper_parameters"]),
            f"{one['multiply_adds'] / 1e6:,.1f} M",
            f"{one['growth_at_twice_the_length']:.2f}×",
            _beside(one["paper_order"] and f"O({one['paper_order']})", one["paper_order_evaluated"]),
        ]
        for name, one in report["methods"].items()
    ]
    header = ["mixer", "parameters", "paper", "multiply-adds", "at 2N", "paper"]
    return "\n".join(
        [
            markdown_table(header, rows),
            f'Counted from the real modules (`{report["preset"]}` settings), beside the paper\'s formulas; "at 2N" is '
            "the growth of the count when the text is twice as long.\n",
            "- Multiply-adds are those of matrix products and attention kernels; elementwise work is not counted.",
            "- The paper's orders leave out the linear maps of tokens, which dominate at usual lengths: 4·N·d² with "
            "queries, keys, values and an output map, N·d² for the folded fastformer. Evaluated with d = "
            f"{report['width']}; K, 1/ε² and w are the window, projection and pooling window of the preset.",
            f"- The paper's parameter formulas count each head's maps as d×d with d = {head_width}, the width of one "
            "head. In the modules, as in the paper's own equations, a head's query, key and value maps read the whole "
            f"token ({report['width']}×{head_width} a head, {report['width']}×{report['width']} for all); only "
            "fastformer's W_r is d×d a head. Biases are counted too.\n",
        ]
    )


def _beside(formula: str | None, value: int | None) -> str:
    return "–" if formula is None else f"{formula} = {value:,}"
