"""The page: the text untouched, shades that are true, nothing that runs or loads, small enough."""

import base64
import dataclasses
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from fastformer.explain import Explanation
from fastformer.explain.attribution import Removals


def explanation(text: str, spans=None, heads: int = 4, layers: int = 2, **fields) -> Explanation:
    """An explanation of words split at spaces, with random numbers."""
    random = np.random.default_rng(0)
    if spans is None:
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    spans = np.array(spans, dtype=np.int64).reshape(-1, 2)
    count = len(spans)

    def weights(*shape):
        return random.dirichlet(np.ones(max(1, count)), shape)[..., :count].astype(np.float32)

    effect = random.normal(size=count).astype(np.float32) ** 3
    places = np.arange(min(count, 40))
    settings = {
        "text": text,
        "tokens": [text[start:end] for start, end in spans],
        "spans": spans,
        "unknown": np.zeros(count, dtype=bool),
        "cut": False,
        "effect": effect,
        "baseline": "zero",
        "pooling": weights(1)[0],
        "global_query": weights(layers, heads),
        "global_key": weights(layers, heads),
        "removals": Removals(places, effect[places], 1.0),
        "label": "good",
        "score": 1.5,
        "prediction": "good",
        "probabilities": {"bad": 0.2, "good": 0.8},
        "model": "reviews",
        "mixer": "fastformer",
    }
    return Explanation(**{**settings, **fields})


class Page(HTMLParser):
    """What a browser would make of a page: the text with its pieces, the scripts, every tag and attribute."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.scripts, self.pieces, self.text, self.unread, self.attributes = [], [], [], "", "", []
        self.policy, self._open, self._inside = "", [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.attributes += attributes
        if given.get("id") == "text":
            self._inside = True
        elif self._inside and tag == "span":
            self.pieces.append([given.get("class", ""), "", given.get("data-token")])
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag == "script":
            self.scripts.append("")
        if tag not in ("meta", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if self._inside and tag == "div":
            self._inside = False

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        if self._inside:
            self.text += data
            if self._open[-1] == "span":
                self.pieces[-1][1] += data
            if self._open[-1] == "i":
                self.unread += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0])


def decode(row: dict) -> np.ndarray:
    roots = np.frombuffer(base64.b64decode(row["values"]), dtype="<i2") / 32767
    return row["largest"] * roots * np.abs(roots)


TEXTS = [
    "  two  spaces,\ttab\n\n and lines \n",
    "שלום עולם (hello) مرحبا بالعالم",
    "emoji 👩‍👧 😀, cafe\u0301 and a very" + "long" * 300 + "word",
    "x < y && y > z &amp; &lt; \"quoted\" 'single'",
    "",
    " \n ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_shown_untouched(text):
    page = Page(explanation(text).to_html())
    assert page.text == text
    assert [piece[1] for piece in page.pieces] == text.split()


def test_nothing_of_the_text_runs():
    evil = "</div></script><script>alert(1)</script><img src=x onerror=alert(2)> <!-- & \"' onload=x ]]> <svg/onload=x>"
    page = Page(
        explanation(
            evil, label=evil, prediction=evil, probabilities={evil: 0.9, "b": 0.1}, model=evil, mixer=evil
        ).to_html()
    )
    harmless = Page(explanation(evil.translate(str.maketrans("<>&", "___"))).to_html())
    assert page.text == evil
    assert set(page.tags) == set(harmless.tags)
    assert len(page.scripts) == 2
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]


def test_only_its_own_script_may_run_and_nothing_is_loaded():
    content = explanation("a text").to_html()
    page = Page(content)
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert page.policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=", content)


def test_control_characters_and_broken_unicode_do_not_break_the_page():
    content = explanation("nul \x00 bell \x07 half \ud83d pair").to_html()
    assert Page(content).text == "nul ␀ bell ␇ half ? pair"
    assert not set(content.encode().decode()) & set("\x00\x07")


def test_the_effect_is_in_the_markup():
    one = explanation(
        "best bad fair none", effect=np.array([4.0, -4.0, 1.0, 0.001]), unknown=np.array([0, 0, 1, 0]) > 0
    )
    assert [piece[0] for piece in Page(one.to_html()).pieces] == ["p8", "n8", "u p4", ""]


def test_numbers_travel_exactly_enough():
    one = explanation("some words of a text", layers=3, heads=2)
    views = {view["name"]: view["rows"] for view in Page(one.to_html()).data["views"]}
    assert list(views) == ["Effect", "Global query", "Global key", "Pooling"]
    for name, values in (("Effect", one.effect[None, None]), ("Global query", one.global_query)):
        found = np.array([[decode(row) for row in layer] for layer in views[name]])
        assert found.shape == values.shape
        np.testing.assert_allclose(found, values, atol=1e-4 * np.abs(values).max())
    assert Page(one.to_html()).data["removed"] == {str(place): float(one.effect[place]) for place in range(5)}


def test_tokens_that_share_characters_are_one_piece():
    one = explanation(
        "a …  b", spans=[(0, 1), (2, 3), (2, 3), (2, 3), (3, 6)], effect=np.array([1.0, 2.0, 3.0, -1.0, 5.0])
    )
    assert [(piece.start, piece.end, piece.tokens) for piece in one.text_pieces] == [
        (0, 1, [0]),
        (2, 3, [1, 2, 3]),
        (5, 6, [4]),  # without its white space
    ]
    page = Page(one.to_html())
    assert page.text == one.text
    assert decode(page.data["views"][0]["rows"][0][0]) == pytest.approx([1, 4, 5], abs=1e-3)
    assert set(page.data["removed"]) == {"0", "2"}  # of three that share a character none was removed alone


@pytest.mark.parametrize("one", ["👍🏽", "👩🏽\u200d🚀", "❤\ufe0f", "cafe\u0301"])
def test_what_people_see_as_one_character_is_one_piece(one):
    """Whatever of it the tokenizer has tokens for: joiners and selectors it leaves out."""
    text = f"a {one} b"
    spans = [(place, place + 1) for place, letter in enumerate(text) if letter not in " \u200d\ufe0f"]
    joined = explanation(text, spans=spans)
    wanted = "café"[:3] if one.startswith("c") else None
    found = [piece[1] for piece in Page(joined.to_html()).pieces]
    assert found == ["a", *([*wanted, "e\u0301"] if wanted else [one.removesuffix("\ufe0f")]), "b"]
    assert {word.word for word in joined.words} == set(found)


def test_numbers_of_a_list_have_the_same_decimals():
    content = explanation("a b c d", effect=np.array([0.272, 0.2, -0.1, -0.0004])).to_html()
    assert re.findall(r'<dd class="number">([^<]*)<', content) == ["+0.272", "+0.200", "−0.100", "−0.000"]
    assert 'id="least">−0.272 against<' in content


def test_another_label_is_a_click_away():
    texts = "some good words"
    bad = explanation(texts, label="bad", score=-1.5, effect=np.array([0.5, -2.0, 0.1], dtype=np.float32))
    page = Page((whole := explanation(texts, others={"bad": bad})).to_html())
    assert [value for name, value in page.attributes if name == "data-label"] == ["0", "1"]
    assert decode(page.data["others"][0]["effect"]) == pytest.approx([0.5, -2.0, 0.1], abs=1e-3)
    assert [value for name, value in page.attributes if name == "data-of"] == ["0", "1"] * 3
    assert "<h1><bdi>bad</bdi>" in whole.to_html()


def test_the_page_says_whether_the_effects_add_up():
    one = explanation("a b c", effect=np.array([2.0, 1.0, -0.5]), score=1.5, score_of_nothing=-1.0)
    assert "The effects add up to +2.50: they account for it." in one.to_html()
    assert "do not account" not in repr(one)
    other = dataclasses.replace(one, score=4.0)
    assert "The effects add up to +2.50: they do not account for it." in other.to_html()
    assert "the effects do not account for the answer" in repr(other)


def test_special_tokens_are_named_but_not_part_of_the_text():
    one = explanation("a b", spans=[(0, 0), (0, 1), (2, 3), (0, 0)], tokens=["[CLS]", "a", "b", "[SEP]"])
    page = Page(one.to_html())
    assert page.text == "a b"
    assert [piece[2] for piece in page.pieces] == ["[CLS]", None, None, "[SEP]"]


def test_what_was_not_read_is_grey():
    text = "these were read these were not"
    page = Page(explanation(text, spans=[(0, 5), (6, 10), (11, 15)], cut=True).to_html())
    assert page.text == text
    assert page.unread == " these were not"
    page = Page(explanation(text, spans=[(16, 21), (22, 26), (27, 30)], cut=True).to_html())  # cut at its beginning
    assert page.unread == "these were read "


def test_other_mixers_have_fewer_views_and_say_so():
    content = explanation("a b c", global_query=None, global_key=None, mixer="linformer").to_html()
    assert [view["name"] for view in Page(content).data["views"]] == ["Effect", "Pooling"]
    assert "forms no global query" in content
    assert "forms no global query" not in explanation("a b c").to_html()


def test_the_header_tells_the_answer_and_whether_to_trust_it():
    many = {f"class {number}": 0.9 if number == 3 else 0.1 / 29 for number in range(30)}
    one = explanation("a b c", label="class 20", prediction="class 3", probabilities=many)
    content = one.to_html()
    assert '<h1><bdi>class 20</bdi> <small dir="ltr">0.3%</small></h1>' in content
    assert "not what the model predicts: <bdi>class 3</bdi> (90.0%)" in content
    assert "and 21 more" in content
    removals = Removals(np.arange(3), np.zeros(3), None)
    assert "Too few tokens" in dataclasses.replace(one, removals=removals).to_html()
    for correlation, verdict in ((0.93, "Yes: "), (0.7, "Mostly: "), (0.54, "Only roughly: "), (-0.2, "No: ")):
        removals = Removals(np.arange(3), one.effect, correlation)
        assert f"<strong>{correlation:.2f}</strong> {verdict}" in dataclasses.replace(one, removals=removals).to_html()


def test_a_number_has_no_label():
    one = explanation("a b c", label=None, prediction=1234.5, score=1234.5, probabilities={})
    content = one.to_html()
    assert "<h1>1,234.5 <small>predicted</small></h1>" in content
    assert "Probabilities" not in content
    assert "raises the number" in content
    assert re.search(r'id="least">−[\d.]+ lower<.*id="most">\+[\d.]+ higher<', content)
    assert not re.search(r"speaks (for|against) it|\d (for|against)<", content)
    assert str(one).startswith("1,234.5, 3 tokens\n  raises ")


def test_words_of_one_spelling_are_added_up():
    one = explanation("Good good bad. Bad. fine", effect=np.array([1.0, 2.0, -1.0, -0.5, 0.25]))
    assert [(word.word, word.effect, word.places) for word in one.words] == [
        ("Good", 3.0, [0, 1]),
        ("fine", 0.25, [4]),
        ("bad.", -1.5, [2, 3]),
    ]
    speaking_for, against = one.strongest(1)
    assert ([word.word for word in speaking_for], [word.word for word in against]) == (["Good"], ["bad."])
    assert one.summary()["for"][0] == {"word": "Good", "effect": 3.0, "count": 2}
    json.dumps(one.summary())


def test_a_notebook_shows_the_page_in_a_frame():
    one = explanation("a <b> & c")
    frame = one._repr_html_()
    assert unescape(re.fullmatch(r'<iframe .* srcdoc="([^"]*)"></iframe>', frame, re.DOTALL)[1]) == one.to_html()
    assert 'sandbox="allow-scripts"' in frame


def test_five_thousand_tokens_make_a_small_page(tmp_path):
    text = " ".join(f"word{number}" for number in range(5000))
    one = explanation(text, layers=1, heads=8)  # the default preset
    one.save(tmp_path / "page.html")
    size = (tmp_path / "page.html").stat().st_size
    assert size < 500_000
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert len(Page((tmp_path / "page.html").read_text(encoding="utf-8")).pieces) == 5000
    assert len(explanation(text, layers=2, heads=16).to_html()) < 1_200_000  # the paper's
