"""A text is cut before it is tokenized, and the tokens that are kept are the same."""

import random

import pytest

from fastformer.data import cutting, tokenizer_training, tokenizers
from fastformer.data.cutting import LEAST
from fastformer.data.spans import place_tokens
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch

read = tokenizers._rust_reads

WORDS = ["house", "été", "don't", "x" * 40, "(", ")", "...", "42", "\n", "漢字", "naïve", "e\u0301", "🙂"]


@pytest.fixture(scope="module", params=["word", "pieces", "bpe", "nltk"])
def tokenizer(request):
    return train_tokenizer(request.param, [" ".join(WORDS)] * 3, vocab_size=400, min_frequency=1)


@pytest.mark.parametrize("between", [" ", "", "   "])
def test_the_tokens_that_are_kept_are_the_same(tokenizer, between):
    pick = random.Random(1)
    text = between.join(pick.choices(WORDS, k=6000))
    [whole], _ = encode_batch(tokenizer, [text])
    for length in (1, 7, 100, 900):
        [kept], cut = encode_batch(tokenizer, [text], length)
        assert kept.tolist() == whole[:length].tolist()
        assert cut == (len(whole) > length)


def test_only_a_beginning_of_a_long_text_is_tokenized(tokenizer, monkeypatch):
    sizes = []
    monkeypatch.setattr(tokenizers, "_rust_reads", lambda one, text: sizes.append(len(text)) or read(one, text))
    [kept], cut = encode_batch(tokenizer, ["() " * 200_000], 100)
    assert (len(kept), cut) == (100, 1)
    assert max(sizes) <= LEAST


def test_white_space_and_endless_words_are_read_until_a_fixed_place(tokenizer, monkeypatch, capsys):
    spaces = " " * 50_000 + "house"
    [whole], _ = encode_batch(tokenizer, [spaces])
    [kept], cut = encode_batch(tokenizer, [spaces], 1000)  # most need all of it to know that there is one token
    assert kept.tolist() == whole[:1000].tolist()
    assert cut == (len(whole) > 1000)
    monkeypatch.setattr(cutting, "FARTHEST", 10_000)
    for text in (spaces, "x" * 50_000):
        [kept], cut = encode_batch(tokenizer, [text], 20_000)
        assert cut == 0  # it has fewer tokens than that, and another word says where it ended
        assert f"Of a text of {len(text):,} characters the first 10,000 are read." in capsys.readouterr().err
        assert kept.tolist() == encode_batch(tokenizer, [text[:10_000]])[0][0].tolist()
    assert place_tokens(tokenizer, spaces, 20_000).cut


def test_words_are_counted_in_parts_of_a_long_text(monkeypatch):
    text = "house (été) naïve " * 3000
    whole = train_tokenizer("word", [text], vocab_size=400).get_vocab()
    monkeypatch.setattr(tokenizer_training, "MOST", 1000)
    parts = list(tokenizer_training._parts(text))
    assert "".join(parts) == text
    assert len(parts) > 50
    assert max(map(len, parts)) <= 1000
    assert train_tokenizer("word", [text], vocab_size=400).get_vocab() == whole
    assert list(map(len, tokenizer_training._parts("x" * 2500))) == [1000, 1000, 500]
