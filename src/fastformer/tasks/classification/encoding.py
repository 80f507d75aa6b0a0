"""From labelled texts to what a classifier is trained on: a vocabulary, labels, token ids, and what is held out."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import EncodedTexts, PadCollator, RandomCrops, Subset
from fastformer.data.hold_out import hold_out
from fastformer.engine.fit import Workspace
from fastformer.engine.settings import settled
from fastformer.engine.warm_start import pair_rows_of, table_rate
from fastformer.errors import UserError
from fastformer.surroundings.progress import say
from fastformer.tasks.base import Parts
from fastformer.tasks.classification.channel import can_fit_channel
from fastformer.tasks.classification.data import (
    LabelCounter,
    LabelEncoder,
    LabelKind,
    LabelSpace,
    Rows,
    Table,
    label_space,
)
from fastformer.tasks.classification.declaration import ClassificationSettings
from fastformer.tasks.classification.metrics import best_metric, validation_scores
from fastformer.tasks.classification.ngram_features import LONG_TEXTS
from fastformer.tasks.classification.ngrams import MAX_CLASSES
from fastformer.tasks.classification.standardizer import Standardizer
from fastformer.tasks.encoder.text_encoder import BASE
from fastformer.tasks.encoder.words import Meanings
from fastformer.tasks.texts import MEMORY_TOKENS

LONG_TEXT = 4096  # tokens, from which on it is worth saying how long the longest text is
FEW_TEXTS = 3000  # below, more than a tenth is held out, and a second training learns from those too
MOST_HELD_OUT = 5000
ENCODED: tuple[str, ...] = ("train", "validation", "unlabelled")


@dataclass(kw_only=True)
class ClassificationParts(Parts[ClassificationSettings]):
    """Encoded texts, whole and in crops, and what their labels are."""

    space: LabelSpace
    scale: Standardizer
    training: Subset
    validating: Subset
    everything: Subset | None  # the two together, if the second was held out of the first
    unlabelled: EncodedTexts | None
    stacking: bool  # whether there is an n-gram channel
    known: Meanings | None  # what it knows of words


def encode(
    data: Mapping[str, Table | Rows], settings: ClassificationSettings, workspace: Workspace
) -> ClassificationParts:
    """Token ids and labels of all texts. The labels of `test` are only looked at: one that is unknown shows now."""
    settings = settings.having_read(data, workspace.show)
    kind = _kind_of(data["train"])
    _check_goes_with(kind, settings, "unlabelled" in data)
    data = {split: rows if split == "unlabelled" else rows.of_kind(kind) for split, rows in data.items()}
    wanted = settings.meanings and settings.ngrams and settings.init is None and kind != "number"
    known = _known_words(workspace.show) if wanted else None
    tokenizer, space, count = _read_vocabulary_and_labels(data, settings, workspace, known)
    stacking = _can_stack(space, settings, data, workspace.show)
    if "test" in data:
        _check_labels(data["test"], space)
    encoded = {
        split: _encode(data[split], split, tokenizer, space, settings, workspace, count)
        for split in ENCODED
        if split in data
    }
    training, validating = _held_out(encoded, space, settings, FEW_TEXTS if stacking else 0)
    everything = _whole(encoded["train"]) if "validation" not in encoded else None
    further = encoded.get("unlabelled")
    fingerprint = {"train": training.arrays, "validation": validating.arrays}
    if further is not None:
        fingerprint["unlabelled"] = (further.offsets, further.tokens)
    settings = _settled(settings, tokenizer, training, validating)
    scale = Standardizer.of(space, training.labels)
    for texts in {id(part.texts): part.texts for part in (training, validating)}.values():
        texts.labels = scale.apply(settled(texts.labels))

    def judge(result: Any) -> dict[str, float]:
        return validation_scores(space, scale.undo(result.predictions), scale.undo(result.label_ids))

    return ClassificationParts(
        settings=settings,
        tokenizer=tokenizer,
        train=crops(training, settings, settings.passes),
        validation=validating,
        collate=PadCollator(tokenizer.pad_token_id),
        compute_metrics=judge,
        score=best_metric(kind, len(validating)),
        scores=("r2",) if kind == "number" else ("accuracy",),
        fingerprint=fingerprint,
        rows={"train": len(training), "validation": len(validating)},
        about={"tokens": int(training.lengths.sum())},
        record={"label_kind": kind},
        space=space,
        scale=scale,
        training=training,
        validating=validating,
        everything=everything,
        unlabelled=further,
        stacking=stacking,
        known=known,
    )


def _kind_of(rows: Table | Rows) -> LabelKind:
    """What the labels of training data are."""
    kind = rows.kind  # which may read them
    if kind == "none":
        raise ValueError(f"{rows.name}: training data without labels")
    return kind


_shipped = functools.cache(Meanings.of_run)


def _known_words(show: bool) -> Meanings | None:
    """The word vectors of the encoder `base`; if it is not installed, a line says how to get it."""
    try:
        return _shipped(BASE)
    except UserError as error:
        if show:
            say(f"{error}. Until then a classifier knows the words of its own texts only.")
        return None


def _check_goes_with(kind: LabelKind, settings: ClassificationSettings, unlabelled: bool) -> None:
    """Refuse settings that these labels cannot have, and texts without labels if nothing would learn from them."""
    if settings.class_weight and kind != "single":
        what = {"multi": "these texts have any number of them", "number": "numbers have no classes"}[kind]
        raise UserError(f"balanced class weights are for one label per text: {what}; leave the class weight out")
    if unlabelled and kind != "single":
        what = "numbers" if kind == "number" else "several labels per text"
        raise UserError(f"unlabelled texts help where each text has one label, not with {what}; leave them out")
    if unlabelled and not settings.ngrams:
        raise UserError(
            "unlabelled texts help the n-gram channel, which this preset does not have; leave them out, "
            "or learn from them first with `fastformer train masked-words` and start from that with --init"
        )


def _read_vocabulary_and_labels(
    data: Mapping[str, Table | Rows], settings: ClassificationSettings, workspace: Workspace, known: Meanings | None
) -> tuple[PreTrainedTokenizerBase, LabelSpace, int]:
    """First reading: a tokenizer, which is trained on the texts without labels too, all labels, and how many rows.

    Words with a pre-trained vector have a place in it even if no text here has them: a new text may. Long texts do
    without (`fit_channel`).
    """

    def further(counts: Mapping[str, int]) -> Sequence[str]:
        long = sum(counts.values()) > LONG_TEXTS * counter.total
        return known.words if known is not None and not long and known.cover(counts) else ()

    rows = data["train"]
    kind = _kind_of(rows)
    counter = LabelCounter(workspace.watched(rows), kind)
    tokenizer = workspace.tokenizer(
        settings.tokenizer,
        itertools.chain(counter, (row.text for row in data.get("unlabelled", ()))),
        max_length=settings.max_length,
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        further=further,
    )
    space = label_space(kind, counter.counts, rows.name, counter.total)
    if space.kind == "single" and len(space.names) > 20 and len(space.names) > counter.total / 2:
        say(
            f"{rows.name}: {len(space.names):,} different labels in {counter.total:,} rows. "
            "Is it the right --label-column? For numbers there is --regression."
        )
    return tokenizer, space, counter.total


def _check_labels(rows: Table | Rows, space: LabelSpace) -> None:
    """Read all rows of the test data: what is wrong with them shows now and not after the training."""
    encoder = LabelEncoder(rows, space, rows.name, allowed=True)
    for _ in encoder:
        pass
    _ = encoder.labels  # some of them must have been seen


def _can_stack(
    space: LabelSpace, settings: ClassificationSettings, data: Mapping[str, Table | Rows], show: bool
) -> bool:
    """Whether an n-gram channel is wanted and these labels can have one; if they cannot, a line says so."""
    stacking = settings.ngrams and can_fit_channel(space)
    if settings.ngrams and not stacking and space.kind != "number" and show:
        say(f"{space.size:,} labels: the encoder answers alone; the n-gram channel takes {MAX_CLASSES:,} at most.")
    if "unlabelled" in data and not stacking:
        where = data["train"].name
        raise UserError(f"{where}: {space.size:,} labels are too many to learn from unlabelled texts; leave those out")
    return stacking


def _encode(
    rows: Table | Rows,
    split: str,
    tokenizer: PreTrainedTokenizerBase,
    space: LabelSpace,
    settings: ClassificationSettings,
    workspace: Workspace,
    count: int,
) -> EncodedTexts:
    """Token ids and labels of a part of the data."""
    unlabelled = split == "unlabelled"
    labelled = LabelEncoder(rows, space, rows.name)
    texts = (row.text for row in rows) if unlabelled else labelled
    total = count if split == "train" else None
    encoded = workspace.encode(split, texts, tokenizer, settings.max_length, called=rows.name, total=total)
    if not unlabelled:
        encoded.labels = labelled.labels
        encoded.weights = rows.weights if isinstance(rows, Rows) else None
    longest = int(encoded.lengths.max())
    if workspace.show and LONG_TEXT < longest < settings.max_length:
        say(f"{rows.name}: the longest text has {longest:,} tokens; none is cut.")
    return encoded


def _whole(texts: EncodedTexts) -> Subset:
    return Subset(texts, np.arange(len(texts)))


def _held_out(
    encoded: Mapping[str, EncodedTexts], space: LabelSpace, settings: ClassificationSettings, few: int
) -> tuple[Subset, Subset]:
    """Texts to train and to validate on; without validation data some are held out, by class if there are classes."""
    texts = encoded["train"]
    if "validation" in encoded:
        return _whole(texts), _whole(encoded["validation"])
    groups = texts.labels if space.kind == "single" else None
    rows = hold_out(len(texts), settings.training.seed, most=MOST_HELD_OUT, groups=groups, few=few)
    training, validating = (Subset(texts, some) for some in rows)
    return training, validating


def crops(texts: Subset, settings: ClassificationSettings, passes: int) -> RandomCrops:
    """What to train on: each text so often in an epoch, whole or a part of it."""
    repeated = Subset(texts.texts, np.tile(texts.indices, passes))
    return RandomCrops(repeated, settings.crop or settings.max_length, settings.training.seed)


def _settled(
    settings: ClassificationSettings, tokenizer: PreTrainedTokenizerBase, training: Subset, validating: Subset
) -> ClassificationSettings:
    """The settings with all that the data and the start decide."""
    # Some models have weights for a fixed number of places: the length must be settled before they are built.
    learned_places = settings.model.get("position_embedding_type", "learned") == "learned"
    if settings.max_length == MEMORY_TOKENS and (learned_places or settings.mixer == "linformer"):
        longest = max(LONG_TEXT, int(max(training.lengths.max(), validating.lengths.max())))
        settings = replace(settings, max_length=longest)
        tokenizer.model_max_length = longest
    tokens = int(np.minimum(training.lengths, settings.crop or settings.max_length).sum())
    settings = settings.for_size(len(training), tokens)
    if settings.init is not None:
        rate = table_rate(int(training.lengths.sum())) if settings.adapt_init else None
        settings = settings.with_options(model=pair_rows_of(settings.init), table_rate=rate)
    return settings
