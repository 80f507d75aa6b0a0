"""`Explanation`: what a classifier made of one text, token by token, as arrays and as a page."""

import html
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastformer.explain.attribution import Removals
from fastformer.surroundings.files import writing_text
from fastformer.surroundings.progress import how_many

_JOINER = "\u200d"
_ATTACHED = {_JOINER, *(chr(code) for code in (*range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400)))}  # and skin tones


class Piece(NamedTuple):
    """Characters of the text, and the tokens that stand there."""

    start: int
    end: int
    tokens: list[int]


class Word(NamedTuple):
    """A piece of the text by its characters, whatever their case, and the sum of its effects."""

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
    pooling: weight of each token in the text vector; None if the n-gram channel answers alone.
    global_query, global_key: (layers, heads, tokens), weights in the global vectors; None for other mixers, and if
        the n-gram channel answers alone. The page combines heads by their mean.
    removals: the check of `effect` against removing tokens, and its rank correlation.
    label: the label that is explained; None for a number.
    score: what the effects are effects on: the log-odds of `label`, log(p / (1 - p)), or the predicted number.
    prediction: what `predict` says: a label, a list of labels, or a number.
    probabilities: of every label, in the order of the classes; empty for a number.
    model, mixer: the name of the run (or the class), and its method.
    score_of_nothing: the score of a text without any token, which the effects should lead from to `score`.
    others: the explanations of other labels, the most probable ones, by name.
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
    score_of_nothing: float | None = None
    others: "Mapping[str, Explanation]" = field(default_factory=dict)

    @property
    def agreement(self) -> float | None:
        """Rank correlation of `effect` with what removing a token changes: near 1, the shading can be trusted."""
        return self.removals.correlation

    @cached_property
    def text_pieces(self) -> list[Piece]:
        """Runs of tokens that share a character as people see it, without white space around them, as in the text."""
        runs: list[Piece] = []
        for token, (start, end) in enumerate(self.spans.tolist()):
            last = runs[-1].end if runs else 0
            if start == end:
                runs.append(Piece(last, last, [token]))  # not in the text: shown after what came before it
            elif runs and (start < last or _continues(self.text, runs[-1], start)):
                runs[-1] = Piece(runs[-1].start, max(last, end), [*runs[-1].tokens, token])
            else:
                runs.append(Piece(start, end, [token]))
        return [_trimmed(piece, self.text) for piece in runs]

    def spelling(self, piece: Piece) -> str:
        """A piece as the text has it, or its token's name if it is not in the text or is white space."""
        return self.text[piece.start : piece.end].strip() or self.tokens[piece.tokens[0]]

    @cached_property
    def words(self) -> list[Word]:
        """All different pieces, those that speak most for the label first."""
        same: dict[str, tuple[str, list[int]]] = {}
        for piece in self.text_pieces:
            spelling = self.spelling(piece)
            same.setdefault(spelling.casefold(), (spelling, []))[1].extend(piece.tokens)
        words = [Word(word, float(self.effect[tokens].sum()), tokens) for word, tokens in same.values()]
        return sorted(words, key=lambda word: -word.effect)

    @property
    def sides(self) -> tuple[str, str]:
        """What a positive effect does, and a negative one."""
        return ("raises", "lowers") if self.label is None else ("for", "against")

    @property
    def adds_up(self) -> bool | None:
        """Whether the effects sum to what the text does to the score; None if there is nothing to compare with."""
        if self.score_of_nothing is None or not self.tokens:
            return None
        moved = self.score - self.score_of_nothing
        return bool(abs(float(self.effect.sum()) - moved) <= 0.1 * abs(moved))

    def strongest(self, count: int = 10) -> tuple[list[Word], list[Word]]:
        """The tokens that speak most for the label, and those that speak most against it."""
        speaking_for = [word for word in self.words[:count] if word.effect > 0]
        against = [word for word in self.words[: -count - 1 : -1] if word.effect < 0]
        return speaking_for, against

    def __repr__(self) -> str:
        answer = (
            f"{self.score:,.6g}" if self.label is None else f"{self.label} ({percent(self.probabilities[self.label])})"
        )
        lines = [f"{answer}, {how_many(len(self.tokens), 'tokens')}{' of a longer text' * self.cut}"]
        for side, words in zip(self.sides, self.strongest(5), strict=True):
            lines.append(f"  {side:9}" + (", ".join(f"{word.word} {word.effect:+.3g}" for word in words) or "nothing"))
        if self.agreement is not None:
            removed = f"really removing {how_many(len(self.removals.places), 'tokens')}, one at a time"
            lines.append(f"  rank correlation of these effects with {removed}: {self.agreement:.2f}")
        if self.adds_up is False:
            lines.append("  the effects do not account for the answer: an order of the words, not shares of it")
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
        from fastformer.explain.page import added_up

        found = self.text_pieces
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


def _continues(text: str, piece: Piece, start: int) -> bool:
    """Whether what begins at `start` is a part of the character that `piece` ends with: an accent, a skin tone, …"""
    gap = text[piece.end : start]
    if piece.start == piece.end or not set(gap) <= _ATTACHED:
        return False
    return (
        text[start] in _ATTACHED
        or _JOINER in (gap or text[start - 1])[-1:]
        or unicodedata.category(text[start])[0] == "M"
    )


def _trimmed(piece: Piece, text: str) -> Piece:
    content = text[piece.start : piece.end]
    if not content.strip():
        return piece
    start = piece.start + len(content) - len(content.lstrip())
    return Piece(start, start + len(content.strip()), piece.tokens)


def percent(chance: float) -> str:
    """A probability for people: neither certain nor impossible unless it is."""
    if 0.9995 <= chance < 1:
        return ">99.9%"
    return "<0.1%" if 0 < chance < 0.0005 else f"{chance:.1%}"


def _plain(word: Word) -> dict[str, Any]:
    return {"word": word.word, "effect": word.effect, "count": len(word.places)}
