"""Long inputs: worked on in parts, and the answer is that of one piece."""

import subprocess
import sys

import pytest
import torch

from fastformer import FastformerConfig, FastformerForSequenceClassification, FastformerModel, available_mixers
from fastformer.bench.allocations import peak_bytes
from fastformer.mixers import attentive_sum, build_mixer
from fastformer.modeling import embeddings, layer, parts

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 100}


@pytest.fixture
def in_small_pieces(monkeypatch):
    """Work in parts of 48 tokens."""

    def cut():
        monkeypatch.setattr(parts, "PART_TOKENS", 48)

    return cut


def ragged(batch, length):
    torch.manual_seed(0)
    ids = torch.randint(3, 100, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.long)
    for row in range(1, batch):
        mask[row, length - row * length // batch :] = 0
    mask[-1] = 0  # and one with no real token
    return ids, mask


@pytest.mark.parametrize("length", [5, 200])
@pytest.mark.parametrize("norm", ["post", "pre", "none"])
@pytest.mark.parametrize("mixer", available_mixers())
def test_pieces_change_nothing(mixer, norm, length, in_small_pieces):
    torch.manual_seed(0)
    config = FastformerConfig(mixer=mixer, norm=norm, **SMALL, initializer_range=0.2)
    model = FastformerModel(config).eval()
    ids, mask = ragged(4, length)
    with torch.no_grad():
        whole = model(ids, mask, output_hidden_states=True)
        in_small_pieces()
        pieces = model(ids, mask, output_hidden_states=True)
        over_itself = model(ids, mask)  # each layer writes over its input
    for ours, expected in zip(pieces.hidden_states, whole.hidden_states, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    real = mask.bool()  # where a row was cut there are zeros
    ours, expected = over_itself.last_hidden_state[real], whole.last_hidden_state[real]
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(over_itself.pooler_output, whole.pooler_output, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("interaction", ["product", "add", "concat"])
def test_a_text_so_long_that_its_vectors_are_held_once(monkeypatch, in_small_pieces, interaction):
    torch.manual_seed(0)
    keys = {**SMALL, "norm": "pre", "interaction": interaction, "neighbor_size": 8, "initializer_range": 0.2}
    model = FastformerModel(FastformerConfig(**keys, position_embedding_type="none")).eval()
    ids, mask = ragged(4, 400)
    with torch.no_grad():
        whole = model(ids, mask)
        monkeypatch.setattr(layer, "LONG_TOKENS", 100)
        monkeypatch.setattr(embeddings, "EMBEDDED_TOKENS", 48)
        monkeypatch.setattr(attentive_sum, "PART_TOKENS", 48)
        in_small_pieces()
        pieces = model(ids, mask)
        long = torch.randint(3, 100, (1, 20_000))
        peak = peak_bytes(lambda: model(long))
    assert peak < 1.7 * long.numel() * 32 * 4  # of its vectors, float32; scores of four heads are an eighth of them
    torch.testing.assert_close(pieces.pooler_output, whole.pooler_output, atol=1e-4, rtol=1e-4)
    real = mask.bool()
    ours, expected = pieces.last_hidden_state[real], whole.last_hidden_state[real]
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_gradients_are_the_same_in_chunks(in_small_pieces):
    config = FastformerConfig(**SMALL)
    mixer = build_mixer("fastformer", config).double()
    x = torch.randn(3, 300, 32, dtype=torch.float64, requires_grad=True)
    mask = ragged(3, 300)[1].bool()
    direction = torch.randn(3, 300, 32, dtype=torch.float64)

    def gradients():
        (mixer(x, mask) * direction).sum().backward()
        found = [x.grad, *(parameter.grad for parameter in mixer.parameters())]
        x.grad = None
        mixer.zero_grad()
        return found

    whole = gradients()
    in_small_pieces()
    for ours, expected in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("mixer", available_mixers())
def test_ragged_batches_are_cut_into_groups(mixer):
    """Twenty rows of up to 400 tokens: far less is computed than 20 × 400, and the answers stay."""
    torch.manual_seed(0)
    model = FastformerModel(FastformerConfig(mixer=mixer, **SMALL, initializer_range=0.2)).eval()
    ids, mask = ragged(20, 400)
    groups = parts.similar_rows(mask.bool())
    assert sorted(row for rows, _ in groups for row in rows.tolist()) == list(range(20))
    assert sum(len(rows) * width for rows, width in groups) < 0.75 * mask.numel()
    positions = torch.arange(400)[None]
    together = model(ids, mask, positions)
    assert together.last_hidden_state.shape == (20, 400, 32)
    for row in (0, 7, 18, 19):
        alone = model(ids[[row]], mask[[row]], positions)
        torch.testing.assert_close(together.pooler_output[row], alone.pooler_output[0], atol=1e-4, rtol=1e-4)
        real = mask[row].bool()
        ours, expected = together.last_hidden_state[row, real], alone.last_hidden_state[0, real]
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_gradients_of_a_ragged_batch_are_those_of_its_rows():
    torch.manual_seed(0)
    model = FastformerModel(FastformerConfig(**SMALL, hidden_dropout_prob=0.0, initializer_range=0.2)).double()
    ids, mask = ragged(20, 400)

    def gradients(loss):
        loss.backward()
        found = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        return found

    together = gradients(model(ids, mask).pooler_output.square().sum())
    alone = gradients(sum(model(ids[[row]], mask[[row]]).pooler_output.square().sum() for row in range(20)))
    for ours, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-9, rtol=1e-9)


def test_a_ragged_batch_is_looked_up_once():
    """A dense table's gradient is as large as the table: one per batch, not one per group."""
    model = FastformerModel(FastformerConfig(**SMALL))
    ids, mask = ragged(20, 400)
    seen = []
    model.embeddings.word_embeddings.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(ids, mask)
    groups = parts.similar_rows(mask.bool())
    assert len(groups) > 1
    assert [part.numel() for part in seen] == [sum(len(rows) * width for rows, width in groups)]


def test_a_ragged_batch_may_be_given_as_vectors():
    torch.manual_seed(0)
    model = FastformerModel(FastformerConfig(**SMALL, initializer_range=0.2)).eval()
    ids, mask = ragged(20, 400)
    assert len(parts.similar_rows(mask.bool())) > 1
    with torch.no_grad():
        vectors = model.embeddings.word_embeddings(ids)
        before = vectors.clone()
        by_vectors, by_ids = model(inputs_embeds=vectors, attention_mask=mask), model(ids, mask)
    torch.testing.assert_close(by_vectors.pooler_output, by_ids.pooler_output)
    torch.testing.assert_close(by_vectors.last_hidden_state, by_ids.last_hidden_state)
    assert torch.equal(vectors, before)


def test_ragged_batches_train_with_token_dropout():
    torch.manual_seed(0)
    config = FastformerConfig(**SMALL, token_dropout=0.3, bigram_buckets=64, position_embedding_type="none")
    model = FastformerForSequenceClassification(config)
    ids, mask = ragged(20, 400)
    assert len(parts.similar_rows(mask.bool())) > 1
    model(ids, mask, labels=torch.ones(20, dtype=torch.long)).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_hooks_see_what_was_computed():
    model = FastformerModel(FastformerConfig(**SMALL)).eval()
    ids = torch.randint(3, 100, (2, 60))
    seen = []
    model.embeddings.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        expected = model(ids, output_hidden_states=True).hidden_states[0]
        model(ids)
    assert torch.equal(seen[1], expected)


def test_a_batch_without_tokens():
    model = FastformerModel(FastformerConfig(**SMALL)).eval()
    assert model(torch.zeros(3, 0, dtype=torch.long)).last_hidden_state.shape == (3, 0, 32)


def test_evenly_long_rows_stay_together():
    assert len(parts.similar_rows(torch.ones(8, 600, dtype=torch.bool))) == 1
    assert len(parts.similar_rows(torch.arange(600)[None] < torch.arange(560, 600)[:, None])) == 1


def test_the_callers_tensors_are_left_alone():
    model = FastformerModel(FastformerConfig(**SMALL, norm="none", position_embedding_type="none")).eval()
    vectors = torch.randn(2, 3000, 32)
    before = vectors.clone()
    with torch.no_grad():
        model(inputs_embeds=vectors)
    assert torch.equal(vectors, before)


@pytest.mark.parametrize("mixer", [name for name in available_mixers() if name != "transformer"])
@pytest.mark.parametrize("train", [False, True])
def test_memory_grows_linearly(mixer, train):
    config = FastformerConfig(mixer=mixer, **SMALL, max_position_embeddings=8192)
    model = FastformerForSequenceClassification(config).train(train)

    def peak(length):
        ids = torch.randint(3, 100, (1, length))

        def step():
            with torch.set_grad_enabled(train):
                logits = model(ids).logits
            if train:
                logits.sum().backward()

        return peak_bytes(step)

    assert peak(8192) < 2.1 * peak(4096)


def test_folded_weights_follow_the_weights():
    model = FastformerModel(FastformerConfig(**SMALL, initializer_range=0.3)).eval()
    ids = torch.randint(3, 100, (2, 60))
    with torch.no_grad():
        first = model(ids).pooler_output
        model.layers[0].mixer.transform.weight.normal_()
        changed = model(ids).pooler_output
    assert not torch.allclose(first, changed, atol=1e-4)
    assert torch.allclose(changed, model(ids).pooler_output, atol=1e-5)  # with gradients nothing is kept


MILLION = """
import torch
from fastformer import FastformerConfig, FastformerModel
from fastformer.modeling import parts
from fastformer.surroundings import machine
torch.manual_seed(0)
model = FastformerModel(FastformerConfig(position_embedding_type="sinusoidal")).eval()
ids = torch.randint(3, 30000, (1, 1_000_000))
machine.forget_peak_memory()
before = machine.resident_memory()
with torch.inference_mode():
    pooled = model(ids).pooler_output
print((machine.peak_memory() - before) / 1e9)
parts.PART_TOKENS = 10**12
with torch.inference_mode():
    print((model(ids).pooler_output - pooled).abs().max().item())
"""


@pytest.mark.slow
def test_a_million_tokens():
    printed = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True).stdout
    gigabytes, difference = map(float, printed.split())
    assert gigabytes < 3
    assert difference < 1e-4


@pytest.mark.slow
def test_training_on_65536_tokens_fits():
    model = FastformerForSequenceClassification(FastformerConfig(max_position_embeddings=65_536))
    ids = torch.randint(3, 30_000, (1, 65_536))
    assert peak_bytes(lambda: model(ids, labels=torch.tensor([1])).loss.backward()) < 4e9
