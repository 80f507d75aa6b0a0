"""Models as transformers knows them. Importing this package registers them with the Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel
from fastformer.modeling.heads import (
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerForTokenClassification,
)
from fastformer.modeling.official import load_official

AutoConfig.register("fastformer", FastformerConfig)
AutoModel.register(FastformerConfig, FastformerModel)
AutoModelForSequenceClassification.register(FastformerConfig, FastformerForSequenceClassification)
AutoModelForTokenClassification.register(FastformerConfig, FastformerForTokenClassification)
AutoModelForMaskedLM.register(FastformerConfig, FastformerForMaskedLM)

__all__ = [
    "FastformerConfig",
    "FastformerForMaskedLM",
    "FastformerForSequenceClassification",
    "FastformerForTokenClassification",
    "FastformerModel",
    "FastformerPreTrainedModel",
    "load_official",
]
