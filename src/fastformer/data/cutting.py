"""A long text is cut before it is tokenized, not after: a tokenizer needs hundreds of bytes per token.

Ten megabytes of brackets are ten million tokens, four gigabytes, of which a model reads a million at most.
"""

from collections.abc import Callable
from typing import Any

from fastformer.surroundings.progress import say

LEAST = 4096  # characters: shorter texts are not worth it
MOST = 1 << 20  # characters that are tried first, unless more tokens than that are kept
PER_TOKEN = 8  # characters, more than most languages have
FARTHEST = 1 << 24  # characters, for which a tokenizer needs a gigabyte: what comes after them is not read


def beginning(text: str, tokens: int, encode: Callable[[str], Any]) -> str:
    """A beginning of a text whose first `tokens` tokens are those of the text, and which has more; else the text.

    `encode` gives an `Encoding` of tokenizers that knows its words (`encode_batch`; `encode_batch_fast` does not). A
    beginning may end within a word, whose tokens then are others; the words before it stay what they are. So its last
    two words count for nothing: a rule of how words are split may look one word ahead.

    A text that has no such beginning among its first `FARTHEST` characters (it is white space, or words of millions of
    letters) is cut there.
    """
    size = max(tokens, min(PER_TOKEN * tokens, MOST), LEAST)
    while size < min(len(text), FARTHEST):
        start = text[:size]
        words = encode(start).word_ids
        ends = sorted({word for word in words[-_FEW:] if word is not None})[-2:] if words else []
        if ends and ends[0] != words[0] and sum(word is None or word < ends[0] for word in words) > tokens:
            return start
        size *= 2
    return as_far_as_read(text)


def as_far_as_read(text: str) -> str:
    """The first `FARTHEST` characters of a text; one that has more is told of, for its tokens may be few."""
    if len(text) > FARTHEST:
        say(f"Of a text of {len(text):,} characters the first {FARTHEST:,} are read.")
    return text[:FARTHEST]


def has_more_tokens(text: str, start: str) -> bool:
    """Whether `beginning` found the tokens that are kept, and more, in `start` and read no further."""
    return len(start) < min(len(text), FARTHEST)


_FEW = 1 << 16  # tokens at the end among which the last two words are looked for
