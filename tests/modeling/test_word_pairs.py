"""Hashed word pairs and token dropout, the two parts of the default preset that the paper has not."""

import pytest
import torch

from fastformer import FastformerConfig, FastformerForMaskedLM, FastformerForSequenceClassification, FastformerModel
from fastformer.modeling.embeddings import Tokens
from fastformer.modeling.ngrams import bigram_rows


def small(**settings) -> FastformerConfig:
    defaults = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 4, "norm": "none", "num_labels": 3}
    return FastformerConfig(**{**defaults, "position_embedding_type": "none", "bigram_buckets": 64, **settings})


def test_rows_depend_on_the_pair_and_its_order():
    ids = torch.tensor([[5, 7, 5, 7], [7, 5, 9, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    rows = bigram_rows(ids, mask, 2**20)
    assert rows[:, 0].tolist() == [0, 0]  # a first word has no predecessor
    assert rows[0, 1] == rows[0, 3]  # 5 7
    assert rows[0, 2] == rows[1, 1]  # 7 5
    assert rows[0, 1] != rows[0, 2]
    assert rows[1, 3] == 0  # padding


def test_rows_of_short_integers_are_the_same():
    ids = torch.randint(0, 50_000, (4, 64))
    mask = torch.ones_like(ids, dtype=torch.bool)
    assert torch.equal(bigram_rows(ids.int(), mask, 2**18), bigram_rows(ids, mask, 2**18))


def test_rows_spread_over_the_table():
    ids = torch.randint(0, 50_000, (64, 512))
    rows = bigram_rows(ids, torch.ones_like(ids, dtype=torch.bool), 2**12)[:, 1:].flatten()
    counts = torch.bincount(rows, minlength=2**12)
    assert counts[0] == 0
    # 32,704 pairs in 4,095 rows: about 8 in each, none crowded.
    assert counts.max() < 30
    assert (counts[1:] == 0).sum() < 40
    assert rows.max() < 2**12


def test_rows_are_the_same_on_every_machine():
    ids = torch.tensor([[3, 1, 4, 1, 5, 29_999]])
    assert bigram_rows(ids, torch.ones_like(ids, dtype=torch.bool), 2**18).tolist() == [
        [0, 133737, 38434, 111226, 103468, 7574]
    ]


def test_word_order_matters_once_pairs_are_learned():
    torch.manual_seed(0)
    model = FastformerModel(small()).eval()
    forward, backward = torch.tensor([[5, 7, 9]]), torch.tensor([[9, 7, 5]])
    torch.testing.assert_close(model(forward).pooler_output, model(backward).pooler_output)  # they start at zero
    torch.nn.init.normal_(model.embeddings.bigram_embeddings.weight)
    assert not torch.allclose(model(forward).pooler_output, model(backward).pooler_output)


@pytest.mark.parametrize("left", [0, 3])
def test_padding_changes_nothing(left):
    torch.manual_seed(0)
    model = FastformerModel(small()).eval()
    torch.nn.init.normal_(model.embeddings.bigram_embeddings.weight)
    text = torch.randint(3, 50, (1, 6))
    padded = torch.nn.functional.pad(text, (left, 4), value=8)
    mask = torch.nn.functional.pad(torch.ones_like(text), (left, 4))
    torch.testing.assert_close(model(padded, attention_mask=mask).pooler_output, model(text).pooler_output)


def test_vectors_instead_of_words_are_refused():
    with pytest.raises(ValueError, match="give input_ids"):
        FastformerModel(small())(inputs_embeds=torch.randn(1, 3, 16))
    with pytest.raises(ValueError, match="bigram_buckets=1"):
        small(bigram_buckets=1)


def test_any_optimizer_can_train_the_table():
    model = FastformerForSequenceClassification(small())
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randint(0, 50, (2, 5)), labels=torch.tensor([0, 1])).loss.backward()
    optimizer.step()


def test_token_dropout_removes_whole_tokens_in_training_only():
    torch.manual_seed(0)
    ids = torch.arange(200).expand(50, 200) + 3
    mask = torch.ones(50, 200, dtype=torch.bool)
    mask[0, 1:] = False  # one token: it must stay
    mask[1] = False  # none
    tokens = Tokens(ids, None, ids, mask).drop(0.3)
    kept = tokens.mask.sum(dim=1)
    assert kept[0] == 1
    assert kept[1] == 0
    assert 120 < kept[2:].float().mean() < 160  # 70% of 200
    assert tokens.ids.shape[1] == kept.max()
    for row, count in zip(tokens.ids, kept, strict=True):  # in order, without gaps
        assert row[:count].tolist() == sorted(row[:count].tolist())

    model = FastformerForSequenceClassification(small(vocab_size=300, token_dropout=0.5, hidden_dropout_prob=0.0))
    first, second = (model.train()(ids).logits for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (model.eval()(ids).logits for _ in range(2))
    assert torch.equal(first, second)


def test_token_dropout_is_for_text_classifiers():
    with pytest.raises(ValueError, match="token_dropout"):
        FastformerForMaskedLM(small(token_dropout=0.1))
