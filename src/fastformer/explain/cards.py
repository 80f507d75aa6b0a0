"""The parts of an explanation's page that are not the text: answer, probabilities, check, strongest tokens, guide."""

from html import escape

import numpy as np

from fastformer.data.tokenizers import valid_unicode
from fastformer.explain.explanation import Explanation, Word, percent

_MOST_LABELS = 8
# HTML cannot hold control characters: their pictures stand for them.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {127: 0x2421}


def title(explanation: Explanation) -> str:
    """The title of the page's tab."""
    return safe(f"{_explained(explanation)} · {explanation.model}")


def header(explanation: Explanation, piece_of_token: list[int]) -> str:
    """All that stands above the text."""
    number = len(explanation.tokens)
    parts = [f"{number:,} token{'s' * (number != 1)}"]
    parts += [f"{int(explanation.unknown.sum()):,} of them unknown"] if explanation.unknown.any() else []
    run = " · ".join([safe(explanation.model), safe(explanation.mixer), *parts])
    upper = [_probabilities(explanation), _check(explanation)]
    speaking_for, against = explanation.strongest()
    what = "raises the number" if explanation.label is None else "speaks for it"
    what_not = "lowers the number" if explanation.label is None else "speaks against it"
    largest = max((abs(word.effect) for word in (*speaking_for, *against)), default=0.0)  # one scale for both
    lower = [
        _words(f"What {what}", "for", speaking_for, largest, piece_of_token),
        _words(f"What {what_not}", "against", against, largest, piece_of_token),
    ]
    return "\n".join(
        [
            f'<p class="run">{run}</p>',
            f"<h1>{_heading(explanation)}</h1>",
            *_notes(explanation),
            f'<div class="cards">{"".join(upper)}</div>',
            f'<div class="cards">{"".join(lower)}</div>',
        ]
    )


def _explained(explanation: Explanation) -> str:
    return f"{explanation.prediction:,.6g}" if explanation.label is None else explanation.label


def _heading(explanation: Explanation) -> str:
    if explanation.label is None:
        return f"{_explained(explanation)} <small>predicted</small>"
    return f"{safe(explanation.label)} <small>{safe(percent(explanation.probabilities[explanation.label]))}</small>"


def _notes(explanation: Explanation) -> list[str]:
    notes = []
    predicted = explanation.prediction if isinstance(explanation.prediction, list) else [str(explanation.prediction)]
    if explanation.label is not None and explanation.label not in predicted:
        names = ", ".join(f"{safe(name)} ({safe(percent(explanation.probabilities[name]))})" for name in predicted)
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


def _probabilities(explanation: Explanation) -> str:
    if not explanation.probabilities:
        return ""
    ranked = sorted(explanation.probabilities.items(), key=lambda item: -item[1])
    shown = ranked[:_MOST_LABELS]
    shown += [one for one in ranked[_MOST_LABELS:] if one[0] == explanation.label]
    rows = [
        f"<dt{' class=explained' * (name == explanation.label)}>{safe(name)}</dt>"
        f'<dd class="number">{safe(percent(chance))}</dd>{_bar(chance)}'
        for name, chance in shown
    ]
    hidden = len(ranked) - len(shown)
    more = f'<p class="note">and {hidden:,} more</p>' if hidden else ""
    return f'<section><h2>Probabilities</h2><dl class="bars">{"".join(rows)}</dl>{more}</section>'


def _words(heading: str, side: str, words: list[Word], largest: float, piece_of_token: list[int]) -> str:
    rows = []
    for word in words:
        places = sorted({piece_of_token[token] for token in word.places})
        count = f' <span class="times">×{len(places)}</span>' if len(places) > 1 else ""
        rows.append(
            f'<dt><button type="button" data-places="{places}"><bdi>{safe(word.word)}</bdi></button>{count}</dt>'
            f'<dd class="number">{signed(word.effect)}</dd>{_bar(abs(word.effect) / largest)}'
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
        elif correlation >= 0.5:
            verdict = "Mostly: trust the strong colours, not the fine differences."
        else:
            verdict = "No: on this text, removing a token often does something else than its colour says."
        body = (
            f"<p><strong>{correlation:.2f}</strong> {verdict} The number is the rank correlation of effect and loss "
            f"when {count} tokens, from all over the ranking, were really removed, one at a time.</p>"
            f"{_scatter(explanation)}"
        )
    return f'<section><h2>Can the colours be trusted?</h2><div class="check">{body}</div></section>'


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


def guide(explanation: Explanation) -> str:
    """How the page is read."""
    if explanation.label is None:
        score, unit = "the predicted number", "It is in the units of that number."
    else:
        score = f"the log-odds of <q>{safe(explanation.label)}</q>, log(p / (1 − p)), here {signed(explanation.score)}"
        unit = "An effect of +1 would multiply the odds of the label by about 2.7."
    mean = ", measured from the average token of this text" if explanation.baseline == "mean" else ""
    paragraphs = [
        f"<b>Effect</b> is the gradient of {score}, times what the model is given for a token: its word vector and, "
        f"where the model has them, the vectors of its position and of the pairs it forms with its neighbours{mean}; "
        f"and, with an n-gram channel, the presence of the word and of its pairs. {unit} Blue speaks for the answer, "
        "orange and underlined against it. It is a first-order estimate, so the page also says how well it agrees with "
        "really removing tokens."
    ]
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
    return "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)


def signed(value: float) -> str:
    """A number with its sign and three digits."""
    digits = f"{abs(value):.3g}"
    return f"{'−' if value < 0 else '+'}{f'{abs(value):.6f}' if 'e-' in digits else digits}"


def safe(content: str, quote: bool = True) -> str:
    """Any string as HTML that shows it and does nothing else."""
    return escape(valid_unicode(content), quote=quote).translate(_PICTURES)
