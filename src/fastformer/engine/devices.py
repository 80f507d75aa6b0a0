"""Where a model runs, and with which type of numbers: `--device` and `--dtype`.

Weights are always trained in float32; with bfloat16 only the products use it (autocast). A model that only answers is
kept in bfloat16 as a whole, except its n-gram channel, whose sums of small numbers need float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from fastformer.engine.settings import unknown
from fastformer.errors import UserError
from fastformer.surroundings import ranks
from fastformer.surroundings.progress import say

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Place:
    """A kind of device, and the type of numbers on it; `asked`: somebody named one of them."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    asked: bool = False

    def put(self, model: PreTrainedModel) -> PreTrainedModel:
        """Move a model that is to answer there, in place."""
        model.to(self.device, self.dtype)
        if getattr(model, "ngrams", None) is not None:
            model.ngrams.float()
        return model

    def refuse_unless_usual(self, name: object) -> None:
        """For what runs on the processor and in float32 alone: an export."""
        if self.asked and (self.device, self.dtype) != ("cpu", torch.float32):
            raise UserError(f"{name}: an export runs on the CPU and in float32; give the run that it was made of")

    def told(self) -> dict[str, str]:
        """What metrics.json says about it."""
        return {"device": self.device, "dtype": str(self.dtype).removeprefix("torch.")}

    def say_idle_gpus(self) -> None:
        """A training in one process uses one GPU: print how to use all."""
        if self.device == "cuda" and ranks.size() == 1 and (count := torch.cuda.device_count()) > 1:
            say(
                f"{count} GPUs are here and one process uses one of them; "
                f"`torchrun --nproc-per-node {count} -m fastformer train …` uses all."
            )


USUAL = Place()
_place = USUAL  # of models that are loaded


def current_place() -> Place:
    """Where models are loaded to."""
    return _place


@contextmanager
def loading_to(place: Place) -> Iterator[None]:
    """Within it models of runs are loaded to a place."""
    global _place
    before, _place = _place, place
    try:
        yield
    finally:
        _place = before


def choose(device: str = "auto", dtype: str = "auto") -> Place:
    """The place of these names: `auto` is CUDA if there is a GPU, and float32. What is not here is refused."""
    asked = (device, dtype) != ("auto", "auto")
    if device not in DEVICES:
        raise UserError(unknown("device", device, DEVICES))
    if dtype not in DTYPES:
        raise UserError(unknown("dtype", dtype, DTYPES))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[device]:
        raise UserError(f"--device {device}: PyTorch sees no such device here; leave it out, or give cpu")
    return Place(device, DTYPES[dtype], asked)
