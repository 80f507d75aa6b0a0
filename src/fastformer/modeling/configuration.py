"""`FastformerConfig`: every choice that shapes a model, one documented field each."""

import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@dataclass(frozen=True)
class Within:
    """A check of a field: a number, or each one in a list, is not too small or too large. None is no number."""

    least: float
    most: float | None = None

    def __call__(self, value: Any) -> None:
        """Raise a `ValueError` that says what is wrong, if something is."""
        for number in value if isinstance(value, list | tuple) else [value]:
            if number is not None and not number >= self.least:
                raise ValueError(f"is {number}; give at least {self.least:,}")
            if number is not None and self.most is not None and not number <= self.most:
                raise ValueError(f"is {number}; give at most {self.most:,}")


def within(default: Any, least: float = 1, most: float | None = None) -> Any:
    """A field of a strict configuration that is checked so, whoever sets it; by default it is a size."""
    return field(default=default, metadata={"validator": Within(least, most)})


@strict
class FastformerConfig(PreTrainedConfig):
    """Configuration of every model in this package. `mixer` picks the method; the rest is shared.

    Size
        vocab_size: number of rows of the token embedding.
        hidden_size: width of every token vector.
        num_hidden_layers: how many times a layer is applied.
        num_attention_heads: heads of the mixer; must divide `hidden_size`.
        intermediate_size: inner width of the feed-forward block (the authors use `hidden_size`).

    The encoder around the mixer
        mixer: `fastformer`, `transformer`, `longformer`, `bigbird`, `linformer`, `linear` or
            `poolingformer` (or any name added with `fastformer.mixers.register`).
        position_embedding_type: `learned` (up to `max_position_embeddings`), `sinusoidal` or `none`
            (any length).
        max_position_embeddings: longest input of learned positions and of the Linformer projection.
        norm: layer norm `post` (after the residual, as the authors), `pre` or `none`.
        final_norm: whether a `pre` model has a norm after its last layer too. Without it token vectors keep their
            lengths, and with `pooling="mean"` and layers that add nothing the text vector is the mean of the table.
        feed_forward: whether a layer has a feed-forward block after the mixer.
        residual: whether the mixer and the feed-forward block are added to their input.
        pooling: how token vectors become one text vector: `additive` attention, `mean` or `first`.
        pooling_size: inner width of additive pooling (`None`: `hidden_size`, as the paper).
        hidden_act: activation of the feed-forward block.
        hidden_dropout_prob: dropout after the embedding, the mixer and the feed-forward block.
        classifier_dropout: dropout before a classification head (`None`: `hidden_dropout_prob`).
        layer_norm_eps: epsilon of the layer norms.
        initializer_range: standard deviation of the normal distribution that weights start from.
        bigram_buckets: if not 0, every token vector has a second one added, for the pair of its predecessor and
            itself, from a table of this many rows addressed by a hash: word order for a model without positions.
        neighbor_size: if not 0, the inner width of a block before the layers that reads every token together with the
            one before and the one after it: word order for a model without positions, at any length. A decoder has
            none, and a `causal` model may not.
        ngram_channel: text classifiers: add linear class scores of what a text contains; see
            `modeling.ngrams`.
        ngram_form: what the channel reads: `present`, words and pairs, each once, or `counted`, how often a text has
            them, and the characters of its words.
        ngram_buckets: rows of the channel's table of word pairs (0: as many as `bigram_buckets`).
        ngram_meanings: whether the channel also has pre-trained word vectors.
        ngram_only: the channel answers alone; the encoder is not run.
        label_thresholds: several labels per text: the probability above which a text has each label (`None`: 0.5).
            The model itself does not use them; `predict` does.
        doubt: text classifiers: the share of every answer that is spread over all classes; see `modeling.heads`.
        token_dropout: in training of a text classifier, the share of tokens removed from each text.
        share_layers: apply one layer `num_hidden_layers` times (the paper) instead of a stack.
        causal: no token sees a later one (`fastformer` and `transformer` only); `FastformerForCausalLM` sets it.

    Fastformer
        head_form: `headwise`, each head scores and transforms its own slice (the paper), or `full`,
            scores and transform see all heads and an output projection follows (the authors' code).
        interaction: how a global vector meets the tokens: `product` (the paper), `add` or `concat`.
        share_query_value: values use the query projection.
        share_heads: all heads use the parameters of one (an ablation; `headwise` only).

    The other methods
        window_size: tokens a Longformer, BigBird or first-level Poolingformer token sees in all, half of them on each
            side.
        num_global_tokens: Longformer, BigBird: the first tokens of a text, which see and are seen by all.
        num_random_tokens: BigBird: random tokens that each token sees.
        block_size: BigBird: tokens per block; the three numbers above are rounded up to blocks.
        random_seed: BigBird: seed of the random pattern.
        projection_size: Linformer: number of rows that keys and values are projected to.
        pooling_window_size: Poolingformer: tokens under the second, pooled level.
        pooling_stride: Poolingformer: distance between two pooled keys; each pools `stride + 1` tokens.

    Generation (`FastformerForCausalLM`, `FastformerForConditionalGeneration`)
        decoder_layers: layers of the decoder, each with weights of its own; its sizes and switches are those above.
        decoder_positions: longest target of learned positions (`None`: `max_position_embeddings`, as of the source).
        decoder_mixer: self-attention of the decoder: `transformer`, or `fastformer` with a state that does not grow.
        decoder_start_token_id: what a decoder begins with (`None`: `bos_token_id`, else `pad_token_id`).
        copy_mechanism: let the decoder copy words of the source; see `modeling.copying`.
        label_smoothing: in training, the share of each target that is spread over the whole vocabulary.
        use_cache: remember earlier tokens from one decoding step to the next.
    """

    model_type = "fastformer"

    vocab_size: int = within(30000)
    hidden_size: int = within(256)
    num_hidden_layers: int = within(2, least=0)
    num_attention_heads: int = within(16)
    intermediate_size: int = within(256)

    mixer: str = "fastformer"
    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "learned"
    max_position_embeddings: int = within(512)
    norm: Literal["post", "pre", "none"] = "post"
    final_norm: bool = True
    feed_forward: bool = True
    residual: bool = True
    pooling: Literal["additive", "mean", "first"] = "additive"
    pooling_size: int | None = within(None)
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = within(0.1, least=0, most=1)
    classifier_dropout: float | None = within(None, least=0, most=1)
    layer_norm_eps: float = within(1e-12, least=0)
    initializer_range: float = within(0.02, least=0)
    bigram_buckets: int = 0
    neighbor_size: int = within(0, least=0)
    ngram_channel: bool = False
    ngram_form: Literal["present", "counted"] = "present"
    ngram_buckets: int = within(0, least=0)
    ngram_meanings: bool = False
    ngram_only: bool = False
    doubt: float = 0.0
    label_thresholds: list[float] | None = None
    token_dropout: float = within(0.0, least=0, most=1)
    share_layers: bool = True
    causal: bool = False

    head_form: Literal["headwise", "full"] = "headwise"
    interaction: Literal["product", "add", "concat"] = "product"
    share_query_value: bool = True
    share_heads: bool = False

    window_size: int = within(8, least=0)
    num_global_tokens: int = within(8, least=0)
    num_random_tokens: int = within(8, least=0)
    block_size: int = within(4)
    random_seed: int = 0
    projection_size: int = within(16)
    pooling_window_size: int = within(64)
    pooling_stride: int = within(4)

    decoder_layers: int = within(2, least=0)
    decoder_positions: int | None = within(None)
    decoder_mixer: str = "transformer"
    decoder_start_token_id: int | None = None
    copy_mechanism: bool = False
    label_smoothing: float = 0.0
    use_cache: bool = True

    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.id2label is not None:  # transformers leaves the other direction to whoever gives one
            self.label2id = {name: number for number, name in self.id2label.items()}
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by num_attention_heads={self.num_attention_heads}"
            )
        if self.bigram_buckets < 0 or self.bigram_buckets == 1:
            raise ValueError(f"bigram_buckets={self.bigram_buckets} must be 0 (no word pairs) or at least 2")
        if self.ngram_channel and not (self.ngram_buckets or self.bigram_buckets):
            raise ValueError("ngram_channel reads word pairs: set ngram_buckets or bigram_buckets too")
        if self.label_thresholds is not None and len(self.label_thresholds) != self.num_labels:
            self.label_thresholds = None  # of other labels: a new head learns its own
        if self.ngram_only and not self.ngram_channel:
            raise ValueError("ngram_only leaves nothing to answer: set ngram_channel too")
        if self.causal and self.neighbor_size:
            raise ValueError(f"neighbor_size={self.neighbor_size} reads the next token too, and causal may not: set 0")
        if self.share_heads and self.head_form == "full":
            raise ValueError("share_heads needs head_form='headwise': full-width scores differ from head to head")
        for name in ("label_smoothing", "doubt"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and below 1")

    def with_changes(self, **changes) -> Self:
        """A copy with some fields changed; the original is left alone."""
        config = copy.deepcopy(self)
        for name, value in changes.items():
            setattr(config, name, value)
        return config

    def for_vectors(self, mixer: str, length: int, **changes) -> Self:
        """The configuration of a second encoder, over at most `length` vectors that the first one made.

        Its vocabulary is a single row, and nothing of it looks at words.
        """
        no_words = {"vocab_size": 1, "pad_token_id": None, "bigram_buckets": 0, "ngram_channel": False}
        changes = {**no_words, "token_dropout": 0.0, **changes}
        return self.with_changes(mixer=mixer, max_position_embeddings=length, **changes)

    def for_decoder(self) -> Self:
        """The configuration of the decoder of an encoder-decoder: a causal stack of its own."""
        return self.with_changes(
            causal=True,
            mixer=self.decoder_mixer,
            num_hidden_layers=self.decoder_layers,
            max_position_embeddings=self.decoder_positions or self.max_position_embeddings,
            share_layers=False,
            bigram_buckets=0,
            neighbor_size=0,
            ngram_channel=False,
            is_encoder_decoder=False,
        )
