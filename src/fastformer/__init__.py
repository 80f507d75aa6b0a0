"""Fastformer: long text in linear time on any machine.

Importing this package registers its models with transformers' Auto classes.
"""

import sys
from pathlib import Path

from fastformer.lazy import lazy_names
from fastformer.version import __version__

_PLACES = {
    **dict.fromkeys(("available_mixers", "build_mixer"), "fastformer.mixers"),
    "sequence_parallel": "fastformer.mixers.sequence_parallel",
    **dict.fromkeys(
        (
            "FastformerConfig",
            "FastformerForCausalLM",
            "FastformerForConditionalGeneration",
            "FastformerForMaskedLM",
            "FastformerForRecommendation",
            "FastformerForSequenceClassification",
            "FastformerForTokenClassification",
            "FastformerModel",
            "load_official",
        ),
        "fastformer.modeling",
    ),
    **dict.fromkeys(("TextClassifier", "TextRegressor"), "fastformer.tasks.classification"),
    "Recommender": "fastformer.tasks.recommendation",
    "ConversionPredictor": "fastformer.tasks.conversion",
    "Summarizer": "fastformer.tasks.summarization",
    "TextEncoder": "fastformer.tasks.encoder",
}

__all__ = ["__version__", *_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)


def _is_command_line() -> bool:
    """Whether this process is `fastformer …` or `python -m fastformer …`."""
    given = sys.orig_argv
    as_module = "-m" in given and given[given.index("-m") + 1 :][:1] == [__name__]
    return as_module or Path(sys.argv[0]).stem == __name__


if not _is_command_line():  # whose `--help` should not wait for torch; its verbs import what they need
    import fastformer.data.tokenizers
    import fastformer.modeling  # noqa: F401
