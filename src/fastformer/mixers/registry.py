"""The registry of token mixers: a name, and the class that implements it."""

from collections.abc import Callable
from typing import Any

from torch import nn

_MIXERS: dict[str, type[nn.Module]] = {}


def register(name: str) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Class decorator: make a mixer buildable by `name`."""

    def add(mixer_class: type[nn.Module]) -> type[nn.Module]:
        if name in _MIXERS:
            raise ValueError(f"a mixer named {name!r} is registered already")
        _MIXERS[name] = mixer_class
        return mixer_class

    return add


def available_mixers() -> list[str]:
    """Names of all registered mixers."""
    return list(_MIXERS)


def build_mixer(name: str, config: Any) -> nn.Module:
    """Build the mixer called `name` from a `FastformerConfig` (or anything with its fields)."""
    try:
        mixer_class = _MIXERS[name]
    except KeyError:
        raise ValueError(f"unknown mixer {name!r}; choose from {', '.join(_MIXERS)}") from None
    return mixer_class(config)
