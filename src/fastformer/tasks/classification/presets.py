"""Presets: complete settings under one name.

`default` is our own, measured to be good on an unknown dataset without tuning (docs/RESULTS.md); `encoder` is the same
without its linear n-gram channel. The `paper-*` presets are the columns of the paper's Table "hyper", every row, for
whichever mixer is chosen: rows that concern another method are in the configuration and have no effect. The paper
starts from GloVe vectors: add `--init FILE`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from fastformer.errors import UserError
from fastformer.training import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """Settings of a classification run."""

    tokenizer: str  # word, pieces, bpe, nltk, or the path of a saved tokenizer
    vocab_size: int
    min_frequency: int
    max_length: int  # tokens; longer texts are cut
    training: TrainingSettings
    model: dict[str, Any] = field(default_factory=dict)  # fields of FastformerConfig
    ngrams: bool = False  # put the n-gram channel beside the encoder (ngrams.py)
    crop: int | None = None  # train on so many tokens in a row of a longer text, from another place in every epoch
    passes: int = 1  # over the training data, per epoch, that is, between two looks at the held-out texts
    class_power: float = 0.0  # a class weighs (its share)^-power in the losses: 0 the usual, 1 balanced
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is

    def with_overrides(
        self,
        *,
        tokenizer: str | None,
        max_length: int | None,
        epochs: int | None,
        batch_size: int | None,
        learning_rate: float | None,
        seed: int,
        class_weight: str | None = None,
    ) -> "Preset":
        """A copy with every setting that is given (not None)."""
        if class_weight not in (None, "balanced"):
            raise UserError(f"class weight {class_weight!r}: there is only 'balanced'; give that, or none")
        own = {"tokenizer": tokenizer, "max_length": max_length, "class_power": 1.0 if class_weight else None}
        training = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "seed": seed}
        own, training = (
            {name: _plain(value) for name, value in settings.items() if value is not None}
            for settings in (own, training)
        )
        return replace(self, **own, training=replace(self.training, **training))

    def for_size(self, texts: int, tokens: int) -> "Preset":
        """Settle what is left open (`None`) by the size of the training data: texts, and tokens of one pass.

        Small data takes smaller batches and more passes, for STEPS in all, as far as the tokens allow; the table of
        word pairs needs no more rows than there are tokens.
        """
        training, model = self.training, dict(self.model)
        batch_size, epochs, learning_rate = training.batch_size, training.epochs, training.learning_rate
        passes = self.passes
        if batch_size is None:
            batch_size = 32 if texts < 3000 else 64
        if epochs is None:
            allowed = min(max(PASSES * tokens, FEWEST_TOKENS), MOST_TOKENS) / max(1, tokens)
            epochs = min(MOST_PASSES, max(3, round(min(STEPS * batch_size / texts, allowed))))
            passes = -(-epochs // MOST_EPOCHS)
            epochs = round(epochs / passes)
        if learning_rate is None:
            learning_rate = 4e-3
        if "bigram_buckets" in model:
            model["bigram_buckets"] = min(model["bigram_buckets"], 2 ** max(10, tokens.bit_length()))
        training = replace(training, batch_size=batch_size, epochs=epochs, learning_rate=learning_rate)
        return replace(self, training=training, model=model, passes=passes)


STEPS = 1600
PASSES = 6
FEWEST_TOKENS, MOST_TOKENS = 2_000_000, 12_000_000
MOST_PASSES, MOST_EPOCHS = 40, 10
QUADRATIC_TOKENS = 4096  # the longest text of a method whose time is quadratic
MEMORY_TOKENS = 1_000_000  # the longest text: it takes 2 GB in the encoder


def has_longest(mixer: str, model: dict[str, Any]) -> bool:
    """Whether a model has weights for so many places and no more: its length must be settled before it is built."""
    return mixer == "linformer" or model.get("position_embedding_type", "learned") == "learned"


def _plain(value: Any) -> Any:
    """A number of NumPy's, as a grid search may give, as one of Python's, which JSON can hold."""
    return value.item() if hasattr(value, "item") else value


def _paper(max_length: int, wide: int, pooling_window: int, block: int) -> Preset:
    return Preset(
        tokenizer="nltk",
        vocab_size=50_000,
        min_frequency=2,
        max_length=max_length,
        training=TrainingSettings(epochs=3, batch_size=64, learning_rate=1e-3, schedule="constant"),
        adapt_init=False,
        model={
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "intermediate_size": 256,
            "hidden_dropout_prob": 0.2,
            "window_size": wide,
            "num_global_tokens": wide,
            "num_random_tokens": wide,
            "block_size": block,
            "pooling_window_size": pooling_window,
            "projection_size": 16,
        },
    )


PRESETS = {
    "default": Preset(
        tokenizer="pieces",
        vocab_size=30_000,
        min_frequency=2,
        max_length=MEMORY_TOKENS,
        ngrams=True,
        crop=256,
        training=TrainingSettings(
            weight_decay=0.01, betas=(0.9, 0.95), warmup=0.05, fill_by="tokens", lazy_embeddings=True
        ),
        model={
            "hidden_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "position_embedding_type": "none",
            "norm": "none",
            "feed_forward": False,
            "pooling": "additive",
            "bigram_buckets": 2**18,
            "token_dropout": 0.3,
            "hidden_dropout_prob": 0.0,
            "classifier_dropout": 0.2,
            "initializer_range": 0.1,
        },
    ),
    "paper-amazon": _paper(max_length=512, wide=8, pooling_window=64, block=4),
    "paper-imdb": _paper(max_length=1024, wide=8, pooling_window=64, block=4),
    "paper-mind": _paper(max_length=2048, wide=16, pooling_window=256, block=8),
}


# The default preset's encoder by itself.
PRESETS["encoder"] = replace(PRESETS["default"], ngrams=False)


def get_preset(name: str, mixer: str) -> Preset:
    """The preset called `name`, for `mixer`."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if name.startswith("paper-"):
        # Table "hyper" gives the Transformer 512 tokens everywhere; sharing layers is Fastformer's own.
        length = 512 if mixer == "transformer" else preset.max_length
        preset = replace(preset, max_length=length, model={**preset.model, "share_layers": mixer == "fastformer"})
    elif mixer == "transformer":  # every token sees every other
        preset = replace(preset, max_length=QUADRATIC_TOKENS)
    return preset
