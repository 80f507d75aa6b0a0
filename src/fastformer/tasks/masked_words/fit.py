"""From texts without labels to a model that fills in hidden words: the path behind `fastformer train masked-words`."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase, set_seed

from fastformer.data.batches import EncodedTexts, EncodedTextsWriter, PadCollator, Subset
from fastformer.data.tables import read_rows
from fastformer.data.tokenizers import KINDS, encode_batch, load_tokenizer, train_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk
from fastformer.inference import chunks
from fastformer.machine import peak_memory_gb
from fastformer.modeling import FastformerConfig, FastformerForMaskedLM
from fastformer.progress import how_many, progress_bar, say
from fastformer.resuming import begin, check_same_data, seconds_spent
from fastformer.tasks import perplexity
from fastformer.tasks.classification.presets import Preset
from fastformer.tasks.masked_words.objective import MaskedWordLearner
from fastformer.training import train_model

SCORES = ("perplexity", "accuracy")
_MOST_VALIDATION_TEXTS = 1000


@dataclass(frozen=True)
class Texts:
    """Texts of one or more sources, one after the other; can be read many times."""

    sources: tuple[str, ...]
    text_column: str | None
    split: str

    def __iter__(self) -> Iterator[str]:
        for source in self.sources:
            rows = read_rows(source, text_column=self.text_column, label_kind="none", split=self.split)
            yield from (row.text for row in rows)

    def check(self) -> "Texts":
        """Read one text of each: a wrong file or column fails here, before any work."""
        for source in self.sources:
            next(iter(replace(self, sources=(source,))))
        return self


@dataclass
class Fitted:
    """A trained model and how it came about."""

    model: FastformerForMaskedLM
    tokenizer: PreTrainedTokenizerBase
    preset: Preset
    rows: dict[str, int]
    tokens: int
    seconds: float
    history: list[dict[str, Any]]

    def metrics(self) -> dict[str, Any]:
        """What metrics.json says of the training."""
        epochs = [{name: epoch[f"eval_{name}"] for name in SCORES} for epoch in self.history]
        return {
            "train_seconds": round(self.seconds, 1),
            "peak_memory_gb": peak_memory_gb(),
            "rows": self.rows,
            "tokens": self.tokens,
            "parameters": self.model.num_parameters(),
            "validation": min(epochs, key=lambda epoch: epoch["perplexity"]),
            "epochs": epochs,
        }


def fit_masked_words(
    train: Texts,
    validation: Texts | None,
    *,
    preset: Preset,
    mixer: str,
    checkpoints: Path,
    resume: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train on texts that can be read more than once.

    `checkpoints` holds encoded texts and checkpoints; the caller deletes it once the result is safe.
    """
    started = time.monotonic()
    # What only a text classifier has: training on a part of the tokens; class scores of n-grams; texts of any length.
    training = replace(preset.training, learning_rate=preset.training.learning_rate or 3e-3)
    length = min(preset.max_length, 4096)
    preset = replace(preset, model={**preset.model, "token_dropout": 0.0}, training=training, max_length=length)
    settings = {"mixer": mixer, **asdict(preset)}
    with explain_full_disk(checkpoints):
        resume = begin(checkpoints, settings, resume)
        started -= seconds_spent(checkpoints)
        tokenizer = _tokenizer(train, preset, checkpoints / "tokenizer", show_progress)
        encoded = _encode(train, tokenizer, preset.max_length, checkpoints / "train.tokens", show_progress)
        if validation is None:
            training, validating = _hold_out(encoded, preset.training.seed)
        else:
            training = Subset(encoded, np.arange(len(encoded)))
            path = checkpoints / "validation.tokens"
            encoded = _encode(validation, tokenizer, preset.max_length, path, show_progress)
            validating = Subset(encoded, np.arange(len(encoded)))
        check_same_data(checkpoints, training, validating, resume)

    tokens = int(training.lengths.sum())
    preset = preset.for_size(len(training), tokens)
    set_seed(preset.training.seed)
    learner = _build(preset, mixer, tokenizer)
    history = train_model(
        learner,
        training,
        validating,
        settings=preset.training,
        collate=PadCollator(tokenizer.pad_token_id),
        compute_metrics=lambda result: validation_scores(result.predictions),
        best_metric="negative_perplexity",
        folder=checkpoints,
        started=started,
        resume=resume,
        show_progress=show_progress,
    )
    model = FastformerForMaskedLM(learner.config)
    model.load_state_dict(learner.state_dict())
    rows = {"train": len(training), "validation": len(validating)}
    return Fitted(model.eval(), tokenizer, preset, rows, tokens, time.monotonic() - started, history)


def validation_scores(hidden: np.ndarray) -> dict[str, float]:
    """Scores of hidden words, given the loss of each and whether it was found: (hidden words, 2)."""
    if not len(hidden):
        raise UserError("no word of the texts to score on can be hidden; give more text")
    loss, found = hidden.astype(np.float64).mean(axis=0)
    among = perplexity(loss)
    return {"perplexity": among, "accuracy": float(found), "negative_perplexity": -among}


def _tokenizer(train: Texts, preset: Preset, folder: Path, show: bool) -> PreTrainedTokenizerBase:
    if folder.is_dir():  # resuming: the very same one
        return load_tokenizer(folder)
    if preset.tokenizer in KINDS:
        with progress_bar("Reading", show=show) as advance:

            def texts() -> Iterator[str]:
                for text in train:
                    advance(1)
                    yield text

            options = {"vocab_size": preset.vocab_size, "min_frequency": preset.min_frequency}
            tokenizer = train_tokenizer(preset.tokenizer, texts(), **options)
    else:
        tokenizer = load_tokenizer(preset.tokenizer)
    if tokenizer.mask_token_id is None:
        raise UserError(f"the tokenizer at {preset.tokenizer} has no mask token; use word, bpe or one that has")
    tokenizer.model_max_length = preset.max_length
    tokenizer.save_pretrained(folder)
    return tokenizer


def _encode(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_length: int, path: Path, show: bool
) -> EncodedTexts:
    cut_in_all = count = 0
    with progress_bar("Encoding", show=show) as advance, EncodedTextsWriter(path) as writer:
        for chunk in chunks(texts):
            encoded, cut = encode_batch(tokenizer, chunk, max_length)
            cut_in_all, count = cut_in_all + cut, count + len(chunk)
            for ids in encoded:
                writer.add(ids)
            advance(len(chunk))
        # Labels that nobody reads: without any, the trainer would not score.
        texts = writer.finish(np.zeros(count, dtype=np.int64))
    if cut_in_all:
        say(f"{how_many(cut_in_all, 'texts', 'were', count)} cut after {max_length:,} tokens.")
    return texts


def _hold_out(texts: EncodedTexts, seed: int) -> tuple[Subset, Subset]:
    """Split off a tenth for validation, at most 1,000 texts: scoring has the whole vocabulary in its sums."""
    if len(texts) < 2:
        raise UserError("one text leaves nothing to validate on; give more texts, or a file to --validation")
    shuffled = np.random.default_rng([seed, 1]).permutation(len(texts))
    share = max(1, min(_MOST_VALIDATION_TEXTS, len(texts) // 10))
    return Subset(texts, np.sort(shuffled[share:])), Subset(texts, np.sort(shuffled[:share]))


def _build(preset: Preset, mixer: str, tokenizer: PreTrainedTokenizerBase) -> MaskedWordLearner:
    try:
        config = FastformerConfig(
            **{
                "max_position_embeddings": preset.max_length,
                **preset.model,
                "mixer": mixer,
                "vocab_size": 1 + max(tokenizer.get_vocab().values()),
                "pad_token_id": tokenizer.pad_token_id,
            }
        )
        return MaskedWordLearner(config, tokenizer.mask_token_id, tokenizer.all_special_ids)
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
