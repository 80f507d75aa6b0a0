"""Presets: complete settings under one name.

`paper`: the paper gives no settings for its Ad CVR data but says that the model is like the one for news
recommendation, so these are that column of its Table "hyper" (width 256, 16 heads, 1 layer, texts of 48 tokens, 50
behaviours, batches of 64, Adam at 1e-4, dropout 0.2, at most 3 epochs), with positions and layer norm on. `default` is
half as wide and learns faster, for a CPU.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fastformer.errors import UserError
from fastformer.training import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """Settings of a conversion model."""

    training: TrainingSettings
    model: dict[str, Any] = field(default_factory=dict)  # fields of FastformerConversionConfig
    tokenizer: str = "word"  # word, bpe, nltk, or the path of a saved tokenizer
    vocab_size: int = 50_000
    min_frequency: int = 2  # among the distinct texts
    max_length: int = 48  # tokens of a text; longer ones are cut
    max_behaviors: int = 50  # the latest of a longer list
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is

    def with_overrides(
        self,
        *,
        tokenizer: str | None = None,
        max_length: int | None = None,
        max_behaviors: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
    ) -> "Preset":
        """A copy with every setting that is given (not None)."""
        own = {"tokenizer": tokenizer, "max_length": max_length, "max_behaviors": max_behaviors}
        training = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "seed": seed}
        own, training = (
            {name: value for name, value in settings.items() if value is not None} for settings in (own, training)
        )
        return replace(self, **own, training=replace(self.training, **training))

    def for_size(self, rows: int) -> "Preset":
        """Settle the number of epochs where it is left open: about 1,000 steps in all, from 3 to 8 epochs."""
        training = self.training
        if training.epochs is None:
            epochs = min(8, max(3, round(1000 * training.batch_size / rows)))
            training = replace(training, epochs=epochs)
        return replace(self, training=training)


PRESETS = {
    "default": Preset(
        training=TrainingSettings(batch_size=128, learning_rate=1e-3, warmup=0.05, weight_decay=0.01),
        model={
            "hidden_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "intermediate_size": 128,
            "hidden_dropout_prob": 0.2,
            "head_size": 128,
        },
    ),
    "paper": Preset(
        training=TrainingSettings(epochs=3, batch_size=64, learning_rate=1e-4, schedule="constant"),
        model={
            "hidden_size": 256,
            "num_hidden_layers": 1,
            "num_attention_heads": 16,
            "intermediate_size": 256,
            "hidden_dropout_prob": 0.2,
            "head_size": 256,
            "window_size": 8,
            "num_global_tokens": 8,
            "num_random_tokens": 8,
            "block_size": 4,
            "pooling_window_size": 64,
            "projection_size": 16,
        },
        tokenizer="nltk",
        adapt_init=False,
    ),
}


def get_preset(name: str) -> Preset:
    """The preset called `name`."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    return PRESETS[name]
