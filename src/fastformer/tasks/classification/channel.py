"""The n-gram channel of a trained classifier: chosen, fitted, and given its weight beside the encoder."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import EncodedTexts, Joined, Subset, pad_batch, token_budget_batches
from fastformer.engine.inference import BATCH_TOKENS
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.modeling.ngrams import NgramChannel
from fastformer.surroundings.progress import progress_bar, say
from fastformer.tasks.classification import ngram_features, ngrams
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.stacking import Blend, Unseen, best_scale, losses_of_both
from fastformer.tasks.encoder.words import Meanings


def can_fit_channel(space: LabelSpace) -> bool:
    """Whether these labels can have a channel: no numbers, and not too many."""
    return space.kind != "number" and space.size <= ngrams.MAX_CLASSES


@dataclass
class Stacked:
    """A fitted channel, and its weight beside the encoder."""

    channel: NgramChannel
    blend: Blend
    logits: np.ndarray  # of channel and encoder together, for the held-out texts
    told: dict[str, Any]  # what metrics.json says of it

    @torch.no_grad()
    def add_to(self, model: FastformerForSequenceClassification) -> None:
        """Put the channel beside the encoder of a trained model, both at their weights."""
        self.channel.scale(self.blend.channel)
        self.channel.bias += self.blend.bias
        if self.blend.encoder:  # else it is not run, and keeps its trained weights: another training may start from it
            model.classifier.weight *= self.blend.encoder
            model.classifier.bias *= self.blend.encoder
        model.add_ngrams(self.channel, only=not self.blend.encoder, doubt=self.blend.doubt)


def fit_channel(
    *,
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    space: LabelSpace,
    training: Subset,
    held_out: Subset,
    everything: Subset | None,
    unlabelled: EncodedTexts | None,
    encoder: np.ndarray,
    seed: int,
    show_progress: bool,
    balanced: bool = False,
    known: Meanings | None = None,
) -> Stacked:
    """Fit a channel for a trained encoder, whose logits of the held-out texts are `encoder`.

    A channel that is fitted to `training` scores `held_out`, and these scores decide the weights of channel and
    encoder. The channel that is kept is fitted to `everything`, if that is given. With few texts, cross-validation on
    everything gives unseen scores of all texts instead: the more scores there are, the surer the weights.

    With `unlabelled` texts the channel also learns from the directions in which those differ, if that is better on
    texts that its SVMs have not seen. `balanced`: every class counts the same (`--class-weight`). `known` has
    pre-trained word vectors, which help with words that no labelled text contains. Long texts do without them.
    """
    words = ngram_features.word_strings(tokenizer.get_vocab(), vocab_size, tokenizer.all_special_ids)
    labelled = everything or training
    meanings = None
    if known is not None and not ngram_features.are_long(labelled):
        meanings = known.of([word.strip() if word.startswith(" ") else "" for word in words])  # of whole words
    fitter = _Fitter(words, meanings, space, labelled, seed, show_progress)
    some = fitter.within_memory(
        training if everything is None or len(everything) > ngrams.CROSSED_TEXTS else everything
    )
    crossed = everything is not None and len(some) == len(everything)
    order = np.concatenate([held_out.indices, training.indices]) if crossed else np.arange(len(held_out))
    # First the texts that the encoder has scores of.
    judged = Subset(everything.texts, everything.indices[order]) if everything is not None and crossed else held_out
    labels = judged.labels

    def attempt(further: Subset | None) -> tuple[NgramChannel, ngrams.Choice, np.ndarray]:
        """A channel fitted to `some` texts, and scores of the texts that it is judged by, which it has not seen."""
        found = fitter.features(some, further)
        choice = ngrams.choose(found, some.labels, space.size, seed, fitter.advance)
        channel = fitter.fit(found, some.labels, choice)
        if crossed:
            return channel, choice, fitter.cross_fit(found, some.labels, choice)[order]

        def scored(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return channel(input_ids, attention_mask.bool())

        return channel, choice, outputs_of(held_out, tokenizer.pad_token_id, scored)

    attempts = 1 if unlabelled is None else 2
    last = everything is not None and not crossed  # the held-out texts have done their work: learn from them too
    steps = attempts * (fitter.tries + 1 + crossed) + last
    with progress_bar("Fitting n-grams", total=steps, show=show_progress) as fitter.advance, torch.no_grad():
        further = None
        channel, choice, scores = attempt(None)
        helped: dict[str, Any] = {}
        if unlabelled is not None:
            further = ngram_features.beside(some, Subset(unlabelled, np.arange(len(unlabelled))), seed)
            told: dict[str, Any] = {"rows": len(unlabelled), "used": len(further)}
            helped["unlabelled"] = told
            rival = attempt(further)
            told |= _compare(space, labels, (choice, scores), rival[1:], crossed)
            if told["helps"]:
                channel, choice, scores = rival
            else:
                further = None
        if everything is not None and last:
            some = fitter.within_memory(everything)
            if unlabelled is not None and further is not None:
                further = ngram_features.beside(some, Subset(unlabelled, np.arange(len(unlabelled))), seed)
            channel = fitter.fit(fitter.features(some, further), some.labels, choice)
    usual = best_scale(space, choice.scores, choice.labels)
    unseen = Unseen(space, scores, encoder, labels, usual, balanced, judged.weights)
    chosen, logits = unseen.blend(), unseen.cross_blended()
    about = {
        "C": choice.C,
        "meanings": choice.meaning_scale,
        "tried": choice.tried,
        "weights": asdict(chosen),
        **helped,
    }
    return Stacked(channel, chosen, logits, about)


@dataclass
class _Fitter:
    """Makes features of texts and fits channels to them, always in the same way; every fit calls `advance`."""

    words: list[str]
    meanings: np.ndarray | None  # words, width
    space: LabelSpace
    labelled: Subset  # all texts with labels, which decide the size of the table of pairs
    seed: int
    show_progress: bool
    advance: Callable[[int], None] = field(init=False)

    @property
    def tries(self) -> int:
        """How many settings `ngrams.choose` tries."""
        return len(ngrams.GRID) + (0 if self.meanings is None else len(ngrams.MEANING_SCALES) - 1)

    def within_memory(self, texts: Subset) -> Subset:
        """The texts, or as many of them as fit into memory."""
        chosen = ngram_features.within_memory(texts, self.seed)
        if len(chosen) < len(texts) and self.show_progress:
            say(f"The n-gram channel is fitted to {len(chosen):,} of the {len(texts):,} texts, to save memory.")
        return Subset(texts.texts, texts.indices[chosen])

    def features(self, texts: Subset, further: Subset | None) -> ngram_features.Features:
        """Features of texts; with `further` texts, also their places along the directions in which all differ."""
        classes = self.space.size
        if further is None:
            found = ngram_features.Features(
                texts, self.words, ngram_features.pair_buckets(self.labelled, classes), self.meanings
            )
        else:
            buckets = ngram_features.pair_buckets(Joined(self.labelled, further), classes)
            found = ngram_features.Features(Joined(texts, further), self.words, buckets, self.meanings)
            found = found.along(ngrams.DIRECTIONS, self.seed, len(texts))
        found.weights = texts.weights
        return found

    def fit(self, found: ngram_features.Features, labels: np.ndarray, choice: ngrams.Choice) -> NgramChannel:
        """A channel of these features."""
        found = found.with_meanings_at(choice.meaning_scale)
        channel = NgramChannel(len(self.words), found.buckets, self.space.size, meanings=found.meanings is not None)
        found.fill(channel, ngrams.fit_machines(found, labels, self.space.size, choice.C))
        self.advance(1)
        return channel

    def cross_fit(self, found: ngram_features.Features, labels: np.ndarray, choice: ngrams.Choice) -> np.ndarray:
        """Scores of the same texts by SVMs that have not seen them."""
        found = found.with_meanings_at(choice.meaning_scale)
        scores = ngrams.cross_fit(found, labels, self.space.size, choice.C, ngrams.FOLDS, self.seed)
        self.advance(1)
        return scores


def _compare(
    space: LabelSpace,
    labels: np.ndarray,
    without: tuple[ngrams.Choice, np.ndarray],
    with_them: tuple[ngrams.Choice, np.ndarray],
    crossed: bool,
) -> dict[str, Any]:
    """Whether a channel is better with unlabelled texts: on the held-out texts, and under cross-validation.

    The log loss must be lower by more than chance, and the mean of accuracy and macro-F no lower.
    """
    one, other = without[1], with_them[1]
    if not crossed:  # else these are scores of the same texts
        labels = np.concatenate([without[0].labels, labels])
        one, other = (np.concatenate([choice.scores, found]) for choice, found in (without, with_them))
    losses, lower_by_chance = losses_of_both(space, one, other, labels)
    values = [ngrams.value_of(found, labels) for found in (one, other)]
    return {
        "helps": bool(losses[1] < losses[0] - lower_by_chance and values[1] >= values[0]),
        "without": {"log_loss": round(losses[0], 4), "value": round(values[0], 4)},
        "with": {"log_loss": round(losses[1], 4), "value": round(values[1], 4)},
    }


def outputs_of(texts: Subset, pad_token_id: int, output: Callable[..., Tensor]) -> np.ndarray:
    """`output(input_ids=…, attention_mask=…)` of encoded texts, in their order."""
    rows: dict[int, np.ndarray] = {}
    for batch in token_budget_batches(texts.lengths, BATCH_TOKENS):
        inputs = pad_batch([texts[index]["input_ids"] for index in batch], pad_token_id)
        with torch.inference_mode():
            rows.update(zip(batch.tolist(), output(**inputs).numpy(), strict=True))
    return np.stack([rows[index] for index in range(len(texts))])
