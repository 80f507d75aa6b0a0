"""What the student learns: to give a text the teacher's vector, at every width that it may be cut to.

For a batch with the student's vectors v and the teacher's t, cut to w numbers and made of length 1:

    distance(v, t) = mean over w of  mean_i (1 - v_i·t_i) + r · mean_ij (v_i·v_j - t_i·t_j)²

A student with layers learns twice at once: loss = distance(v, t) + distance(u, t), where u is the mean of its token
vectors alone. The layers read these vectors and do not move them: so the table is an encoder of its own, and says what
words mean to whoever takes it alone; the layers learn what a mean cannot say, at a rate that would drown a table.

The teacher's vectors are turned so that their first numbers say most: t = R h, where the rows of R are the first
eigenvectors of Σ h hᵀ. A turn changes no cosine, and cut to 64 numbers it loses least.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils import ModelOutput

from fastformer.engine.settings import settled
from fastformer.modeling import FastformerConfig, FastformerModel
from fastformer.surroundings.machine import has_bfloat16


class VectorLearner(FastformerModel):
    """An encoder in training. Products are made in bfloat16 where the processor has them."""

    def __init__(self, config: FastformerConfig, widths: Sequence[int], relations: float):
        super().__init__(config)
        self.widths, self.relations = tuple(widths), relations

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **other) -> ModelOutput:
        """The loss of a batch, given the teacher's vectors as `labels`."""
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16() and self.training):
            tokens = self.get_input_embeddings()(input_ids)
            inputs = {"inputs_embeds": tokens.detach(), "attention_mask": attention_mask}
            pooled = super().forward(**inputs).pooler_output.float()
        means = settled(self.pooler)(tokens, attention_mask.bool())
        apart = [distance(some, settled(labels).float(), self.widths, self.relations) for some in (means, pooled)]
        return ModelOutput(loss=torch.stack(apart).sum(), vectors=pooled)


def widths(width: int) -> tuple[int, ...]:
    """What a vector may be cut to; the last is the whole of it."""
    return width // 4, width // 2, width


def distance(vectors: Tensor, targets: Tensor, widths: Sequence[int], relations: float) -> Tensor:
    """The formula above."""
    total = vectors.new_zeros(())
    for width in widths:
        ours, theirs = (F.normalize(some[:, :width], dim=-1) for some in (vectors, targets))
        total = total + (1 - (ours * theirs).sum(dim=-1)).mean()
        if relations:
            total = total + relations * (ours @ ours.T - theirs @ theirs.T).square().mean()
    return total / len(widths)


def turn(vectors: np.ndarray, width: int, most: int = 50_000) -> np.ndarray:
    """R: (the teacher's width, `width`), whose columns are the first eigenvectors of Σ h hᵀ."""
    some = vectors[:most].astype(np.float32)
    return np.linalg.eigh(some.T @ some)[1][:, ::-1][:, :width].astype(np.float32)


def start_as_table(model: FastformerModel, table: np.ndarray) -> None:
    """Token vectors as they are given, and layers that add nothing yet: the model begins as the mean of the table."""
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(torch.from_numpy(table))
        ends = [] if model.neighbors is None else [model.neighbors.output]
        for layer in model.layers:
            ends += [layer.mixer.output] if layer.feed_forward is None else [layer.mixer.output, layer.feed_forward[-1]]
        for end in ends:
            end.weight.zero_()
            end.bias.zero_()


def token_table(vectors: np.ndarray, counts: np.ndarray, turned: np.ndarray, rare: float) -> np.ndarray:
    """The teacher's vectors of single tokens, centred and turned; frequent ones small: a / (a + p) (SIF)."""
    chances = (counts + 1) / (counts.sum() + len(counts))
    return ((vectors - vectors.mean(axis=0)) @ turned * (rare / (rare + chances))[:, None]).astype(np.float32)
