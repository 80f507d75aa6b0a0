"""ROUGE by `rouge-score`: F-measures of the words (1), word pairs (2) and longest common subsequence (L) that a summary
shares with the one people wrote; Lsum takes the subsequence sentence by sentence, as the field reports it.

English words are stemmed, as everybody does. In other languages they are not, and words are runs of letters of any
script (rouge-score by itself drops every letter that is not ASCII); a character if scripts have no spaces.

An interval is the bootstrap's: the middle 95% of the means of documents drawn with replacement.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Regex, pre_tokenizers

from fastformer.data.tokenizer_training import UNSPACED
from fastformer.errors import UserError, extra
from fastformer.tasks.summarization.documents import sentences

with extra("summarization"):
    from rouge_score.rouge_scorer import RougeScorer

ENGLISH, OTHER = "en", "other"
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}
DRAWS = 1000
_LETTERS = 200_000  # enough to tell the language
_FOREIGN_SHARE = 0.01  # English has fewer letters outside ASCII, other languages that have any have more
_WORDS = rf"[{UNSPACED}]\p{{M}}*|[\p{{L}}\p{{M}}\p{{N}}&&[^{UNSPACED}]]+"


def language_code(given: str) -> str:
    """What `--language` says, in lower case: a two-letter code, or `other`."""
    code = given.strip().lower()
    if code != OTHER and not (len(code) == 2 and code.isascii() and code.isalpha()):
        raise UserError(f"--language {given}: give a two-letter code, such as en (whose words are stemmed), or {OTHER}")
    return code


class LanguageDetector:
    """Tells English from languages whose letters are not all ASCII; others must be named (`--language`)."""

    def __init__(self) -> None:
        self.letters = self.foreign = 0

    def read(self, text: str) -> None:
        """Take one text into account."""
        if self.letters < _LETTERS:
            letters = [letter for letter in text if letter.isalpha()]
            self.letters += len(letters)
            self.foreign += sum(not letter.isascii() for letter in letters)

    def language(self) -> str:
        """`en`, or `other`."""
        return ENGLISH if self.foreign <= _FOREIGN_SHARE * self.letters else OTHER


class UnicodeWords:
    """A tokenizer for rouge-score: lower-case words of any script."""

    def __init__(self) -> None:
        self.split = pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)

    def tokenize(self, text: str) -> list[str]:
        """The words of a text."""
        return [word for word, _ in self.split.pre_tokenize_str(unicodedata.normalize("NFKC", text).lower())]


def rouge_of_each(written: Iterable[str], references: Iterable[str], language: str = ENGLISH) -> np.ndarray:
    """F-measures (documents, 4), in the order of `ROUGE`."""
    if language == ENGLISH:
        scorer = RougeScorer([*ROUGE], use_stemmer=True)
    else:
        scorer = RougeScorer([*ROUGE], tokenizer=UnicodeWords())
    rows = []
    for summary, reference in zip(written, references, strict=True):
        found = scorer.score("\n".join(sentences(reference)), "\n".join(sentences(summary)))
        rows.append([found[name].fmeasure for name in ROUGE])
    return np.array(rows, dtype=np.float64).reshape(-1, len(ROUGE))


def mean_and_interval(scores: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Mean of each measure in percent, and `intervals`: the ends of its 95% bootstrap interval."""
    count = len(scores)
    random, chances = np.random.default_rng(seed), np.full(count, 1 / count)
    means = [random.multinomial(count, chances) @ scores / count for _ in range(DRAWS)]  # how often each is drawn
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {
        **{name: _percent(value) for name, value in zip(ROUGE, scores.mean(axis=0), strict=True)},
        "intervals": {name: [_percent(a), _percent(b)] for name, a, b in zip(ROUGE, low, high, strict=True)},
    }


def rouge(written: Sequence[str], references: Sequence[str], language: str = ENGLISH, seed: int = 0) -> dict[str, Any]:
    """ROUGE of summaries against those that people wrote, in percent, with intervals."""
    return mean_and_interval(rouge_of_each(written, references, language), seed)


def _percent(value: float) -> float:
    return round(100 * float(value), 2)
