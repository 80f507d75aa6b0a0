"""The registry of token mixers: a name, and what builds it from a configuration: a class, or a function."""

from collections.abc import Callable
from typing import Any

from torch import nn

Builder = Callable[[Any], nn.Module]
_MIXERS: dict[str, Builder] = {}
_CAUSAL_MIXERS: dict[str, Builder] = {}


def register(name: str, *, causal: bool = False) -> Callable[[Builder], Builder]:
    """Decorator: make a mixer buildable by `name`, as the method itself or as its causal form."""
    mixers = _CAUSAL_MIXERS if causal else _MIXERS

    def add(builder: Builder) -> Builder:
        if name in mixers:
            raise ValueError(f"a mixer named {name!r} is registered already")
        mixers[name] = builder
        return builder

    return add


def available_mixers(*, causal: bool = False) -> list[str]:
    """Names of all registered mixers, or of those that have a causal form."""
    return list(_CAUSAL_MIXERS if causal else _MIXERS)


def build_mixer(name: str, config: Any) -> nn.Module:
    """Build the mixer called `name` from a `FastformerConfig` (or anything with its fields)."""
    causal = getattr(config, "causal", False)
    mixers = _CAUSAL_MIXERS if causal else _MIXERS
    if name in mixers:
        return mixers[name](config)
    if causal and name in _MIXERS:
        raise ValueError(f"mixer {name!r} has no causal form; choose from {', '.join(mixers)}")
    raise ValueError(f"unknown mixer {name!r}; choose from {', '.join(mixers)}")
