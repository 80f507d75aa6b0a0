"""The page in a real browser: every panel, and its states, in light and dark, on a desk and on a phone."""

import csv
import io
import os
import re
import shutil
from pathlib import Path

import pytest

from fastformer.serve import Limits, create_app

from .conftest import running

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright: pip install it")
try:
    from axe_playwright_python.sync_playwright import Axe
except ImportError:
    Axe = None
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page is tested in chromium: apt-get install chromium")
SHOTS = os.environ.get("FASTFORMER_SHOTS")  # a folder: pictures of what the tests see

PHONE, DESK = {"width": 390, "height": 800}, {"width": 1100, "height": 800}
playwright.expect.set_options(timeout=30_000)
expect = playwright.expect


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(trained):
    tasks = ("classification", "recommendation", "summarization", "conversion", "loudness", "masked-words")
    with running(create_app({task: trained(task) for task in tasks})) as address:
        yield address


@pytest.fixture
def opened(browser):
    """`opened(address, …)`: a page; whatever goes wrong on it fails the test, but for what is `allowed`."""
    pages, troubles = [], []

    def open_page(address, allowed=(), **options):
        page = browser.new_context(**options).new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda message: (
                troubles.append(message.text)
                if message.type in ("error", "warning") and not any(part in message.text for part in allowed)
                else None
            ),
        )
        page.goto(address)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert not troubles


def shot(page, name):
    """On a desk and on a phone, in light and in dark: nothing sticks out, and accessibility rules are kept (axe).

    With pictures, where they are wanted.
    """
    for dark, size in ((False, DESK), (True, PHONE)):
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_viewport_size(size)
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"{name}{'-dark' * dark}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        found = [] if Axe is None else Axe().run(page).response["violations"]
        assert not found, [(one["id"], one["nodes"][0]["html"]) for one in found]


def choose(page, model):
    page.select_option("select[name=model]", model)
    expect(page.locator("#name")).to_contain_text(model)


def test_a_text_is_answered_and_shaded_while_it_is_written(opened, address):
    page = opened(address)
    expect(page.locator("#name")).to_have_text("classification classification")
    shot(page, "empty")
    page.fill("#text-text", "The soup with 🍞 bread and a hammer.")
    expect(page.locator("h2.answer")).to_contain_text("food")
    expect(page.locator(".found dt.explained")).to_have_text("food")
    expect(page.locator(".shaded .text span", has_text="soup")).to_have_class(re.compile("p[1-8]"))
    expect(page.locator(".shaded .text")).to_have_text("The soup with 🍞 bread and a hammer.")
    shot(page, "text")
    with page.expect_download() as download:
        page.click("button[name=save]")
    assert "<title>food" in Path(download.value.path()).read_text(encoding="utf-8")
    page.click("button[name=clear]")
    expect(page.locator("h2.answer")).to_have_count(0)
    expect(page.locator(".shaded")).to_be_hidden()
    busy = "document.querySelector('[name=sample]').click(), document.querySelector('#show-text .state').className"
    assert page.evaluate(busy) == "state loading"
    expect(page.locator("h2.answer")).to_be_visible()


def test_a_table_is_answered_row_by_row(opened, address):
    page = opened(address)
    words = ["soup", "hammer", "cat, or a dog"]
    table = "id,review\r\n" + "".join(f'{n},"The ""{words[n % 3]}""\nis here"\r\n' for n in range(150))
    page.locator("#text-text").evaluate(
        "(area, text) => { const data = new DataTransfer(); data.items.add(new File([text], 'rows.csv'));"
        " area.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true })); }",
        table,
    )
    expect(page.locator("#tab-file")).to_have_attribute("aria-selected", "true")
    expect(page.locator("select[name=column]")).to_have_value("review")
    page.click("text=Answer all rows")
    expect(page.locator("#show-file .state")).to_have_text("150 rows answered.")
    shot(page, "file")
    with page.expect_download() as download:
        page.click("text=Download answers.csv")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"), newline="")))
    assert len(rows) == 150
    assert [row["label"] for row in rows[:3]] == ["food", "tool", "animal"]
    assert rows[2]["review"] == 'The "cat, or a dog"\nis here'
    page.set_input_files("#file-file", files=[{"name": "a.jsonl", "mimeType": "", "buffer": b'{"text": "a"}\n{"te'}])
    expect(page.locator("#show-file .state")).to_have_text("Line 2 is not JSON.")
    expect(page.locator("#show-file .state")).to_have_attribute("role", "alert")
    shot(page, "error")


def test_texts_are_searched(opened, address):
    page = opened(address)
    page.focus("#tab-text")
    page.keyboard.press("ArrowLeft")  # around to the last
    expect(page.locator("#tab-search")).to_be_focused()
    page.fill("#search-documents", "the hammer and a saw\nthe soup and a bread\na cat")
    page.fill("#search-query", "soup and cheese")
    expect(page.locator("#show-search .results li").first).to_contain_text("the soup and a bread text 2")
    shot(page, "search")


def test_recommendations_change_with_what_is_read(opened, address):
    page = opened(address)
    choose(page, "recommendation")
    expect(page.locator("#show-choose .state")).to_have_text("Nothing is read yet: this is for somebody new.")
    before = page.locator("#show-choose .results").inner_text()
    page.locator(".found-articles li button").nth(1).click()
    page.fill("input[name=title]", "the soup with bread")
    page.click("button:text-is('Add')")
    expect(page.locator("#show-choose .state")).to_have_text("After 2 articles.")
    assert page.locator("#show-choose .results").inner_text() != before
    shot(page, "recommend")
    page.locator(".history button").first.click()
    expect(page.locator("#show-choose .state")).to_have_text("After 1 article.")
    page.fill("#choose-query", "no such words")
    expect(page.locator(".found-articles")).to_have_text("No title has these words.")


def test_a_summary_is_written_beside_the_first_sentences(opened, address):
    page = opened(address)
    choose(page, "summarization")
    page.click("button:text-is('Summarize')")
    expect(page.locator("#show-write .state")).to_have_text("There is no text yet. Paste one, or try the sample.")
    page.fill("#write-text", "Today Clara bought a boat. Then it rained. It was late. Nobody came.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#show-write .state")).to_have_text("Written.")
    assert page.locator(".written").inner_text().strip()
    expect(page.locator(".lead")).to_contain_text("It was late.")
    shot(page, "summarize")


def test_an_ad_is_judged_and_what_moved_it(opened, address):
    page = opened(address)
    choose(page, "conversion")
    expect(page.locator("#show-weigh .state")).to_have_text("Write an ad, or try the sample.")
    page.click("#show-weigh >> text=Try a sample")
    expect(page.locator(".moved dt")).to_have_count(2)
    expect(page.locator(".chance")).to_contain_text("%")
    page.fill("[name=side-price]", "3")
    page.fill("[name=side-device]", "phone")
    expect(page.locator("#show-weigh .state")).to_have_text("")
    shot(page, "convert")


@pytest.mark.parametrize(("model", "shown"), [("loudness", "loud"), ("masked-words", "blanks 1")])
def test_any_answer_is_shown(opened, address, model, shown):
    page = opened(address, allowed=("422",))
    choose(page, model)
    page.click("#show-text >> text=Try a sample")
    expect(page.locator("#show-text .found")).to_contain_text(shown)
    if model == "loudness":
        page.fill("#text-text", "hush " * 40)
        cut = "The text is longer than the model reads: it was cut after 32 tokens."
        expect(page.locator("#show-text .state")).to_have_text(cut)


def test_a_server_that_has_too_much_to_do_and_one_that_is_gone(opened, classifier):
    with running(create_app({"model": classifier}, limits=Limits(queue=0))) as address:  # even one is too many
        page = opened(address, allowed=("429", "ERR_INTERNET_DISCONNECTED"))
        page.fill("#text-text", "a text")
        expect(page.locator("#show-text .state")).to_have_class("state busy")
        expect(page.locator("#show-text .state")).to_contain_text(
            "Many people ask at the moment. Trying again in 1 second."
        )
        shot(page, "overload")
        page.context.set_offline(True)
        page.fill("#text-text", "another text")
        expect(page.locator("#show-text .state")).to_have_text("The server does not answer. Is it still running?")


def test_a_key_is_asked_for_and_kept(opened, classifier):
    with running(create_app({"model": classifier}, api_key="secret")) as address:
        page = opened(address, allowed=("401",))
        expect(page.locator("#key")).to_be_visible()
        shot(page, "key")
        page.fill("#key input[type=password]", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_text("This is not the server's key.")
        page.fill("#key input[type=password]", "secret")
        page.keyboard.press("Enter")
        expect(page.locator("#name")).to_have_text("model classification")
        page.reload()
        expect(page.locator("#name")).to_have_text("model classification")


def test_the_list_of_routes(opened, address):
    page = opened(f"{address}/docs")
    expect(page.locator("h2", has_text="POST /explain").first).to_be_visible()
    assert f"curl {address}/predict" in page.locator("pre").first.inner_text()
    shot(page, "docs")
