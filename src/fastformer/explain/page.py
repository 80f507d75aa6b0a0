"""The page of an explanation: one HTML file that opens offline, whatever stands in the text.

Tokens that share characters are shown as one piece, their numbers added up. The shades of the effect are in the markup
and need no JavaScript; all other numbers travel as one compact block of data, which page.js turns into shades.
Everything of the text is escaped, and the page forbids the network and any script but its own, known by its hash.
"""

import base64
import json
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from fastformer.explain import cards
from fastformer.explain.explanation import Explanation, Piece
from fastformer.surroundings.html import head

LEVELS = 8  # shades to either side; they grow with the square root of a number, so that small ones show


def page(explanation: Explanation) -> str:
    """The page as a string."""
    frame, style, script = (_file(name) for name in ("page.html", "page.css", "page.js"))
    pieces = explanation.text_pieces
    effects = added_up(explanation.effect, pieces)
    largest = float(np.abs(effects).max(initial=0))
    every = [explanation, *explanation.others.values()]  # each label that can be clicked on
    low, high = cards.ends(explanation, largest)
    levels = range(-LEVELS, LEVELS + 1)
    return Template(frame).substitute(
        head=head(cards.title(explanation), style, script),
        header=cards.header(explanation, every),
        cards=cards.of_each(every, lambda one: cards.below(one, _places(pieces))),
        controls=_controls(explanation),
        least=low,
        swatches="".join(f'<span class="{_shade(level * abs(level), LEVELS**2)}"></span>' for level in levels),
        most=high,
        text=_text(explanation, pieces, effects, largest),
        guide=cards.guide(explanation, every),
        data=_data(explanation, pieces),
        script=script,
    )


def added_up(values: np.ndarray, pieces: list[Piece]) -> np.ndarray:
    """Numbers of the tokens (…, tokens) as numbers of the pieces."""
    if not pieces:
        return values[..., :0]
    return np.add.reduceat(values, [piece.tokens[0] for piece in pieces], axis=-1)


def _places(pieces: list[Piece]) -> list[int]:
    """The number of the piece that each token stands in."""
    return [number for number, piece in enumerate(pieces) for _ in piece.tokens]


def _shade(value: float, largest: float) -> str:
    level = int(LEVELS * (abs(value) / largest) ** 0.5) if largest else 0
    return f"{'n' if value < 0 else 'p'}{level}" if level else ""


def _text(explanation: Explanation, pieces: list[Piece], effects: np.ndarray, largest: float) -> str:
    """The text as it is, every piece in a span with its shade; what was not read in grey."""
    text = explanation.text
    parts: list[str] = []
    at = 0
    for piece, effect in zip(pieces, effects.tolist(), strict=True):
        unread = not parts and explanation.cut  # cut at its beginning, as some foreign tokenizers do
        parts.append(_between(text[at : piece.start], unread))
        unknown = "u" * bool(explanation.unknown[piece.tokens].any())
        classes = " ".join(filter(None, [unknown, _shade(effect, largest)]))
        attributes = f' class="{classes}"' if classes else ""
        if piece.start == piece.end:
            attributes += f' data-token="{cards.safe(explanation.tokens[piece.tokens[0]])}"'
        parts.append(f"<span{attributes}>{cards.safe(text[piece.start : piece.end], quote=False)}</span>")
        at = piece.end
    parts.append(_between(text[at:], explanation.cut))
    return "".join(parts)


def _between(content: str, unread: bool) -> str:
    written = cards.safe(content, quote=False)
    return f'<i class="unread">{written}</i>' if unread and content.strip() else written


def _controls(explanation: Explanation) -> str:
    """Buttons for the views, and menus of layers and heads."""
    names = [name for name, _ in _views(explanation)]
    buttons = "".join(
        f'<label class="choice"><input type="radio" name="view" value="{number}"{" checked" * (number == 0)}>'
        f"{name}</label>"
        for number, name in enumerate(names)
    )
    layers, heads = (0, 0) if explanation.global_query is None else explanation.global_query.shape[:2]
    layer_options = "".join(f'<option value="{number}">{number + 1}</option>' for number in range(layers))
    head_options = '<option value="-1">all (mean)</option>'
    head_options += "".join(f'<option value="{number}">{number + 1}</option>' for number in range(heads))
    menus = f'<label hidden>layer <select name="layer">{layer_options}</select></label>'
    return f'{buttons}{menus}<label hidden>heads <select name="head">{head_options}</select></label>'


def _views(explanation: Explanation) -> list[tuple[str, np.ndarray]]:
    """What the text can be shaded by: arrays (layers, heads, tokens)."""
    views = [("Effect", explanation.effect[None, None])]
    if explanation.global_query is not None and explanation.global_key is not None:
        views += [("Global query", explanation.global_query), ("Global key", explanation.global_key)]
    if explanation.pooling is not None:
        views.append(("Pooling", explanation.pooling[None, None]))
    return views


def _data(explanation: Explanation, pieces: list[Piece]) -> str:
    """The numbers behind the shades, as JSON that can stand in a script element."""
    content = {
        "levels": LEVELS,
        "sides": cards.SIDES[explanation.label is None],
        "tokens": len(explanation.tokens),
        "views": [
            {"name": name, "rows": [[_row(head) for head in layer] for layer in added_up(values, pieces)]}
            for name, values in _views(explanation)
        ],
        "removed": _removed(explanation, pieces),
        "others": [
            {"effect": _row(added_up(other.effect, pieces)), "removed": _removed(other, pieces)}
            for other in explanation.others.values()
        ],
    }
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def _removed(explanation: Explanation, pieces: list[Piece]) -> dict[int, float]:
    """What is lost without a piece. Of one of several tokens only one was removed: that number is not the piece's."""
    places = _places(pieces)
    lost = zip(explanation.removals.places.tolist(), explanation.removals.effects.tolist(), strict=True)
    return {places[token]: value for token, value in lost if len(pieces[places[token]].tokens) == 1}


def _row(values: np.ndarray) -> dict[str, Any]:
    """Numbers in two bytes each: ±√(|value| / largest) as a little-endian 16-bit integer."""
    largest = float(np.abs(values).max(initial=0))
    roots = np.sign(values) * np.sqrt(np.abs(values) / (largest or 1.0))
    return {"largest": largest, "values": base64.b64encode((roots * 32767).round().astype("<i2").tobytes()).decode()}


def _file(name: str) -> str:
    return (files("fastformer.explain") / name).read_text(encoding="utf-8")
