"""`FastformerDecoder`: a stack of causal layers, with cross-attention to a source if there is one."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import can_return_tuple

from fastformer.mixers.heads import HeadedMixer
from fastformer.mixers.sequence_parallel import needs_whole_texts
from fastformer.modeling.cache import LayerMemory
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.embeddings import FastformerEmbeddings, token_ranks
from fastformer.modeling.encoder import FastformerPreTrainedModel
from fastformer.modeling.layer import FastformerLayer
from fastformer.modeling.norms import final_norm, norm_at
from fastformer.modeling.sharing import by_source


class CrossAttention(HeadedMixer):
    """Every token of the decoder attends to every real token of the source: y_i = Σ_j softmax_j(q_i·k_j / √d_h) v_j.

    Several texts in a row may have the same source, as beams do: it is then there once, for all of them.
    """

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        mask: Tensor | None,
        cache: EncoderDecoderCache | None,
        layer: int,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Mix `source` (sources, source length, width) into `x` (batch, length, width).

        The batch has one text per source, or several per source, always equally many. Also returns the weights (batch,
        heads, length, source length). Keys and values of the source are projected once, and then come from the cache.
        """
        batch, length, _ = x.shape
        query = self.split(self.query(by_source(x, source))).transpose(1, 2)
        if cache is not None and cache.is_updated.get(layer):
            kept = cache.cross_attention_cache.layers[layer]
            key, value = kept.keys, kept.values
        else:
            key, value = (self.split(linear(source)).transpose(1, 2) for linear in (self.key, self.value))
            if cache is not None:
                key, value = cache.cross_attention_cache.update(key, value, layer)
                cache.is_updated[layer] = True
        seen = None
        if mask is not None:  # a row with no real token attends to its padding, and stays finite
            seen = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None]
        weights = None
        if output_attentions:
            scores = query @ key.mT * key.shape[-1] ** -0.5
            scores = scores if seen is None else scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
            weights = scores.softmax(dim=-1)
            mixed = weights @ value
            weights = weights.unflatten(2, (batch // source.shape[0], length)).transpose(1, 2).flatten(0, 1)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.output(self.merge(mixed)).view(x.shape), weights


class FastformerDecoderLayer(FastformerLayer):
    """A causal mixer, cross-attention if there is a source, and a feed-forward block."""

    def __init__(self, config: FastformerConfig, cross_attention: bool):
        super().__init__(config)
        self.cross_attention = None
        if cross_attention:
            self.cross_pre_norm, self.cross_post_norm = norm_at(config, "pre"), norm_at(config, "post")
            self.cross_attention = CrossAttention(config)

    def forward(  # type: ignore[override]  # a layer of a decoder never stands where one of an encoder does
        self,
        x: Tensor,
        mask: Tensor | None,
        source: Tensor | None,
        source_mask: Tensor | None,
        cache: Cache | None,
        layer: int,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Transform `x` (batch, length, width); also return the weights of the cross-attention if asked."""
        weights = None
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        mixed = self.mixer(self.mixer_pre_norm(x), mask, None if own is None else LayerMemory(own, layer))
        x = self.mixer_post_norm(self._add(x, mixed))
        if self.cross_attention is not None:
            mixed, weights = self.cross_attention(
                self.cross_pre_norm(x), source, source_mask, cache, layer, output_attentions
            )
            x = self.cross_post_norm(self._add(x, mixed))
        return self._feed_forward(x), weights


class FastformerDecoder(FastformerPreTrainedModel):
    """Token vectors that depend on earlier tokens only, and on a source.

    Its configuration is a causal one: that of `FastformerForCausalLM`, or `config.for_decoder()`. Without
    `cross_attention` its weights are those of a `FastformerModel` with the same configuration. Without
    `word_embeddings` it takes vectors (`inputs_embeds`), from a table that another module owns.
    """

    def __init__(self, config: FastformerConfig, cross_attention: bool = False, word_embeddings: bool = True):
        super().__init__(config)
        for name in ("bigram_buckets", "neighbor_size"):
            if getattr(config, name):
                raise ValueError(f"{name}: a decoder sees one word at a time, and none beside it; set it to 0")
        self.embeddings = FastformerEmbeddings(config)
        if not word_embeddings:
            self.embeddings.word_embeddings = None
        own_layers = min(1, config.num_hidden_layers) if config.share_layers else config.num_hidden_layers
        self.layers = nn.ModuleList([FastformerDecoderLayer(config, cross_attention) for _ in range(own_layers)])
        self.has_cross_attention = cross_attention
        self.final_norm = final_norm(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode a batch of texts, or the next tokens of texts whose beginning is in `past_key_values`.

        Args:
            input_ids: token ids (batch, length) that are not in the cache yet; or else
            inputs_embeds: token vectors (batch, length, hidden_size).
            attention_mask: 1 at real tokens, 0 at padding, (batch, tokens in the cache + length); default all real.
            position_ids: positions (batch, length); default the rank of each token among the real ones of its row.
            encoder_hidden_states: the source (batch, source length, hidden_size); or a source for every two, three, …
                texts in a row.
            encoder_attention_mask: 1 at real tokens of the source; default all real.
            past_key_values: a transformers `Cache`, to which these tokens are added.
            use_cache: make a cache if none is given; default `config.use_cache`.
            output_attentions: also return for each layer the weights of its cross-attention.
            output_hidden_states: also return the embedding and every layer's output.
            kwargs: `return_dict=False` returns a tuple.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if self.has_cross_attention and encoder_hidden_states is None:
            raise ValueError("this decoder attends to a source: give encoder_hidden_states")
        needs_whole_texts("a decoder")
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        cache = self._cache(past_key_values, self.config.use_cache if use_cache is None else use_cache)

        x = self.embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        past, length = 0 if cache is None else cache.get_seq_length(), x.shape[1]
        mask = None if attention_mask is None else attention_mask.bool()
        if mask is not None and mask.ndim != 2:
            raise ValueError(f"attention_mask has {mask.ndim} dimensions, not (batch, tokens)")
        if mask is not None and mask.shape[1] != past + length:
            raise ValueError(
                f"attention_mask has {mask.shape[1]} columns for {length} tokens after {past} in the cache: "
                f"it must cover all {past + length}"
            )
        if position_ids is None:
            ranks = torch.arange(past, past + length, device=x.device)[None] if mask is None else token_ranks(mask)
            position_ids = ranks[:, ranks.shape[1] - length :]
        x = self.embeddings.finish(x, position_ids)

        source_mask = None if encoder_attention_mask is None else encoder_attention_mask.bool()
        hidden_states, cross_attentions = [x], []
        for depth in range(self.config.num_hidden_layers):
            layer = self.layers[0 if self.config.share_layers else depth]
            x, weights = layer(x, mask, encoder_hidden_states, source_mask, cache, depth, output_attentions)
            hidden_states.append(x)
            cross_attentions.append(weights)
        x = hidden_states[-1] = self.final_norm(x)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=x,
            past_key_values=cache,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            cross_attentions=tuple(cross_attentions) if output_attentions and self.has_cross_attention else None,
        )

    def _cache(self, cache: Cache | None, use_cache: bool) -> Cache | None:
        """The cache to read and write; one that holds the source too, if there is one."""
        # Checkpointing runs a layer twice: it would be in the cache twice.
        if self.training and any(layer.gradient_checkpointing for layer in self.layers):
            return None
        if cache is None:
            cache = DynamicCache() if use_cache else None
        if cache is not None and cache.is_compileable:  # its places are all there from the start, the unwritten too
            raise ValueError(
                "caches of a fixed size (StaticCache, cache_implementation='static') are not supported: "
                "leave cache_implementation out, or give a DynamicCache"
            )
        if cache is not None and self.has_cross_attention and not isinstance(cache, EncoderDecoderCache):
            cache = EncoderDecoderCache(cache, DynamicCache())
        return cache
