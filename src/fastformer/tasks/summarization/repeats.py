"""No run of words twice in a summary.

`no_repeat_ngram_size` of transformers counts pieces of words: with three, a name of three pieces could be written once
only, and the second time it would be broken off. Here a word is what stands between white space, and one character in
scripts without spaces. After words a b, no word may begin with the piece that began c, if a b c were written before: so
what is begun is always finished. Where every token is a word, both rules are the same.
"""

import torch
from tokenizers import Regex, normalizers
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from fastformer.data.tokenizers import UNSPACED

_BEGINS_WITHOUT_SPACE = normalizers.Replace(Regex(rf"\A[{UNSPACED}]"), " ")


class NoRepeatedWords(LogitsProcessor):
    """Rules out what would repeat a run of `count` words; `input_ids` begin with a start token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, count: int):
        self.beginnings, self.count = word_beginnings(tokenizer), count

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocabulary) with -inf at what each row must not begin now."""
        scores = scores.clone()
        for row, (_, *pieces) in enumerate(input_ids.tolist()):
            scores[row, self.ruled_out(pieces)] = -torch.inf
        return scores

    def ruled_out(self, pieces: list[int]) -> list[int]:
        """The pieces that may not follow."""
        places = [place for place, piece in enumerate(pieces) if place == 0 or piece in self.beginnings]
        if len(places) < self.count:
            return []
        last = pieces[[*places, len(pieces)][len(places) + 1 - self.count] :]  # the last `count - 1` words
        runs = zip(places, places[self.count - 1 :], strict=False)  # as many words, and where the next one begins
        return [pieces[end] for start, end in runs if pieces[start:end] == last and pieces[end] in self.beginnings]


def word_beginnings(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that begin a word wherever they stand: after a letter they are read with a space before them."""
    found = set()
    for token, number in tokenizer.get_vocab().items():
        after_a_letter = tokenizer.convert_tokens_to_string(["a", token])[1:]
        if _BEGINS_WITHOUT_SPACE.normalize_str(after_a_letter)[:1].isspace():
            found.add(number)
    return found
