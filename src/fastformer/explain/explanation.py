"""`Explanation`: what a classifier made of one text, token by token, as arrays and as a page."""

import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastformer.explain.attribution import Removals
from fastformer.surroundings.files import writing_text


class Word(NamedTuple):
    """A token by its characters in the text, whatever their case, and the sum of its effects."""

    word: str
    effect: float
    places: list[int]  # numbers of its tokens


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why a classifier answered as it did on one text; every array is in the order of `tokens`.

    text: as it was given.
    tokens: as the tokenizer spells them.
    spans: (tokens, 2), the characters `text[start:end]` of each token; start = end for one that is not in the text.
    unknown: which tokens the model has no vector for.
    cut: the text is longer than the model reads; what lies beyond the last span was not read.
    effect: gradient times input. Positive speaks for the explained label, negative against it.
    baseline: what an input is measured from: `zero`, or the `mean` of the text.
    pooling: weight of each token in the text vector; None where the n-gram channel answers alone.
    global_query, global_key: (layers, heads, tokens), weights in the global vectors; None for other mixers, and where
        the n-gram channel answers alone. The page combines heads by their mean.
    removals: the check of `effect` against removing tokens, and its rank correlation.
    label: the label that is explained; None for a number.
    score: what the effects are effects on: the log-odds of `label`, log(p / (1 - p)), or the predicted number.
    prediction: what `predict` says: a label, a list of labels, or a number.
    probabilities: of every label, in the order of the classes; empty for a number.
    model, mixer: the name of the run (or the class), and its method.
    """

    text: str
    tokens: list[str]
    spans: np.ndarray
    unknown: np.ndarray
    cut: bool
    effect: np.ndarray
    baseline: str
    pooling: np.ndarray | None
    global_query: np.ndarray | None
    global_key: np.ndarray | None
    removals: Removals
    label: str | None
    score: float
    prediction: str | list[str] | float
    probabilities: dict[str, float]
    model: str
    mixer: str

    @property
    def agreement(self) -> float | None:
        """Rank correlation of `effect` with what removing a token changes: near 1, the shading can be trusted."""
        return self.removals.correlation

    def spelling(self, place: int) -> str:
        """A token as the text has it, or its own name where it is not in the text or is white space."""
        start, end = self.spans[place]
        return self.text[start:end].strip() or self.tokens[place]

    @cached_property
    def words(self) -> list[Word]:
        """All different tokens, those that speak most for the label first."""
        places: dict[str, list[int]] = {}
        for place in range(len(self.tokens)):
            places.setdefault(self.spelling(place).casefold(), []).append(place)
        words = [Word(self.spelling(same[0]), float(self.effect[same].sum()), same) for same in places.values()]
        return sorted(words, key=lambda word: -word.effect)

    def strongest(self, count: int = 10) -> tuple[list[Word], list[Word]]:
        """The tokens that speak most for the label, and those that speak most against it."""
        speaking_for = [word for word in self.words[:count] if word.effect > 0]
        against = [word for word in self.words[: -count - 1 : -1] if word.effect < 0]
        return speaking_for, against

    def __repr__(self) -> str:
        answer = (
            f"{self.score:,.6g}" if self.label is None else f"{self.label} ({percent(self.probabilities[self.label])})"
        )
        lines = [f"{answer}, {len(self.tokens):,} tokens{' of a longer text' * self.cut}"]
        for side, words in zip(("for", "against"), self.strongest(5), strict=True):
            lines.append(f"  {side:9}" + (", ".join(f"{word.word} {word.effect:+.3g}" for word in words) or "nothing"))
        if self.agreement is not None:
            removed = f"really removing {len(self.removals.places)} tokens, one at a time"
            lines.append(f"  rank correlation of these effects with {removed}: {self.agreement:.2f}")
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """The answer, its strongest tokens and the check, as plain values."""
        speaking_for, against = self.strongest()
        return {
            "prediction": self.prediction,
            "probabilities": self.probabilities,
            "explained": self.label,
            "score": self.score,
            "tokens": len(self.tokens),
            "cut": self.cut,
            "for": [_plain(word) for word in speaking_for],
            "against": [_plain(word) for word in against],
            "rank_correlation": self.agreement,
            "tokens_removed": len(self.removals.places),
            "baseline": self.baseline,
        }

    def pieces(self) -> list[tuple[int, int, float]]:
        """First character, the one after the last, and effect of each piece of the text, as the page shades it."""
        from fastformer.explain.page import added_up, text_pieces

        found = text_pieces(self)
        effects = added_up(self.effect, found).tolist()
        return [(piece.start, piece.end, effect) for piece, effect in zip(found, effects, strict=True)]

    def to_html(self) -> str:
        """One page that needs nothing beside it."""
        from fastformer.explain.page import page

        return page(self)

    def save(self, path: str | Path) -> None:
        """Write the page."""
        with writing_text(path) as file:
            file.write(self.to_html())

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame of its own, so that neither disturbs the other."""
        frame = 'sandbox="allow-scripts" style="width: 100%; height: 640px; border: 1px solid #8884"'
        return f'<iframe title="Explanation" {frame} srcdoc="{html.escape(self.to_html())}"></iframe>'


def percent(chance: float) -> str:
    """A probability for people: neither certain nor impossible unless it is."""
    if 0.9995 <= chance < 1:
        return ">99.9%"
    return "<0.1%" if 0 < chance < 0.0005 else f"{chance:.1%}"


def _plain(word: Word) -> dict[str, Any]:
    return {"word": word.word, "effect": word.effect, "count": len(word.places)}
