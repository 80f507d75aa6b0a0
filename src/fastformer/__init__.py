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
    "Summarizer",
    "TextClassifier",
    "TextRegressor",
    "__version__",
    "available_mixers",
    "build_mixer",
    "load_official",
]


def __getattr__(name: str) -> Any:
    """The estimators bring scikit-learn and the data readers along: load them only when they are asked for."""
    if name == "Summarizer":
        from fastformer.tasks import summarization

        return getattr(summarization, name)
    if name in ("TextClassifier", "TextRegressor"):
        from fastformer.tasks import classification

        return getattr(classification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
