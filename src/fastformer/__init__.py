"""Fastformer: long text in linear time on any machine.

Importing this package makes its models known to transformers' Auto classes. It imports neither transformers nor
PyTorch by itself: names load their module when they are asked for, and models are registered once transformers is
imported.
"""

from fastformer.lazy import lazy_names, when_imported
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
    "load": "fastformer.tasks.verbs",
    "score_files": "fastformer.scale.scoring",
    "Recommender": "fastformer.tasks.recommendation",
    "ConversionPredictor": "fastformer.tasks.conversion",
    "Summarizer": "fastformer.tasks.summarization",
    "TextEncoder": "fastformer.tasks.encoder",
    "load_export": "fastformer.tasks.answering",
}

__all__ = ["__version__", *_PLACES]

__getattr__, __dir__ = lazy_names(__name__, _PLACES)


def _register_models() -> None:
    import fastformer.data.nltk_words
    import fastformer.modeling  # noqa: F401


when_imported("transformers", _register_models)
