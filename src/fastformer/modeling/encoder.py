"""`FastformerModel`: embedding, a stack of mixer layers, and a text vector, as a transformers model."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, logging

from fastformer.mixers.fastformer import FastformerMixer
from fastformer.mixers.sequence_parallel import current_exchange, needs_whole_texts
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.embeddings import BigramEmbedding, FastformerEmbeddings, Tokens
from fastformer.modeling.layer import FastformerLayer, NeighborBlock
from fastformer.modeling.norms import final_norm, normalized
from fastformer.modeling.parts import Group, similar_rows
from fastformer.modeling.pooling import POOLINGS

logger = logging.get_logger(__name__)


class FastformerPreTrainedModel(PreTrainedModel):
    """What all models here share: the configuration class and how weights start."""

    config_class = FastformerConfig
    base_model_prefix = "fastformer"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # the losses are plain means: Trainer must not expect sums over micro-batches
    _no_split_modules = ["FastformerEmbeddings", "FastformerLayer", "FastformerDecoderLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BigramEmbedding):
            init.zeros_(module.weight)  # a pair adds nothing until training has seen it

    @classmethod
    def from_pretrained(cls, *args, **kwargs) -> Any:
        """Load as transformers does, then copy the weights out of the file's memory map.

        A mapped weight starts at any odd address, and matrix kernels round differently there: the copy makes a
        reloaded model's outputs bit for bit those of the saved one.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info=True
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
        return loaded


class FastformerModel(FastformerPreTrainedModel):
    """The bare encoder: token vectors (`last_hidden_state`) and a text vector (`pooler_output`).

    `config.mixer` picks the method. `pooler_output` is `None` with `add_pooling_layer=False`.
    """

    def __init__(self, config: FastformerConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = FastformerEmbeddings(config)
        self.neighbors = NeighborBlock(config) if config.neighbor_size else None
        # Shared layers: one module, applied num_hidden_layers times.
        own_layers = min(1, config.num_hidden_layers) if config.share_layers else config.num_hidden_layers
        self.layers = nn.ModuleList([FastformerLayer(config) for _ in range(own_layers)])
        self.final_norm = final_norm(config)
        self.pooler = POOLINGS[config.pooling](config) if add_pooling_layer else None
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
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        pooled_only: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch of texts.

        Args:
            input_ids: token ids (batch, length); or else
            inputs_embeds: token vectors (batch, length, hidden_size).
            attention_mask: 1 at real tokens, 0 at padding, on either side; default all real.
            position_ids: positions; default the rank of each token among the real ones of its row.
            output_attentions: with `mixer="fastformer"`, also return for each layer the weights of its
                global query and global key, (batch, 2, heads, length). The other mixers have none to return.
            output_hidden_states: also return the embedding and every layer's output.
            pooled_only: the text vectors are all that is wanted. `last_hidden_state` may be None then: where the last
                layer folds into the pooling (`FastformerLayer.pool`), token vectors are never made.
            kwargs: `return_dict=False` returns a tuple.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states

        if attention_mask is None:
            tokens: Tensor = input_ids if inputs_embeds is None else inputs_embeds
            mask = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        else:
            mask = attention_mask.bool()

        if input_ids is None and self.config.bigram_buckets:
            raise ValueError("this model reads pairs of words (bigram_buckets): give input_ids, not inputs_embeds")
        if position_ids is not None:
            position_ids = position_ids.expand(mask.shape)
        if not all(isinstance(layer.mixer, FastformerMixer) for layer in self.layers):
            needs_whole_texts(f"mixer={self.config.mixer!r}")
        if inputs_embeds is None:
            words = self.embeddings.tokens(input_ids, mask, position_ids)
            if self.training and self.config.token_dropout:
                words = words.drop(self.config.token_dropout)
                mask = words.mask
        else:
            positions = self.embeddings.positions(mask) if position_ids is None else position_ids
        on_cpu = mask.device.type == "cpu" and not torch.compiler.is_compiling()
        groups: list[Group] = []
        if on_cpu and current_exchange() is None and not (output_attentions or output_hidden_states):
            groups = similar_rows(mask)
        if len(groups) > 1:
            if inputs_embeds is None:
                x = self._embed_groups(groups, words)
            else:
                x = [self.embeddings.finish(inputs_embeds[rows, :w], positions[rows, :w]) for rows, w in groups]
            return self._encode_groups(groups, x, mask, pooled_only)
        x = self.embeddings(words) if inputs_embeds is None else self.embeddings.finish(inputs_embeds, positions)
        return self._encode(x, mask, output_attentions, output_hidden_states, pooled_only, inputs_embeds)

    def _embed_groups(self, groups: list[Group], tokens: Tokens) -> list[Tensor]:
        """Vectors of groups of rows. All are looked up at once, so that a table has one gradient per batch."""

        def in_line(field: Tensor | None) -> Tensor | None:
            return None if field is None else torch.cat([field[rows, :width].flatten() for rows, width in groups])[None]

        x = self.embeddings(Tokens(*map(in_line, tokens)))[0].split([len(rows) * width for rows, width in groups])
        return [vectors.view(len(rows), width, -1) for vectors, (rows, width) in zip(x, groups, strict=True)]

    def _encode_groups(
        self, groups: list[Group], x: list[Tensor], mask: Tensor, pooled_only: bool
    ) -> BaseModelOutputWithPooling:
        """Encode groups of rows by themselves and put the results together; zeros where a row was cut."""
        outputs = [
            self._encode(vectors, mask[rows, :width], pooled_only=pooled_only)
            for vectors, (rows, width) in zip(x, groups, strict=True)
        ]
        length = mask.shape[1]
        order = torch.cat([rows for rows, _ in groups]).argsort()
        pooled = None if self.pooler is None else torch.cat([out.pooler_output for out in outputs])[order]
        if pooled_only:
            return BaseModelOutputWithPooling(pooler_output=pooled)
        padded = [
            nn.functional.pad(out.last_hidden_state, (0, 0, 0, length - out.last_hidden_state.shape[1]))
            for out in outputs
        ]
        return BaseModelOutputWithPooling(last_hidden_state=torch.cat(padded)[order], pooler_output=pooled)

    def _encode(
        self,
        x: Tensor,
        mask: Tensor,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        pooled_only: bool = False,
        inputs_embeds: Tensor | None = None,
    ) -> BaseModelOutputWithPooling:
        """Everything after the embedding. `x` is not written over if it is `inputs_embeds`, which the caller has."""
        # Without gradients a layer may write over its input, unless the caller, a hook or the result has it.
        hooked = any(module._forward_hooks for module in (self.embeddings, *self.layers))
        keep_all = torch.is_grad_enabled() or output_hidden_states or hooked

        def over(x: Tensor) -> Tensor | None:
            return None if keep_all or x is inputs_embeds else x

        if self.neighbors is not None:
            x = self.neighbors(x, mask, out=over(x))
        may_fold = pooled_only and self.config.norm == "none" and not (output_attentions or output_hidden_states)
        hidden_states, attentions = [x], []
        for depth in range(self.config.num_hidden_layers):
            layer = self.layers[0 if self.config.share_layers else depth]
            if may_fold and depth == self.config.num_hidden_layers - 1 and layer.folds_into(self.pooler, x):
                return BaseModelOutputWithPooling(pooler_output=layer.pool(x, mask, self.pooler))
            x, weights = layer(x, mask, output_attentions, out=over(x))
            hidden_states.append(x)
            attentions.append(weights)
        x = hidden_states[-1] = normalized(self.final_norm, x, over(x))

        if output_attentions and None in attentions:
            logger.warning_once(f"mixer={self.config.mixer!r} forms no attention weights: `attentions` is None")
            output_attentions = False
        return BaseModelOutputWithPooling(
            last_hidden_state=x,
            pooler_output=None if self.pooler is None else self.pooler(x, mask),
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
