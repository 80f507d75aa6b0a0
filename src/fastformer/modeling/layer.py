"""A layer: a mixer and a feed-forward block; and the block of three neighbours that may stand before all layers."""

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from fastformer.mixers import build_mixer
from fastformer.mixers.fastformer import FastformerMixer
from fastformer.mixers.fastformer_ablations import FastformerAblation
from fastformer.mixers.sequence_parallel import current_exchange
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.dropout import Dropout
from fastformer.modeling.norms import norm_at, normalized
from fastformer.modeling.parts import Part, map_parts
from fastformer.modeling.pooling import AdditivePooling, weighted_sum

LONG_TOKENS = 65_536  # of a text whose vectors are held once


class NeighborBlock(nn.Module):
    """Three tokens in a row, through a feed-forward block: x_i + W_2 act(W_1 [n_{i-1}; n_i; n_{i+1}] + b_1) + b_2.

    n is x after a layer norm, and zero beyond the ends of a text.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.inner = nn.Linear(3 * config.hidden_size, config.neighbor_size)
        self.activation = ACT2FN[config.hidden_act]
        self.output = nn.Linear(config.neighbor_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor, out: Tensor | None = None) -> Tensor:
        """Transform `x` (batch, length, width). Without gradients the result may be written to `out`, even over `x`."""
        ends = self._beyond_ends(x, mask)
        before = x[:, :0]  # the last token of the part before, which may be written over by now

        def block(part: Part) -> Tensor:
            nonlocal before
            rows, tokens = part
            start, stop, _ = tokens.indices(x.shape[1])
            around = slice(max(0, start - 1), stop + 1)  # with the neighbours of the first and the last
            read = torch.cat([before, x[rows, start : stop + 1]], dim=1) if start else x[rows, around]
            before = x[rows, stop - 1 : stop].clone()
            normed = self.norm(read) * mask[rows, around, None]
            if ends is None:
                normed = nn.functional.pad(normed, (0, 0, int(start == 0), int(stop == x.shape[1])))
            else:
                beyond = ends[0][rows, None][:, : start == 0], ends[1][rows, None][:, : stop == x.shape[1]]
                normed = torch.cat([beyond[0], normed, beyond[1]], dim=1)
            three = torch.cat([normed[:, :-2], normed[:, 1:-1], normed[:, 2:]], dim=-1)
            return x[rows, start:stop] + self.output(self.activation(self.inner(three)))

        return map_parts(block, x, out)

    def _beyond_ends(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor] | None:
        """n before and behind this process' slice of the text, (batch, width) each; None where the text is whole."""
        exchange = current_exchange()
        if exchange is None:
            return None
        ends = exchange.each(torch.stack([self.norm(x[:, end]) * mask[:, end, None] for end in (0, -1)]))
        nothing = torch.zeros_like(ends[:1])
        ends = torch.cat([nothing, ends, nothing])  # now this process' own are at its rank + 1
        return ends[exchange.rank, 1], ends[exchange.rank + 2, 0]


class FastformerLayer(GradientCheckpointingLayer):
    """A mixer and a feed-forward block, each with dropout, residual and norm as the configuration says."""

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.residual = config.residual
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.mixer_pre_norm, self.mixer_post_norm = norm_at(config, "pre"), norm_at(config, "post")
        self.mixer = build_mixer(config.mixer, config)
        self.feed_forward = None
        if config.feed_forward:
            self.feed_forward_pre_norm, self.feed_forward_post_norm = norm_at(config, "pre"), norm_at(config, "post")
            self.feed_forward = nn.Sequential(
                nn.Linear(config.hidden_size, config.intermediate_size),
                ACT2FN[config.hidden_act],
                nn.Linear(config.intermediate_size, config.hidden_size),
            )

    def forward(
        self, x: Tensor, mask: Tensor, output_attentions: bool = False, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Transform `x` (batch, length, width); also return the mixer's weights if asked and if it forms any.

        Without gradients the result may be written to `out`, even over `x`.
        """
        weights = None
        if not output_attentions and self._norms_in_parts(x):
            mix = self.mixer.prepare(x, mask, change=self.mixer_pre_norm)
            return map_parts(lambda part: self._after_mixer(x[part], mix(part)), x, out), None
        mixer_input = normalized(self.mixer_pre_norm, x)
        if output_attentions and hasattr(self.mixer, "forward_with_weights"):
            mixed, weights = self.mixer.forward_with_weights(mixer_input, mask)
            mix = mixed.__getitem__
        elif hasattr(self.mixer, "prepare"):
            mix = self.mixer.prepare(mixer_input, mask)
        else:
            mix = self.mixer(mixer_input, mask).__getitem__
        return map_parts(lambda part: self._after_mixer(x[part], mix(part)), x, out), weights

    def _norms_in_parts(self, x: Tensor) -> bool:
        """Whether the text is so long that the mixer's input, a second tensor of its size, is better made in parts."""
        return (
            x.shape[1] > LONG_TOKENS
            and type(self.mixer) in (FastformerMixer, FastformerAblation)
            and not isinstance(self.mixer_pre_norm, nn.Identity)
            and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
            and x.device.type == "cpu"
            and x.dtype == torch.float32
            and current_exchange() is None
        )

    def folds_into(self, pooler: nn.Module | None, x: Tensor) -> bool:
        """Whether `pool` gives what this layer and then `pooler` would, for less work, if there are no norms."""
        has_map = type(self.mixer) in (FastformerMixer, FastformerAblation)  # a causal one has none
        if not has_map or type(pooler) is not AdditivePooling:
            return False
        parts = (self, self.mixer, self.dropout, *pooler.modules())
        return (
            type(pooler.dense) is nn.Linear
            and self.feed_forward is None
            and not (self.training and (self.dropout.p or self.gradient_checkpointing))
            and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)  # they wait to be called
            and x.dtype in (torch.float32, torch.float64)
            and not torch.is_autocast_enabled(x.device.type)
            and not torch.compiler.is_compiling()
            and current_exchange() is None  # slices of different lengths must all do the same
            and self.mixer.folds(x)
        )

    def pool(self, x: Tensor, mask: Tensor, pooler: AdditivePooling) -> Tensor:
        """`pooler(self(x, mask)[0], mask)` of a layer that folds, without making what the layer gives.

        All between the two is affine, y_i = M x_i + c. So Σ a_i y_i = M (Σ a_i x_i) + c, and the pooler's W y_i + b is
        (W M) x_i + (W c + b): one product with every token where there were two.
        """
        context, x = self.mixer.global_context(x, mask)
        outer = 2 * pooler.dense.weight
        token_map, offset = self.mixer.mapped(context, outer, self.residual)
        weights = pooler.mapped_weights(x, mask, token_map, offset + 2 * pooler.dense.bias)
        summed = weighted_sum(weights, x)[:, None]
        pooled = self._add(summed, self.mixer.mix(summed, context))[:, 0]
        return pooled * mask.any(dim=1)[:, None]  # without a real token the weights sum to 0, and c must not stay

    def _after_mixer(self, x: Tensor, mixed: Tensor) -> Tensor:
        return self._feed_forward(self.mixer_post_norm(self._add(x, mixed)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.feed_forward is not None:
            x = self.feed_forward_post_norm(self._add(x, self.feed_forward(self.feed_forward_pre_norm(x))))
        return x

    def _add(self, x: Tensor, change: Tensor) -> Tensor:
        return self.dropout(change, onto=x if self.residual else None)
