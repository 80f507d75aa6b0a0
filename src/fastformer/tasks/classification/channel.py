"""The n-gram channel of a trained classifier: chosen, fitted, and given its weight beside the encoder."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fastformer.data.batches import Subset, pad_batch, token_budget_batches
from fastformer.inference import BATCH_TOKENS
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.modeling.ngrams import NgramChannel
from fastformer.progress import progress_bar, say
from fastformer.tasks.classification import ngrams
from fastformer.tasks.classification.data import LabelSpace
from fastformer.tasks.classification.stacking import Blend, blend, cross_blended, loudness


def can_fit_channel(space: LabelSpace) -> bool:
    """Whether these labels can have a channel: no numbers, and not too many."""
    return space.kind != "number" and space.size <= ngrams.MAX_CLASSES


@dataclass
class Stacked:
    """A fitted channel, and what it and the encoder are worth together."""

    channel: NgramChannel
    blend: Blend
    logits: np.ndarray  # of the two together, of the held-out texts
    told: dict[str, Any]  # what metrics.json says of it

    @torch.no_grad()
    def add_to(self, model: FastformerForSequenceClassification) -> None:
        """Put the channel beside the encoder of a trained model, both at their weights."""
        self.channel.scale(self.blend.channel)
        self.channel.bias += self.blend.bias
        if self.blend.encoder:  # else it is not run, and stays as it was trained: another training may start from it
            model.classifier.weight *= self.blend.encoder
            model.classifier.bias *= self.blend.encoder
        model.add_ngrams(self.channel, only=not self.blend.encoder, doubt=self.blend.doubt)


def fit_channel(
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    space: LabelSpace,
    training: Subset,
    held_out: Subset,
    everything: Subset | None,
    encoder: np.ndarray,
    seed: int,
    show_progress: bool,
    balanced: bool = False,
) -> Stacked:
    """Fit a channel for a trained encoder, whose logits of the held-out texts are `encoder`.

    A channel fitted to `training` says on `held_out` how much each of the two is worth. The one that stays is fitted to
    `everything`, where that is given. `balanced` is whether every class counts the same (`Preset.class_power`).
    """
    words = ngrams.word_strings(tokenizer.get_vocab(), vocab_size, tokenizer.all_special_ids)
    channel = NgramChannel(vocab_size, ngrams.pair_buckets(everything or training, space.size), space.size)

    def features(texts: Subset) -> tuple[ngrams.Features, np.ndarray]:
        chosen = ngrams.that_fit(texts, seed)
        if len(chosen) < len(texts) and show_progress:
            say(f"The n-gram channel is fitted to {len(chosen):,} of the {len(texts):,} texts, for their memory.")
        some = Subset(texts.texts, texts.indices[chosen])
        return ngrams.Features(some, words, len(channel.pairs)), some.labels

    def channel_scores(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return channel(input_ids, attention_mask.bool())

    with progress_bar("Fitting n-grams", total=len(ngrams.GRID) + 2, show=show_progress) as advance, torch.no_grad():
        found, labels = features(training)
        choice = ngrams.choose(found, labels, space.size, seed, advance)
        found.fill(channel, ngrams.fit_machines(found, labels, space.size, choice.C))
        advance(1)
        scores = outputs_of(held_out, tokenizer.pad_token_id, channel_scores)
        usual = loudness(space, choice.scores, choice.labels)
        chosen = blend(space, scores, encoder, held_out.labels, usual, balanced)
        if everything is not None:  # the held-out texts have served: now learn from them too
            del found
            found, labels = features(everything)
            found.fill(channel, ngrams.fit_machines(found, labels, space.size, choice.C))
        advance(1)
    logits = cross_blended(space, scores, encoder, held_out.labels, usual, balanced)
    return Stacked(channel, chosen, logits, {"C": choice.C, "tried": choice.tried, "weights": asdict(chosen)})


def outputs_of(texts: Subset, pad_token_id: int, output: Callable[..., Tensor]) -> np.ndarray:
    """`output(input_ids=…, attention_mask=…)` of encoded texts, in their order."""
    rows: list[np.ndarray | None] = [None] * len(texts)
    for batch in token_budget_batches(texts.lengths, BATCH_TOKENS):
        inputs = pad_batch([texts[index]["input_ids"] for index in batch], pad_token_id)
        with torch.inference_mode():
            for index, row in zip(batch, output(**inputs).numpy(), strict=True):
                rows[index] = row
    return np.stack(rows)
