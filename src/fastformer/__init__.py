"""Fastformer: long text in linear time on any machine.

Importing this package registers its models with transformers' Auto classes.
"""

from typing import Any

from fastformer.data import tokenizers as _tokenizers  # noqa: F401  registers the NLTK tokenizer with AutoTokenizer
from fastformer.mixers import available_mixers, build_mixer
from fastformer.modeling import (
    FastformerConfig,
    FastformerForCausalLM,
    FastformerForConditionalGeneration,
    FastformerForMaskedLM,
    FastformerForRecommendation,
    FastformerForSequenceClassification,
    FastformerForTokenClassification,
    FastformerModel,
    load_official,
)
from fastformer.version import __version__

__all__ = [
    "FastformerConfig",
    "FastformerForCausalLM",
    "FastformerForConditionalGeneration",
    "FastformerForMaskedLM",
    "FastformerForRecommendation",
    "FastformerForSequenceClassification",
    "FastformerForTokenClassification",
    "FastformerModel",
    "TextClassifier",
    "__version__",
    "available_mixers",
    "build_mixer",
    "load_official",
]


def __getattr__(name: str) -> Any:
    """`TextClassifier` brings scikit-learn and the data readers along: load it only when it is asked for."""
    if name == "TextClassifier":
        from fastformer.tasks.classification import TextClassifier

        return TextClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
