"""Token mixers: the one part in which the seven methods differ.

A mixer is an `nn.Module` called as `mixer(x, mask) -> y`:

    x, y   (batch, length, width)
    mask   (batch, length) bool, True where the token is real

What stands in a padded place, how much padding there is, on which side it stands, and the other rows of the batch never
change `y` at a real place; a row with no real token gives finite numbers. Everything around the
mixer (embedding, norm, feed-forward, pooling, heads) is shared by all methods.

Each file of this package holds one method and ends by registering its name:

    @register("linear")
    class LinearMixer(nn.Module):
        def __init__(self, config): ...

so an eighth method is one file and one import line below. `@register(name, causal=True)` adds a method's causal form,
which `config.causal` asks for: `mixer(x, mask, memory) -> y`, where no token sees a later one (see `causal.py`).
"""

from fastformer.mixers.registry import available_mixers, build_mixer, register

# Importing a file registers its method. The order is that of the paper's tables.
from fastformer.mixers import transformer  # isort: skip
from fastformer.mixers import longformer  # isort: skip
from fastformer.mixers import bigbird  # isort: skip
from fastformer.mixers import linformer  # isort: skip
from fastformer.mixers import linear  # isort: skip
from fastformer.mixers import poolingformer  # isort: skip
from fastformer.mixers import fastformer, fastformer_ablations  # isort: skip
from fastformer.mixers import causal  # isort: skip

__all__ = [
    "available_mixers",
    "bigbird",
    "build_mixer",
    "causal",
    "fastformer",
    "fastformer_ablations",
    "linear",
    "linformer",
    "longformer",
    "poolingformer",
    "register",
    "transformer",
]
