"""`FastformerForCausalLM`: a language model, the next word from those before it."""

from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.decoder import FastformerDecoder
from fastformer.modeling.encoder import FastformerPreTrainedModel


def word_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy (batch, length, vocabulary) × (batch, length), labels of -100 left out.

    With smoothing ε a target is (1 - ε) of its label and ε/V of every word.
    """
    return nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten().to(logits.device), label_smoothing=label_smoothing
    )


class FastformerForCausalLM(FastformerPreTrainedModel, GenerationMixin):
    """The next word for every token, and `generate`; the output matrix is the token embedding (`tie_word_embeddings`).

    `config.mixer` is `fastformer`, whose state stays the same size however long the text, or `transformer`.
    The configuration is copied and made causal.
    """

    _tied_weights_keys = {"lm_head.weight": "fastformer.embeddings.word_embeddings.weight"}

    def __init__(self, config: FastformerConfig):
        config = config.with_changes(causal=True, is_encoder_decoder=False)
        super().__init__(config)
        if config.token_dropout:
            raise ValueError(f"token_dropout={config.token_dropout} removes tokens: a language model needs them all")
        self.fastformer = FastformerDecoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    @property
    def _is_stateful(self) -> bool:
        """Tells transformers that tokens cannot be taken back (as assisted decoding does)."""
        return self.config.mixer == "fastformer"

    def get_output_embeddings(self) -> nn.Module:
        """The output matrix."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output matrix."""
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """Logits (batch, length, vocab_size) of the next words; see `FastformerDecoder.forward`.

        With `labels` (batch, length), usually the `input_ids` with -100 at padding, also the loss: each label is
        predicted from the tokens before it. `logits_to_keep` asks for the last tokens only, this many; 0 for all.
        `use_cache` defaults to `config.use_cache`, and to False with `labels`.
        """
        if labels is not None and use_cache is None:
            use_cache = False
        outputs = self.fastformer(
            input_ids,
            attention_mask,
            position_ids,
            inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        hidden = outputs.last_hidden_state
        logits = self.lm_head(hidden[:, -logits_to_keep:] if logits_to_keep and labels is None else hidden)
        loss = None
        if labels is not None:
            smoothing = self.config.label_smoothing if self.training else 0.0
            loss = word_loss(logits[:, :-1], labels[:, 1:], smoothing)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )
