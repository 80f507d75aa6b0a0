"""The paper's words: NLTK's `word_tokenize`, and a tokenizer that numbers them in Rust."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal

from transformers import AutoTokenizer, PreTrainedConfig, TokenizersBackend

from fastformer.errors import UserError, extra

SentenceSplit = Literal["punkt", "rule"]


class NltkTokenizer(TokenizersBackend):
    """Words split by NLTK in Python, then numbered by a Rust word-level model that splits at white space.

    `sentence_split`, saved with it, is how sentences were split before words: `punkt` or `rule`. Character
    offsets refer to the words joined by spaces, not to the text.
    """

    def split(self, text: str) -> str:
        """The words of `text`, joined by single spaces; NLTK would take "[MASK]" apart even if it is the mask."""
        parts = [text] if self.split_special_tokens else text.split(self.mask_token)
        words = (nltk_words(part, self.init_kwargs["sentence_split"]) for part in parts)
        return f" {self.mask_token} ".join(words)

    def _encode_plus(self, text, text_pair=None, is_split_into_words=False, **options):
        def split(value):
            if isinstance(value, (list, tuple)):
                return type(value)(split(item) for item in value)
            return self.split(value) if isinstance(value, str) else value

        if not is_split_into_words:
            text, text_pair = split(text), split(text_pair)
        return super()._encode_plus(text, text_pair, is_split_into_words=is_split_into_words, **options)


class _NltkConfig(PreTrainedConfig):
    """Only a key: AutoTokenizer finds a tokenizer class by name once it is registered under a configuration."""

    model_type = "fastformer-nltk-tokenizer"


AutoTokenizer.register(_NltkConfig, NltkTokenizer, exist_ok=True)


def nltk_words(text: str, sentence_split: SentenceSplit) -> str:
    """NLTK's `word_tokenize(text)`, joined by spaces, with sentences split by punkt or by a simple rule."""
    if sentence_split == "rule":
        sentences: Iterable[str] = split_sentences(text)
    elif (split := punkt()) is not None:
        sentences = split(text)
    else:
        raise UserError(
            "this tokenizer was trained with NLTK's punkt sentences, whose data is not installed; "
            "run: python -m nltk.downloader punkt_tab"
        )
    tokenize = _nltk_tokenize()
    return " ".join(word for sentence in sentences for word in tokenize(sentence))


def count_nltk_words(text: str) -> int:
    """How many words `word_tokenize` makes of a text, by punkt's sentences where its data is installed."""
    return len(nltk_words(text, "punkt" if punkt() else "rule").split(" ")) if text.strip() else 0


_SENTENCE_END = re.compile(r"""[.!?]["'\u201d\u2019)\]}\xbb]*\s+""")

# What may stand before a full stop that ends no sentence: an initial, u.s, a title or a company form.
_ABBREVIATION = re.compile(
    r"(?<!\w)(?<!\w\.)(?:[A-HJ-Z]|(?:[^\W\d_]\.)+[^\W\d_]|(?i:"
    r"capt|co|col|corp|dr|etc|gen|gov|hon|inc|jr|lt|ltd|messrs|mr|mrs|ms|mt|prof|rep|rev|sen|sgt|sr|st|vs))$"
)


def split_sentences(text: str) -> Iterator[str]:
    """Cut after . ! or ? and white space, except after an abbreviation. Only full stops matter to NLTK's words."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if text[end.start()] == "." and _ABBREVIATION.search(text, max(0, end.start() - 12), end.start()):
            continue
        yield text[start : end.end()]
        start = end.end()
    yield text[start:]


@cache
def _nltk_tokenize() -> Callable[[str], list[str]]:
    """NLTK's word tokenizer with its own patterns on Python's `re`: same words, less than half the time, and no clock.

    (NLTK 3.10 runs each pattern under a time limit, so that a long text could fail on a busy machine.)
    """
    with extra("nltk"):
        from nltk.tokenize import NLTKWordTokenizer  # nltk takes a second to import

    def plain(rule):
        pattern, replacement = rule
        return re.compile(pattern.pattern, pattern.flags & (re.I | re.M | re.S)), replacement

    tokenizer = NLTKWordTokenizer()
    for name in ("STARTING_QUOTES", "PUNCTUATION", "ENDING_QUOTES"):
        setattr(tokenizer, name, [plain(rule) for rule in getattr(tokenizer, name)])
    for name in ("PARENS_BRACKETS", "DOUBLE_DASHES"):
        setattr(tokenizer, name, plain(getattr(tokenizer, name)))
    return tokenizer.tokenize


@cache
def punkt() -> Callable[[str], list[str]] | None:
    """NLTK's English sentence splitter, or None where its data is not installed."""
    with extra("nltk"):
        from nltk.tokenize import PunktTokenizer

    try:
        return PunktTokenizer("english").tokenize
    except LookupError:
        return None
