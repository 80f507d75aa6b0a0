"""`FastformerForConditionalGeneration`: a text from a text, such as a summary."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from fastformer.modeling.causal_lm import word_loss
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.copying import CopyHead
from fastformer.modeling.decoder import FastformerDecoder
from fastformer.modeling.encoder import FastformerModel, FastformerPreTrainedModel


@dataclass
class EncoderOutput(BaseModelOutput):
    """What the decoder sees of the source: its vectors, and its tokens (`source_ids`), to copy from."""

    source_ids: Tensor | None = None


class FastformerEncoder(FastformerModel):
    """A `FastformerModel` without text vector, which hands on the tokens it read."""

    def __init__(self, config: FastformerConfig):
        super().__init__(config, add_pooling_layer=False)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs,
    ) -> EncoderOutput:
        """Encode a batch of texts; see `FastformerModel.forward`."""
        outputs = super().forward(
            input_ids, attention_mask, position_ids, inputs_embeds, **{**kwargs, "return_dict": True}
        )
        return EncoderOutput(
            last_hidden_state=outputs.last_hidden_state,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            source_ids=input_ids,
        )


class FastformerForConditionalGeneration(FastformerPreTrainedModel, GenerationMixin):
    """An encoder with any mixer, a decoder that attends to it, and `generate`: greedy, sampling, beam search.

        model = FastformerForConditionalGeneration(FastformerConfig(decoder_layers=4, eos_token_id=3))
        loss = model(input_ids, attention_mask, labels=labels).loss
        words = model.generate(input_ids, attention_mask=attention_mask, num_beams=5, max_new_tokens=100)

    Source and target share one vocabulary and one token embedding, which is also the output matrix
    (`tie_word_embeddings`). With `labels` the loss is cross-entropy, labels of -100 left out.
    The configuration is copied; the copy says `is_encoder_decoder`.
    """

    _tied_weights_keys = {"lm_head.weight": "fastformer.embeddings.word_embeddings.weight"}

    def __init__(self, config: FastformerConfig):
        start = config.decoder_start_token_id
        if start is None:
            start = config.pad_token_id if config.bos_token_id is None else config.bos_token_id
        config = config.with_changes(is_encoder_decoder=True, decoder_start_token_id=start)
        super().__init__(config)
        if config.token_dropout:
            raise ValueError(f"token_dropout={config.token_dropout} removes tokens: a decoder attends to them all")
        self.fastformer = FastformerEncoder(config)
        self.decoder = FastformerDecoder(config.for_decoder(), cross_attention=True, word_embeddings=False)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.copying = CopyHead(config) if config.copy_mechanism else None
        self.post_init()

    @property
    def _is_stateful(self) -> bool:
        """Tells transformers that tokens cannot be taken back (as assisted decoding does)."""
        return self.config.decoder_mixer == "fastformer"

    def get_encoder(self, modality: str | None = None) -> FastformerEncoder:
        """The encoder; `generate` calls it once."""
        return self.fastformer

    def get_output_embeddings(self) -> nn.Module:
        """The output matrix."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output matrix."""
        self.lm_head = new_embeddings

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Tensor | None = None, **kwargs
    ) -> tuple[Tensor, dict[str, Any]]:
        """Called by beam search: what is written is there once for every beam, the source once for all of them."""
        source = {name: kwargs.pop(name) for name in ("encoder_outputs", "attention_mask") if name in kwargs}
        input_ids, kwargs = super()._expand_inputs_for_generation(expand_size, False, input_ids, **kwargs)
        return input_ids, kwargs | source

    def _reorder_cache(self, cache: EncoderDecoderCache, beams: Tensor) -> EncoderDecoderCache:
        """Called by beam search. A beam takes the place of another of the same source: what was written is moved."""
        cache.self_attention_cache.reorder_cache(beams)
        return cache

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels moved one place to the right, after the start token; padding in place of -100."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError("labels need pad_token_id and one of decoder_start_token_id and bos_token_id")
        shifted = torch.cat([labels.new_full((labels.shape[0], 1), start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, pad)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EncoderOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """Logits (batch, target length, vocab_size) of the next words, and the loss when `labels` are given.

        Args:
            input_ids: the source (batch, source length); or `inputs_embeds`, its token vectors.
            attention_mask: 1 at real tokens of the source, 0 at padding; default all real.
            decoder_input_ids: what is written so far (batch, target length), without what is in the cache; or
                `decoder_inputs_embeds`, its token vectors. Default: made from `labels`.
            decoder_attention_mask: 1 at real tokens of the target, cache included; default all real.
            encoder_outputs: what the encoder returned for this source, so that it need not run again.
            past_key_values: the cache of earlier steps.
            labels: the target (batch, target length), -100 at padding.
            use_cache: remember these tokens; default `config.use_cache`, and not with `labels`.
            output_attentions: also return weights of the encoder (see `FastformerModel`) and of the cross-attention.
            output_hidden_states: also return the outputs of all layers.
            kwargs: `return_dict=False` returns a tuple.
        """
        if use_cache is None:
            use_cache = labels is None and self.config.use_cache
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoded = self.fastformer(
                input_ids,
                attention_mask,
                inputs_embeds=inputs_embeds,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        elif isinstance(encoder_outputs, BaseModelOutput):
            encoded = encoder_outputs
        else:
            encoded = EncoderOutput(last_hidden_state=encoder_outputs[0])
        if decoder_inputs_embeds is None:
            if decoder_input_ids is None:
                raise ValueError("give labels, decoder_input_ids or decoder_inputs_embeds")
            decoder_inputs_embeds = self.get_input_embeddings()(decoder_input_ids)

        source = encoded.last_hidden_state
        outputs = self.decoder(
            attention_mask=decoder_attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            encoder_hidden_states=source,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        hidden = outputs.last_hidden_state
        logits = self.lm_head(hidden)
        if self.copying is not None:
            source_ids = getattr(encoded, "source_ids", None) if input_ids is None else input_ids
            if source_ids is None:
                raise ValueError(
                    "copy_mechanism needs the source's tokens: give input_ids, or what get_encoder() returns"
                )
            mask = None if attention_mask is None else attention_mask.bool()
            logits = self.copying(hidden, logits, source, source_ids, mask)
        loss = None
        if labels is not None:
            loss = word_loss(logits, labels, self.config.label_smoothing if self.training else 0.0)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=source,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )
