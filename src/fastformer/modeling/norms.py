"""Layer norms, at the places where the configuration wants them."""

from torch import Tensor, nn

from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.parts import map_parts


def norm_at(config: FastformerConfig, place: str) -> nn.Module:
    """A layer norm where the configuration wants one at this place (`post` or `pre`), else nothing."""
    if config.norm == place:
        return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.Identity()


def final_norm(config: FastformerConfig) -> nn.Module:
    """The norm after the last layer, of a `pre` model that has one."""
    return norm_at(config, "pre") if config.final_norm else nn.Identity()


def normalized(norm: nn.Module, x: Tensor, out: Tensor | None = None) -> Tensor:
    """norm(x), made in parts. Without gradients the result may be written to `out`, even over `x`."""
    return x if isinstance(norm, nn.Identity) else map_parts(lambda part: norm(x[part]), x, out)
