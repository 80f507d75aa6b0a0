"""What is learned: the next word of the summary, from the article and the words before it.

Scoring wants three numbers per document and not the logits of every word of the vocabulary, which would not fit in
memory.
"""

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import Seq2SeqLMOutput

from fastformer.modeling import FastformerForConditionalGeneration
from fastformer.tasks.scores import perplexity
from fastformer.tasks.summarization.data import IGNORED


class SummaryLearner(FastformerForConditionalGeneration):
    """`FastformerForConditionalGeneration` that has its training loss for less work, and small scores.

    Only real words of the summaries go through the output matrix, and with copying only the probability of the word
    that follows is worked out: a third of the time of a step at a vocabulary of 8,000.
    """

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Seq2SeqLMOutput:
        """The mean loss of the summaries' words; when scoring, also (batch, 3): loss, words guessed right, words."""
        if self.training and not (self.copying and self.config.label_smoothing):
            return Seq2SeqLMOutput(loss=self._loss(input_ids, attention_mask, labels))
        if self.training:  # smoothing is over the probabilities of all words, copied ones included
            return Seq2SeqLMOutput(loss=super().forward(input_ids, attention_mask, labels=labels).loss)
        written = self.prepare_decoder_input_ids_from_labels(labels)
        logits = super().forward(input_ids, attention_mask, written, use_cache=False).logits
        losses = nn.functional.cross_entropy(logits.mT, labels, ignore_index=IGNORED, reduction="none")
        words = labels != IGNORED
        right = (logits.argmax(dim=-1) == labels) & words
        scores = torch.stack([losses.sum(dim=1), right.sum(dim=1), words.sum(dim=1)], dim=-1)
        return Seq2SeqLMOutput(loss=losses.sum() / words.sum(), logits=scores)

    def _loss(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        source = self.fastformer(input_ids, attention_mask).last_hidden_state
        hidden = self.decoder(
            inputs_embeds=self.get_input_embeddings()(self.prepare_decoder_input_ids_from_labels(labels)),
            encoder_hidden_states=source,
            encoder_attention_mask=attention_mask,
            use_cache=False,
        ).last_hidden_state
        real = labels != IGNORED
        logits = self.lm_head(hidden[real]).float()  # words, vocabulary
        if self.copying is None:
            return nn.functional.cross_entropy(logits, labels[real], label_smoothing=self.config.label_smoothing)
        generated = -nn.functional.cross_entropy(logits, labels[real], reduction="none")
        generated = torch.zeros(labels.shape, device=labels.device).masked_scatter(real, generated)
        words, mask = labels.where(real, 0), attention_mask.bool()
        return -self.copying.log_probability(hidden, generated, source, input_ids, mask, words)[real].mean()


def validation_scores(sums: np.ndarray) -> dict[str, float]:
    """Scores from the sums of each document, (documents, 3)."""
    loss, right, words = sums.astype(np.float64).sum(axis=0)
    loss /= words
    return {"perplexity": perplexity(loss), "accuracy": float(right / words), "log_likelihood": -float(loss)}
