"""Texts through a model: in input order, the same in threads and one batch after another."""

import numpy as np
import pytest
import torch

from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.engine import inference
from fastformer.engine.inference import TextRunner
from fastformer.modeling import FastformerConfig, FastformerForSequenceClassification

WORDS = ["the", "film", "was", "good", "and", "bad", "or", "long", "but", "we", "saw", "it", "again"]


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(inference, "TOKENIZED_TEXTS", 7)
    monkeypatch.setattr(inference, "CHUNK_TEXTS", 50)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    tokenizer = train_tokenizer("word", [" ".join(WORDS)] * 2, vocab_size=50)
    config = FastformerConfig(vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=4, num_labels=3)
    yield TextRunner(FastformerForSequenceClassification(config), tokenizer, 90, batch_tokens=64)
    torch.set_num_threads(before)


def some_texts(count: int = 120) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(0, 120))) for _ in range(count)]


def test_threads_change_no_answer_and_no_order(runner):
    def logits(**inputs):
        return runner.model(**inputs).logits

    texts = some_texts()
    expected = np.stack(list(runner(texts, logits, one_by_one=True)))
    assert runner.cut > 0
    cut, runner.cut = runner.cut, 0
    np.testing.assert_allclose(np.stack(list(runner(texts, logits))), expected, atol=1e-6)
    assert runner.cut == cut
    assert [len(rows) for rows in runner.in_chunks(texts, logits)] == [50, 50, 20]
    alone = [next(runner([text], logits)) for text in texts[:20]]
    np.testing.assert_allclose(np.stack(alone), expected[:20], atol=1e-6)


def test_a_text_larger_than_a_batch_has_the_machine_to_itself(runner):
    threads = []

    def count(input_ids, attention_mask):
        threads.append((attention_mask.sum(dim=1).max() > 64, torch.get_num_threads()))
        return torch.zeros(len(input_ids))

    list(runner(some_texts(), count))
    assert {cores for long, cores in threads if long} == {3}
    assert {cores for long, cores in threads if not long} == {1}
