"""Every token knows its characters of the original text."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import ByT5Tokenizer

from fastformer.data.spans import place_tokens
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.data.tokenizers import encode_batch
from fastformer.errors import UserError

TEXTS = [
    "The \"brown\" fox can't jump over the U.S. dog. Don't ``say'' 'tis gonna — … 日本語 😀 café ﬁne Straße ＦＵＬＬ",
    "שלום עולם e\u0301te\u0301 'quoted' \"a\"b\" ''x'' x--y “smart” ‘q’ it’s $5.00 (a) [b] 50% a,b 1,000 👩‍👧",
]


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: train_tokenizer(kind, TEXTS * 2, vocab_size=400) for kind in ("word", "bpe", "nltk")}


def check(tokenizer, text: str) -> list[tuple[str, str]]:
    """Pairs (token, its characters), after what holds of every text."""
    placed = place_tokens(tokenizer, text)
    [ids], _ = encode_batch(tokenizer, [text])
    assert placed.ids.tolist() == ids.tolist()
    assert len(placed.names) == len(placed.spans) == len(ids)
    starts, ends = placed.spans[:, 0], placed.spans[:, 1]
    assert (starts < ends).all()
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert not len(ends) or ends[-1] <= len(text)
    return [(name, text[start:end]) for name, (start, end) in zip(placed.names, placed.spans, strict=True)]


def normalized(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("’", "'").lower()


def test_a_word_stands_where_it_was_found(tokenizers):
    for text in TEXTS:
        for name, characters in check(tokenizers["word"], text):
            assert name in normalized(characters)  # "…" is three tokens
    # An accent belongs to the letter before it, and a letter that stands for two keeps its place.
    assert [part for _, part in check(tokenizers["word"], "ﬁne e\u0301te\u0301 it’s")] == [
        "ﬁne",
        "e\u0301te\u0301",
        "it",
        "’s",
    ]


def test_bytes_of_a_character_share_it(tokenizers):
    parts = [part for _, part in check(tokenizers["bpe"], "a \N{PILE OF POO}!")]  # not in the vocabulary: bytes
    assert sum("\N{PILE OF POO}" in part for part in parts) >= 2


def test_nltk_words_stand_in_the_text_and_leave_out_white_space_alone(tokenizers):
    quotes = {"``", "''"}
    for text in TEXTS:
        pairs = check(tokenizers["nltk"], text)
        assert "".join(part for _, part in pairs) == "".join(text.split())
        for name, part in pairs:
            assert name == part.lower() or (name in quotes and part in {'"', *quotes})


@pytest.mark.parametrize("kind", ["word", "bpe", "nltk"])
@settings(max_examples=300, deadline=None)
@given(
    text=st.text(max_size=40)
    | st.text(alphabet="ab\"'`. ,:;-\n\t()[]<>!?nts“”‘’…\x00\x1c\x85\u3000\u0301\ud800", max_size=40)
)
def test_any_text(tokenizers, kind, text):
    check(tokenizers[kind], text)


@pytest.mark.parametrize("kind", ["word", "bpe", "nltk"])
def test_a_cut_text_has_the_spans_of_its_beginning(tokenizers, kind):
    whole, part = (place_tokens(tokenizers[kind], TEXTS[0], length) for length in (None, 5))
    assert (whole.cut, part.cut) == (False, True)
    assert part.spans.tolist() == whole.spans[:5].tolist()
    assert part.names == whole.names[:5]


def test_special_tokens_are_nowhere_in_the_text(tokenizers):
    tokenizer = train_tokenizer("word", TEXTS * 2, vocab_size=400)
    ends = [("[PAD]", 0), ("[MASK]", 2)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="[PAD] $A [MASK]", special_tokens=ends)
    placed = place_tokens(tokenizer, "the dog", 4)
    assert placed.names == ["[PAD]", "the", "dog", "[MASK]"]
    assert placed.spans.tolist() == [[0, 0], [0, 3], [4, 7], [0, 0]]


def test_a_tokenizer_without_places_is_refused():
    with pytest.raises(UserError, match=r"ByT5Tokenizer\) does not say which characters its tokens cover"):
        place_tokens(ByT5Tokenizer(), "a text")
