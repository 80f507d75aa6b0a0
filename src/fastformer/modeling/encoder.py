"""`FastformerModel`: embedding, a stack of mixer layers, and a text vector, as a transformers model."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, logging

from fastformer.mixers import build_mixer
from fastformer.mixers.fastformer import FastformerMixer
from fastformer.mixers.fastformer_ablations import FastformerAblation
from fastformer.mixers.sequence_parallel import current_exchange, needs_whole_texts
from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.dropout import Dropout
from fastformer.modeling.ngrams import bigram_rows
from fastformer.modeling.parts import Group, Part, map_parts, similar_rows
from fastformer.modeling.pooling import POOLINGS, AdditivePooling, weighted_sum

logger = logging.get_logger(__name__)

LONG_TOKENS = 65_536  # of a text whose vectors are held once
EMBEDDED_TOKENS = 16_384  # at once: looking up needs no cache, and parts have to be put together


def _norm(config: FastformerConfig, place: str) -> nn.Module:
    """A layer norm where the configuration wants one at this place (`post` or `pre`), else nothing."""
    if config.norm == place:
        return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.Identity()


def _normalized(norm: nn.Module, x: Tensor, out: Tensor | None = None) -> Tensor:
    return x if isinstance(norm, nn.Identity) else map_parts(lambda part: norm(x[part]), x, out)


class Tokens(NamedTuple):
    """What is embedded: every field (batch, length)."""

    ids: Tensor
    pairs: Tensor | None  # row of the bigram table for each token and its predecessor; 0 where it has none
    positions: Tensor
    mask: Tensor

    def part(self, part: Part) -> "Tokens":
        """Some rows and columns."""
        return Tokens(*(None if field is None else field[part] for field in self))

    def drop(self, rate: float) -> "Tokens":
        """Remove a random share of each text's tokens (never all of them) and close the gaps."""
        kept = self.mask & (torch.rand(self.mask.shape, device=self.mask.device) >= rate)
        kept = torch.where(kept.any(dim=1, keepdim=True), kept, self.mask)
        order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(kept.sum(dim=1).max()))]
        fields = (self.ids, self.pairs, self.positions, kept)
        return Tokens(*(None if field is None else field.gather(1, order) for field in fields))


class BigramEmbedding(nn.Embedding):
    """The table of word pairs. A batch meets few of its rows: `train_model` makes its gradient sparse."""


class FastformerEmbeddings(nn.Module):
    """Token vectors, plus those of word pairs and of positions, then norm (post-norm models) and dropout.

    A token's position is its rank among the real tokens of its row, so padding on either side changes nothing.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.bigram_embeddings = None
        if config.bigram_buckets:
            self.bigram_embeddings = BigramEmbedding(config.bigram_buckets, config.hidden_size, padding_idx=0)
        self.position_embedding_type = config.position_embedding_type
        if config.position_embedding_type == "learned":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.norm = _norm(config, "post")
        self.dropout = Dropout(config.hidden_dropout_prob)

    def tokens(self, input_ids: Tensor, mask: Tensor, positions: Tensor | None) -> Tokens:
        """Everything that is looked up for each token."""
        pairs = None
        if self.bigram_embeddings is not None:
            pairs = bigram_rows(*_with_last_before(input_ids, mask), self.bigram_embeddings.num_embeddings)
            pairs = pairs[:, -input_ids.shape[1] :]
        return Tokens(input_ids, pairs, self.positions(mask) if positions is None else positions, mask)

    def forward(self, tokens: Tokens) -> Tensor:
        """Vectors (batch, length, width) of the tokens."""
        return map_parts(lambda part: self._embed(tokens.part(part)), tokens.ids, part_tokens=EMBEDDED_TOKENS)

    def _embed(self, tokens: Tokens) -> Tensor:
        x = self.word_embeddings(tokens.ids)
        if self.bigram_embeddings is not None:
            pairs = self.bigram_embeddings(tokens.pairs)
            x = x + pairs if torch.is_grad_enabled() else pairs.add_(x)
        return self.finish(x, tokens.positions)

    def positions(self, mask: Tensor) -> Tensor:
        """The rank of each token among the real ones of its row, in all slices where each process has one of them."""
        exchange = current_exchange()
        if exchange is None:
            return _ranks(mask)
        counts = exchange.each(mask.sum(dim=1))
        if self.position_embedding_type == "learned":  # all processes refuse what is too long, or some would wait
            self._check_length(int(counts.sum(dim=0).max()))
        return _ranks(mask, counts[: exchange.rank].sum(dim=0)[:, None])

    def finish(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions to token vectors; norm and dropout."""
        if self.position_embedding_type != "none":
            x = x + self._position_vectors(positions, x)
        return self.dropout(self.norm(x))

    def _position_vectors(self, positions: Tensor, x: Tensor) -> Tensor:
        if self.position_embedding_type == "sinusoidal":
            return sinusoidal_positions(positions, x.shape[-1]).to(x.dtype)
        if not torch.compiler.is_compiling() and positions.numel():
            self._check_length(int(positions.max()) + 1)
        return self.position_embeddings(positions)

    def _check_length(self, longest: int) -> None:
        if longest > (limit := self.position_embeddings.num_embeddings):
            raise ValueError(
                f"a text has {longest} tokens but this model has learned positions for {limit} "
                "(max_position_embeddings): cut the text, or build the model with a larger "
                "max_position_embeddings or position_embedding_type='sinusoidal' or 'none'"
            )


def _ranks(mask: Tensor, before: Tensor | int = 0) -> Tensor:
    return (mask.cumsum(dim=1) + before - 1).clamp(min=0)


def _with_last_before(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where each process has a slice, the last token of the slice before comes first; nothing is real before all."""
    exchange = current_exchange()
    if exchange is None:
        return ids, mask
    last = exchange.each(torch.stack([ids[:, -1], mask[:, -1].to(ids.dtype)]))[exchange.rank - 1]
    last = last if exchange.rank else torch.zeros_like(last)
    return torch.cat([last[0][:, None], ids], dim=1), torch.cat([last[1][:, None].bool(), mask], dim=1)


def sinusoidal_positions(positions: Tensor, width: int) -> Tensor:
    """sin(p·f_j) and cos(p·f_j) side by side, f_j = 10000^(-2j/width): (…, width)."""
    half = (width + 1) // 2
    frequencies = torch.exp(torch.arange(half, device=positions.device) * (-2 * math.log(10000.0) / width))
    angles = positions[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]


class NeighborBlock(nn.Module):
    """Three tokens in a row, through a feed-forward block: x_i + W_2 act(W_1 [n_{i-1}; n_i; n_{i+1}] + b_1) + b_2.

    n is x after a layer norm, and zero beyond the ends of a text.
    """

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.inner = nn.Linear(3 * config.hidden_size, config.neighbor_size)
        self.activation = ACT2FN[config.hidden_act]
        self.output = nn.Linear(config.neighbor_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor, out: Tensor | None = None) -> Tensor:
        """Transform `x` (batch, length, width). Without gradients the result may be written to `out`, even over `x`."""
        ends = self._beyond_ends(x, mask)
        before = x[:, :0]  # the last token of the part before, which may be written over by now

        def block(part: Part) -> Tensor:
            nonlocal before
            rows, tokens = part
            start, stop, _ = tokens.indices(x.shape[1])
            around = slice(max(0, start - 1), stop + 1)  # with the neighbours of the first and the last
            read = torch.cat([before, x[rows, start : stop + 1]], dim=1) if start else x[rows, around]
            before = x[rows, stop - 1 : stop].clone()
            normed = self.norm(read) * mask[rows, around, None]
            if ends is None:
                normed = nn.functional.pad(normed, (0, 0, int(start == 0), int(stop == x.shape[1])))
            else:
                beyond = ends[0][rows, None][:, : start == 0], ends[1][rows, None][:, : stop == x.shape[1]]
                normed = torch.cat([beyond[0], normed, beyond[1]], dim=1)
            three = torch.cat([normed[:, :-2], normed[:, 1:-1], normed[:, 2:]], dim=-1)
            return x[rows, start:stop] + self.output(self.activation(self.inner(three)))

        return map_parts(block, x, out)

    def _beyond_ends(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor] | None:
        """n before and behind this process' slice of the text, (batch, width) each; None where the text is whole."""
        exchange = current_exchange()
        if exchange is None:
            return None
        ends = exchange.each(torch.stack([self.norm(x[:, end]) * mask[:, end, None] for end in (0, -1)]))
        nothing = torch.zeros_like(ends[:1])
        ends = torch.cat([nothing, ends, nothing])  # now this process' own are at its rank + 1
        return ends[exchange.rank, 1], ends[exchange.rank + 2, 0]


class FastformerLayer(GradientCheckpointingLayer):
    """A mixer and a feed-forward block, each with dropout, residual and norm as the configuration says."""

    def __init__(self, config: FastformerConfig):
        super().__init__()
        self.residual = config.residual
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.mixer_pre_norm, self.mixer_post_norm = _norm(config, "pre"), _norm(config, "post")
        self.mixer = build_mixer(config.mixer, config)
        self.feed_forward = None
        if config.feed_forward:
            self.feed_forward_pre_norm, self.feed_forward_post_norm = _norm(config, "pre"), _norm(config, "post")
            self.feed_forward = nn.Sequential(
                nn.Linear(config.hidden_size, config.intermediate_size),
                ACT2FN[config.hidden_act],
                nn.Linear(config.intermediate_size, config.hidden_size),
            )

    def forward(
        self, x: Tensor, mask: Tensor, output_attentions: bool = False, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Transform `x` (batch, length, width); also return the mixer's weights if asked and if it forms any.

        Without gradients the result may be written to `out`, even over `x`.
        """
        weights = None
        if not output_attentions and self._norms_in_parts(x):
            mix = self.mixer.prepare(x, mask, change=self.mixer_pre_norm)
            return map_parts(lambda part: self._after_mixer(x[part], mix(part)), x, out), None
        mixer_input = _normalized(self.mixer_pre_norm, x)
        if output_attentions and hasattr(self.mixer, "forward_with_weights"):
            mixed, weights = self.mixer.forward_with_weights(mixer_input, mask)
            mix = mixed.__getitem__
        elif hasattr(self.mixer, "prepare"):
            mix = self.mixer.prepare(mixer_input, mask)
        else:
            mix = self.mixer(mixer_input, mask).__getitem__
        return map_parts(lambda part: self._after_mixer(x[part], mix(part)), x, out), weights

    def _norms_in_parts(self, x: Tensor) -> bool:
        """Whether the text is so long that the mixer's input, a second tensor of its size, is better made in parts."""
        return (
            x.shape[1] > LONG_TOKENS
            and type(self.mixer) in (FastformerMixer, FastformerAblation)
            and not isinstance(self.mixer_pre_norm, nn.Identity)
            and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
            and x.device.type == "cpu"
            and x.dtype == torch.float32
            and current_exchange() is None
        )

    def folds_into(self, pooler: nn.Module | None, x: Tensor) -> bool:
        """Whether `pool` gives what this layer and then `pooler` would, for less work, if there are no norms."""
        has_map = type(self.mixer) in (FastformerMixer, FastformerAblation)  # a causal one has none
        if not has_map or type(pooler) is not AdditivePooling:
            return False
        parts = (self, self.mixer, self.dropout, *pooler.modules())
        return (
            type(pooler.dense) is nn.Linear
            and self.feed_forward is None
            and not (self.training and (self.dropout.p or self.gradient_checkpointing))
            and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)  # they wait to be called
            and x.dtype in (torch.float32, torch.float64)
            and not torch.is_autocast_enabled(x.device.type)
            and not torch.compiler.is_compiling()
            and current_exchange() is None  # slices of different lengths must all do the same
            and self.mixer.folds(x)
        )

    def pool(self, x: Tensor, mask: Tensor, pooler: AdditivePooling) -> Tensor:
        """`pooler(self(x, mask)[0], mask)` of a layer that folds, without making what the layer gives.

        All between the two is affine, y_i = M x_i + c. So Σ a_i y_i = M (Σ a_i x_i) + c, and the pooler's W y_i + b is
        (W M) x_i + (W c + b): one product with every token where there were two.
        """
        context, x = self.mixer.global_context(x, mask)
        outer = 2 * pooler.dense.weight
        token_map, offset = self.mixer.mapped(context, outer, self.residual)
        weights = pooler.mapped_weights(x, mask, token_map, offset + 2 * pooler.dense.bias)
        summed = weighted_sum(weights, x)[:, None]
        pooled = self._add(summed, self.mixer.mix(summed, context))[:, 0]
        return pooled * mask.any(dim=1)[:, None]  # without a real token the weights sum to 0, and c must not stay

    def _after_mixer(self, x: Tensor, mixed: Tensor) -> Tensor:
        return self._feed_forward(self.mixer_post_norm(self._add(x, mixed)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.feed_forward is not None:
            x = self.feed_forward_post_norm(self._add(x, self.feed_forward(self.feed_forward_pre_norm(x))))
        return x

    def _add(self, x: Tensor, change: Tensor) -> Tensor:
        return self.dropout(change, onto=x if self.residual else None)


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
        self.final_norm = _norm(config, "pre") if config.final_norm else nn.Identity()
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
        x = hidden_states[-1] = _normalized(self.final_norm, x, over(x))

        if output_attentions and None in attentions:
            logger.warning_once(f"mixer={self.config.mixer!r} forms no attention weights: `attentions` is None")
            output_attentions = False
        return BaseModelOutputWithPooling(
            last_hidden_state=x,
            pooler_output=None if self.pooler is None else self.pooler(x, mask),
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
