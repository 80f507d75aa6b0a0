"""Linear Transformer: attention with a kernel in place of the softmax (Katharopoulos et al. 2020)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.registry import register


@register("linear")
class LinearMixer(HeadedMixer):
    """Attention with the kernel φ(x) = elu(x) + 1. Per head:

        y_i = φ(q_i)·S / φ(q_i)·z,    S = Σ_j φ(k_j) v_jᵀ,    z = Σ_j φ(k_j)        over real j

    Time O(N·d·d_h) and memory O(N·d) beside the projections.
    """

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens of `x` that `mask` calls real."""
        # The sums run over the whole text: in float32 at least.
        dtype = torch.promote_types(x.dtype, torch.float32)
        q, k, v = (t.transpose(1, 2).to(dtype) for t in self.project(x))
        with torch.autocast(x.device.type, enabled=False):
            q = F.elu(q) + 1  # batch, heads, length, head width
            k = (F.elu(k) + 1).masked_fill(~mask[:, None, :, None], 0)
            state = k.mT @ v  # batch, heads, head width, head width
            norm = q @ k.sum(2)[..., None]  # batch, heads, length, 1
            y = q @ state / norm.clamp(min=1e-6)  # a row with no real token gives 0; the authors add 1e-6 instead
        return self.output(self.merge(y).to(x.dtype)).to(x.dtype)
