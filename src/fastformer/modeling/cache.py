"""What a decoder remembers from one step to the next, in transformers' `Cache`.

A Transformer layer keeps the keys and values of all tokens, in transformers' own layers. A causal Fastformer keeps the
states of its two running sums, in a `StateLayer`: (batch, heads, 1 + head size) each, however long the text.
"""

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin


class StateLayer(CacheLayerMixin):
    """Two tensors that stand for all earlier tokens. transformers calls them `keys` and `values`, and reorders,
    moves and repeats them along their first dimension, the batch, as it does all keys and values."""

    def __init__(self):
        super().__init__()
        self.tokens = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Note where the tensors live."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *, tokens: int) -> tuple[Tensor, Tensor]:
        """Replace both tensors, after `tokens` more tokens."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        self.tokens += tokens
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Tokens seen so far."""
        return self.tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of a mask over all tokens."""
        return self.tokens + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.keys = self.values = None
        self.tokens, self.is_initialized = 0, False

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every text."""
        if self.tokens:
            self.keys, self.values = (x.repeat_interleave(repeats, dim=0) for x in (self.keys, self.values))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some of the texts."""
        if self.tokens:
            self.keys, self.values = self.keys[indices], self.values[indices]

    def crop(self, tokens_to_remove: int) -> None:
        """Impossible: terms cannot be taken out of a sum."""
        if tokens_to_remove:
            raise RuntimeError("a causal Fastformer cannot take tokens back: use decoder layers of a Transformer")


class LayerMemory:
    """The `mixers.memory.Memory` of one layer: its place in a transformers `Cache` of any kind."""

    def __init__(self, cache: Cache, layer: int):
        self.cache, self.layer = cache, layer

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, these last."""
        return self.cache.update(keys, values, self.layer)

    def state(self) -> tuple[Tensor, Tensor] | None:
        """The two tensors that were kept last."""
        layers = self.cache.layers
        if self.layer >= len(layers) or not layers[self.layer].get_seq_length():
            return None
        return layers[self.layer].keys, layers[self.layer].values

    def keep(self, query: Tensor, key: Tensor, tokens: int) -> None:
        """Replace the two tensors."""
        layers = self.cache.layers
        layers.extend(StateLayer() for _ in range(len(layers), self.layer + 1))
        if not isinstance(layers[self.layer], StateLayer):
            layers[self.layer] = StateLayer()  # a new cache comes with layers for keys and values
        layers[self.layer].update(query, key, tokens=tokens)
