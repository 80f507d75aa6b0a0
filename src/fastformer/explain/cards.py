"""The parts of an explanation's page that are not the text: answer, probabilities, check, strongest tokens, guide."""

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from fastformer.data.values import valid_unicode
from fastformer.explain.explanation import Explanation, Word, percent

MOST_LABELS = 8
SIDES = (("against", "for"), ("lower", "higher"))  # of a label, of a number
# HTML cannot hold control characters: their pictures stand for them.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {127: 0x2421}


def title(explanation: Explanation) -> str:
    """The title of the page's tab."""
    return safe(f"{_explained(explanation)} · {explanation.model}")


def header(explanation: Explanation, every: Sequence[Explanation]) -> str:
    """What stands above the text: the answer, and the labels to choose from."""
    number = len(explanation.tokens)
    parts = [f"{number:,} token{'s' * (number != 1)}"]
    parts += [f"{int(explanation.unknown.sum()):,} of them unknown"] if explanation.unknown.any() else []
    run = " · ".join([safe(explanation.model), safe(explanation.mixer), *parts])
    heads = of_each(every, lambda one: "\n".join([f"<h1>{_heading(one)}</h1>", *_notes(one)]))
    return "\n".join([f'<p class="run">{run}</p>', heads, _labels(explanation, every)])


def of_each(every: Sequence[Explanation], content: Callable[[Explanation], str]) -> str:
    """A part of the page for each label; the script shows the one that is clicked on."""
    return "\n".join(
        f'<div data-of="{number}"{" hidden" * (number > 0)}>{content(one)}</div>' for number, one in enumerate(every)
    )


def below(explanation: Explanation, piece_of_token: list[int]) -> str:
    """What stands below the text: its strongest words, and the check."""
    speaking_for, against = explanation.strongest()
    what = "raises the number" if explanation.label is None else "speaks for it"
    what_not = "lowers the number" if explanation.label is None else "speaks against it"
    largest = max((abs(word.effect) for word in (*speaking_for, *against)), default=0.0)  # one scale for both
    words = [
        _words(f"What {what}", "for", speaking_for, largest, piece_of_token),
        _words(f"What {what_not}", "against", against, largest, piece_of_token),
    ]
    return f'<div class="cards">{"".join(words)}{_check(explanation)}</div>'


def _explained(explanation: Explanation) -> str:
    return f"{explanation.prediction:,.6g}" if explanation.label is None else explanation.label


def _heading(explanation: Explanation) -> str:
    if explanation.label is None:
        return f"{_explained(explanation)} <small>predicted</small>"
    chance = safe(percent(explanation.probabilities[explanation.label]))
    return f'<bdi>{safe(explanation.label)}</bdi> <small dir="ltr">{chance}</small>'


def _notes(explanation: Explanation) -> list[str]:
    notes = []
    predicted = explanation.prediction if isinstance(explanation.prediction, list) else [str(explanation.prediction)]
    if explanation.label is not None and explanation.label not in predicted:
        names = ", ".join(
            f"<bdi>{safe(name)}</bdi> ({safe(percent(explanation.probabilities[name]))})" for name in predicted
        )
        notes.append(f"This is not what the model predicts: {names or 'no label at all'}.")
    if explanation.cut:
        notes.append("The text is longer than the model reads. The grey part was not read.")
    if not explanation.tokens:
        notes.append("There is no token in this text: the answer is the model's answer to nothing.")
    if explanation.pooling is None:
        notes.append(
            "The n-gram channel answers alone: the encoder was no help on held-out texts, and its weights say nothing "
            "about this answer. The text can be shaded by effect only."
        )
    elif explanation.global_query is None:
        notes.append(
            f"The method <q>{safe(explanation.mixer)}</q> forms no global query and no global key: the text can be "
            "shaded by effect and by pooling only."
        )
    return [f'<p class="note">{note}</p>' for note in notes]


def _labels(explanation: Explanation, every: Sequence[Explanation]) -> str:
    """The most probable labels, each a button that explains it."""
    if not explanation.probabilities:
        return ""
    ranked = sorted(explanation.probabilities.items(), key=lambda item: -item[1])
    shown = ranked[:MOST_LABELS]
    shown += [one for one in ranked[MOST_LABELS:] if one[0] == explanation.label]
    number = {one.label: number for number, one in enumerate(every)}
    buttons = [
        f'<button type="button" data-label="{number[name]}" aria-pressed="{str(number[name] == 0).lower()}" '
        f'style="--share:{chance:.1%}"><bdi>{safe(name)}</bdi> <span dir="ltr">{safe(percent(chance))}</span></button>'
        if name in number
        else f'<span style="--share:{chance:.1%}"><bdi>{safe(name)}</bdi> '
        f'<span dir="ltr">{safe(percent(chance))}</span></span>'
        for name, chance in shown
    ]
    hidden = len(ranked) - len(shown)
    more = f'<small class="note">and {hidden:,} more</small>' if hidden else ""
    return f'<div class="labels" role="group" aria-label="Probabilities">{"".join(buttons)}{more}</div>'


def _words(heading: str, side: str, words: list[Word], largest: float, piece_of_token: list[int]) -> str:
    rows = []
    digits = decimals(largest)
    for word in words:
        places = sorted({piece_of_token[token] for token in word.places})
        count = f' <span class="times">×{len(places)}</span>' if len(places) > 1 else ""
        rows.append(
            f'<dt><button type="button" data-places="{places}"><bdi>{safe(word.word)}</bdi></button>{count}</dt>'
            f'<dd class="number">{signed(word.effect, digits)}</dd>{_bar(abs(word.effect) / largest)}'
        )
    content = f'<dl class="bars {side}">{"".join(rows)}</dl>' if rows else '<p class="note">Nothing.</p>'
    return f"<section><h2>{heading}</h2>{content}</section>"


def _bar(share: float) -> str:
    return f'<dd><div class="bar" style="width:{share:.1%}"></div></dd>'


def _check(explanation: Explanation) -> str:
    correlation, count = explanation.agreement, len(explanation.removals.places)
    if correlation is None:
        body = "<p>Too few tokens, or too little difference between them, to tell.</p>"
    else:
        if correlation >= 0.8:
            verdict = "Yes: removing a token does what its colour says."
        elif correlation >= 0.65:
            verdict = "Mostly: trust the strong colours, not the fine differences."
        elif correlation >= 0.3:
            verdict = "Only roughly: take the strong colours as a hint, and try the text without a word to be sure."
        else:
            verdict = "No: on this text, removing a token often does something else than its colour says."
        body = (
            f"<p><strong>{correlation:.2f}</strong> {verdict} The number is the rank correlation of effect and loss "
            f"when {count} tokens, from all over the ranking, were really removed, one at a time.</p>"
            f"{_scatter(explanation)}"
        )
    body += _sum(explanation)
    return f'<section><h2>Can the colours be trusted?</h2><div class="check">{body}</div></section>'


def _sum(explanation: Explanation) -> str:
    """Whether the effects add up to the effect of the whole text; a gradient is exact for small changes only."""
    if explanation.score_of_nothing is None or explanation.adds_up is None:
        return ""
    score = "number" if explanation.label is None else "log-odds"
    start, end, total = explanation.score_of_nothing, explanation.score, float(explanation.effect.sum())
    digits = decimals(max(abs(start), abs(end), abs(total)))
    moved = end - start
    if explanation.adds_up:
        verdict = "they account for it."
    else:
        verdict = "they do not account for it. Read them as an order of the words, not as shares of the answer."
    return (
        f'<p class="sum">Without any token the {score} would be {signed(start, digits)}; this text makes it '
        f"{signed(end, digits)}, a step of {signed(moved, digits)}. The effects add up to {signed(total, digits)}: "
        f"{verdict}</p>"
    )


def _scatter(explanation: Explanation) -> str:
    """The tokens that were removed, by their ranks: effect to the right, loss upwards."""
    removals = explanation.removals
    effects = explanation.effect[removals.places]
    step = 1 / max(1, len(effects) - 1)
    dots = "".join(
        f'<circle cx="{12 + 158 * step * x:.1f}" cy="{118 - 100 * step * y:.1f}" r="3"{" class=minus" * minus} />'
        for x, y, minus in zip(_ranks(effects), _ranks(removals.effects), (effects < 0).tolist(), strict=True)
    )
    axes = '<path d="M5 12V125H172" />'
    names = '<text x="172" y="134" text-anchor="end">rank by effect →</text>'
    names += '<text x="2" y="8">↑ rank by loss when removed</text>'
    label = f"{len(effects)} tokens, ranked by effect and by what is lost when they are removed"
    return f'<svg viewBox="0 0 176 136" role="img" aria-label="{label}">{axes}{names}{dots}</svg>'


def _ranks(values: np.ndarray) -> list[int]:
    return values.argsort(kind="stable").argsort(kind="stable").tolist()


def guide(explanation: Explanation, every: Sequence[Explanation]) -> str:
    """How the page is read."""
    paragraphs = []
    if explanation.global_query is not None:
        paragraphs.append(
            "<b>Global query</b> and <b>global key</b> are the two sums over all tokens that a Fastformer layer makes, "
            "once for every head; each weight is a token's share, so that they add up to 1 over the text. “All” heads "
            "is the mean of the heads. A large weight says that the token was read, not what it speaks for."
        )
    if explanation.pooling is not None:
        paragraphs.append("<b>Pooling</b> is a token's share of the text vector, from which the answer is computed.")
    paragraphs.append(
        "A shade grows with the square root of its number, so that small ones show, and each view has its own scale. "
        "Weights are shaded where a token has more than an even share, 1 / the number of tokens. Tokens over a dotted "
        "line are not in the vocabulary. In the two lists, tokens of the same spelling are added up: click on one to "
        "find its places."
    )
    rest = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f"{of_each(every, _about_effect)}\n{rest}"


def _about_effect(explanation: Explanation) -> str:
    if explanation.label is None:
        score, unit = "the predicted number", "It is in the units of that number."
        sides = "Blue raises the number, orange and underlined lowers it."
    else:
        label = f"<q><bdi>{safe(explanation.label)}</bdi></q>"
        score = f"the log-odds of {label}, log(p / (1 − p)), here {signed(explanation.score)}"
        unit = "An effect of +1 would multiply the odds of the label by about 2.7."
        sides = "Blue speaks for the answer, orange and underlined against it."
    mean = ", measured from the average token of this text" if explanation.baseline == "mean" else ""
    return (
        f"<p><b>Effect</b> is the gradient of {score}, times what the model is given for a token: its word vector and, "
        f"where the model has them, the vectors of its position and of the pairs it forms with its neighbours{mean}; "
        f"and, with an n-gram channel, the presence of the word and of its pairs. {unit} {sides} It is a first-order "
        "estimate, so the page also says how well it agrees with really removing tokens.</p>"
    )


def ends(explanation: Explanation, largest: float) -> tuple[str, str]:
    """What the two ends of the scale of effects mean."""
    low, high = SIDES[explanation.label is None]
    digits = decimals(largest)
    return f"{signed(-largest, digits)} {low}", f"{signed(largest, digits)} {high}"


def decimals(largest: float) -> int:
    """How many decimals give three digits of the largest number of a list: all of it has as many."""
    return min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 1


def signed(value: float, digits: int | None = None) -> str:
    """A number with its sign, with three digits or with this many decimals."""
    digits = decimals(abs(value)) if digits is None else digits
    return f"{'−' if value < 0 else '+'}{abs(value):.{digits}f}"


def safe(content: str, quote: bool = True) -> str:
    """Any string as HTML that shows it and does nothing else."""
    return escape(valid_unicode(content), quote=quote).translate(_PICTURES)
