"""Recommenders by name: which encoders they have, what may be chosen of them, and how they are built."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.engine.fit import check_mixers, explained_configuration
from fastformer.engine.settings import unknown
from fastformer.engine.word_encoder import load_encoder, open_encoder
from fastformer.errors import UserError
from fastformer.modeling import (
    FastformerForRecommendation,
    FimConfig,
    FimForRecommendation,
    NewsRecommender,
    RecommendationConfig,
)
from fastformer.tasks.recommendation.declaration import RecommendationSettings

_FIM_FIELDS = {one.name for one in fields(FimConfig)}


@dataclass(frozen=True)
class Architecture:
    """Which encoders a recommender has. No mixer: a pre-trained encoder reads titles; FIM has no encoders at all."""

    news_mixer: str | None
    user_mixer: str | None

    @property
    def needs_plm(self) -> bool:
        """Whether titles are read by a pre-trained encoder."""
        return self.news_mixer is None and self.user_mixer is not None


MODELS = {
    "fastformer": Architecture("fastformer", "fastformer"),
    "nrms": Architecture("transformer", "transformer"),
    "fim": Architecture(None, None),
    "plm-nr": Architecture(None, "transformer"),
    "fastformer+plm-nr": Architecture(None, "fastformer"),
}


def check_architecture(settings: RecommendationSettings) -> RecommendationSettings:
    """The settings with the mixers of the model if none are given; what it has no place for is refused."""
    model = settings.recommender
    if model not in MODELS:
        raise UserError(unknown("model", model, MODELS))
    chosen = MODELS[model]
    check_mixers(settings.news_mixer, settings.user_mixer)
    for option, given, place in (
        ("--news-mixer", settings.news_mixer, chosen.news_mixer),
        ("--user-mixer", settings.user_mixer, chosen.user_mixer),
    ):
        if given is not None and place is None:
            raise UserError(f"the model {model} has no place for {option}; leave it out, or use --model fastformer")
    if chosen.needs_plm and settings.plm is None:
        raise UserError(f"the model {model} needs --plm: a folder with a transformers encoder that reads titles")
    if settings.plm is not None and not chosen.needs_plm:
        users = " or ".join(name for name, one in MODELS.items() if one.needs_plm)
        raise UserError(f"the model {model} has no place for --plm; use --model {users}")
    if settings.init is not None and chosen.needs_plm:
        raise UserError(f"the model {model} has no place for --init: --plm reads its titles; leave it out")
    return replace(
        settings,
        news_mixer=settings.news_mixer or chosen.news_mixer,
        user_mixer=settings.user_mixer or chosen.user_mixer,
        model={name: value for name, value in settings.model.items() if model != "fim" or name in _FIM_FIELDS},
    )


def encoder_folder(settings: RecommendationSettings) -> Path | None:
    """Where the pre-trained encoder is that reads titles, if there is one."""
    return None if settings.plm is None else open_encoder(Path(settings.plm).expanduser()).folder


def build_recommender(settings: RecommendationSettings, tokenizer: PreTrainedTokenizerBase) -> NewsRecommender:
    """A recommender with random weights, or those of the pre-trained encoder."""
    folder = encoder_folder(settings)
    encoder = None if folder is None else load_encoder(folder)
    shared = {"vocab_size": 1 + max(tokenizer.get_vocab().values()), "pad_token_id": tokenizer.pad_token_id}
    shared |= {"max_history": settings.history_length}
    with explained_configuration():
        if settings.recommender == "fim":
            return FimForRecommendation(FimConfig(**{**settings.model, **shared, "max_title": settings.max_length}))
        own: dict[str, Any] = {"max_position_embeddings": settings.max_length, "user_mixer": settings.user_mixer}
        own |= {"mixer": settings.news_mixer} if encoder is None else {"plm": _portable(encoder)}
        built = FastformerForRecommendation(RecommendationConfig(**{**settings.model, **shared, **own}))
    if encoder is not None:
        built.news.plm.load_state_dict(encoder.state_dict())
        if settings.plm_layers is not None:
            built.news.freeze(settings.plm_layers)
    return built


def _portable(encoder: PreTrainedModel) -> dict[str, Any]:
    """The configuration of an encoder without where it was loaded from."""
    return {name: value for name, value in encoder.config.to_dict().items() if not name.startswith("_")}
