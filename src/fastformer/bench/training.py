"""Is training as fast as its matrix products? `train classification` from file to run folder, against these alone.

The floor of a token is what its matrix products cost, forward and backward (three times forward): for each layer the
mixer's one square product and four thin ones and the feed-forward block's two, and one for pooling. They are timed on
batches like the training's, right after it, and their token rate is compared with that of the whole command:
reading, tokenizing, batching, padding, dropout, optimizer, validation, checkpoints.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fastformer.bench.measuring import Step, describe_machine, in_turns, measuring, result_folder, timing
from fastformer.engine.optimizer import DenseAndRowAdam
from fastformer.modeling import FastformerConfig
from fastformer.runs.folder import open_run
from fastformer.surroundings.files import writing_text
from fastformer.tasks.verbs import train

VOCABULARIES = (5_000, 50_000, 500_000)
_BATCH, _WIDTH = 16_384, 256  # tokens, width of the embedding


def training(
    source: str,
    output: str | Path | None = None,
    *,
    preset: str = "paper-imdb",
    tokenizer: str | None = "word",
    epochs: int | None = None,
    threads: int | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train on `source` and compare its token rate with that of its matrix products; also time embedding updates."""
    with measuring(threads) as used, tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        options: dict[str, Any] = {"preset": preset, "tokenizer": tokenizer, "epochs": epochs}
        metrics = train("classification", source, output=run, **options, show_progress=show_progress)
        record = open_run(run)
        config = FastformerConfig.from_pretrained(run)
        settings = record.record["settings"]["training"]
        tokens = metrics["tokens"] * settings["epochs"]
        floor = _products_rate(config, metrics["tokens"] * settings["batch_size"] / metrics["rows"]["train"])
        result = {
            "machine": describe_machine(used),
            "source": Path(source).name,
            "preset": preset,
            "tokens": tokens,
            "seconds": metrics["train_seconds"],
            "tokens_a_second": round(tokens / metrics["train_seconds"]),
            "products_tokens_a_second": round(floor),
            "of_products": round(tokens / metrics["train_seconds"] / floor, 3),
            "embedding_step_ms": embedding_steps(),
        }
    if output is not None:
        with writing_text(result_folder(output) / f"training-{preset}.json") as file:
            file.write(json.dumps(result, indent=1))
    return result


def _products_rate(config: FastformerConfig, batch_tokens: float) -> float:
    """Tokens per second of the products of a training step."""
    width, layers = config.hidden_size, config.num_hidden_layers
    x = torch.randn(int(batch_tokens), width)
    square, thin = torch.randn(width, width), torch.randn(width, config.num_attention_heads)
    inner = torch.randn(width, config.intermediate_size)

    def products() -> None:
        for _ in range(3):
            for _ in range(layers):
                x @ square
                for _ in range(4):
                    x @ thin
                if config.feed_forward:
                    for _ in range(2):
                        x @ inner
            x @ square  # pooling

    products()
    return len(x) / timing(in_turns({"products": products}, 15)["products"])["seconds"]


def embedding_steps() -> dict[str, dict[str, float]]:
    """Milliseconds of an embedding's backward pass and update, all rows or those in the batch, by vocabulary size.

    Words are drawn as often as in text (Zipf's law), so larger vocabularies meet some more rows.
    """
    found = {}
    for words in VOCABULARIES:
        chances = 1 / (np.arange(words) + 2.7)
        ids = torch.from_numpy(np.random.default_rng(0).choice(words, _BATCH, p=chances / chances.sum()))
        steps = {"all rows": _embedding_step(words, ids, sparse=False), "rows met": _embedding_step(words, ids, True)}
        for step in steps.values():
            step()
        times = in_turns(steps, 9)
        found[f"{words:,}"] = {name: round(1000 * timing(taken)["seconds"], 1) for name, taken in times.items()}
    return found


def _embedding_step(words: int, ids: torch.Tensor, sparse: bool) -> Step:
    table = nn.Embedding(words, _WIDTH, sparse=sparse)
    optimizer = DenseAndRowAdam(table, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
    gradient = torch.randn(len(ids), _WIDTH)

    def step() -> None:
        table(ids).backward(gradient)
        optimizer.step()
        optimizer.zero_grad()

    return step
