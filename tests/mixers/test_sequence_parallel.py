"""One text over several processes: what comes out, and what flows back, is what one process has."""

import pytest
import torch
import torch.distributed as dist

from fastformer import (
    FastformerConfig,
    FastformerForMaskedLM,
    FastformerForSequenceClassification,
    FastformerModel,
    sequence_parallel,
)

from ..ranks import run_ranks

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "num_labels": 3}
ROWS, LENGTH = 3, 40
CUTS = {2: (29,), 3: (5, 12)}  # uneven, and some narrower and some longer than the model is wide
MODELS = {
    "default": {},
    "every part": {
        "position_embedding_type": "learned",
        "norm": "pre",
        "feed_forward": True,
        "neighbor_size": 8,
        "bigram_buckets": 50,
        "max_position_embeddings": LENGTH,
    },
    "as released, post-norm, mean": {"head_form": "full", "norm": "post", "feed_forward": True, "pooling": "mean"},
    "first token, shared": {"pooling": "first", "share_heads": True, "share_layers": True},
    "add": {"interaction": "add", "share_query_value": False},
    "concat": {"interaction": "concat", "position_embedding_type": "sinusoidal"},
}


def model_of(options):
    torch.manual_seed(0)
    dropless = {"hidden_dropout_prob": 0.0, "token_dropout": 0.0, "position_embedding_type": "sinusoidal"}
    model = FastformerForSequenceClassification(FastformerConfig(**SMALL, **{**dropless, **options}))
    with torch.no_grad():
        for parameter in model.parameters():  # scores far apart, and no weight that starts at zero
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def batch():
    """Three texts: one whole, one padded on the right for longer than a slice, one padded on the left."""
    torch.manual_seed(1)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[1, 9:] = 0
    mask[2, :14] = 0
    return {"input_ids": torch.randint(3, 60, (ROWS, LENGTH)), "attention_mask": mask}, torch.tensor([0, 2, 1])


def own_slice(inputs, cuts):
    return {name: field.tensor_split(cuts, dim=1)[dist.get_rank()] for name, field in inputs.items()}


def slices(cuts):
    """For each model: logits, token vectors and averaged gradients of this process."""
    found = {}
    inputs, labels = batch()
    for name, options in MODELS.items():
        model = model_of(options)
        mine = own_slice(inputs, cuts)
        with sequence_parallel():
            outputs = model(**mine, labels=labels)
            tokens = model.fastformer(**mine, output_attentions=True)
        outputs.loss.backward()
        gradients = {key: parameter.grad.clone() for key, parameter in model.named_parameters()}
        for gradient in gradients.values():
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        with torch.no_grad(), sequence_parallel():
            still = model(**mine).logits
        found[name] = {
            "logits": outputs.logits,
            "still": still,
            "tokens": tokens.last_hidden_state,
            "weights": torch.stack(tokens.attentions),
            "gradients": gradients,
        }
    return _numbers(found)


def _numbers(found):
    if isinstance(found, dict):
        return {name: _numbers(value) for name, value in found.items()}
    return found.detach().numpy()


@pytest.fixture(scope="module", params=CUTS)
def found(request):
    return run_ranks(request.param, slices, CUTS[request.param])


@pytest.mark.parametrize("name", MODELS)
def test_slices_give_what_the_whole_gives(name, found):
    model = model_of(MODELS[name])
    inputs, labels = batch()
    whole = model(**inputs, labels=labels)
    whole.loss.backward()
    tokens = model.fastformer(**inputs, output_attentions=True)
    for rank in found:
        for logits in (rank[name]["logits"], rank[name]["still"]):
            torch.testing.assert_close(torch.from_numpy(logits), whole.logits.detach(), atol=1e-5, rtol=1e-5)
        for key, parameter in model.named_parameters():
            gradient = torch.from_numpy(rank[name]["gradients"][key])
            torch.testing.assert_close(gradient, parameter.grad, atol=1e-5, rtol=1e-5, msg=lambda m, k=key: f"{k}: {m}")
    together = torch.cat([torch.from_numpy(rank[name]["tokens"]) for rank in found], dim=1)
    torch.testing.assert_close(together, tokens.last_hidden_state.detach(), atol=1e-5, rtol=1e-5)
    weights = torch.cat([torch.from_numpy(rank[name]["weights"]) for rank in found], dim=-1)
    torch.testing.assert_close(weights, torch.stack(tokens.attentions).detach(), atol=1e-5, rtol=1e-5)


def bytes_exchanged(lengths):
    shape = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = FastformerConfig(vocab_size=50, **shape, position_embedding_type="none")
    model = FastformerModel(config)
    counts = []
    for length in lengths:
        ids = torch.randint(3, 50, (1, length // dist.get_world_size()))
        with sequence_parallel() as exchange:
            vector = model(ids, pooled_only=True).pooler_output
        vector.sum().backward()
        counts.append((exchange.bytes, exchange.calls))
    return counts


def test_what_is_exchanged_does_not_grow_with_the_text():
    [[short, long], again] = run_ranks(2, bytes_exchanged, [1_000, 10_000])
    assert again == [short, long]
    assert short == long
    heads, width, layers = 4, 32, 2
    passes = 2 * layers * (heads + heads * (width + 1) + heads * width)  # largest scores, sums, their gradients
    pooling = 1 + 2 * 1 + 2 * width  # the same of one head, whose weights have their own exchange
    occupied = layers
    counts = 2 * 8  # tokens of either process, which positions begin with
    assert short[0] == 4 * (passes + pooling + occupied) + counts


@pytest.mark.slow
def test_a_million_tokens_exchange_what_ten_thousand_do():
    [[short, long], _] = run_ranks(2, bytes_exchanged, [10_000, 1_000_000])
    assert short == long


def refusals():
    said = []
    ids = torch.randint(3, 50, (1, 8))
    rival = FastformerModel(FastformerConfig(**SMALL, mixer="transformer"))
    short = FastformerModel(FastformerConfig(**SMALL, position_embedding_type="learned", max_position_embeddings=12))
    for model in (rival, short):
        with sequence_parallel():
            try:
                model(ids)
            except ValueError as error:
                said.append(str(error))
        with torch.no_grad():
            model(ids)  # outside it is what it was
    masked = FastformerForMaskedLM(FastformerConfig(**SMALL)).eval()
    with torch.no_grad(), sequence_parallel():
        said.append(tuple(masked(ids).logits.shape))
    return said


def test_what_needs_whole_texts_says_so_in_every_process():
    for said in run_ranks(2, refusals):
        assert "mixer='transformer' needs whole texts" in said[0]
        assert "a text has 16 tokens but this model has learned positions for 12" in said[1]
        assert said[2] == (1, 8, SMALL["vocab_size"])


def test_without_a_group_it_says_what_to_do():
    with pytest.raises(RuntimeError, match="torchrun"), sequence_parallel():
        pass
