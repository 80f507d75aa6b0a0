"""The verbs of the command line for masked words, as functions on files and run folders."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from fastformer.data.batches import pad_batch
from fastformer.data.tables import read_rows
from fastformer.data.tokenizers import encode_batch
from fastformer.inference import TextRunner
from fastformer.modeling import FastformerForMaskedLM
from fastformer.modeling.pooling import MeanPooling
from fastformer.progress import progress_bar
from fastformer.run_folder import CHECKPOINTS, Run, claim_output, save_run, unharmed
from fastformer.tasks import check_training
from fastformer.tasks.classification.presets import get_preset
from fastformer.tasks.masked_words.card import model_card
from fastformer.tasks.masked_words.fit import SCORES, Texts, fit_masked_words, validation_scores
from fastformer.tasks.masked_words.objective import MaskedWordLearner
from fastformer.vectors import write_vectors

BLANK = "[MASK]"
GUESSES = 5


def train(
    train: str | Sequence[str],
    validation: str | None = None,
    *,
    output: str | Path,
    mixer: str = "fastformer",
    preset: str = "default",
    text_column: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train on the texts of one or more files, whatever labels they have, and leave a run folder; return its metrics.

    Without `validation` a tenth of the texts, at most 1,000, is held out to choose the epoch.
    """
    sources = (train,) if isinstance(train, str) else tuple(train)
    check_training((mixer,), (*sources, validation))
    settings = get_preset(preset, mixer).with_overrides(
        tokenizer=tokenizer,
        max_length=max_length,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    folder = claim_output(output, resume=resume, overwrite=overwrite)
    with unharmed(folder):
        fitted = fit_masked_words(
            Texts(sources, text_column, "train").check(),
            Texts((validation,), text_column, "validation").check() if validation else None,
            preset=settings,
            mixer=mixer,
            checkpoints=folder / CHECKPOINTS,
            resume=resume,
            show_progress=show_progress,
        )
        metrics = fitted.metrics()
        record = {
            "task": "masked-words",
            "mixer": mixer,
            "preset": preset,
            "settings": asdict(fitted.preset),
            "data": {"train": list(sources), "validation": validation, "text_column": text_column},
        }
        card = model_card(record, metrics, folder.resolve().name)
        save_run(folder, fitted.model, fitted.tokenizer, record=record, metrics=metrics, card=card)
    return metrics


def evaluate(
    run: Run,
    source: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """Hide 15% of the words of a file and score how well a run fills them in; labels are not read."""
    filler = Filler(run)
    learner = MaskedWordLearner(filler.model.config, filler.tokenizer.mask_token_id, filler.tokenizer.all_special_ids)
    learner.load_state_dict(filler.model.state_dict())
    runner = TextRunner(learner, filler.tokenizer, filler.tokenizer.model_max_length)
    hidden: list[np.ndarray] = []

    def score(**inputs: Tensor) -> Tensor:
        hidden.append(learner(**inputs).logits.numpy())
        return torch.zeros(len(inputs["input_ids"]))  # a batch's words are scored together, not by text

    with progress_bar("Evaluating", show=show_progress) as advance:
        rows = 0
        for _ in runner(filler.texts(source, text_column), score, one_by_one=True):  # hides words at random, in turn
            rows += 1
            advance(1)
    runner.warn_about_cut_texts()
    scores = validation_scores(np.concatenate(hidden))
    return {"rows": rows, **{name: scores[name] for name in SCORES}}


def predict(
    run: Run,
    source: str,
    out: TextIO,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> int:
    """Fill in every `[MASK]`: one JSON line a text, in input order; return how many.

    `{"blanks": [{"good": 0.12, …}, …]}`: for each blank of the text the five likeliest words and their probabilities.
    """
    filler = Filler(run)
    count = 0
    with progress_bar("Predicting", show=show_progress) as advance:
        for text in filler.texts(source, text_column, format):
            out.write(json.dumps({"blanks": filler.fill(text)}, ensure_ascii=False) + "\n")
            advance(1)
            count += 1
    return count


def embed(
    run: Run,
    source: str,
    output: str | Path,
    *,
    text_column: str | None = None,
    format: str | None = None,
    show_progress: bool = True,
) -> tuple[int, int]:
    """Write text vectors, the mean of a text's token vectors, to `.npy` or `.parquet`; return number and width."""
    filler = Filler(run)
    runner = TextRunner(filler.model, filler.tokenizer, filler.tokenizer.model_max_length)
    vectors = runner(filler.texts(source, text_column, format), filler.vectors)
    count = write_vectors(output, vectors, filler.model.config.hidden_size, show_progress)
    runner.warn_about_cut_texts()
    return count, filler.model.config.hidden_size


class Filler:
    """A loaded run that fills in blanks."""

    def __init__(self, run: Run):
        self.model = run.load_model(FastformerForMaskedLM)
        self.tokenizer = run.load_tokenizer()
        self.text_column = run.record.get("data", {}).get("text_column")

    def texts(self, source: str, text_column: str | None, format: str | None = None) -> Iterator[str]:
        """The texts of a source; the column is that of the training unless given."""
        column = text_column or self.text_column
        rows = read_rows(source, text_column=column, label_kind="none", format=format, split="test")
        return (row.text for row in rows)

    def vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Mean token vectors (batch, width); zeros for a text without tokens."""
        states = self.model.fastformer(input_ids, attention_mask).last_hidden_state
        return MeanPooling(self.model.config)(states, attention_mask.bool())

    @torch.inference_mode()
    def fill(self, text: str) -> list[dict[str, float]]:
        """For each `[MASK]` in the text the likeliest words and their probabilities."""
        ids = self._encode(text)
        blanks = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(blanks):
            return []
        states = self.model.fastformer(**pad_batch([ids], self.tokenizer.pad_token_id)).last_hidden_state[0, blanks]
        logits = self.model.decoder(self.model.norm(self.model.activation(self.model.dense(states))))
        logits[:, self.tokenizer.all_special_ids] = -torch.inf
        chances, words = logits.softmax(dim=-1).topk(min(GUESSES, logits.shape[1]))
        return [
            {self.tokenizer.decode([word]).strip(): round(chance, 6) for word, chance in zip(*blank, strict=True)}
            for blank in zip(words.tolist(), chances.tolist(), strict=True)
        ]

    def _encode(self, text: str) -> np.ndarray:
        """Token ids with the mask token at each blank: the tokenizers read "[MASK]" in a text as text.

        A blank is a word and the space before it, as byte pairs have words. A foreign tokenizer's own special tokens
        stand around the whole, not around each part.
        """
        *before_blanks, last = text.split(BLANK)
        parts, _ = encode_batch(self.tokenizer, [*(part.rstrip(" ") for part in before_blanks), last])
        marks = self.tokenizer.num_special_tokens_to_add()
        is_mark = self.tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        first = min(marks, sum(takewhile(bool, is_mark)))
        blank, ids = np.array([self.tokenizer.mask_token_id], dtype=np.int32), []
        for part in parts:
            ids += [part[first : len(part) - marks + first], blank]
        inside = np.concatenate(ids[:-1])[: self.tokenizer.model_max_length - marks]
        return np.concatenate([parts[0][:first], inside, parts[0][len(parts[0]) - marks + first :]])
