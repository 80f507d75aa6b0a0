"""`FastformerForRecommendation`: titles to news vectors, clicked news to a user vector, their product to a score.

    news   r = pool(encoder(words of the title))
    user   u = pool(encoder(r_1 … r_H)), the news that were clicked, oldest first
    score  s = u·r, of a candidate

Pooling is additive attention at both levels, and any mixer may stand at either: `mixer` reads titles, `user_mixer`
histories. A pre-trained encoder of any kind that transformers knows may read the titles instead (`plm`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from fastformer.mixers.sequence_parallel import needs_whole_texts
from fastformer.modeling.configuration import FastformerConfig, within
from fastformer.modeling.dropout import Dropout
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel
from fastformer.modeling.parts import similar_rows
from fastformer.modeling.pooling import AdditivePooling


@strict
class RecommendationConfig(FastformerConfig):
    """A `FastformerConfig` for both encoders, and what they do not share.

    mixer: reads titles; `max_position_embeddings` is then the longest title.
    user_mixer: reads histories.
    max_history: the longest history.
    plm: configuration of a transformers encoder that reads titles in place of ours (with its `model_type`), or None.
    """

    model_type = "fastformer-recommendation"

    user_mixer: str = "fastformer"
    max_history: int = within(50)
    plm: dict[str, Any] | None = None

    def for_users(self) -> FastformerConfig:
        """The same for the user encoder. The one row of its vocabulary stands for an empty history."""
        return self.for_vectors(self.user_mixer, self.max_history)


class NewsRecommender(FastformerPreTrainedModel):
    """What every recommender has: `encode_news`, whose results can be kept, and `match`, which makes scores of them."""

    def encode_news(self, input_ids: Tensor, attention_mask: Tensor, title_states: Tensor | None = None) -> Tensor:
        """What is known of each title (news, length): (news, …)."""
        raise NotImplementedError

    def match(self, news: Tensor, history: Tensor, history_mask: Tensor, candidates: Tensor) -> Tensor:
        """Scores (batch, candidates) of rows of `news`, given the rows that were clicked (batch, history)."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        history: Tensor,
        history_mask: Tensor,
        candidates: Tensor,
        candidate_mask: Tensor | None = None,
        title_states: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Scores (batch, candidates) and, with `labels`, the loss: cross-entropy of a softmax over the candidates.

        Args:
            input_ids: titles (news, length), each news of the batch once.
            attention_mask: 1 at the words of titles, 0 at padding.
            history: rows of `input_ids` that a user clicked (batch, history), oldest first.
            history_mask: 1 at clicks, 0 at padding.
            candidates: rows of `input_ids` to score (batch, candidates).
            candidate_mask: 1 at candidates, 0 at padding, which gets the lowest score there is.
            title_states: what `read_titles` gave for the titles: what is frozen need not run again.
            labels: which candidate was clicked (batch,).
        """
        needs_whole_texts("a recommender")
        news = self.encode_news(input_ids, attention_mask, title_states)
        scores = self.match(news, history, history_mask, candidates)
        if candidate_mask is not None:
            scores = scores.masked_fill(~candidate_mask.bool(), torch.finfo(scores.dtype).min)
        loss = None if labels is None else nn.functional.cross_entropy(scores.float(), labels)
        return SequenceClassifierOutput(loss=loss, logits=scores)


class FastformerForRecommendation(NewsRecommender):
    """News vectors, user vectors, dot products; see above. NRMS and PLM-NR are settings of it."""

    config_class = RecommendationConfig

    def __init__(self, config: RecommendationConfig):
        super().__init__(config)
        self.news = FastformerModel(config) if config.plm is None else PretrainedNewsEncoder(config)
        self.user = FastformerModel(config.for_users())
        self.post_init()

    @property
    def pretrained(self) -> PreTrainedModel | None:
        """The encoder that comes from elsewhere, if any."""
        return None if self.config.plm is None else self.news.plm

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding of titles."""
        return (self.news if self.pretrained is None else self.pretrained).get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embedding of titles."""
        (self.news if self.pretrained is None else self.pretrained).set_input_embeddings(value)

    def read_titles(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        """Token vectors of titles by what is frozen of the pre-trained encoder (news, length, its width), to keep."""
        return self.news.read_frozen(input_ids, attention_mask)

    def encode_news(self, input_ids: Tensor, attention_mask: Tensor, title_states: Tensor | None = None) -> Tensor:
        """News vectors (news, width); zeros for a title without words."""
        if self.config.plm is None:
            return self.news(input_ids, attention_mask).pooler_output
        return self.news(self.news.read(input_ids, attention_mask, title_states), attention_mask)

    def encode_users(self, clicked: Tensor, mask: Tensor) -> Tensor:
        """User vectors (batch, width) of clicked news (batch, history, width).

        In place of an empty history stands one learned vector, so that new users get an answer too.
        """
        mask = mask.bool()
        nobody = ~mask.any(dim=1)
        stand_in = self.user.get_input_embeddings().weight[0].to(clicked.dtype)
        clicked = torch.where(nobody[:, None, None], stand_in, clicked)
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        return self.user(inputs_embeds=clicked, attention_mask=mask | (nobody[:, None] & first)).pooler_output

    def match(self, news: Tensor, history: Tensor, history_mask: Tensor, candidates: Tensor) -> Tensor:
        """Dot products of user and candidates (batch, candidates)."""
        # Looked up as an embedding is: its gradient is faster on a CPU than that of indexing.
        users = self.encode_users(nn.functional.embedding(history, news), history_mask)
        return (nn.functional.embedding(candidates, news) * users[:, None]).sum(dim=-1)


class PretrainedNewsEncoder(nn.Module):
    """Any transformers encoder; its token vectors pooled by additive attention and mapped to the width of news.

    Its first layers may be frozen. What they give for a title never changes, so it can be kept (`read_frozen`), and
    only the layers behind them run in training.
    """

    def __init__(self, config: RecommendationConfig):
        super().__init__()
        settings = AutoConfig.for_model(**config.plm or {})
        model = AutoModel.from_config(settings, trust_remote_code=False)
        self.plm = model.get_encoder() if settings.is_encoder_decoder else model
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.pooler = AdditivePooling(settings)
        self.output = nn.Linear(settings.hidden_size, config.hidden_size)
        self.frozen: list[nn.Module] = []  # layers, first to last
        self.is_trained = True

    def freeze(self, trained: int) -> None:
        """Train only so many of the last layers, or none. PLM-NR trains two, which is next to nothing less than all."""
        stacks = [list(one) for one in self.plm.modules() if isinstance(one, nn.ModuleList)]
        stack = max(stacks, key=len)
        self.plm.requires_grad_(False)
        self.frozen, self.is_trained = stack[: max(0, len(stack) - trained)], trained > 0
        for layer in stack[len(self.frozen) :]:
            layer.requires_grad_(True)

    def read(self, input_ids: Tensor, attention_mask: Tensor, kept: Tensor | None = None) -> Tensor:
        """Token vectors (news, length, the encoder's width); what stands at padding means nothing.

        With `kept`, which `read_frozen` gave, the frozen layers do not run.
        """
        if kept is not None and not self.is_trained:
            return kept

        def run(rows: Tensor, width: int, inputs: dict[str, Tensor]) -> Tensor:
            with nullcontext() if kept is None else _recalled(self.frozen, kept[rows, :width]):
                return self.plm(**inputs).last_hidden_state

        return self._by_length(run, input_ids, attention_mask)

    def read_frozen(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        """Token vectors behind the frozen layers, and behind all if nothing is trained.

        None if no layer is frozen, or if layers hand on more than token vectors, as T5's do.
        """
        if not self.is_trained:
            return self.read(input_ids, attention_mask)
        if not self.frozen:
            return None
        given: list[Any] = []

        def run(rows: Tensor, width: int, inputs: dict[str, Tensor]) -> Tensor:
            last = self.plm(**inputs).last_hidden_state
            return given[-1] if isinstance(given[-1], Tensor) else last

        hook = self.frozen[-1].register_forward_hook(lambda layer, inputs, output: given.append(output))
        try:
            found = self._by_length(run, input_ids, attention_mask)
        finally:
            hook.remove()
        return found if isinstance(given[-1], Tensor) else None

    def _by_length(
        self, run: Callable[[Tensor, int, dict[str, Tensor]], Tensor], input_ids: Tensor, attention_mask: Tensor
    ) -> Tensor:
        """What `run` gives for titles of similar length together, which need less padding."""
        # A title without tokens shows its first padding: attention over nothing is not a number.
        seen = attention_mask.clone()
        seen[:, 0] |= ~attention_mask.any(dim=1)
        groups = similar_rows(seen.bool())
        parts = []
        for rows, width in groups:
            found = run(rows, width, {"input_ids": input_ids[rows, :width], "attention_mask": seen[rows, :width]})
            parts.append(nn.functional.pad(found, (0, 0, 0, input_ids.shape[1] - width)))
        return torch.cat(parts)[torch.cat([rows for rows, _ in groups]).argsort()]

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """News vectors (news, width) of what `read` gave."""
        return self.output(self.pooler(self.dropout(states), attention_mask.bool()))


@contextmanager
def _recalled(layers: Sequence[nn.Module], states: Tensor) -> Iterator[None]:
    """Let the encoder pass over its first layers: the last of them gives `states`."""
    for layer in layers:
        layer.forward = lambda hidden, *_, **__: hidden
    layers[-1].forward = lambda *_, **__: states
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
