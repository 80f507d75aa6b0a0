"""The six rivals compute what their definitions say: each is held against a slow form that reads like the definition.

A definition takes one text without padding, (length, width) -> (length, width). The mixer gets whole batches, padded in
every way, and must give the same at the real places, forward and backward.
"""

import pytest
import torch

from fastformer.mixers import bigbird, build_mixer
from fastformer.modeling.configuration import FastformerConfig

RIVALS = ["transformer", "longformer", "bigbird", "linformer", "linear", "poolingformer"]


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def config_of(**changes):
    settings = {"hidden_size": 12, "num_attention_heads": 3, "max_position_embeddings": 100, "projection_size": 5}
    return FastformerConfig(**settings | changes)


# --- masks


def right_padded(length, *lengths):
    return torch.arange(length) < torch.tensor(lengths)[:, None]


MASKS = {
    "a single token": right_padded(1, 1),
    "two tokens": right_padded(2, 2),
    "no padding": right_padded(64, 64, 64),
    "padding on the right": right_padded(75, 75, 1, 0, 33, 64, 8),
    "padding on the left": right_padded(75, 75, 1, 0, 33, 64, 8).flip(1),
    "holes": torch.rand(3, 90, generator=torch.Generator().manual_seed(1)) < 0.6,
}


def assert_computes(mixer, definition, mask):
    """Same output at real places, and same gradients of inputs and parameters."""
    mixer.double()
    x = torch.randn(*mask.shape, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(int(mask.sum()), 12, dtype=torch.float64)
    inputs = {"x": x, **dict(mixer.named_parameters())}

    got = mixer(x, mask)[mask]
    expected = torch.cat([definition(mixer, text[real]) for text, real in zip(x, mask, strict=True) if real.any()])
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)

    gradients = [torch.autograd.grad((y * weight).sum(), list(inputs.values())) for y in (got, expected)]
    for name, got, expected in zip(inputs, *gradients, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


# --- definitions


def heads_of(mixer, x):
    return x.view(len(x), mixer.heads, -1).transpose(0, 1)  # heads, length, head width


def softmax_attention(mixer, queries, keys, allowed):
    """Dense attention of `queries` to the keys and values of `keys`, where `allowed`: before the output projection."""
    q = heads_of(mixer, mixer.query(queries))
    k, v = heads_of(mixer, mixer.key(keys)), heads_of(mixer, mixer.value(keys))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    y = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v
    return y.transpose(0, 1).flatten(1)


def positions(length):
    return torch.arange(length)[:, None], torch.arange(length)[None]


def transformer(mixer, x, config):
    return mixer.output(softmax_attention(mixer, x, x, torch.ones(len(x), len(x), dtype=torch.bool)))


def longformer(mixer, x, config):
    i, j = positions(len(x))
    near = (i - j).abs() <= config.window_size // 2
    is_global = (i < config.num_global_tokens) | (j < config.num_global_tokens)
    return mixer.output(softmax_attention(mixer, x, x, near | is_global))


def blocks_of(tokens, config):
    return -(-tokens // config.block_size)


def chosen_blocks(length, config, num_blocks=None):
    """Random blocks of each block of a text of `length` tokens."""
    return bigbird.random_blocks(
        torch.tensor([length]),
        num_blocks or blocks_of(length, config),
        block=config.block_size,
        reach=blocks_of(config.window_size // 2, config),
        num_global=blocks_of(config.num_global_tokens, config),
        num_random=blocks_of(config.num_random_tokens, config),
        seed=config.random_seed,
    )[0]


def bigbird_pattern(length, config):
    i, j = positions(length)
    i, j = i // config.block_size, j // config.block_size
    near = (i - j).abs() <= blocks_of(config.window_size // 2, config)
    is_global = (i < blocks_of(config.num_global_tokens, config)) | (j < blocks_of(config.num_global_tokens, config))
    random = torch.zeros(length, length, dtype=torch.bool)
    for block, others in enumerate(chosen_blocks(length, config).tolist()):
        for other in others:
            random |= (i == block) & (j == other)
    return near | is_global | random


def big_bird(mixer, x, config):
    return mixer.output(softmax_attention(mixer, x, x, bigbird_pattern(len(x), config)))


def linformer(mixer, x, config):
    q = heads_of(mixer, mixer.query(x))
    k = heads_of(mixer, mixer.key_length.weight[:, : len(x)] @ mixer.key(x))
    v = heads_of(mixer, mixer.value_length.weight[:, : len(x)] @ mixer.value(x))
    y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    return mixer.output(y.transpose(0, 1).flatten(1))


def linear(mixer, x, config):
    q, k, v = (heads_of(mixer, project(x)) for project in (mixer.query, mixer.key, mixer.value))
    weights = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT
    y = weights / weights.sum(-1, keepdim=True) @ v
    return mixer.output(y.transpose(0, 1).flatten(1))


def poolingformer(mixer, x, config):
    i, j = positions(len(x))
    first = softmax_attention(mixer, x, x, (i - j).abs() <= config.window_size // 2)

    stride, kernel = config.pooling_stride, config.pooling_stride + 1
    pooled = []
    for middle in range(0, len(x), stride):
        scores = mixer.pool(first[middle])
        places = [(slot, middle - kernel // 2 + slot) for slot in range(kernel)]
        places = [(slot, place) for slot, place in places if 0 <= place < len(x)]
        weights = scores[[slot for slot, _ in places]].softmax(0)
        pooled.append(sum(weight * first[place] for weight, (_, place) in zip(weights, places, strict=True)))
    pooled = torch.stack(pooled)
    near = (i - torch.arange(len(pooled)) * stride).abs() <= config.pooling_window_size // 2
    return mixer.output(first + softmax_attention(mixer, first, pooled, near))


# --- the claims


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize(
    ("name", "definition", "changes"),
    [
        ("transformer", transformer, {}),
        ("linear", linear, {}),
        ("linformer", linformer, {}),
        ("longformer", longformer, {}),
        ("longformer", longformer, {"window_size": 0, "num_global_tokens": 0}),
        ("longformer", longformer, {"window_size": 21, "num_global_tokens": 50}),
        ("longformer", longformer, {"window_size": 300, "num_global_tokens": 3}),
        ("bigbird", big_bird, {}),
        ("bigbird", big_bird, {"num_global_tokens": 0, "num_random_tokens": 0}),
        ("bigbird", big_bird, {"num_global_tokens": 0, "window_size": 0, "block_size": 1}),
        ("bigbird", big_bird, {"block_size": 5, "window_size": 17, "num_global_tokens": 1, "num_random_tokens": 14}),
        ("bigbird", big_bird, {"block_size": 40, "num_random_tokens": 100, "random_seed": 7}),
        ("poolingformer", poolingformer, {}),
        ("poolingformer", poolingformer, {"pooling_window_size": 10, "pooling_stride": 3}),
        ("poolingformer", poolingformer, {"pooling_window_size": 200, "pooling_stride": 1, "window_size": 140}),
        ("poolingformer", poolingformer, {"pooling_window_size": 90, "pooling_stride": 40, "window_size": 3}),
    ],
)
def test_mixer_computes_its_definition(name, definition, changes, mask):
    config = config_of(**changes)
    assert_computes(build_mixer(name, config), lambda mixer, x: definition(mixer, x, config), mask)


def test_rivals_have_equal_parameters():
    config = FastformerConfig()
    attention = 4 * (256 * 256 + 256)
    counts = {name: sum(p.numel() for p in build_mixer(name, config).parameters()) for name in RIVALS}
    assert all(attention <= count <= 1.1 * attention for count in counts.values()), counts
    assert counts["transformer"] == counts["longformer"] == counts["bigbird"] == counts["linear"] == attention


@pytest.mark.parametrize("name", RIVALS)
def test_output_has_the_type_of_the_input_under_autocast(name):
    mixer = build_mixer(name, config_of())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mixer(torch.randn(1, 9, 12), torch.ones(1, 9, dtype=torch.bool)).dtype == torch.float32


def test_bigbird_draws_only_blocks_that_are_not_seen_anyway():
    config = config_of()  # blocks of 4, one to each side, two global, two random
    for length in (1, 9, 40, 97, 1000):
        chosen, blocks = chosen_blocks(length, config).tolist(), blocks_of(length, config)
        for block, others in enumerate(chosen):
            free = [other for other in range(2, blocks) if abs(other - block) > 1]
            drawn = [other for other in others if other >= 0]
            assert set(drawn) <= set(free)
            assert len(set(drawn)) == len(drawn) == min(2, len(free))


def test_bigbird_draws_the_same_on_every_machine():
    assert chosen_blocks(97, config_of()).tolist()[:4] == [[10, 14], [3, 14], [12, 23], [14, 16]]
    assert chosen_blocks(40, config_of(random_seed=2**40)).tolist()[:4] == [[4, 8], [4, 6], [4, 8], [6, 8]]


def test_bigbird_draws_depend_on_seed_and_real_length_only():
    config = config_of()
    drawn = chosen_blocks(400, config)
    assert torch.equal(drawn, chosen_blocks(400, config))
    assert torch.equal(drawn, chosen_blocks(400, config, num_blocks=128)[:100])
    assert not torch.equal(drawn, chosen_blocks(400, config_of(random_seed=1)))
    assert not torch.equal(drawn[:90], chosen_blocks(399, config)[:90])


def test_bigbird_draws_are_spread_evenly():
    drawn = torch.cat([chosen_blocks(400, config_of(random_seed=seed)) for seed in range(50)]).flatten()
    counts = drawn.bincount(minlength=100)[2:]
    expected = len(drawn) / len(counts)
    assert (counts - expected).abs().max() < 6 * expected**0.5


def test_linformer_says_how_long_a_text_may_be():
    mixer = build_mixer("linformer", config_of(max_position_embeddings=20))
    x = torch.randn(1, 30, 12)
    mixer(x, torch.arange(30)[None] >= 10)  # 20 real tokens fit, whatever the padding
    with pytest.raises(ValueError, match=r"21 tokens.*max_position_embeddings=20.*truncate"):
        mixer(x, torch.arange(30)[None] >= 9)


def test_poolingformer_refuses_windows_without_a_pooled_key():
    with pytest.raises(ValueError, match=r"pooling_window_size=4.*at least 10"):
        build_mixer("poolingformer", config_of(pooling_window_size=4, pooling_stride=6))


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_exports_for_any_batch_and_length(name):
    mixer = build_mixer(name, config_of())
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=100)
    shapes = {0: batch, 1: length}
    example = torch.randn(3, 50, 12), torch.ones(3, 50, dtype=torch.bool)
    exported = torch.export.export(mixer, example, dynamic_shapes={"x": shapes, "mask": shapes}).module()
    for mask in MASKS.values():
        x = torch.randn(*mask.shape, 12)
        torch.testing.assert_close(exported(x, mask)[mask], mixer(x, mask)[mask])


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_compiles_to_one_graph(name):
    mixer = build_mixer(name, config_of())
    compiled = torch.compile(mixer, fullgraph=True, dynamic=True)
    for mask in (MASKS["padding on the right"], MASKS["holes"]):
        x = torch.randn(*mask.shape, 12, requires_grad=True)
        got, expected = compiled(x, mask)[mask], mixer(x, mask)[mask]
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (got, expected)))
