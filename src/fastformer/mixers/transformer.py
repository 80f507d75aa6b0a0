"""Transformer: full softmax attention (Vaswani et al. 2017)."""

from torch import Tensor
from torch.nn import functional as F

from fastformer.mixers.heads import HeadedMixer
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
