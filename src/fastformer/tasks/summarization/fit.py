"""From documents to a trained summarizer: the path behind `fastformer train summarization`."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import GenerationConfig, PreTrainedTokenizerBase, set_seed

from fastformer.data.tokenizers import KINDS, load_tokenizer, train_tokenizer
from fastformer.errors import UserError
from fastformer.files import explain_full_disk
from fastformer.machine import peak_memory_gb
from fastformer.modeling import FastformerConfig, FastformerForConditionalGeneration
from fastformer.progress import progress_bar, say
from fastformer.resuming import begin, check_same_data, seconds_spent
from fastformer.tasks.summarization.course import Sample
from fastformer.tasks.summarization.data import DocumentCollator, Pairs, add_end_token, encode_documents, hold_out
from fastformer.tasks.summarization.documents import Documents
from fastformer.tasks.summarization.metrics import ENGLISH, LanguageDetector
from fastformer.tasks.summarization.objective import SummaryLearner, validation_scores
from fastformer.tasks.summarization.presets import Preset
from fastformer.tasks.summarization.writing import Summarizer
from fastformer.training import train_model
from fastformer.warm_start import kind_of, pair_rows_of, warm_start

_SCORES = ("seconds", "perplexity", "accuracy")  # of every epoch


@dataclass
class Fitted:
    """A trained summarizer and how it came about."""

    model: FastformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    preset: Preset
    language: str
    rows: dict[str, int]
    tokens: int  # of the articles and summaries trained on
    seconds: float
    history: list[dict[str, Any]]  # validation scores of every epoch
    sample: Sample | None

    def metrics(self) -> dict[str, Any]:
        """What metrics.json says of the training. `epochs` is its course: when each ended, and how well it did.

        Its `rouge1` is of a sample, written without beams; `sample` has that of sentences of these documents.
        """
        scores = (*_SCORES, "rouge1") if self.sample else _SCORES
        epochs = [{name: epoch[f"eval_{name}"] for name in scores} for epoch in self.history]
        return {
            "train_seconds": round(self.seconds, 1),
            "peak_memory_gb": peak_memory_gb(),
            "rows": self.rows,
            "tokens": self.tokens,
            "parameters": self.model.num_parameters(),
            "validation": min(epochs, key=lambda epoch: epoch["perplexity"]),
            "epochs": epochs,
            "sample": self.sample and self.sample.about(self.preset.training.seed),
        }


def fit_summarizer(
    train: Documents,
    validation: Documents | None,
    *,
    preset: Preset,
    mixer: str,
    checkpoints: Path,
    init: str | None = None,
    language: str | None = None,
    follow: bool = True,
    resume: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train on documents that can be read more than once; validation picks the epoch by its perplexity.

    With `follow` some of the validation documents are summarized after every epoch, which changes nothing but the time.
    `checkpoints` holds encoded documents and checkpoints; the caller deletes it once the result is safe.
    """
    started = time.monotonic()
    if init is not None:
        kind_of(init)  # a mistake shows now
    settings = {"mixer": mixer, "init": init, **asdict(preset)}
    with explain_full_disk(checkpoints):
        resume = begin(checkpoints, settings, resume)
        started -= seconds_spent(checkpoints)
        detector = LanguageDetector()
        tokenizer = _tokenizer(train, preset, detector, checkpoints / "tokenizer", show_progress)
        limits = (preset.max_length, preset.max_summary_length)
        encoded = encode_documents(train, tokenizer, *limits, checkpoints / "train.tokens", show_progress)
        if validation is None:
            training, validating = hold_out(encoded, preset.training.seed)
        else:
            training = Pairs(encoded, np.arange(len(encoded)))
            path = checkpoints / "validation.tokens"
            encoded = encode_documents(validation, tokenizer, *limits, path, show_progress)
            validating = Pairs(encoded, np.arange(len(encoded)))
        check_same_data(checkpoints, training, validating, resume)

    tokens = int(training.texts.lengths[training.indices].sum())
    preset = preset.for_size(len(training))
    if init is not None:
        preset = replace(preset, model={**preset.model, **pair_rows_of(init)})
    config = model_config(preset, mixer, tokenizer)
    if language is None:
        language = detector.language()
        taken = "English, so words are stemmed" if language == ENGLISH else "not English, so words are not stemmed"
        say(f"For ROUGE the summaries are taken for {taken}; --language says otherwise.")
    model = FastformerForConditionalGeneration(config)  # before the seed is set: it may not change what is learned
    model.generation_config = generation_config(preset, model.config, tokenizer)
    sample = Sample.of(train if validation is None else validation, validating, language) if follow else None
    writer = Summarizer(model, tokenizer, beams=1)
    set_seed(preset.training.seed)
    learner = SummaryLearner(config)
    if init is not None and not resume:  # a checkpoint has all weights
        counts = training.texts.counts(learner.config.vocab_size) if preset.adapt_init else None
        warm_start(learner, tokenizer, init, counts=counts, seed=preset.training.seed, show_progress=show_progress)
    history = train_model(
        learner,
        training,
        validating,
        settings=preset.training,
        collate=DocumentCollator(tokenizer.pad_token_id),
        compute_metrics=lambda result: {
            **validation_scores(result.predictions),
            **({"rouge1": sample.score(writer, learner)} if sample else {}),
            "seconds": round(time.monotonic() - started, 1),
        },
        best_metric="log_likelihood",
        folder=checkpoints,
        started=started,
        resume=resume,
        show_progress=show_progress,
    )
    model.cpu().load_state_dict(learner.state_dict())
    return Fitted(
        model.eval(),
        tokenizer,
        preset,
        language=language,
        rows={"train": len(training), "validation": len(validating)},
        tokens=tokens,
        seconds=time.monotonic() - started,
        history=history,
        sample=sample,
    )


def _tokenizer(
    train: Documents, preset: Preset, detector: LanguageDetector, folder: Path, show: bool
) -> PreTrainedTokenizerBase:
    """A tokenizer trained on articles and summaries, which are read whichever tokenizer it is: what language is it?"""
    with progress_bar("Reading", show=show) as advance:

        def texts() -> Iterator[str]:
            for document in train:
                advance(1)
                detector.read(document.summary)
                yield from document

        if folder.is_dir():  # resuming: the very same one
            tokenizer = load_tokenizer(folder)
        elif preset.tokenizer in KINDS:
            options = {"vocab_size": preset.vocab_size - 1, "min_frequency": preset.min_frequency}
            return _saved(train_tokenizer(preset.tokenizer, texts(), **options), preset, folder)
        else:
            tokenizer = _saved(load_tokenizer(preset.tokenizer), preset, folder)
        for _ in texts():
            pass
    return tokenizer


def _saved(tokenizer: PreTrainedTokenizerBase, preset: Preset, folder: Path) -> PreTrainedTokenizerBase:
    add_end_token(tokenizer)
    tokenizer.model_max_length = preset.max_length
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # `generate` refuses what else a foreign one makes
    tokenizer.save_pretrained(folder)
    return tokenizer


def model_config(preset: Preset, mixer: str, tokenizer: PreTrainedTokenizerBase) -> FastformerConfig:
    """The configuration that a preset describes."""
    try:
        return FastformerConfig(
            **{
                "max_position_embeddings": preset.max_length,
                "decoder_positions": preset.max_summary_length,
                **preset.model,
                "mixer": mixer,
                "vocab_size": 1 + max(tokenizer.get_vocab().values()),  # saved tokenizers may have gaps
                "pad_token_id": tokenizer.pad_token_id,
                "eos_token_id": tokenizer.eos_token_id,
            }
        )
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error


def generation_config(preset: Preset, config: FastformerConfig, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """How summaries are written: what `generate` does unless it is told otherwise. It is saved with the model."""
    ids = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id)
    never = sorted({token for token in ids if token is not None} - {tokenizer.eos_token_id})
    return GenerationConfig(
        num_beams=preset.beams,
        max_new_tokens=preset.max_summary_length,
        min_new_tokens=1,
        no_repeat_ngram_size=preset.no_repeat_ngrams,  # pieces to transformers, words to our `Summarizer`
        length_penalty=preset.length_penalty,
        suppress_tokens=never or None,
        decoder_start_token_id=config.decoder_start_token_id,
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
    )
