"""What each token of a text has to do with a classifier's answer.

Weights are the model's own: how much each token gives to the global query, the global key and the text vector.

The effect of a token is the gradient of a score times the token's input. With x_i what the encoder is given for token
i (its word vector, and whatever is added to it) and b_i the part of x_i that stands for the pair of words (i - 1, i),

    e_i = ∂s/∂x_i · x_i + ∂s/∂b_{i+1} · b_{i+1}

The second term is there if a model reads word pairs: without token i there is no pair (i, i + 1) either. With
`baseline="mean"` the last factor of the first term is x_i minus the mean over the text: when a token goes, attention
does not read zeros in its place but gives its share to the others.

A model with an n-gram channel adds linear scores of the words and word pairs that the text contains; the same formula,
with their presence as the input, gives their part (`NgramChannel.token_effects`).

A gradient describes small changes only. Whether that holds for a whole token is checked by removing some tokens, one at
a time, and running the model again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from fastformer.data.batches import pad_batch
from fastformer.engine.inference import BATCH_TOKENS
from fastformer.errors import UserError
from fastformer.modeling import FastformerForSequenceClassification

BASELINES = ("zero", "mean")
Score = Callable[[Tensor], Tensor]  # logits (batch, outputs) -> what is explained (batch)


class Weights(NamedTuple):
    """Weights of one text. Each row sums to 1 over the tokens.

    Mixers other than Fastformer have no global vectors; if the n-gram channel answers alone there are no weights.
    """

    pooling: np.ndarray | None  # (tokens)
    global_query: np.ndarray | None  # (layers, heads, tokens)
    global_key: np.ndarray | None


class Removals(NamedTuple):
    """Some tokens, and what the score really loses without each of them."""

    places: np.ndarray  # numbers of the tokens
    effects: np.ndarray  # score of the text - score of the text without the token
    correlation: float | None  # Spearman's rank correlation with the gradient's effects; None: not enough to compare


def token_weights(model: FastformerForSequenceClassification, ids: np.ndarray) -> Weights:
    """Weights of the global query, the global key (every layer and head) and the pooling."""
    if model.config.ngram_only:  # there is an encoder, but its answer is not used
        return Weights(None, None, None)
    encoder = model.fastformer
    pooler: nn.Module = encoder.pooler
    weighs = all(hasattr(layer.mixer, "forward_with_weights") for layer in encoder.layers) and len(encoder.layers) > 0
    inputs = _inputs(model, [ids])
    with torch.inference_mode():
        output = encoder(**inputs, output_attentions=weighs)
        pooling = pooler.weights(output.last_hidden_state, inputs["attention_mask"].bool())
    pooling = pooling[0, : len(ids)].float().cpu().numpy()
    if not weighs:
        return Weights(pooling, None, None)
    layers = torch.cat(output.attentions)[..., : len(ids)].float().cpu().numpy()  # layers, 2, heads, tokens
    return Weights(pooling, layers[:, 0], layers[:, 1])


def token_effects(
    model: FastformerForSequenceClassification, ids: np.ndarray, score: Score, baseline: str = "zero"
) -> np.ndarray:
    """Gradient times input of every token (the formula above), the input as it is or from the mean of the text."""
    if baseline not in BASELINES:
        raise UserError(f"unknown baseline {baseline!r}; choose from {', '.join(BASELINES)}")
    effects, of_logits = _encoder_effects(model, ids, score, baseline)
    if model.ngrams is not None and len(ids):
        tokens = torch.from_numpy(ids.astype(np.int64)).to(model.device)
        effects = effects + model.ngrams.token_effects(tokens) @ of_logits
    return effects.float().cpu().numpy()


def _encoder_effects(
    model: FastformerForSequenceClassification, ids: np.ndarray, score: Score, baseline: str
) -> tuple[Tensor, Tensor]:
    """Effects of the tokens through the encoder, and the gradient of the score with respect to the two parts' sum."""
    embeddings = model.fastformer.embeddings
    sources = [embeddings] if embeddings.bigram_embeddings is None else [embeddings, embeddings.bigram_embeddings]
    with torch.enable_grad(), _outputs([*sources, model.sum]) as outputs:
        explained = score(model(**_inputs(model, [ids])).logits).sum()
    vectors = [outputs[source] for source in sources if source in outputs]
    *gradients, of_logits = torch.autograd.grad(explained, [*vectors, outputs[model.sum]])
    if not vectors:  # the channel answers alone
        return torch.zeros(len(ids), device=model.device), of_logits[0]
    inputs = [vector.detach() for vector in vectors]
    if baseline == "mean":
        inputs[0] = inputs[0] - inputs[0].mean(dim=1, keepdim=True)
    products = [(gradient * vector).sum(dim=-1)[0] for gradient, vector in zip(gradients, inputs, strict=True)]
    effects = products[0]
    for pairs in products[1:]:  # the pair at the next place
        effects[:-1] += pairs[1:]
    return effects[: len(ids)], of_logits[0]


@contextmanager
def _outputs(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Keep what each module gives out, as a tensor that a gradient can be asked for even if the weights are frozen."""
    kept: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _: tuple, output: Tensor) -> None:
        kept[module] = output if output.requires_grad else output.requires_grad_()

    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def places_to_remove(effects: np.ndarray, candidates: np.ndarray, most: int = 40) -> np.ndarray:
    """Up to `most` of the `candidates`, spread evenly over their ranking by effect."""
    ranking = candidates[np.argsort(effects[candidates], kind="stable")]
    return ranking[np.linspace(0, len(ranking) - 1, min(most, len(ranking))).round().astype(int)]


def compare(places: np.ndarray, effects: np.ndarray, changes: np.ndarray) -> Removals:
    """Tokens that were removed, what that changed, and how well their effects predicted it."""
    comparable = len(places) > 2 and np.ptp(effects[places]) > 0 and np.ptp(changes) > 0
    correlation = float(spearmanr(effects[places], changes).statistic) if comparable else None
    return Removals(places, changes, correlation)


@torch.inference_mode()
def removal_logits(
    model: FastformerForSequenceClassification, ids: np.ndarray, places: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Logits of the text (1, outputs), and of the text without the token at each place (places, outputs).

    Without a token, the tokens on both sides of it become neighbours.
    """
    whole = model(**_inputs(model, [ids])).logits.float().cpu()
    rows = max(1, BATCH_TOKENS // max(1, len(ids)))
    without = [whole[:0]]
    for start in range(0, len(places), rows):
        shorter = [np.delete(ids, place) for place in places[start : start + rows]]
        without.append(model(**_inputs(model, shorter)).logits.float().cpu())
    return whole, torch.cat(without)


def _inputs(model: FastformerForSequenceClassification, texts: list[np.ndarray]) -> dict[str, Tensor]:
    padded = pad_batch(texts, model.config.pad_token_id)
    return {name: tensor.to(model.device) for name, tensor in padded.items()}
