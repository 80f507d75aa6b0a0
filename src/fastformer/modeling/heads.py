"""Models with a head: sequence classification, token classification, masked language modelling."""

import math

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from fastformer.mixers.sequence_parallel import needs_whole_texts
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel
from fastformer.modeling.ngrams import NgramChannel


def _needs_every_token(config: FastformerConfig) -> None:
    if config.token_dropout:
        raise ValueError(f"token_dropout={config.token_dropout} removes tokens: only a text classifier can train so")


def _classifier_dropout(config: FastformerConfig) -> nn.Dropout:
    rate = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if rate is None else rate)


def with_doubt(logits: Tensor, doubt: float) -> Tensor:
    """Log-probabilities of (1 - doubt) softmax(logits) + doubt / classes, which limits how sure an answer can be."""
    if not doubt:
        return logits
    floor = torch.full_like(logits, math.log(doubt / logits.shape[-1]))
    return torch.logaddexp(logits.log_softmax(dim=-1) + math.log1p(-doubt), floor)


class FastformerForSequenceClassification(FastformerPreTrainedModel):
    """One label, several labels or a number for a text: a linear map of the text vector.

    With `labels` the loss is cross-entropy (integer labels), binary cross-entropy per class (float labels of shape
    (batch, num_labels)) or squared error (`num_labels=1`), or as `config.problem_type` says.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.fastformer = FastformerModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.ngrams = NgramChannel.of(config) if config.ngram_channel else None
        self.sum = nn.Identity()  # a place to look at the logits before doubt
        self.class_weights: Tensor | None = None  # in training: what an error costs, by class
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        """Logits (batch, num_labels), and the loss when `labels` are given; see `FastformerModel.forward`.

        `sample_weight` (batch) says how much the loss of each text counts; by default 1.
        """
        alone = self.config.ngram_only and labels is None  # a further training is about the encoder
        if self.ngrams is not None and alone:
            outputs, logits = BaseModelOutput(), self._ngram_logits(self.ngrams, input_ids, attention_mask)
        else:
            kwargs = {"pooled_only": True, **kwargs, "return_dict": True}
            outputs = self.fastformer(input_ids, attention_mask, position_ids, inputs_embeds, **kwargs)
            logits = self.classifier(self.dropout(outputs.pooler_output))
            if self.ngrams is not None:
                logits = logits + self._ngram_logits(self.ngrams, input_ids, attention_mask)
        logits = with_doubt(self.sum(logits), self.config.doubt)
        loss = None
        if labels is not None:
            if sample_weight is not None:
                loss = (sample_weight * self._losses(logits, labels)).mean()
            elif self.class_weights is not None:
                loss = nn.functional.cross_entropy(logits, labels, self.class_weights.to(logits.device))
            else:
                loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each text; their mean is the loss of all."""
        if self.config.problem_type == "regression":
            return (logits.squeeze(-1) - labels).square()
        if self.config.problem_type == "multi_label_classification":
            return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=-1)
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        losses = nn.functional.cross_entropy(logits, labels, weights, reduction="none")
        return losses if weights is None else losses / weights[labels].mean()

    def add_ngrams(self, channel: NgramChannel, only: bool = False, doubt: float = 0.0) -> None:
        """Put an n-gram channel beside the encoder, or in its place."""
        channel.describe(self.config)
        self.config.doubt = doubt
        self.config.ngram_only = only
        self.ngrams = channel

    def _ngram_logits(self, channel: NgramChannel, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        if input_ids is None:
            raise ValueError("this model reads words (ngram_channel): give input_ids, not inputs_embeds")
        needs_whole_texts("the n-gram channel, which counts the words of a text,")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return channel(input_ids, mask.bool())


class FastformerForTokenClassification(FastformerPreTrainedModel):
    """A label for every token: a linear map of the token vectors. Labels of -100 are left out of the loss."""

    def __init__(self, config: FastformerConfig):
        super().__init__(config)
        _needs_every_token(config)
        self.num_labels = config.num_labels
        self.fastformer = FastformerModel(config, add_pooling_layer=False)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Logits (batch, length, num_labels), and the loss when `labels` (batch, length) are given."""
        outputs = self.fastformer(input_ids, attention_mask, position_ids, inputs_embeds, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FastformerForMaskedLM(FastformerPreTrainedModel):
    """A word for every masked token; the output matrix is the token embedding (`tie_word_embeddings`).

    Labels of -100 are left out of the loss.
    """

    _tied_weights_keys = {"decoder.weight": "fastformer.embeddings.word_embeddings.weight"}

    def __init__(self, config: FastformerConfig):
        super().__init__(config)
        _needs_every_token(config)
        self.fastformer = FastformerModel(config, add_pooling_layer=False)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The output matrix."""
        return self.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output matrix."""
        self.decoder = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """Logits (batch, length, vocab_size), and the loss when `labels` (batch, length) are given."""
        outputs = self.fastformer(input_ids, attention_mask, position_ids, inputs_embeds, return_dict=True, **kwargs)
        logits = self.decoder(self.norm(self.activation(self.dense(outputs.last_hidden_state))))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
