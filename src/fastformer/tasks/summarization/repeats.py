"""No summary repeats a run of words.

The setting `no_repeat_ngram_size` of transformers counts pieces of words. With 3, a name of three pieces could be
written only once; the second time it would break off in the middle. This rule counts words. A word is what stands
between white space, or one character in scripts without spaces. Two words are the same if they read the same, whether
they follow a space, a new line or nothing.

Suppose that `a b c` was written before and the last two words are `a b`. Then the next word may not start with any
piece that `c` started with, or could start with. A word is only ever refused at its start, so every word that is begun
is also finished. If every token is a word, this rule and that of transformers are the same.
"""

from functools import lru_cache

import torch
from tokenizers import Regex, normalizers
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from fastformer.data.tokenizer_training import UNSPACED

_BEGINS_WITHOUT_SPACE = normalizers.Replace(Regex(rf"\A[{UNSPACED}]"), " ")
_REMEMBERED = 50_000  # words: a few megabytes, however much is written
_PART = "\ufffd"  # how a part of a character reads


class NoRepeatedWords(LogitsProcessor):
    """Rules out what would repeat a run of `count` words; `input_ids` begin with a start token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, count: int):
        self.tokenizer, self.count = tokenizer, count
        reading = readings(tokenizer)
        self.blanks = {piece for piece, text in reading.items() if text.isspace()}
        self.beginnings = {piece for piece, text in reading.items() if begins_word(text)} - self.blanks
        self.word = lru_cache(_REMEMBERED)(self._word)
        self.first_pieces = lru_cache(_REMEMBERED)(self._first_pieces)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocabulary) with -inf at what each row must not begin now."""
        scores = scores.clone()
        for row, (_, *pieces) in enumerate(input_ids.tolist()):
            scores[row, self.ruled_out(pieces)] = -torch.inf
        return scores

    def ruled_out(self, pieces: list[int]) -> list[int]:
        """The pieces that may not follow."""
        starts = [place for place in range(len(pieces)) if self._begins_word(pieces, place)]
        if len(starts) < self.count:
            return []
        words = [self.word(*pieces[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]
        before = self.count - 1
        last = words[len(words) - before :]
        again = [place for place in range(before, len(words)) if words[place - before : place] == last]
        found = {piece for place in again for piece in (pieces[starts[place]], *self.first_pieces(words[place]))}
        return list(found if pieces[-1] in self.blanks else found & self.beginnings)

    def _begins_word(self, pieces: list[int], place: int) -> bool:
        """Whether a word begins with this piece: by itself, or after nothing but white space."""
        piece = pieces[place]
        after_blank = place == 0 or pieces[place - 1] in self.blanks
        return piece in self.beginnings or (after_blank and piece not in self.blanks)

    def _word(self, *pieces: int) -> str | tuple[int, ...]:
        """How a word reads; its pieces, if the last character is not complete."""
        tokens = self.tokenizer.convert_ids_to_tokens([piece for piece in pieces if piece not in self.blanks])
        text = self.tokenizer.convert_tokens_to_string(tokens).strip()
        return pieces if _PART in text else text

    def _first_pieces(self, word: str | tuple[int, ...]) -> set[int]:
        """The pieces that begin a word, with a space before it and without."""
        if not isinstance(word, str):
            return set()
        encoded = self.tokenizer([word, f" {word}"], add_special_tokens=False)["input_ids"]
        return {next((piece for piece in pieces if piece not in self.blanks), -1) for pieces in encoded} - {-1}


def readings(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """How each token reads after a letter, with the space before it if it has one."""
    return {
        number: tokenizer.convert_tokens_to_string(["a", token])[1:] for token, number in tokenizer.get_vocab().items()
    }


def begins_word(reading: str) -> bool:
    """Whether a token that reads so begins a word wherever it stands."""
    return _BEGINS_WITHOUT_SPACE.normalize_str(reading)[:1].isspace()
