"""What a causal mixer asks of the place where it remembers earlier tokens; `modeling.cache` has one."""

from typing import Protocol

from torch import Tensor


class Memory(Protocol):
    """The past of one layer for one batch of texts. A mixer uses the first method, or the other two."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (batch, heads, length, head size) to all earlier ones, and return all."""

    def state(self) -> tuple[Tensor, Tensor] | None:
        """The two tensors that were kept last; None at the start of a text."""

    def keep(self, query: Tensor, key: Tensor, tokens: int) -> None:
        """Keep two tensors in place of the last ones, which say all there is to know after `tokens` more tokens."""
