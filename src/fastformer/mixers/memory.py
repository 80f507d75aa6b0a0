"""The interface through which a causal mixer remembers earlier tokens; `modeling.cache` implements it."""

from typing import Protocol

from torch import Tensor


class Memory(Protocol):
    """The past of one layer for one batch of texts. A mixer uses either `append`, or `state` and `keep`."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (batch, heads, length, head size) to the earlier ones, and return all of them."""

    def state(self) -> tuple[Tensor, Tensor] | None:
        """The two tensors of the last call of `keep`; None at the start of a text."""

    def keep(self, query: Tensor, key: Tensor, tokens: int) -> None:
        """Replace the state by two tensors: all that the mixer needs to know after reading `tokens` more tokens."""
