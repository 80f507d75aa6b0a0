"""Presets: complete settings under one name.

`default` is our own, for a CPU. The `paper-*` presets are the columns CNN/DailyMail and PubMed of the paper's Table
"hyper", every row, for whichever mixer is chosen: rows that concern another method are in the configuration and have
no effect. The paper does not say how large its vocabulary is, nor how long a summary may be: those are ours. It starts
from GloVe vectors: add `--init FILE`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fastformer.errors import UserError
from fastformer.training import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """Settings of a summarizer."""

    tokenizer: str  # word, bpe, nltk, or the path of a saved tokenizer
    vocab_size: int
    max_length: int  # tokens of an article; longer ones are cut
    max_summary_length: int  # tokens of a summary, its end included
    training: TrainingSettings
    model: dict[str, Any] = field(default_factory=dict)  # fields of FastformerConfig
    min_frequency: int = 2
    beams: int = 5
    no_repeat_ngrams: int = 0  # a run of so many words is not written twice (repeats.py); 0: it may be
    length_penalty: float = 1.0  # a summary's score is its log-probability by its length to this power
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is

    def with_overrides(
        self,
        *,
        tokenizer: str | None = None,
        max_length: int | None = None,
        max_summary_length: int | None = None,
        beams: int | None = None,
        copy: bool | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
    ) -> "Preset":
        """A copy with every setting that is given (not None)."""
        own = {
            "tokenizer": tokenizer,
            "max_length": max_length,
            "max_summary_length": max_summary_length,
            "beams": beams,
            "model": None if copy is None else {**self.model, "copy_mechanism": copy},
        }
        training = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "seed": seed}
        own, training = (
            {name: value for name, value in settings.items() if value is not None} for settings in (own, training)
        )
        return replace(self, **own, training=replace(self.training, **training))

    def for_size(self, documents: int) -> "Preset":
        """Settle the epochs, where they are left open: about 1,000 steps in all, from 4 to 15 epochs."""
        if self.training.epochs is not None:
            return self
        epochs = min(15, max(4, round(1000 * self.training.batch_size / documents)))
        return replace(self, training=replace(self.training, epochs=epochs))


def _paper(layers: int, max_length: int, max_summary_length: int, epochs: int) -> Preset:
    return Preset(
        tokenizer="nltk",
        vocab_size=50_000,
        max_length=max_length,
        max_summary_length=max_summary_length,
        training=TrainingSettings(epochs=epochs, batch_size=32, learning_rate=1e-4, schedule="constant"),
        adapt_init=False,
        beams=5,
        model={
            "hidden_size": 256,
            "num_hidden_layers": layers,
            "decoder_layers": 4,
            "num_attention_heads": 16,
            "intermediate_size": 256,
            "hidden_dropout_prob": 0.2,
            "window_size": 64,
            "num_global_tokens": 64,
            "num_random_tokens": 64,
            "block_size": 32,
            "pooling_window_size": 256,
            "projection_size": 64,
        },
    )


PRESETS = {
    "default": Preset(
        tokenizer="bpe",
        vocab_size=8_000,
        max_length=512,
        max_summary_length=128,
        training=TrainingSettings(
            batch_size=32, learning_rate=2e-3, warmup=0.1, weight_decay=0.01, betas=(0.9, 0.98), fill_by="tokens"
        ),
        beams=4,
        no_repeat_ngrams=3,
        model={
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "decoder_layers": 2,
            "num_attention_heads": 8,
            "intermediate_size": 256,
            "hidden_dropout_prob": 0.1,
            "norm": "pre",
            "share_layers": False,
            "copy_mechanism": True,
        },
    ),
    "paper-cnn-dailymail": _paper(layers=4, max_length=2048, max_summary_length=128, epochs=12),
    "paper-pubmed": _paper(layers=2, max_length=4096, max_summary_length=512, epochs=15),
}


def get_preset(name: str, mixer: str) -> Preset:
    """The preset called `name`, for `mixer`."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if name.startswith("paper-"):
        # Table "hyper" gives the Transformer 512 tokens everywhere; sharing layers is Fastformer's own.
        length = 512 if mixer == "transformer" else preset.max_length
        preset = replace(preset, max_length=length, model={**preset.model, "share_layers": mixer == "fastformer"})
    return preset
