"""From rows to a trained classifier: the one path behind `fastformer train classification` and `TextClassifier`."""

import itertools
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, set_seed

from fastformer.data.batches import EncodedTexts, PadCollator, RandomCrops, Subset
from fastformer.data.tables import Row
from fastformer.data.tokenizers import KINDS, load_tokenizer, train_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk
from fastformer.machine import peak_memory_gb
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification
from fastformer.progress import how_many, progress_bar, say
from fastformer.resuming import begin, check_same_data, seconds_spent
from fastformer.tasks.classification.calibration import cross_calibrated, divide_logits, temperature
from fastformer.tasks.classification.channel import can_fit_channel, fit_channel, outputs_of
from fastformer.tasks.classification.data import (
    LabelCounter,
    LabelKind,
    LabelSpace,
    encode_rows,
    hold_out,
    label_space,
)
from fastformer.tasks.classification.metrics import best_metric, scores, validation_scores
from fastformer.tasks.classification.ngrams import MAX_CLASSES
from fastformer.tasks.classification.presets import MEMORY_TOKENS, Preset, has_longest
from fastformer.tasks.classification.stacking import class_weights
from fastformer.tasks.classification.thresholds import cross_answers, label_thresholds
from fastformer.training import train_model
from fastformer.warm_start import kind_of, pair_rows_of, table_rate, warm_start

LONG_TEXT = 4096  # tokens, from which on it is worth saying how long the longest text is
FEW_TEXTS = 3000  # below, more than a tenth is held out, and a second training learns from those too


@dataclass
class Fitted:
    """A trained classifier and how it came about."""

    model: FastformerForSequenceClassification
    tokenizer: PreTrainedTokenizerBase
    space: LabelSpace
    preset: Preset
    rows: dict[str, int]  # texts trained and validated on
    tokens: int  # of the texts trained on
    seconds: float
    history: list[dict[str, Any]]  # validation scores of every epoch
    validation: dict[str, float]  # of the model, calibrated on the same texts
    channel: dict[str, Any] | None = None  # how the n-gram channel came about, if there is one

    def metrics(self) -> dict[str, Any]:
        """What metrics.json says of the training."""
        epochs = [
            {name.removeprefix("eval_"): value for name, value in epoch.items() if name.startswith("eval_")}
            for epoch in self.history
        ]
        return {
            "train_seconds": round(self.seconds, 1),
            "peak_memory_gb": peak_memory_gb(),
            "rows": self.rows,
            "tokens": self.tokens,
            "parameters": self.model.num_parameters(),
            "validation": self.validation,
            "epochs": epochs,
            **({} if self.channel is None else {"ngrams": self.channel}),
        }

    def record(self, preset: str, init: str | None, data: dict[str, Any]) -> dict[str, Any]:
        """What run.json says of it."""
        return {
            "task": "classification",
            "label_kind": self.space.kind,
            "mixer": self.model.config.mixer,
            "preset": preset,
            "settings": asdict(self.preset),
            "init": init,
            "data": data,
        }


def fit_classifier(
    train: Iterable[Row],
    validation: Iterable[Row] | None,
    *,
    kind: LabelKind,
    preset: Preset,
    mixer: str,
    checkpoints: Path,
    init: str | None = None,
    resume: bool = False,
    show_progress: bool = True,
    test: Iterable[Row] = (),
    unlabelled: Iterable[Row] | None = None,
    names: tuple[str, str, str, str] = ("training data", "validation data", "test data", "unlabelled data"),
) -> Fitted:
    """Train a classifier on rows that can be read more than once; `names` are what error messages call them.

    The labels of `test` are only looked at, so that a label unknown there shows before the training and not after it.
    The texts of `unlabelled` join in the vocabulary, and the n-gram channel learns from them where that is better.
    `checkpoints` holds encoded texts and checkpoints; the caller deletes it once the result is safe.
    """
    started = time.monotonic()
    if preset.class_power and kind != "single":
        what = {"multi": "these texts have any number of them", "number": "numbers have no classes"}[kind]
        raise UserError(f"balanced class weights are for one label per text: {what}; leave the class weight out")
    if init is not None:
        kind_of(init)  # a mistake shows now
    if unlabelled is not None:
        _check_unlabelled(kind, preset)
    settings = {"mixer": mixer, "init": init, "unlabelled": unlabelled is not None or None, **asdict(preset)}
    with explain_full_disk(checkpoints):
        resume = begin(checkpoints, settings, resume)
        started -= seconds_spent(checkpoints)

        tokenizer, space, total = _read_vocabulary_and_labels(
            train, unlabelled or (), kind, preset, checkpoints / "tokenizer", names[0], show_progress
        )
        stacking = preset.ngrams and can_fit_channel(space)
        if preset.ngrams and not stacking and kind != "number" and show_progress:
            say(f"{space.size:,} labels: the encoder answers alone; the n-gram channel takes {MAX_CLASSES:,} at most.")
        if unlabelled is not None and not stacking:
            raise UserError(
                f"{names[0]}: {space.size:,} labels are too many to learn from unlabelled texts; leave those out"
            )
        for number, row in enumerate(test, 1):
            space.encode([row.label], names[2], number)
        encoded = _encode(train, tokenizer, space, preset, checkpoints / "train.tokens", names[0], total, show_progress)
        if validation is None:
            training, validating = hold_out(encoded, kind, preset.training.seed, few=FEW_TEXTS if stacking else 0)
        else:
            path = checkpoints / "validation.tokens"
            training = Subset(encoded, np.arange(len(encoded)))
            encoded = _encode(validation, tokenizer, space, preset, path, names[1], None, show_progress)
            validating = Subset(encoded, np.arange(len(encoded)))
        further: EncodedTexts | None = None
        if unlabelled is not None:
            path = checkpoints / "unlabelled.tokens"
            further = _encode(unlabelled, tokenizer, None, preset, path, names[3], None, show_progress)
        if preset.max_length == MEMORY_TOKENS and has_longest(mixer, preset.model):
            longest = max(LONG_TEXT, int(max(training.lengths.max(), validating.lengths.max())))
            preset = replace(preset, max_length=longest)
            tokenizer.model_max_length = longest
        check_same_data(checkpoints, training, validating, resume, further)

    tokens = int(training.lengths.sum())
    length = preset.crop or preset.max_length
    preset = preset.for_size(len(training), int(np.minimum(training.lengths, length).sum()))
    repeated = Subset(training.texts, np.tile(training.indices, preset.passes))
    crops = RandomCrops(repeated, length, preset.training.seed)
    if init is not None:
        preset = replace(preset, model={**preset.model, **pair_rows_of(init)})
        if preset.adapt_init:
            rate = table_rate(tokens)
            preset = replace(preset, training=replace(preset.training, table_rate=rate))

    def start() -> FastformerForSequenceClassification:
        set_seed(preset.training.seed)
        model = _build_model(preset, mixer, tokenizer, space)
        if preset.class_power:
            weights = class_weights(training.labels, space.size, preset.class_power)
            model.class_weights = torch.from_numpy(weights.astype(np.float32))
        if init is not None:
            counts = training.texts.counts(model.config.vocab_size) if preset.adapt_init else None
            warm_start(model, tokenizer, init, counts=counts, seed=preset.training.seed, show_progress=show_progress)
        return model

    def train_again(texts: Subset, epochs: int) -> FastformerForSequenceClassification:
        """Train anew on all texts, the held-out ones too, for as long as was best without them."""
        passes = epochs * preset.passes  # one long epoch: there is nothing to choose by
        repeated = Subset(texts.texts, np.tile(texts.indices, passes))
        model = start()
        train_model(
            model,
            RandomCrops(repeated, length, preset.training.seed),
            lambda model: {"done": 1.0},
            settings=replace(preset.training, epochs=1),
            collate=PadCollator(tokenizer.pad_token_id),
            best_metric="done",
            folder=checkpoints / "again",
            started=started,
            resume=resume,
            show_progress=show_progress,
        )
        return model

    model = start()

    scale = _Standardizer.of(space, training.labels)
    for texts in {id(part.texts): part.texts for part in (training, validating)}.values():
        texts.labels = scale.apply(texts.labels)
    undo = scale.undo
    history = train_model(
        model,
        crops,
        validating,
        settings=preset.training,
        collate=PadCollator(tokenizer.pad_token_id),
        compute_metrics=lambda result: validation_scores(space, undo(result.predictions), undo(result.label_ids)),
        best_metric=best_metric(kind, len(validating)),
        folder=checkpoints,
        started=started,
        resume=resume,
        show_progress=show_progress,
    )
    scale.fold_into(model)
    logits, labels = _logits(model.eval(), tokenizer, validating), undo(validating.labels)
    told: dict[str, Any] | None = None
    if stacking:
        everything = Subset(encoded, np.arange(len(encoded))) if validation is None else None
        size, seed = model.config.vocab_size, preset.training.seed
        balanced = preset.class_power == 1
        stacked = fit_channel(
            tokenizer, size, space, training, validating, everything, further, logits, seed, show_progress, balanced
        )
        logits, told = stacked.logits, stacked.told
        if everything is not None and len(everything) < FEW_TEXTS and stacked.blend.encoder:
            best = max(
                range(len(history)), key=lambda epoch: history[epoch][f"eval_{best_metric(kind, len(validating))}"]
            )
            model = train_again(everything, best + 1)
        stacked.add_to(model)
    elif kind != "number":
        divide_logits(model, temperature(space, logits, labels))
        logits = cross_calibrated(space, logits, labels)
    rows = {"train": len(training), "validation": len(validating)}
    answers = None
    if kind == "multi":
        space = replace(space, thresholds=tuple(label_thresholds(logits, labels).round(4).tolist()))
        model.config.label_thresholds = list(space.thresholds)
        answers = cross_answers(logits, labels)
    found = scores(space, logits, labels, answers)
    model.class_weights = None
    return Fitted(
        model.eval(), tokenizer, space, preset, rows, tokens, time.monotonic() - started, history, found, told
    )


def _logits(
    model: FastformerForSequenceClassification, tokenizer: PreTrainedTokenizerBase, texts: Subset
) -> np.ndarray:
    return outputs_of(texts, tokenizer.pad_token_id, lambda **inputs: model(**inputs).logits)


def _check_unlabelled(kind: LabelKind, preset: Preset) -> None:
    """Refuse texts without labels where nothing would learn from them."""
    if kind != "single":
        what = "numbers" if kind == "number" else "several labels per text"
        raise UserError(f"unlabelled texts help where each text has one label, not with {what}; leave them out")
    if not preset.ngrams:
        raise UserError(
            "unlabelled texts help the n-gram channel, which this preset does not have; leave them out, "
            "or learn from them first with `fastformer train masked-words` and start from that with --init"
        )


def _read_vocabulary_and_labels(
    rows: Iterable[Row],
    unlabelled: Iterable[Row],
    kind: LabelKind,
    preset: Preset,
    folder: Path,
    where: str,
    show: bool,
) -> tuple[PreTrainedTokenizerBase, LabelSpace, int]:
    """First reading: train the tokenizer (unless a saved one is given or training resumes) and collect the labels.

    The tokenizer is trained on the texts without labels too.
    """
    counter = LabelCounter(rows, kind)
    with progress_bar("Reading", show=show) as advance:

        def texts():
            for text in counter:
                advance(1)
                yield text

        if folder.is_dir():  # resuming: the very same tokenizer
            tokenizer = load_tokenizer(folder)
        elif preset.tokenizer in KINDS:
            tokenizer = train_tokenizer(
                preset.tokenizer,
                itertools.chain(texts(), (row.text for row in unlabelled)),
                vocab_size=preset.vocab_size,
                min_frequency=preset.min_frequency,
            )
        else:
            tokenizer = load_tokenizer(preset.tokenizer)
        if not counter.total:
            for _ in texts():
                pass
    space = label_space(kind, counter.counts, where)
    if kind == "single" and len(space.names) > 20 and len(space.names) > counter.total / 2:
        say(
            f"{where}: {len(space.names):,} different labels in {counter.total:,} rows. "
            "Is it the right --label-column? For numbers there is --regression."
        )
    tokenizer.model_max_length = preset.max_length
    tokenizer.save_pretrained(folder)
    return tokenizer, space, counter.total


def _encode(rows, tokenizer, space, preset, path, where, total, show) -> EncodedTexts:
    with progress_bar("Encoding", total=total, show=show) as advance:
        encoded, cut = encode_rows(rows, tokenizer, space, preset.max_length, path, where, advance)
    if cut:
        say(f"{where}: {how_many(cut, 'texts', 'were', len(encoded))} cut after {preset.max_length:,} tokens.")
    elif show and (longest := int(encoded.lengths.max())) > LONG_TEXT:
        say(f"{where}: the longest text has {longest:,} tokens; none is cut.")
    return encoded


def _build_model(
    preset: Preset, mixer: str, tokenizer: PreTrainedTokenizerBase, space: LabelSpace
) -> FastformerForSequenceClassification:
    labels = {} if space.kind == "number" else {"id2label": dict(enumerate(space.names))}
    try:
        config = FastformerConfig(
            **{
                "max_position_embeddings": preset.max_length,
                **preset.model,
                "mixer": mixer,
                "vocab_size": 1 + max(tokenizer.get_vocab().values()),  # saved tokenizers may have gaps
                "pad_token_id": tokenizer.pad_token_id,
                "num_labels": space.size,
                "problem_type": space.problem_type,
                **labels,
            }
        )
        return FastformerForSequenceClassification(config)
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error


@dataclass
class _Standardizer:
    """Trains regression on targets of mean 0 and variance 1, then folds the two numbers into the last layer."""

    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, space: LabelSpace, labels: np.ndarray) -> "_Standardizer":
        if space.kind != "number":
            return cls()
        return cls(float(labels.mean()), float(labels.std()) or 1.0)

    def apply(self, labels: np.ndarray) -> np.ndarray:
        if (self.mean, self.deviation) == (0.0, 1.0):
            return labels if labels.dtype.kind == "i" else labels.astype(np.float32)
        return ((labels - self.mean) / self.deviation).astype(np.float32)

    def undo(self, values: np.ndarray) -> np.ndarray:
        return values if (self.mean, self.deviation) == (0.0, 1.0) else values * self.deviation + self.mean

    def fold_into(self, model: FastformerForSequenceClassification) -> None:
        if (self.mean, self.deviation) == (0.0, 1.0):
            return
        with torch.no_grad():
            model.classifier.weight.mul_(self.deviation)
            model.classifier.bias.mul_(self.deviation).add_(self.mean)
