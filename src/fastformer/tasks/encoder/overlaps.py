"""Texts that were seen before: a run of 13 words in common, whatever stands between the words."""

import re
from collections.abc import Iterable, Iterator

RUN = 13  # words in a row that two texts do not share by chance
_WORD = re.compile(r"\w+")


def runs_of(text: str) -> Iterator[int]:
    """A number for each run of 13 words, in lower case and without marks."""
    words = _WORD.findall(text.lower())
    for start in range(len(words) - RUN + 1):
        yield hash(tuple(words[start : start + RUN]))


class SeenTexts:
    """The runs of texts that must not be learned from."""

    def __init__(self, texts: Iterable[str]):
        self.runs: set[int] = set()
        self.texts = 0
        for text in texts:
            self.texts += 1
            self.runs.update(runs_of(text))

    def __contains__(self, text: str) -> bool:
        return bool(self.runs) and any(run in self.runs for run in runs_of(text))
