"""The causal forms: the equations, no look ahead, decoding step by step, and states that do not grow."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from fastformer.mixers import available_mixers, build_mixer
from fastformer.mixers import causal as causal_module
from fastformer.mixers.causal import running_sum
from fastformer.modeling.cache import LayerMemory
from fastformer.modeling.configuration import FastformerConfig

WIDTH, HEADS = 16, 4
every_mixer = pytest.mark.parametrize("name", available_mixers(causal=True))
FORMS = [
    {"head_form": head_form, "interaction": interaction, "share_query_value": shared}
    for head_form in ("headwise", "full")
    for interaction in ("product", "add", "concat")
    for shared in (True, False)
] + [{"share_heads": True}]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))


def mixer_of(name="fastformer", dtype=torch.float64, **changes):
    torch.manual_seed(0)
    config = FastformerConfig(hidden_size=WIDTH, num_attention_heads=HEADS, causal=True, **changes)
    mixer = build_mixer(name, config).to(dtype)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer


def tokens_of(batch, length, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(batch, length, WIDTH, dtype=dtype)


def memory_of():
    return LayerMemory(DynamicCache(), 0)


def naive_means(scores, values, mask):
    """Every prefix by itself, O(N²): (batch, heads, length), (batch, heads, length, size)."""
    length = scores.shape[-1]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1) | ~mask[:, None, None]
    weights = scores[..., None, :].expand(*scores.shape, length).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return torch.where(mask.cumsum(1)[:, None, :, None] > 0, torch.nan_to_num(weights) @ values, 0)


def naive(mixer, x, mask):
    """The equations of the docstring, one token and one head at a time where they say so."""
    size = mixer.head_size

    def heads(linear, rows):  # batch, heads, length, size
        weight = linear.weight.view(-1, size, linear.in_features).expand(HEADS, -1, -1)
        bias = linear.bias.view(-1, size).expand(HEADS, -1)
        return torch.stack([rows[h] @ weight[h].T + bias[h] for h in range(HEADS)], dim=1)

    def mapped(linear, vectors):  # the transform or the merge
        if not mixer.full_width:
            return heads(linear, list(vectors.unbind(1)))
        parts = vectors.split(size, dim=-1)
        joined = torch.cat([head for part in parts for head in part.unbind(1)], dim=-1)
        return torch.stack(linear(joined).split(size, dim=-1), dim=1)

    def scores(linear, vectors):
        seen = [torch.cat(list(vectors.unbind(1)), dim=-1)] * HEADS if mixer.full_width else list(vectors.unbind(1))
        weight = linear.weight.expand(HEADS, -1)
        return torch.stack([seen[h] @ weight[h] for h in range(HEADS)], dim=1) / math.sqrt(size)

    q, k = heads(mixer.query, [x] * HEADS), heads(mixer.key, [x] * HEADS)
    v = q if mixer.value is None else heads(mixer.value, [x] * HEADS)
    g = naive_means(scores(mixer.query_score, q), q, mask)
    p = {"product": lambda: g * k, "add": lambda: g + k, "concat": lambda: torch.cat([g, k], -1)}[mixer.interaction]()
    key = naive_means(scores(mixer.key_score, p[..., -size:]), p, mask)
    if mixer.interaction == "concat":
        u = torch.cat([mapped(mixer.key_merge, key), v], dim=-1)
    else:
        u = key * v if mixer.interaction == "product" else key + v
    out = torch.cat(list((mapped(mixer.transform, u) + q).unbind(1)), dim=-1)
    return mixer.output(out) if mixer.full_width else out


@every_form
@pytest.mark.parametrize("length", [1, 16, 17, 300])
def test_fast_path_equals_the_equations(form, length):
    mixer, x = mixer_of(**form), tokens_of(2, length)
    mask = torch.rand(2, length) > 0.3
    mask[0, : length // 2] = False  # padding on the left
    mask[:, -1] = True
    torch.testing.assert_close(mixer(x, mask)[mask], naive(mixer, x, mask)[mask], atol=1e-11, rtol=1e-9)


@every_form
def test_gradients_equal_those_of_the_equations(form):
    def gradients(function):
        mixer, x = mixer_of(**form), tokens_of(2, 40).requires_grad_()
        mask = torch.arange(40) >= torch.tensor([[0], [7]])
        weights = torch.linspace(-1, 1, 40 * WIDTH, dtype=torch.float64).view(40, WIDTH)
        (function(mixer, x, mask) * weights)[mask].sum().backward()
        return [x.grad, *(parameter.grad for parameter in mixer.parameters())]

    for ours, theirs in zip(gradients(lambda mixer, *args: mixer(*args)), gradients(naive), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-8)


@every_mixer
def test_step_by_step_equals_all_at_once(name):
    mixer, x = mixer_of(name, torch.float32), tokens_of(2, 50, torch.float32)
    memory = memory_of()
    steps = torch.cat([mixer(x[:, i : i + 1], None, memory) for i in range(50)], dim=1)
    torch.testing.assert_close(steps, mixer(x, None), atol=1e-5, rtol=1e-5)
    assert memory.cache.get_seq_length() == 50


@every_mixer
def test_pieces_of_any_length_equal_the_whole_with_padding_between(name):
    mixer, x = mixer_of(name), tokens_of(3, 120)
    mask = torch.rand(3, 120) > 0.4
    mask[0, :30] = False
    whole, memory, start = mixer(x, mask), memory_of(), 0
    for length in (1, 40, 3, 16, 17, 43):
        piece = slice(start, start + length)
        mixed = mixer(x[:, piece], mask[:, : piece.stop], memory)
        torch.testing.assert_close(mixed[mask[:, piece]], whole[:, piece][mask[:, piece]], atol=1e-11, rtol=1e-9)
        start += length
    assert start == 120


def test_long_texts_without_gradients_go_through_in_pieces(monkeypatch):
    mixer, x = mixer_of(), tokens_of(2, 150)
    mask = torch.arange(150) >= torch.tensor([[0], [70]])
    whole = mixer(x, mask)
    monkeypatch.setattr(causal_module, "_PIECE", 32)
    with torch.no_grad():
        torch.testing.assert_close(mixer(x, mask)[mask], whole[mask].detach())


@every_mixer
@pytest.mark.parametrize("place", [0, 15, 16, 200, 299])
def test_a_later_token_changes_nothing_before_it(name, place):
    mixer, x = mixer_of(name, torch.float32), tokens_of(1, 300, torch.float32)
    mask = torch.ones(1, 300, dtype=torch.bool)
    before = mixer(x, mask)
    x[:, place:] = 1e3 * torch.randn(300 - place, WIDTH)
    after = mixer(x, mask)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place:], after[:, place:])


@every_mixer
@pytest.mark.parametrize(("left", "right"), [(0, 30), (30, 0), (20, 19)])
def test_padding_changes_nothing(name, left, right):
    mixer, x = mixer_of(name), tokens_of(1, 50)
    alone = mixer(x, torch.ones(1, 50, dtype=torch.bool))
    sides = [1e4 * torch.randn(1, left, WIDTH), x, 1e4 * torch.randn(1, right, WIDTH)]
    mask = torch.zeros(1, left + 50 + right, dtype=torch.bool)
    mask[:, left : left + 50] = True
    padded = mixer(torch.cat(sides, dim=1).double(), mask)
    assert padded.isfinite().all()
    torch.testing.assert_close(padded[mask], alone[0], atol=1e-10, rtol=1e-9)


@every_mixer
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_with_no_real_token_is_finite(name, dtype):
    mixer, x = mixer_of(name, dtype), tokens_of(2, 40, dtype).requires_grad_()
    y = mixer(x, torch.tensor([True, False])[:, None].expand(2, 40))
    y.square().sum().backward()
    assert y.dtype == dtype
    for tensor in (y, x.grad, *(parameter.grad for parameter in mixer.parameters())):
        assert tensor.isfinite().all()


@pytest.mark.parametrize("order", ["rising", "falling", "mixed"])
def test_scores_of_a_thousand_neither_overflow_nor_vanish(order):
    torch.manual_seed(0)
    scores = torch.linspace(-1000, 1000, 200).expand(1, 2, 200).clone()
    scores = {"rising": scores, "falling": scores.flip(-1), "mixed": scores[..., torch.randperm(200)]}[order]
    values = torch.randn(1, 2, 200, 3)
    scores.requires_grad_(), values.requires_grad_()
    means, state = running_sum(scores, values, None, None)
    means.square().sum().backward()
    expected = naive_means(scores.double(), values.double(), torch.ones(1, 200, dtype=torch.bool))
    torch.testing.assert_close(means, expected.float(), atol=2e-4, rtol=1e-4)  # float32 scores have 6e-5 of doubt
    assert all(tensor.isfinite().all() for tensor in (state, scores.grad, values.grad))


@pytest.mark.parametrize(("shift", "doubt"), [(0.0, 1e-6), (1000.0, 6e-5)])  # what float32 tells apart near 1,000
def test_a_hundred_thousand_tokens_lose_no_precision(shift, doubt):
    torch.manual_seed(0)
    length, steps = 100_000, 3000
    scores = torch.full((1, 1, length), 0.3) + shift
    values = torch.rand(1, 1, length, 4)
    exact = values.double().cumsum(dim=2) / torch.arange(1, length + 1)[:, None]  # equal scores: plain averages
    means, _ = running_sum(scores, values, None, None)
    torch.testing.assert_close(means.double(), exact, atol=doubt, rtol=0)

    _, state = running_sum(scores[..., : length - steps], values[:, :, : length - steps], None, None)
    for i in range(length - steps, length):
        mean, state = running_sum(scores[..., i : i + 1], values[:, :, i : i + 1], None, state)
    torch.testing.assert_close(mean[..., 0, :].double(), exact[:, :, -1], atol=doubt, rtol=0)
    total = float(scores[0, 0, 0]) + math.log(length)
    assert abs(float(state[0, 0, 0]) - total) < doubt


class Work(TorchDispatchMode):
    """Counts operations, and the numbers that their results hold."""

    operations = numbers = largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numbers += tensor.numel()
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
        self.operations += 1
        return result


def test_the_100000th_token_costs_what_the_100th_did():
    mixer, work = mixer_of(dtype=torch.float32), []
    for past in (100, 100_000):
        memory = memory_of()
        with torch.no_grad():
            mixer(tokens_of(1, past, torch.float32), None, memory)
            [layer] = memory.cache.layers
            assert layer.keys.shape == layer.values.shape == (1, HEADS, 1 + WIDTH // HEADS)
            with Work() as recorder:
                mixer(tokens_of(1, 1, torch.float32), None, memory)
        assert layer.keys.shape == layer.values.shape == (1, HEADS, 1 + WIDTH // HEADS)
        assert memory.cache.get_seq_length() == past + 1
        work.append((recorder.operations, recorder.numbers, recorder.largest))
    assert work[0] == work[1]


def test_memory_is_that_of_the_values():
    config = FastformerConfig(hidden_size=64, num_attention_heads=4, causal=True)
    mixer, x = build_mixer("fastformer", config), torch.randn(1, 4096, 64, requires_grad=True)
    with Work() as recorder:
        mixer(x, None).sum().backward()
    assert recorder.largest <= 1.1 * x.numel()


def test_reordering_moves_every_state_with_its_text():
    mixer, x = mixer_of(), tokens_of(3, 20)
    memory, order = memory_of(), torch.tensor([2, 0, 0])
    mixer(x[:, :12], None, memory)
    memory.cache.reorder_cache(order)
    expected = mixer(x[order], None)[:, 12:]
    torch.testing.assert_close(mixer(x[order, 12:], None, memory), expected)


def test_a_state_repeats_selects_and_forgets_but_takes_nothing_back():
    mixer, x = mixer_of(), tokens_of(2, 20)
    memory = memory_of()
    mixer(x[:, :12], None, memory)
    memory.cache.batch_repeat_interleave(3)
    memory.cache.batch_select_indices(torch.tensor([0, 5]))
    with pytest.raises(RuntimeError, match="take tokens back"):
        memory.cache.crop(-1)
    torch.testing.assert_close(mixer(x[:, 12:], None, memory), mixer(x, None)[:, 12:])
    memory.cache.reset()
    assert memory.cache.get_seq_length() == 0
    torch.testing.assert_close(mixer(x, None, memory), mixer(x, None))


@every_mixer
@pytest.mark.parametrize("how", ["bfloat16 weights", "autocast"])
def test_half_precision_is_close_to_float32(name, how):
    mixer, x = mixer_of(name, torch.float32), tokens_of(2, 300, torch.float32).bfloat16().float()
    expected = mixer(x, None)
    if how == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mixer(x, None)
    else:
        y = mixer.bfloat16()(x.bfloat16(), None)
    assert (y.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_compiles_whole():
    mixer, x = mixer_of(dtype=torch.float32), tokens_of(2, 40, torch.float32)
    mask = torch.arange(40) < torch.tensor([[40], [25]])
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask), mixer(x, mask), atol=1e-5, rtol=1e-4)


def test_an_empty_piece_changes_nothing():
    mixer, memory = mixer_of(), memory_of()
    assert mixer(tokens_of(2, 0), None, memory).shape == (2, 0, WIDTH)
    assert memory.state() is None


def test_a_method_without_a_causal_form_is_named():
    with pytest.raises(ValueError, match=r"'longformer' has no causal form; choose from .*fastformer"):
        mixer_of("longformer")
    with pytest.raises(ValueError, match="unknown mixer 'flash'"):
        mixer_of("flash")
