"""From events to a trained conversion model: the path behind `fastformer train conversion`."""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, set_seed

from fastformer.data.batches import EncodedTextsWriter, token_budget_batches
from fastformer.data.by_time import hold_out_latest
from fastformer.data.ragged import Ragged
from fastformer.data.tokenizers import KINDS, encode_batch, load_tokenizer, train_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk
from fastformer.inference import BATCH_TOKENS, chunks
from fastformer.machine import peak_memory_gb
from fastformer.modeling import FastformerConversionConfig, FastformerForConversion
from fastformer.progress import how_many, progress_bar, say
from fastformer.resuming import begin, check_same_arrays, seconds_spent
from fastformer.tasks.classification.calibration import cross_calibrated, temperature
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.conversion.data import Events, EventsWriter, Part, collect
from fastformer.tasks.conversion.events import Columns, Event
from fastformer.tasks.conversion.features import SideFeatures
from fastformer.tasks.conversion.metrics import best_metric, validation_scores
from fastformer.tasks.conversion.presets import Preset
from fastformer.training import train_model
from fastformer.warm_start import check_word_vectors, warm_start

SCORES = ("auc", "log_loss", "calibration_error")
_CONVERTED = LabelSpace("multi", ("converted",))  # one sigmoid, to whoever calibrates


@dataclass
class Fitted:
    """A trained model and how it came about."""

    model: FastformerForConversion
    tokenizer: PreTrainedTokenizerBase
    features: SideFeatures
    preset: Preset
    rows: dict[str, int]
    held_out_by: str | None  # `time` or `random`; None: validation rows were given
    texts: int  # distinct ones
    seconds: float
    history: list[dict[str, Any]]  # validation scores of every epoch
    validation: dict[str, float]  # each half of the rows calibrated on the other, so that they do not flatter it

    def metrics(self) -> dict[str, Any]:
        """What metrics.json says of the training."""
        return {
            "train_seconds": round(self.seconds, 1),
            "peak_memory_gb": peak_memory_gb(),
            "rows": self.rows,
            "held_out_by": self.held_out_by,
            "texts": self.texts,
            "parameters": self.model.num_parameters(),
            "validation": self.validation,
            "epochs": [_known({name: epoch.get(f"eval_{name}") for name in SCORES}) for epoch in self.history],
        }


def fit_conversion(
    train: Iterable[Event],
    validation: Iterable[Event] | None,
    *,
    columns: Columns,
    preset: Preset,
    mixer: str,
    user_mixer: str,
    checkpoints: Path,
    init: str | None = None,
    resume: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train on events, read once. Without `validation` the last tenth by time chooses the epoch; see `hold_out_latest`.

    `init` is a GloVe file, or an encoder's folder, that the vectors of words start from.

    `checkpoints` holds encoded events and checkpoints; the caller deletes it once the result is safe.
    """
    started = time.monotonic()
    check_word_vectors(init)
    settings = {"mixer": mixer, "user_mixer": user_mixer, "init": init, "features": columns._asdict(), **asdict(preset)}
    with explain_full_disk(checkpoints):
        resume = begin(checkpoints, settings, resume)
        started -= seconds_spent(checkpoints)
        events, rows, held_out_by = _read(train, validation, columns, preset, checkpoints, show_progress)
        training, validating = (Part(events, rows[name]) for name in ("train", "validation"))
        if training.labels.min() == training.labels.max():
            raise UserError(f"all training rows have the label {training.labels[0]}; some must have 0 and some 1")
        features = events.learn_features(columns, rows["train"])
        tokenizer = _tokenizer(training, preset, checkpoints / "tokenizer")
        events.tokens = _tokens(events.texts, tokenizer, preset, checkpoints / "texts.tokens", show_progress)
        texts, events.texts = len(events.texts), []  # from here on numbers stand for them
        _remember_data(checkpoints, events, rows, resume)

    preset = preset.for_size(len(training))
    set_seed(preset.training.seed)
    model = build_model(preset, mixer, user_mixer, tokenizer, features)
    if init is not None and not resume:  # a checkpoint has all weights
        counts = training.token_counts(model.config.vocab_size) if preset.adapt_init else None
        warm_start(model, tokenizer, init, counts=counts, seed=preset.training.seed, show_progress=show_progress)

    def validate(model: FastformerForConversion) -> dict[str, float]:
        logits = _logits(model, validating, tokenizer.pad_token_id, preset.training.batch_size)
        return validation_scores(logits, validating.labels)

    history = train_model(
        model,
        training,
        validate,
        settings=preset.training,
        collate=lambda rows: events.batch(rows, tokenizer.pad_token_id),
        best_metric=best_metric(validating.labels),
        folder=checkpoints,
        started=started,
        resume=resume,
        show_progress=show_progress,
    )
    logits = _logits(model.eval(), validating, tokenizer.pad_token_id, preset.training.batch_size)
    _calibrate(model, logits, validating.labels)
    calibrated = cross_calibrated(_CONVERTED, logits[:, None], validating.labels[:, None])
    found = validation_scores(calibrated[:, 0], validating.labels)
    return Fitted(
        model,
        tokenizer,
        features,
        preset,
        rows={name: len(part) for name, part in rows.items()},
        held_out_by=held_out_by,
        texts=texts,
        seconds=time.monotonic() - started,
        history=history,
        validation=_known({name: found.get(name) for name in SCORES}),
    )


def _known(found: dict[str, float | None]) -> dict[str, float]:
    """Without what is undefined: AUC where all rows have one label."""
    return {name: value for name, value in found.items() if value is not None}


def _read(
    train: Iterable[Event],
    validation: Iterable[Event] | None,
    columns: Columns,
    preset: Preset,
    folder: Path,
    show: bool,
) -> tuple[Events, dict[str, np.ndarray], str | None]:
    """All events in one store, the rows of each part, and how validation rows were chosen, unless they were given."""
    with progress_bar("Reading", show=show) as advance, EventsWriter(folder, columns, preset.max_behaviors) as writer:
        rows = {"train": collect(train, writer, advance)}
        if validation is not None:
            rows["validation"] = collect(validation, writer, advance)
        events = writer.finish()
    if writer.cut:
        say(f"{writer.cut:,} of {len(writer):,} rows: only the latest {preset.max_behaviors:,} behaviours are read.")
    held_out_by = None
    if validation is None:
        rows["train"], rows["validation"], held_out_by = hold_out_latest(events.times, preset.training.seed)
    return events, rows, held_out_by


def _tokenizer(training: Part, preset: Preset, folder: Path) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the distinct texts of the training rows.

    A text is read `min_frequency` times where it occurs as often: a word that one text has is known if many meet it.
    """
    if folder.is_dir():  # resuming: the very same one
        return load_tokenizer(folder)
    if preset.tokenizer in KINDS:
        counts = np.minimum(training.text_counts(), preset.min_frequency)
        texts = (text for text, count in zip(training.events.texts, counts, strict=True) for _ in range(count))
        options = {"vocab_size": preset.vocab_size, "min_frequency": preset.min_frequency}
        tokenizer = train_tokenizer(preset.tokenizer, texts, **options)
    else:
        tokenizer = load_tokenizer(preset.tokenizer)
    tokenizer.model_max_length = preset.max_length
    tokenizer.save_pretrained(folder)
    return tokenizer


def _tokens(texts: list[str], tokenizer: PreTrainedTokenizerBase, preset: Preset, path: Path, show: bool) -> Ragged:
    """Token ids of each text, in a file mapped into memory."""
    cut = 0
    with progress_bar("Encoding texts", total=len(texts), show=show) as advance, EncodedTextsWriter(path) as writer:
        for chunk in chunks(texts):
            encoded, cut_here = encode_batch(tokenizer, chunk, preset.max_length)
            cut += cut_here
            for ids in encoded:
                writer.add(ids)
            advance(len(chunk))
        written = writer.finish(None)
    if cut:
        say(f"{how_many(cut, 'texts', 'were', len(texts))} cut after {preset.max_length:,} tokens.")
    return Ragged(written.tokens, written.offsets)


def _remember_data(checkpoints: Path, events: Events, rows: dict[str, np.ndarray], resume: bool) -> None:
    arrays = (*events.behaviors, *events.tokens, events.ads, events.labels, *events.inputs.values())
    parts = {"events": arrays, **{name: (part,) for name, part in rows.items()}}
    check_same_arrays(checkpoints, parts, resume)


def build_model(
    preset: Preset, mixer: str, user_mixer: str, tokenizer: PreTrainedTokenizerBase, features: SideFeatures
) -> FastformerForConversion:
    """The model that a preset describes, with random weights."""
    try:
        config = FastformerConversionConfig(
            **{
                "max_position_embeddings": preset.max_length,
                **preset.model,
                "mixer": mixer,
                "user_mixer": user_mixer,
                "max_behaviors": preset.max_behaviors,
                "vocab_size": 1 + max(tokenizer.get_vocab().values()),  # saved tokenizers may have gaps
                "pad_token_id": tokenizer.pad_token_id,
                "num_numeric": len(features.numeric),
                "category_sizes": [1 + len(values) for values in features.categorical.values()],
            }
        )
        return FastformerForConversion(config)
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error


@torch.inference_mode()
def _logits(model: FastformerForConversion, part: Part, pad_token_id: int, most: int) -> np.ndarray:
    """Logits of all rows, at most so many at once: a batch encodes all of its texts, however many these are."""
    logits = np.zeros(len(part), dtype=np.float32)
    for similar in token_budget_batches(part.lengths, BATCH_TOKENS):
        for batch in np.array_split(similar, -(-len(similar) // most)):
            inputs = part.events.batch(part.rows[batch], pad_token_id)
            logits[batch] = model(**{name: one.to(model.device) for name, one in inputs.items()}).logits.cpu().numpy()
    return logits


@torch.no_grad()
def _calibrate(model: FastformerForConversion, logits: np.ndarray, labels: np.ndarray) -> None:
    """Divide the model's logits by the temperature that fits the validation rows best."""
    heat = temperature(_CONVERTED, logits[:, None], labels[:, None])
    model.head[-1].weight /= heat
    model.head[-1].bias /= heat
