"""From clicks to a trained recommender in a run folder: the path behind `fastformer train recommendation`."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from fastformer.data.by_time import hold_out_latest
from fastformer.data.tokenizers import load_tokenizer, train_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk
from fastformer.machine import peak_memory_gb
from fastformer.modeling import (
    FastformerForRecommendation,
    FimConfig,
    FimForRecommendation,
    NewsRecommender,
    RecommendationConfig,
)
from fastformer.resuming import begin, check_same_arrays, seconds_spent
from fastformer.run_folder import CHECKPOINTS, claim_output, save_run, unharmed
from fastformer.tasks.recommendation.card import model_card
from fastformer.tasks.recommendation.clicks import Clicks
from fastformer.tasks.recommendation.examples import ClickExamples, Titles, encode_titles, news_texts
from fastformer.tasks.recommendation.metrics import METRICS, impression_metrics
from fastformer.tasks.recommendation.presets import Architecture, RecommendationPreset, get_architecture, get_preset
from fastformer.tasks.recommendation.scoring import keep_states, score_clicks
from fastformer.training import train_model
from fastformer.warm_start import check_word_vectors, warm_start
from fastformer.word_encoder import load_encoder, open_encoder

_MOST_HELD_OUT = 5000


def fit_recommender(
    train: Clicks,
    validation: Clicks | None,
    output: Path,
    *,
    model: str = "fastformer",
    news_mixer: str | None = None,
    user_mixer: str | None = None,
    plm: str | Path | None = None,
    init: str | Path | None = None,
    preset: str = "default",
    epochs: int | None = None,
    seed: int = 0,
    show_progress: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    sources: dict[str, str | None] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train a recommender, leave a run folder at `output`, and return its metrics.

    `metrics` are those of the best epoch, by AUC, on `validation`; without it on the last tenth by time of the training
    impressions, at most 5,000 (see `hold_out_latest`). `seconds` is the time it all took. `init` is a GloVe file, or an
    encoder's folder, that the vectors of words start from. `settings` replace those of the preset, by the names of
    `RecommendationPreset`, `TrainingSettings` and the model's configuration. `sources` say in the run folder where the
    data came from.
    """
    started = time.monotonic()
    architecture = get_architecture(model, news_mixer, user_mixer, plm)
    if init is not None and architecture.needs_plm:
        raise UserError(f"the model {model} has no place for --init: --plm reads its titles; leave it out")
    check_word_vectors(init)
    chosen = get_preset(preset, model, architecture).with_settings(epochs=epochs, seed=seed, **settings)
    encoder = None if plm is None else open_encoder(Path(plm).expanduser()).folder
    folder = claim_output(output, resume=resume, overwrite=overwrite)
    checkpoints = folder / CHECKPOINTS
    with unharmed(folder), explain_full_disk(checkpoints):
        resume = begin(checkpoints, _identity(model, architecture, plm, init, chosen), resume)
        started -= seconds_spent(checkpoints)
        training, validating, held_out_by = _split(train, validation, seed)
        tokenizer = _tokenizer(training.news, chosen, encoder, checkpoints / "tokenizer")
        options = (tokenizer, chosen.fields, chosen.title_length, show_progress)
        held_out = validating.news is training.news  # the same news, read once
        titles = encode_titles(training.news, *options)
        validating_titles = titles if held_out else encode_titles(validating.news, *options)
        arrays = {"train": _arrays(training, titles), "validation": _arrays(validating, validating_titles)}
        check_same_arrays(checkpoints, arrays, resume)

        set_seed(seed)
        recommender = _build(model, architecture, chosen, tokenizer, None if encoder is None else load_encoder(encoder))
        if init is not None and not resume:  # a checkpoint has all weights
            counts = titles.counts(recommender.config.vocab_size) if chosen.adapt_init else None
            warm_start(recommender, tokenizer, init, counts=counts, seed=seed, show_progress=show_progress)
        if encoder is None:
            with torch.no_grad():  # an unknown word says nothing, until training has seen one
                recommender.get_input_embeddings().weight[tokenizer.unk_token_id] = 0
        elif chosen.plm_layers == 0:
            titles = keep_states(recommender, titles, show_progress)
            validating_titles = titles if held_out else keep_states(recommender, validating_titles, show_progress)
        examples = ClickExamples(
            training, titles, negatives=chosen.negatives, max_history=chosen.history_length, seed=seed
        )

        def validate(recommender: PreTrainedModel) -> dict[str, float]:
            scores = score_clicks(recommender, validating_titles, validating, chosen.history_length)
            metrics = impression_metrics(scores, validating.labels, validating.candidates.offsets)
            return {name: metrics[name] for name in METRICS}

        history = train_model(
            recommender,
            examples,
            validate,
            settings=chosen.training,
            collate=lambda batch: batch,  # the dataset makes whole batches
            best_metric="auc",
            folder=checkpoints,
            started=started,
            resume=resume,
            show_progress=show_progress,
        )
        epochs_scores = [{name: epoch[f"eval_{name}"] for name in METRICS} for epoch in history]
        metrics = {
            "train_seconds": round(time.monotonic() - started, 1),
            "peak_memory_gb": peak_memory_gb(),
            "rows": {"train": len(training), "validation": len(validating), "clicks": len(examples)},
            "held_out_by": held_out_by,
            "news": training.news.num_rows,
            "parameters": recommender.num_parameters(),
            "validation": max(epochs_scores, key=lambda scores: scores["auc"]),
            "epochs": epochs_scores,
        }
        record = {
            "task": "recommendation",
            "model": model,
            "news_mixer": architecture.news_mixer,
            "user_mixer": architecture.user_mixer,
            "preset": preset,
            "init": None if init is None else str(init),
            "settings": asdict(chosen),
            "data": sources or {},
        }
        card = model_card(record, metrics, folder.resolve().name)
        tables = {"news": training.news}
        save_run(folder, recommender, tokenizer, record=record, metrics=metrics, card=card, tables=tables)
    return {**metrics, "metrics": metrics["validation"], "seconds": metrics["train_seconds"]}


def _identity(
    model: str,
    architecture: Architecture,
    plm: str | Path | None,
    init: str | Path | None,
    preset: RecommendationPreset,
) -> dict[str, Any]:
    """What must be the same for a training to be continued."""
    mixers = {"news_mixer": architecture.news_mixer, "user_mixer": architecture.user_mixer}
    starts = {name: None if path is None else str(path) for name, path in (("plm", plm), ("init", init))}
    return {"recommender": model, **mixers, **starts, **asdict(preset)}


def _split(train: Clicks, validation: Clicks | None, seed: int) -> tuple[Clicks, Clicks, str | None]:
    """What to train and what to choose the epoch on, and how they were told apart if both come from `train`."""
    for part, name in ((train, "training"), (validation, "validation")):
        if part is not None and part.labels is None:
            raise UserError(f"the {name} impressions have no labels; give a folder that has them, such as train or dev")
    held_out_by = None
    if validation is None:
        rows = hold_out_latest(train.times, seed, _MOST_HELD_OUT)
        train, validation, held_out_by = train.take(rows.train), train.take(rows.validation), rows.by
    clicked = np.add.reduceat(validation.labels, validation.candidates.offsets[:-1], dtype=np.int64)
    if not ((clicked > 0) & (clicked < validation.candidates.lengths)).any():
        raise UserError(
            "no impression to validate on has both a click and a non-click; give other data to --validation"
        )
    return train, validation, held_out_by


def _arrays(clicks: Clicks, titles: Titles) -> tuple[np.ndarray, ...]:
    return (titles.ids, titles.lengths, *clicks.histories, clicks.history_of, *clicks.candidates, clicks.labels)


def _tokenizer(
    news: pa.Table, preset: RecommendationPreset, encoder: Path | None, folder: Path
) -> PreTrainedTokenizerBase:
    if folder.is_dir():  # resuming: the very same one
        return load_tokenizer(folder)
    if encoder is not None:
        tokenizer = load_tokenizer(encoder)
    else:
        options = {"vocab_size": preset.vocab_size, "min_frequency": preset.min_frequency}
        tokenizer = train_tokenizer(preset.tokenizer, news_texts(news, preset.fields), **options)
    tokenizer.model_max_length = preset.title_length
    tokenizer.save_pretrained(folder)
    return tokenizer


def _build(
    model: str,
    architecture: Architecture,
    preset: RecommendationPreset,
    tokenizer: PreTrainedTokenizerBase,
    encoder: PreTrainedModel | None,
) -> NewsRecommender:
    shared = {"vocab_size": 1 + max(tokenizer.get_vocab().values()), "pad_token_id": tokenizer.pad_token_id}
    shared |= {"max_history": preset.history_length}
    try:
        if model == "fim":
            built = FimForRecommendation(FimConfig(**{**preset.model, **shared, "max_title": preset.title_length}))
        else:
            own = {"max_position_embeddings": preset.title_length, "user_mixer": architecture.user_mixer}
            if encoder is None:
                own |= {"mixer": architecture.news_mixer}
            else:
                own |= {"plm": _portable(encoder)}
            built = FastformerForRecommendation(RecommendationConfig(**{**preset.model, **shared, **own}))
    except (ValueError, TypeError) as error:
        raise UserError(" ".join(str(error).split())) from error
    if encoder is not None:
        built.pretrained.load_state_dict(encoder.state_dict())
        if preset.plm_layers is not None:
            _freeze_all_but_last(built.pretrained, preset.plm_layers)
    return built


def _portable(encoder: PreTrainedModel) -> dict[str, Any]:
    """The configuration of an encoder without where it was loaded from."""
    return {name: value for name, value in encoder.config.to_dict().items() if not name.startswith("_")}


def _freeze_all_but_last(encoder: PreTrainedModel, layers: int) -> None:
    """Train only the last layers, or none. PLM-NR trains two, which is next to nothing less than all."""
    stack = max((one for one in encoder.modules() if isinstance(one, torch.nn.ModuleList)), key=len)
    encoder.requires_grad_(False)
    for layer in list(stack)[len(stack) - min(layers, len(stack)) :]:
        layer.requires_grad_(True)
