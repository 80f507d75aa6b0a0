"""Where the tokens of a text stand in it: token ids, each with its characters of the original text."""

import unicodedata
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from fastformer.data import cutting
from fastformer.data.nltk_words import NltkTokenizer
from fastformer.data.tokenizers import rust_encodings
from fastformer.data.values import valid_unicode
from fastformer.errors import UserError


class PlacedTokens(NamedTuple):
    """The tokens of one text, exactly those that `encode_batch` gives."""

    ids: np.ndarray  # int32
    names: list[str]  # as the tokenizer spells them
    spans: np.ndarray  # (tokens, 2): first character, and the one after the last; equal for one that is not in the text
    cut: bool  # the text is longer than the tokenizer's maximum


def place_tokens(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int | None = None) -> PlacedTokens:
    """The tokens of `text` and their places.

    Several tokens may share a character (the bytes of an emoji), and white space belongs to none or to its neighbour,
    as the tokenizer has it.
    """
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise UserError(f"the tokenizer ({name}) does not say which characters its tokens cover; train with another")
    text = valid_unicode(text)
    extra = tokenizer.num_special_tokens_to_add()
    [(encoding, cut)] = rust_encodings(tokenizer, [text], max_length, extra, offsets=True)
    spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    cut = cut or (max_length is not None and len(text) > cutting.FARTHEST)
    spans[np.array(encoding.special_tokens_mask, dtype=bool)] = 0
    if isinstance(tokenizer, NltkTokenizer):
        spans = _in_text(spans, tokenizer.split(text), text)
    _take_marks(spans, text)
    return PlacedTokens(np.array(encoding.ids, dtype=np.int32), encoding.tokens, spans, cut)


_QUOTES = ("``", "''", '"')


def _in_text(spans: np.ndarray, joined: str, text: str) -> np.ndarray:
    """Spans in NLTK's words joined by spaces, as spans in the text.

    NLTK drops nothing but white space and changes nothing but double quotes, from one of `_QUOTES` to another.
    """
    places, at, start = {}, 0, 0
    for word in joined.split(" "):
        while at < len(text) and text[at].isspace():
            at += 1
        spellings = (word, *_QUOTES) if word in _QUOTES else (word,)
        written = next(spelling for spelling in spellings if text.startswith(spelling, at))
        places[start] = at, at + len(written)
        at += len(written)
        start += len(word) + 1
    return np.array([places[begin] for begin in spans[:, 0]], dtype=np.int64).reshape(-1, 2)


def _take_marks(spans: np.ndarray, text: str) -> None:
    """Let a token have the accents that follow it: a normalizer that joins them to their letter forgets their place."""
    limits = [*spans[1:, 0], len(text)]
    for span, limit in zip(spans, limits, strict=False):
        while span[0] < span[1] < limit and unicodedata.category(text[span[1]]).startswith("M"):
            span[1] += 1
