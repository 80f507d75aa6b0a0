"""The paper's equations, one line each: slow, and what the fast path is held equal to."""

import torch
from torch import Tensor

from fastformer.mixers.fastformer import FastformerMixer


def reference(mixer: FastformerMixer, x: Tensor, mask: Tensor) -> Tensor:
    """What `mixer(x, mask)` must return, computed from the equations with Q, K, p, V and u written out."""
    heads, head_size = mixer.heads, mixer.head_size

    def project(linear, tokens):  # head-wise: each head applies its own rows to its own slice
        weight = linear.weight.view(-1, head_size, linear.in_features).expand(heads, -1, -1)
        bias = linear.bias.view(-1, head_size).expand(heads, -1)
        return torch.stack([tokens[h] @ weight[h].T + bias[h] for h in range(heads)])

    def together(vectors):  # full width: every head reads all heads, concatenated
        joined = torch.cat(list(vectors), dim=-1)
        return joined.expand(heads, *joined.shape)

    def weights(score, vectors):
        score = score.weight.expand(heads, -1)
        seen = together(vectors) if mixer.full_width else vectors
        scores = torch.stack([seen[h] @ score[h] for h in range(heads)]) / head_size**0.5
        scores = scores.masked_fill(~mask, -torch.inf)
        # Softmax over the real tokens; all zero where there is none.
        return torch.nan_to_num(scores.softmax(dim=-1))  # heads, batch, length

    every_head = x.expand(heads, *x.shape)
    query, key = project(mixer.query, every_head), project(mixer.key, every_head)
    value = query if mixer.value is None else project(mixer.value, every_head)

    a = weights(mixer.query_score, query)
    global_query = torch.einsum("hbn,hbnd->hbd", a, query)[:, :, None].expand_as(key)

    if mixer.interaction == "product":
        p = global_query * key
        b = weights(mixer.key_score, p)
    elif mixer.interaction == "add":
        p = global_query + key
        b = weights(mixer.key_score, p)
    else:
        p = torch.cat([global_query, key], dim=-1)
        b = weights(mixer.key_score, key)  # the query half of p gives all tokens one score: softmax drops it
    global_key = torch.einsum("hbn,hbnd->hbd", b, p)

    if mixer.key_merge is not None:
        if mixer.full_width:
            pooled_query, pooled_key = global_key.split(head_size, dim=-1)
            pair = torch.cat([torch.cat(list(pooled_query), -1), torch.cat(list(pooled_key), -1)], dim=-1)
            global_key = torch.stack(mixer.key_merge(pair).split(head_size, dim=-1))
        else:
            global_key = project(mixer.key_merge, global_key)
        # An empty row has no global key, not even the bias of the merge.
        global_key = global_key * mask.any(dim=1)[None, :, None]
    global_key = global_key[:, :, None].expand_as(value)

    if mixer.full_width:
        value, global_key = together(value)[0], together(global_key)[0]
    if mixer.interaction == "product":
        u = global_key * value
    elif mixer.interaction == "add":
        u = global_key + value
    else:
        u = torch.cat([global_key, value], dim=-1)

    if mixer.output is not None:
        return mixer.output(mixer.transform(u) + together(query)[0])
    return torch.cat(list(project(mixer.transform, u) + query), dim=-1)
