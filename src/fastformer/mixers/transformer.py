"""Transformer: full softmax attention (Vaswani et al. 2017)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.memory import Memory
from fastformer.mixers.registry import register


@register("transformer")
class TransformerMixer(HeadedMixer):
    """Every token attends to every token. Per head:

        y_i = Σ_j softmax_j(q_i·k_j / √d_h) v_j

    Time O(N²·d); memory O(N·d), since torch's fused kernel never stores the N·N weights.
    """

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        q, k, v = (t.transpose(1, 2) for t in self.project(x))
        # A row with no real token attends to its padding, and stays finite.
        seen = (mask | ~mask.any(1, keepdim=True))[:, None, None]  # batch, 1, 1, length
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # batch, heads, length, head width
        return self.output(self.merge(y)).to(x.dtype)


@register("transformer", causal=True)
class CausalTransformerMixer(HeadedMixer):
    """Every token attends to itself and to those before it: the sum above, over j ≤ i.

    Keys and values of earlier calls come from `memory`, which grows with the text.
    """

    def forward(self, x: Tensor, mask: Tensor | None, memory: Memory | None = None) -> Tensor:
        """Mix the tokens of `x`; `mask` (batch, tokens in memory + length) is True at real ones, None: all are."""
        q, k, v = (t.transpose(1, 2) for t in self.project(x))
        if memory is not None:
            k, v = memory.append(k, v)
        length, total = q.shape[2], k.shape[2]
        if mask is not None and not torch.compiler.is_compiling() and mask.all():
            mask = None
        if mask is None and length in (1, total):  # what the fused kernel knows by itself
            y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        else:
            place = torch.arange(total, device=x.device)
            here = place[total - length :, None]
            seen = place <= here
            if mask is not None:  # padding sees itself, and stays finite
                seen = (seen & mask[:, None, None]) | (place == here)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.output(self.merge(y)).to(x.dtype)
