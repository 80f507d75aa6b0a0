"""A text is cut before it is tokenized, and the tokens that are kept are the same."""

import random

import pytest

from fastformer.data.cutting import beginning
from fastformer.data.tokenizers import encode_batch, train_tokenizer

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


def test_only_a_beginning_of_a_long_text_is_tokenized(tokenizer):
    backend = tokenizer.backend_tokenizer
    sizes = []

    def encode(text):
        sizes.append(len(text))
        return backend.encode(text, add_special_tokens=False)

    text = "() " * 200_000
    assert len(beginning(text, 100, encode)) < 10_000
    assert max(sizes) < 10_000
    assert beginning("short", 2, encode) == "short"
    odd = " " * 50_000  # for most tokenizers there is no token in it, and all of it is needed to know that
    assert encode(beginning(odd, 5, encode)).ids[:5] == encode(odd).ids[:5]
