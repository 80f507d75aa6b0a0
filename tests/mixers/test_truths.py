"""What every mixer promises, whatever its method: padding and company change nothing, and numbers stay finite."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from fastformer.mixers import available_mixers, build_mixer
from fastformer.modeling.configuration import FastformerConfig

WIDTH = 16
every_mixer = pytest.mark.parametrize("name", available_mixers())
a_few = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
text_lengths = st.lists(st.integers(1, 80), min_size=1, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mixer_of(name, dtype=torch.float64, **changes):
    config = FastformerConfig(hidden_size=WIDTH, num_attention_heads=4, max_position_embeddings=4096, **changes)
    return build_mixer(name, config).to(dtype)


def texts_of(lengths):
    return [torch.randn(length, WIDTH, dtype=torch.float64) for length in lengths]


def batch_of(texts, masks, junk=1.0):
    """Texts laid into the real places of their masks, with junk in all others."""
    x = junk * torch.randn(*masks.shape, WIDTH, dtype=torch.float64)
    for row, mask, text in zip(x, masks, texts, strict=True):
        row[mask] = text
    return x


def right_padded(texts, length):
    return torch.arange(length) < torch.tensor([len(text) for text in texts])[:, None]


def assert_same(mixer, texts, masks, junk=1.0):
    """Every text gives in the batch what it gives alone and without padding."""
    y = mixer(batch_of(texts, masks, junk), masks)
    for row, mask, text in zip(y, masks, texts, strict=True):
        alone = mixer(text[None], torch.ones(1, len(text), dtype=torch.bool))[0]
        torch.testing.assert_close(row[mask], alone, atol=1e-10, rtol=1e-10)


@every_mixer
@a_few
@given(seed=seeds, lengths=text_lengths, padding=st.integers(0, 70))
def test_padding_on_the_right_changes_nothing(name, seed, lengths, padding):
    torch.manual_seed(seed)
    texts = texts_of(lengths)
    assert_same(mixer_of(name), texts, right_padded(texts, max(lengths) + padding))


@every_mixer
@a_few
@given(seed=seeds, lengths=text_lengths, padding=st.integers(0, 70))
def test_padding_on_the_left_changes_nothing(name, seed, lengths, padding):
    torch.manual_seed(seed)
    texts = texts_of(lengths)
    assert_same(mixer_of(name), texts, right_padded(texts, max(lengths) + padding).flip(1))


@every_mixer
@a_few
@given(seed=seeds, lengths=text_lengths, padding=st.integers(1, 70))
def test_holes_change_nothing(name, seed, lengths, padding):
    torch.manual_seed(seed)
    texts = texts_of(lengths)
    masks = right_padded(texts, max(lengths) + padding)
    masks = torch.stack([mask[torch.randperm(len(mask))] for mask in masks])
    assert_same(mixer_of(name), texts, masks)


@every_mixer
@a_few
@given(seed=seeds, lengths=text_lengths, padding=st.integers(1, 70), junk=st.sampled_from([0.0, 1e3, 1e6]))
def test_what_stands_in_padded_places_changes_nothing(name, seed, lengths, padding, junk):
    torch.manual_seed(seed)
    texts = texts_of(lengths)
    assert_same(mixer_of(name), texts, right_padded(texts, max(lengths) + padding), junk)


@every_mixer
@a_few
@given(seed=seeds, length=st.integers(1, 80), other=st.integers(0, 80))
def test_other_rows_of_the_batch_change_nothing(name, seed, length, other):
    torch.manual_seed(seed)
    mixer, text, total = mixer_of(name), torch.randn(length, WIDTH, dtype=torch.float64), max(length, other, 1)
    masks = torch.arange(total) < torch.tensor([length, other])[:, None]
    x = torch.randn(2, total, WIDTH, dtype=torch.float64)
    x[0, :length] = text
    one = mixer(x, masks)[0, :length]
    x[1] = 1e3 * torch.randn(total, WIDTH)
    another = mixer(x.flip(0), masks.flip(0))[1, :length]
    torch.testing.assert_close(one, another, atol=1e-10, rtol=1e-10)


@every_mixer
@pytest.mark.parametrize("length", [1, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_with_no_real_token_is_finite(name, length, dtype):
    torch.manual_seed(0)
    mixer = mixer_of(name, dtype)
    x = torch.randn(2, length, WIDTH, dtype=dtype, requires_grad=True)
    mask = torch.tensor([True, False])[:, None].expand(2, length)
    y = mixer(x, mask)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert y.dtype == dtype
    for gradient in [x.grad, *(parameter.grad for parameter in mixer.parameters())]:
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["fastformer", "transformer", "linear"])
@a_few
@given(seed=seeds, length=st.integers(1, 80), padding=st.integers(0, 20))
def test_without_positions_the_order_of_tokens_means_nothing(name, seed, length, padding):
    torch.manual_seed(seed)
    mixer, order = mixer_of(name), torch.randperm(length)
    x = torch.randn(1, length + padding, WIDTH, dtype=torch.float64)
    mask = torch.arange(length + padding)[None] < length
    shuffled = torch.cat([x[:, order], x[:, length:]], 1)
    torch.testing.assert_close(mixer(shuffled, mask)[:, :length], mixer(x, mask)[:, order], atol=1e-10, rtol=1e-10)


@every_mixer
@pytest.mark.parametrize("how", ["bfloat16 weights", "autocast"])
def test_half_precision_is_close_to_float32(name, how):
    torch.manual_seed(0)
    mixer = mixer_of(name, torch.float32)
    x = torch.randn(3, 600, WIDTH).bfloat16().float()
    mask = torch.arange(600) < torch.tensor([600, 150, 1])[:, None]
    expected = mixer(x, mask)[mask]
    if how == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mixer(x, mask)
    else:
        y = mixer.bfloat16()(x.bfloat16(), mask)
    error = (y[mask].float() - expected).abs().max()
    assert error < 0.03 * expected.abs().max()


class LargestTensor(TorchDispatchMode):
    """Records the most numbers that any operation's result holds."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("name", [name for name in available_mixers() if name != "transformer"])
def test_memory_is_linear_in_length(name):
    mixer = mixer_of(name, torch.float32)

    def largest(length):
        x = torch.randn(1, length, WIDTH, requires_grad=True)
        with LargestTensor() as recorder:
            mixer(x, torch.ones(1, length, dtype=torch.bool)).sum().backward()
        return recorder.numel

    assert largest(2048) < 1.1 * 2 * largest(1024)
    assert largest(2048) < 2048**2 / 10
