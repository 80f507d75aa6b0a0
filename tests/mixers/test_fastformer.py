"""The folded path is the paper's function: same outputs, same gradients, for every switch."""

import itertools

import pytest
import torch

from fastformer.mixers import build_mixer
from fastformer.mixers.fastformer_reference import reference
from fastformer.modeling.configuration import FastformerConfig

WIDTH = 24
FORMS = [
    {"head_form": form, "interaction": interaction, "share_query_value": share_qv, "share_heads": share_heads}
    for form, interaction, share_qv, share_heads in itertools.product(
        ["headwise", "full"], ["product", "add", "concat"], [True, False], [True, False]
    )
    if not (form == "full" and share_heads)
]


def make(switches, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    config = FastformerConfig(hidden_size=WIDTH, num_attention_heads=4, **switches)
    mixer = build_mixer("fastformer", config).to(dtype)
    for parameter in mixer.parameters():  # large enough that softmax weights are far from uniform
        torch.nn.init.normal_(parameter, std=0.3)
    return mixer


def batch(length, dtype=torch.float64):
    x = torch.randn(4, length, WIDTH, dtype=dtype)
    mask = torch.zeros(4, length, dtype=torch.bool)
    mask[0] = True
    mask[1, : max(1, length // 2)] = True
    mask[2, length // 3 :] = True  # left padding
    return x, mask  # row 3 has no real token


def outputs_and_gradients(function, mixer, x, mask):
    x = x.clone().requires_grad_()
    out = function(x, mask)
    torch.manual_seed(1)
    (out * torch.randn_like(out)).sum().backward()
    gradients = [parameter.grad for parameter in mixer.parameters()] + [x.grad]
    mixer.zero_grad()
    return out.detach(), gradients


@pytest.mark.parametrize("length", [1, 5, WIDTH, 3 * WIDTH])  # step by step below the width, folded from there on
@pytest.mark.parametrize("switches", FORMS, ids=lambda s: "-".join(str(v) for v in s.values()))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_folded_equals_the_equations(switches, length, dtype, tolerance):
    mixer = make(switches, dtype)
    x, mask = batch(length, dtype)
    out, gradients = outputs_and_gradients(mixer, mixer, x, mask)
    expected, expected_gradients = outputs_and_gradients(lambda x, m: reference(mixer, x, m), mixer, x, mask)
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert gradient.isfinite().all()
        # Gradients sum over tokens: compare on their own scale.
        scale = max(1.0, expected_gradient.abs().max().item())
        torch.testing.assert_close(gradient / scale, expected_gradient / scale, atol=tolerance, rtol=tolerance)


def test_weights_are_those_of_the_equations():
    mixer = make({})
    x, mask = batch(9)
    out, weights = mixer.forward_with_weights(x, mask)
    torch.testing.assert_close(out, mixer(x, mask))
    assert weights.shape == (4, 2, 4, 9)
    query = mixer.query(x).unflatten(-1, (4, -1))
    scores = torch.einsum("bnhd,hd->bhn", query, mixer.query_score.weight) / 6**0.5
    expected = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)[:3]
    torch.testing.assert_close(weights[:3, 0], expected)
    torch.testing.assert_close(weights[:3].sum(-1), torch.ones(3, 2, 4, dtype=x.dtype))
    assert (weights[3] == 0).all()


def test_shared_heads_are_copies_of_one():
    mixer = make({"share_heads": True})
    x, mask = batch(40)
    first, *others = mixer(x, mask).split(6, dim=-1)
    for other in others:
        torch.testing.assert_close(other, first)


def test_full_width_refuses_shared_heads():
    with pytest.raises(ValueError, match="headwise"):
        FastformerConfig(head_form="full", share_heads=True)


def test_autocast_keeps_scores_in_float32():
    mixer = make({}, torch.float32)
    x, mask = batch(2 * WIDTH, torch.float32)
    expected, _ = mixer.global_context(x, mask, keep_weights=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        context, _ = mixer.global_context(x, mask, keep_weights=True)
    for ours, theirs in zip(context[:3], expected[:3], strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("between", [False, True])  # also asked between backward and the step
def test_what_was_folded_is_forgotten_when_a_fused_optimizer_steps(between):
    mixer, x = make({}, torch.float32).eval(), torch.randn(1, 3 * WIDTH, WIDTH)
    mask = torch.ones(1, 3 * WIDTH, dtype=torch.bool)
    with torch.no_grad():
        mixer(x, mask)
    optimizer = torch.optim.SGD(mixer.parameters(), lr=1.0, fused=True)  # torch counts no change of a weight here
    mixer(x, mask).square().sum().backward()
    if between:
        with torch.no_grad():
            mixer(x, mask)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        without_gradients = mixer(x, mask)
    torch.testing.assert_close(without_gradients, mixer(x, mask).detach())
