"""`FastformerForConversion`: will this user, who did these things, convert on this ad? The paper's Ad CVR model.

    t_i   = TextEncoder(text i)                       behaviours and the ad, each distinct text once
    u     = UserEncoder(t_1 … t_n)                    over the vectors of the behaviours, the latest last
    p     = sigmoid(MLP([u; a; u * a; side features]))

Both encoders are a `FastformerModel` with a text vector by additive pooling, of any mixer. Behaviours have positions by
recency, 0 for the latest: what happened last has the same place in a long list and in a short one.
"""

from typing import NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from fastformer.mixers.sequence_parallel import needs_whole_texts
from fastformer.modeling.configuration import FastformerConfig, within
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel


@strict
class FastformerConversionConfig(FastformerConfig):
    """Configuration of `FastformerForConversion`: what `FastformerConfig` says holds for both encoders, and

    user_mixer: method of the user encoder (`None`: that of the texts, `mixer`).
    num_user_layers: how many times a layer of the user encoder is applied.
    max_behaviors: longest list of behaviours; older ones are to be left out.
    head_size: inner width of the MLP.
    num_numeric: numbers beside each event, standardised.
    category_sizes: for each category beside an event, the number of its values, 0 (unknown) included.
    category_width: width of a category's vector.
    """

    model_type = "fastformer-conversion"

    user_mixer: str | None = None
    num_user_layers: int = within(1, least=0)
    max_behaviors: int = within(50)
    head_size: int = within(256)
    num_numeric: int = within(0, least=0)
    category_sizes: list[int] | None = None
    category_width: int = within(16)

    def for_users(self) -> FastformerConfig:
        """The same for the user encoder. The one row of its vocabulary is not used."""
        return self.for_vectors(
            self.user_mixer or self.mixer, self.max_behaviors, num_hidden_layers=self.num_user_layers
        )


class Side(NamedTuple):
    """Side features of a batch of events."""

    numeric: Tensor | None = None  # (batch, num_numeric)
    categories: Tensor | None = None  # (batch, categories) numbers of values


class FastformerForConversion(FastformerPreTrainedModel):
    """The probability that an event ends in a conversion, as a logit. With `labels` the loss is binary cross-entropy.

    `forward` takes a batch whose distinct texts stand in a table; `encode_texts`, `encode_users` and `score` are its
    three steps, for callers that keep vectors between two calls.
    """

    config_class = FastformerConversionConfig

    def __init__(self, config: FastformerConversionConfig):
        super().__init__(config)
        self.fastformer = FastformerModel(config)  # the text encoder, under the name it has in every model here
        self.user_encoder = FastformerModel(config.for_users())
        sizes = config.category_sizes or []
        self.category_embeddings = nn.ModuleList([nn.Embedding(size, config.category_width) for size in sizes])
        side = config.num_numeric + config.category_width * len(sizes)
        self.head = nn.Sequential(
            nn.Linear(3 * config.hidden_size + side, config.head_size),
            ACT2FN[config.hidden_act],
            nn.Dropout(config.hidden_dropout_prob),
            nn.Linear(config.head_size, 1),
        )
        self.post_init()

    def encode_texts(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors (texts, width) of texts (texts, length)."""
        return self.fastformer(input_ids, attention_mask).pooler_output

    def encode_users(self, behaviors: Tensor, mask: Tensor) -> Tensor:
        """Vectors (users, width) of lists of behaviour vectors (users, behaviours, width), the latest last.

        `mask` (users, behaviours) is 1 at behaviours, 0 at padding. A user without any has a vector of zeros.
        """
        ranks = mask.cumsum(dim=1)
        recency = (ranks[:, -1:] - ranks) * mask
        return self.user_encoder(inputs_embeds=behaviors, attention_mask=mask, position_ids=recency).pooler_output

    def score(self, users: Tensor, ads: Tensor, side: Side | None = None) -> Tensor:
        """Logits (batch,) of users and ads, both (batch, width), and the side features the model was built with."""
        side = side or Side()
        parts = [users, ads, users * ads]
        if self.config.num_numeric:
            parts.append(None if side.numeric is None else side.numeric.to(users))
        for table, values in zip(self.category_embeddings, _columns(side.categories), strict=True):
            parts.append(table(values.to(users.device)))
        return self.head(torch.cat(parts, dim=-1)).squeeze(-1)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        behaviors: Tensor,
        behavior_mask: Tensor,
        ads: Tensor,
        numeric: Tensor | None = None,
        categories: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        """Logits (batch,), and the loss when `labels` (batch,) of 0 and 1 are given.

        Args:
            input_ids: token ids of the distinct texts of the batch (texts, length).
            attention_mask: 1 at their real tokens, 0 at padding.
            behaviors: each event's behaviours as rows of `input_ids`, the latest last (batch, behaviours).
            behavior_mask: 1 at behaviours, 0 at padding.
            ads: each event's ad as a row of `input_ids` (batch,).
            numeric: standardised numbers (batch, num_numeric).
            categories: numbers of categories (batch, len(category_sizes)).
            labels: whether each event ended in a conversion.
            kwargs: `return_dict=False` returns a tuple.
        """
        needs_whole_texts("a model of conversions")
        vectors = self.encode_texts(input_ids, attention_mask)
        users = self.encode_users(nn.functional.embedding(behaviors, vectors), behavior_mask)
        logits = self.score(users, vectors[ads], Side(numeric, categories))
        loss = None
        if labels is not None:
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return SequenceClassifierOutput(loss=loss, logits=logits)


def _columns(categories: Tensor | None) -> tuple[Tensor, ...]:
    return () if categories is None else categories.unbind(dim=1)
