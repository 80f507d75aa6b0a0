"""Recommenders by name, and complete settings under one name.

`paper` is the column "MIND (recommendation)" of the paper's table of hyper-parameters, with what its authors say of
this task: it works better without layer norm and positions. `default` is a reduction for a CPU.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from fastformer.errors import UserError
from fastformer.mixers import available_mixers
from fastformer.modeling import FimConfig, RecommendationConfig
from fastformer.tasks.recommendation.clicks import NEWS_COLUMNS
from fastformer.training import TrainingSettings

# What makes a multi-head self-attention of NRMS out of a layer of ours: no residual, norm, feed-forward or positions.
_BARE = {"residual": False, "norm": "none", "feed_forward": False, "position_embedding_type": "none"}


@dataclass(frozen=True)
class Architecture:
    """Which encoders a recommender has. No mixer: a pre-trained encoder reads titles; FIM has no encoders at all."""

    news_mixer: str | None
    user_mixer: str | None
    model: dict[str, Any] = field(default_factory=dict)  # settings that belong to it, whatever the preset

    @property
    def needs_plm(self) -> bool:
        """Whether titles are read by a pre-trained encoder."""
        return self.news_mixer is None and self.user_mixer is not None


MODELS = {
    "fastformer": Architecture("fastformer", "fastformer"),
    "nrms": Architecture("transformer", "transformer", _BARE),
    "fim": Architecture(None, None),
    "plm-nr": Architecture(None, "transformer", _BARE),
    "fastformer+plm-nr": Architecture(None, "fastformer"),
}


def get_architecture(model: str, news_mixer: str | None, user_mixer: str | None, plm: Any | None) -> Architecture:
    """The recommender called `model`, with other mixers where they are given."""
    if model not in MODELS:
        raise UserError(f"unknown model {model!r}; choose from {', '.join(MODELS)}")
    chosen = MODELS[model]
    for option, given, place in (
        ("--news-mixer", news_mixer, chosen.news_mixer),
        ("--user-mixer", user_mixer, chosen.user_mixer),
    ):
        if given is not None and given not in available_mixers():
            raise UserError(f"{option} {given!r} is unknown; choose from {', '.join(available_mixers())}")
        if given is not None and place is None:
            raise UserError(f"the model {model} has no place for {option}; leave it out, or use --model fastformer")
    if chosen.needs_plm and plm is None:
        raise UserError(f"the model {model} needs --plm: a folder with a transformers encoder that reads titles")
    if plm is not None and not chosen.needs_plm:
        users = ", ".join(name for name, one in MODELS.items() if one.needs_plm)
        raise UserError(f"the model {model} has no place for --plm; use --model {users.replace(', ', ' or ')}")
    return replace(chosen, news_mixer=news_mixer or chosen.news_mixer, user_mixer=user_mixer or chosen.user_mixer)


@dataclass(frozen=True)
class RecommendationPreset:
    """Settings of a recommender."""

    title_length: int  # tokens; longer titles are cut
    history_length: int  # the last so many clicks are read
    negatives: int  # non-clicks beside each click
    training: TrainingSettings
    tokenizer: str = "word"  # word, bpe or nltk; a pre-trained encoder brings its own
    vocab_size: int = 30_000
    min_frequency: int = 1  # in titles: a word of one title tells it from all others
    fields: tuple[str, ...] = ("title",)  # columns of news.tsv that make up the text of an article
    plm_layers: int | None = None  # train so many of the last layers of a pre-trained encoder; None: all; 0: read once
    adapt_init: bool = True  # fit what --init gives to the data (warm_start.py); the paper takes GloVe as it is
    model: dict[str, Any] = field(default_factory=dict)  # fields of RecommendationConfig or FimConfig

    def with_settings(self, **settings: Any) -> "RecommendationPreset":
        """A copy with every setting that is given (not None): of this class, of the training, or of the model."""
        own, training, model = {}, {}, dict(self.model)
        for name, value in settings.items():
            if name in _OWN:
                place = own
            elif name in _TRAINING:
                place = training
            elif name in _MODEL:
                place = model
            else:
                known = ", ".join(sorted(_OWN | _TRAINING))
                raise UserError(f"unknown setting {name!r}; choose from {known} and the fields of the model")
            if value is not None:
                place[name] = value
        if "fields" in own:
            own["fields"] = _columns(own["fields"])
        return replace(self, **own, training=replace(self.training, **training), model=model)


def _columns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(given.split(",") if isinstance(given, str) else given)
    readable = [name for name in NEWS_COLUMNS if name != "id"]
    for name in names:
        if name not in readable:
            raise UserError(f"--fields: news have no column {name!r}; choose from {', '.join(readable)}")
    return names


_OWN = {one.name for one in fields(RecommendationPreset)} - {"training", "model"}
_TRAINING = {one.name for one in fields(TrainingSettings)}
_MODEL = {one.name for one in (*fields(RecommendationConfig), *fields(FimConfig))}

PRESETS = {
    "default": RecommendationPreset(
        title_length=24,
        history_length=30,
        negatives=4,
        training=TrainingSettings(epochs=4, batch_size=64, learning_rate=5e-3, warmup=0.05, pretrained_rate=0.01),
        plm_layers=0,  # a CPU takes 30 times as long with two
        model={
            "hidden_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "intermediate_size": 128,
            "hidden_dropout_prob": 0.2,
            "norm": "none",
            "position_embedding_type": "none",
            "feed_forward": False,
            "initializer_range": 0.1,
        },
    ),
    "paper": RecommendationPreset(
        title_length=48,
        history_length=50,
        negatives=4,
        training=TrainingSettings(
            epochs=3, batch_size=64, learning_rate=1e-4, schedule="constant", pretrained_rate=0.03
        ),
        plm_layers=2,
        tokenizer="nltk",
        vocab_size=50_000,
        min_frequency=2,
        adapt_init=False,
        model={
            "hidden_size": 256,
            "num_hidden_layers": 1,
            "num_attention_heads": 16,
            "intermediate_size": 256,
            "hidden_dropout_prob": 0.2,
            "norm": "none",
            "position_embedding_type": "none",
            "window_size": 8,
            "num_global_tokens": 8,
            "num_random_tokens": 8,
            "block_size": 4,
            "pooling_window_size": 64,
            "projection_size": 16,
        },
    ),
}
# FIM's own: a cube grows with the square of the title.
_FIM = {
    "default": {"title_length": 10, "history_length": 20, "hidden_size": 64, "cube_channels": (16, 8)},
    "paper": {"title_length": 20, "hidden_size": 150, "cube_channels": (32, 16)},
}


def get_preset(name: str, model: str, architecture: Architecture) -> RecommendationPreset:
    """The preset called `name` for a model."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if model != "fim":
        return replace(preset, model=preset.model | architecture.model)
    kept = {one.name for one in fields(FimConfig)}
    preset = replace(preset, model={name: value for name, value in preset.model.items() if name in kept})
    return preset.with_settings(**_FIM[name])
