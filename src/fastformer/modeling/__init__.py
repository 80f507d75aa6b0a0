"""Models as transformers knows them. Importing this package registers them with the Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from fastformer.modeling.causal_lm import FastformerForCausalLM
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.conversion import FastformerConversionConfig, FastformerForConversion
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel
from fastformer.modeling.fim import FimConfig, FimForRecommendation
from fastformer.modeling.heads import (
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerForTokenClassification,
)
from fastformer.modeling.official import load_official
from fastformer.modeling.recommendation import FastformerForRecommendation, NewsRecommender, RecommendationConfig
from fastformer.modeling.seq2seq import FastformerForConditionalGeneration

AutoConfig.register("fastformer", FastformerConfig)
AutoModel.register(FastformerConfig, FastformerModel)
AutoModelForSequenceClassification.register(FastformerConfig, FastformerForSequenceClassification)
AutoModelForTokenClassification.register(FastformerConfig, FastformerForTokenClassification)
AutoModelForMaskedLM.register(FastformerConfig, FastformerForMaskedLM)
for _config, _model in ((RecommendationConfig, FastformerForRecommendation), (FimConfig, FimForRecommendation)):
    AutoConfig.register(_config.model_type, _config)
    AutoModel.register(_config, _model)
AutoModelForCausalLM.register(FastformerConfig, FastformerForCausalLM)
AutoModelForSeq2SeqLM.register(FastformerConfig, FastformerForConditionalGeneration)
AutoConfig.register("fastformer-conversion", FastformerConversionConfig)
AutoModel.register(FastformerConversionConfig, FastformerForConversion)

__all__ = [
    "FastformerConfig",
    "FastformerConversionConfig",
    "FastformerForCausalLM",
    "FastformerForConditionalGeneration",
    "FastformerForConversion",
    "FastformerForMaskedLM",
    "FastformerForRecommendation",
    "FastformerForSequenceClassification",
    "FastformerForTokenClassification",
    "FastformerModel",
    "FastformerPreTrainedModel",
    "FimConfig",
    "FimForRecommendation",
    "NewsRecommender",
    "RecommendationConfig",
    "load_official",
]
