"""Fastformer written the usual ways, for comparison: the same function of the same weights, without folding."""

import torch
from torch import Tensor, nn

from fastformer.mixers.fastformer import FastformerMixer


def unfolded(mixer: FastformerMixer, x: Tensor, mask: Tensor) -> Tensor:
    """Our best form that computes Q and K of every token; p is never stored, for w·(q * k_i) = (w * q)·k_i."""
    heads, size = mixer.heads, mixer.head_size
    hidden = ~mask[..., None]
    query, key = mixer.query(x), mixer.key(x)

    def weights(vectors: Tensor, score: Tensor) -> Tensor:  # batch, heads, length
        if mixer.full_width:
            scores = vectors @ score.mT
        else:
            score = score.expand(len(x), heads, size)
            scores = torch.einsum("bnhk,bhk->bnh", vectors.unflatten(-1, (heads, size)), score)
        return (scores * size**-0.5).masked_fill(hidden, torch.finfo(x.dtype).min).softmax(dim=1).mT

    def pool(weight: Tensor, vectors: Tensor) -> Tensor:  # batch, heads, head size
        return torch.einsum("bhn,bnhk->bhk", weight, vectors.unflatten(-1, (heads, size)))

    global_query = pool(weights(query, mixer.query_score.weight), query)
    seen = global_query.flatten(1)[:, None] if mixer.full_width else global_query
    global_key = global_query * pool(weights(key, seen * mixer.key_score.weight), key)
    mixed = query * global_key.flatten(1)[:, None]
    if mixer.output is not None:
        return mixer.output(mixer.transform(mixed) + query)
    transform = mixer.transform.weight.view(heads, size, size)
    mixed = torch.einsum("bnhd,hkd->bnhk", mixed.unflatten(-1, (heads, size)), transform)
    return mixed.flatten(2) + mixer.transform.bias + query


def as_released(mixer: FastformerMixer, x: Tensor, mask: Tensor) -> Tensor:
    """The authors' released form, full width, step by step: Q, K, the repeated global query and p are all stored."""
    batch, length, width = x.shape
    heads, size = mixer.heads, mixer.head_size
    penalty = (1.0 - mask.to(x.dtype))[:, None] * -10_000.0

    def split(vectors: Tensor) -> Tensor:  # batch, heads, length, head size
        return vectors.view(batch, length, heads, size).permute(0, 2, 1, 3)

    query, key = mixer.query(x), mixer.key(x)
    scores = mixer.query_score(query).transpose(1, 2) / size**0.5 + penalty
    pooled = scores.softmax(dim=-1)[:, :, None] @ split(query)  # batch, heads, 1, head size
    repeated = pooled.transpose(1, 2).reshape(batch, 1, width).repeat(1, length, 1)
    product = key * repeated
    scores = mixer.key_score(product).transpose(1, 2) / size**0.5 + penalty
    pooled = scores.softmax(dim=-1)[:, :, None] @ split(product)
    mixed = (pooled * split(query)).transpose(1, 2).reshape(batch, length, width)
    output: nn.Linear = mixer.output  # of full width, as all of the authors' heads are
    return output(mixer.transform(mixed) + query)
