"""Copying: the mixture that it says, stable, and the same for every beam of `generate`."""

import pytest
import torch

from fastformer.modeling.copying import CopyHead
from tests.modeling.test_generation import build, source
from tests.modeling.test_models import small


def test_copying_is_the_mixture_that_it_says():
    torch.manual_seed(0)
    head = CopyHead(small(vocab_size=10))
    torch.nn.init.normal_(head.pointer.weight)
    hidden, words, logits = torch.randn(2, 3, 16), torch.randn(2, 4, 16), torch.randn(2, 3, 10)
    ids, mask = torch.tensor([[5, 7, 5, 9], [1, 2, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    log_p = head(hidden, logits, words, ids, mask)
    gate = torch.sigmoid(head.gate(hidden))
    scores = torch.zeros(2, 3, 4)
    for before, wanted in enumerate(head.pointer(hidden).split(16, dim=-1)):
        for place in range(before, 4):
            scores[:, :, place] += (wanted * words[:, None, place - before]).sum(dim=-1) / 4
    attention = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    expected = gate * logits.softmax(dim=-1)
    for row in range(2):
        for place in range(4):
            expected[row, :, ids[row, place]] += (1 - gate[row, :, 0]) * attention[row, :, place]
    torch.testing.assert_close(log_p.exp(), expected)
    torch.testing.assert_close(log_p.logsumexp(dim=-1), torch.zeros(2, 3), atol=1e-6, rtol=0)
    for word in range(10):  # in the source or not
        chosen = torch.full((2, 3), word)
        alone = head.log_probability(hidden, logits.log_softmax(dim=-1)[..., word], words, ids, mask, chosen)
        torch.testing.assert_close(alone, log_p[..., word])


@pytest.mark.parametrize("length", [1, 2, 5])
def test_where_padding_stands_changes_nothing(length):
    torch.manual_seed(0)
    head = CopyHead(small(vocab_size=10))
    hidden, logits = torch.randn(1, 3, 16), torch.randn(1, 3, 10)
    words, ids = torch.randn(1, length, 16), torch.randint(0, 10, (1, length))
    alone = head(hidden, logits, words, ids, None)
    for left, right in ((0, 3), (3, 0), (2, 2)):
        padded = torch.nn.functional.pad(words, (0, 0, left, right), value=7.0)
        padded_ids = torch.nn.functional.pad(ids, (left, right))
        mask = torch.nn.functional.pad(torch.ones(1, length, dtype=bool), (left, right))
        torch.testing.assert_close(head(hidden, logits, padded, padded_ids, mask), alone)


def test_an_export_serves_batches_of_any_size():
    head = CopyHead(small(vocab_size=10))

    def inputs(batch, length, words):
        mask = torch.ones(batch, words, dtype=bool)
        mask[1, 1:] = False
        tensors = torch.randn(batch, length, 16), torch.randn(batch, length, 10), torch.randn(batch, words, 16)
        return *tensors, torch.randint(0, 10, (batch, words)), mask

    batch, length, words = (torch.export.Dim(name, min=2, max=64) for name in ("batch", "length", "words"))
    shapes = ((batch, length, None), (batch, length, None), (batch, words, None), (batch, words), (batch, words))
    exported = torch.export.export(head, inputs(4, 3, 6), dynamic_shapes=shapes).module()
    other = inputs(5, 2, 9)
    torch.testing.assert_close(exported(*other), head(*other))


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_copying_is_finite_at_any_scale_and_without_a_source(scale):
    torch.manual_seed(0)
    head = CopyHead(small(vocab_size=10))
    tensors = [scale * torch.randn(2, 3, 16), scale * torch.randn(2, 3, 10), torch.randn(2, 4, 16)]
    hidden, logits, words = (tensor.requires_grad_() for tensor in tensors)
    mask = torch.tensor([[True] * 4, [False] * 4])
    log_p = head(hidden, logits, words, torch.randint(0, 10, (2, 4)), mask)
    log_p.gather(2, torch.randint(0, 10, (2, 3, 1))).sum().backward()
    for tensor in (log_p, hidden.grad, logits.grad, words.grad, head.gate.weight.grad, head.pointer.weight.grad):
        assert tensor.isfinite().all()
    torch.testing.assert_close(log_p[1], logits[1].log_softmax(dim=-1))  # nothing to copy

    hidden.grad = words.grad = None
    chosen = torch.randint(0, 10, (2, 3))
    alone = head.log_probability(hidden, torch.zeros(2, 3), words, torch.randint(0, 10, (2, 4)), mask, chosen)
    alone.sum().backward()
    for tensor in (alone, hidden.grad, words.grad):
        assert tensor.isfinite().all()
    torch.testing.assert_close(alone[1], torch.zeros(3))


def test_copying_writes_words_that_the_vocabulary_alone_would_not():
    model = build(copy_mechanism=True)
    torch.nn.init.constant_(model.copying.gate.bias, -100.0)
    inputs = source()
    written = model.generate(**inputs, num_beams=5, max_new_tokens=6, do_sample=False)[:, 1:]
    for row in range(3):
        real = inputs["input_ids"][row][inputs["attention_mask"][row].bool()]
        assert set(written[row].tolist()) <= set(real.tolist())


@pytest.mark.parametrize("copying", [False, True])
def test_generation_from_encoder_outputs(copying):
    model, inputs = build(copy_mechanism=copying), source()
    encoded = model.get_encoder()(**inputs)
    target = torch.randint(4, 40, (3, 4))
    as_tuple = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        encoder_outputs=(encoded.last_hidden_state,),
        decoder_input_ids=target,
    )
    torch.testing.assert_close(as_tuple.logits, model(**inputs, decoder_input_ids=target).logits)
    options = {"attention_mask": inputs["attention_mask"], "num_beams": 3, "max_new_tokens": 6}
    expected = model.generate(inputs["input_ids"], **options)
    assert torch.equal(model.generate(encoder_outputs=encoded, **options), expected)


def test_copying_without_the_sources_tokens_says_what_to_do():
    model = build(copy_mechanism=True)
    vectors = torch.randn(1, 5, 16)
    with pytest.raises(ValueError, match=r"copy_mechanism.*input_ids"):
        model(inputs_embeds=vectors, decoder_input_ids=torch.tensor([[5]]))
