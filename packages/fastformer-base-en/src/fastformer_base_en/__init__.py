"""The weights of the encoder `base`; `fastformer` finds them by the entry point of this package."""

from pathlib import Path


def folder() -> Path:
    """The run folder."""
    return Path(__file__).parent / "model"
