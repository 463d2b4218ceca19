"""The studio in a real browser: what people do, and what they see then."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from corpora import learned
from servers import serving

from anyorder.inference.generator import Generator
from anyorder.serve.app import ServerSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs playwright (pip install playwright)"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: Chromium, as in Debian's package chromium"),
    pytest.mark.xdist_group("browser"),
]
SOURCE = "a b c d"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def model() -> Generator:
    return Generator.load(learned().run, device="cpu")


@pytest.fixture(scope="module")
def address(model: Generator) -> Iterator[str]:
    with serving({"first": model, "second": model}) as at:
        yield at


def opened(browser: Browser, address: str, *, wide: int = 1280, high: int = 860, **options: Any) -> Page:  # noqa: ANN401
    """The studio, in which nothing moves by itself."""
    context = browser.new_context(
        viewport={"width": wide, "height": high}, **{"reduced_motion": "reduce", **options}
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.faults = []  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.faults.append(str(error)))  # type: ignore[attr-defined]
    page.on(
        "request", lambda asked: page.faults.append(asked.url) if is_elsewhere(asked.url, address) else None
    )  # type: ignore[attr-defined]
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    return page


def is_elsewhere(url: str, address: str) -> bool:
    return not url.startswith((address, "data:", "blob:"))


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    made = opened(browser, address)
    yield made
    assert made.faults == []  # type: ignore[attr-defined]
    made.context.close()


def write(page: Page, source: str = SOURCE, *, beam: int | None = None) -> None:
    if beam is not None:
        page.select_option("#beam-0", str(beam))
    page.fill("#source", source)
    with page.expect_response(re.compile("/v1/(generate|complete)")):
        page.press("#source", "Enter")
    page.wait_for_selector("#write:enabled")
    page.wait_for_selector(".scene .canvas")


def canvas(page: Page, side: int = 0) -> list[str]:
    return page.locator(".scene").nth(side).locator(".canvas li:not([hidden]) .word").all_inner_texts()


def answer(page: Page, side: int = 0) -> str:
    return page.locator(".scene .text").nth(side).inner_text()


def push(page: Page, action: Any) -> None:  # noqa: ANN401
    with page.expect_response(re.compile("/v1/(generate|complete)")):
        action()
    page.wait_for_selector("#write:enabled")
    page.wait_for_selector("#sides:not(:has(.writing))")


# --- one sentence ---


def test_a_source_is_answered_as_by_the_library(page: Page, model: Generator) -> None:
    write(page, beam=3)
    best = model.generate(SOURCE, beam=3).best
    assert answer(page) == best.text
    assert canvas(page) == list(best.steps[-1].canvas)


def test_steps_by_buttons_keys_and_slider(page: Page, model: Generator) -> None:
    write(page)
    steps = model.generate(SOURCE).best.steps
    page.click("#previous")
    assert canvas(page) == list(steps[-2].canvas)
    page.keyboard.press("ArrowLeft")
    assert canvas(page) == list(steps[-3].canvas)
    page.locator("#slider").fill("1")
    assert canvas(page) == list(steps[0].canvas)
    assert page.locator("#progress").inner_text() == f"step 1 of {len(steps)}"
    page.click("#next")
    assert canvas(page) == list(steps[1].canvas)
    page.locator("#slider").fill("0")
    assert canvas(page) == []


def test_playing_writes_word_after_word(browser: Browser, address: str, model: Generator) -> None:
    page = opened(browser, address, reduced_motion="no-preference")
    page.select_option("#speed", "4")
    write(page)
    whole = list(model.generate(SOURCE).best.steps[-1].canvas)
    page.wait_for_function(
        "(count) => document.querySelectorAll('.canvas li:not([hidden]) .word').length === count",
        arg=len(whole),
    )
    page.wait_for_selector("#play[aria-label=Play]")
    assert canvas(page) == whole
    page.click("#play")  # again, from the beginning
    page.wait_for_selector("#play[aria-label=Pause]")
    page.click("#play")
    page.wait_for_selector("#play[aria-label=Play]")
    page.context.close()


def test_likely_words_and_gaps_sum_to_one(page: Page, model: Generator) -> None:
    write(page)
    page.locator("#slider").fill("2")
    assert page.locator(".likely button").count() == 5
    heats = page.locator(".scene .gap:not([hidden])").evaluate_all(
        "gaps => gaps.map((gap) => Number(gap.style.getPropertyValue('--heat')))"
    )
    assert len(heats) == 3
    assert sum(heats) == pytest.approx(1, abs=0.01)
    chosen = page.locator(".likely button.chosen b").inner_text()
    assert chosen == model.generate(SOURCE).best.tokens[2]


def test_relations_are_antisymmetric(page: Page) -> None:
    write(page)
    page.click("[role=tab]:has-text('Relations')")
    rows = page.locator(".relations tbody tr").all()
    signs = [row.locator("td").all_inner_texts() for row in rows]
    assert len(signs) == len(canvas(page)) + 2
    opposite = {"−": "+", "+": "−", "0": "0"}
    assert all(
        signs[row][column] == opposite[signs[column][row]]
        for row in range(len(signs))
        for column in range(len(signs))
    )


def test_the_beam_is_a_tree(page: Page, model: Generator) -> None:
    write(page, beam=3)
    page.click("[role=tab]:has-text('Beam')")
    best = model.generate(SOURCE, beam=3).best
    assert page.locator(".tree g.won").count() == len(best.tokens) + 1  # and the end
    assert page.locator(".tree g.lost").count() >= len(best.tokens)
    page.locator(".tree g.lost").first.focus()
    assert "log p" in page.locator(".tree-said").inner_text()


# --- pushing ---


def test_a_word_is_written_into_a_gap_and_the_model_goes_on(page: Page) -> None:
    write(page)
    page.locator("#slider").fill("2")
    before = canvas(page)
    page.locator(".scene .gap:not([hidden]) button").nth(1).click()
    page.fill("#menu input", "h")
    push(page, lambda: page.keyboard.press("Enter"))
    page.locator("#slider").fill("3")
    assert canvas(page) == [before[0], "h", before[1]]
    assert page.locator("#pushes").inner_text().startswith("h written by you")
    page.keyboard.press("u")
    page.wait_for_selector("#pushes:empty", state="attached")


def test_a_likely_word_is_written_instead(page: Page) -> None:
    write(page)
    page.locator("#slider").fill("1")
    wanted = page.locator(".likely button:not(.chosen) b").first.inner_text()
    push(page, lambda: page.locator(".likely button:not(.chosen)").first.click())
    page.locator("#slider").fill("2")
    assert wanted in canvas(page)
    assert page.locator(".word.given").all_inner_texts() == [wanted]


def test_a_word_is_taken_back(page: Page) -> None:
    write(page)
    page.locator("#slider").fill("3")
    before = canvas(page)
    page.locator(".scene .canvas li:not([hidden]) .word").first.click()
    push(page, lambda: page.click("#menu button:has-text('Take it back')"))
    page.locator("#slider").fill("2")
    assert canvas(page) == before[1:]


def test_a_word_is_forbidden(page: Page) -> None:
    write(page)
    word = canvas(page)[0]
    page.locator(".scene .canvas li:not([hidden]) .word").first.click()
    push(page, lambda: page.click("#menu button:has-text('Forbid it')"))
    assert word not in canvas(page)
    assert page.input_value("#forbid") == word


def test_a_word_is_pinned(page: Page) -> None:
    write(page, "a b c d e")
    word = canvas(page)[1]
    page.locator(".scene .canvas li:not([hidden]) .word").nth(1).click()
    push(page, lambda: page.click("#menu button:has-text('Pin it here')"))
    page.locator("#slider").fill("1")
    assert canvas(page) == [word]  # it is there from the beginning
    assert "pinned" in page.locator("#pushes").inner_text()


def test_a_word_is_required(page: Page) -> None:
    write(page)
    page.locator(".scene .canvas li:not([hidden]) .word").first.click()
    word = canvas(page)[0]
    push(page, lambda: page.click("#menu button:has-text('Require it')"))
    assert page.input_value("#must") == word
    assert word in canvas(page)


def test_blanks_are_filled(page: Page) -> None:
    page.fill("#template", "h ___{2} g")
    write(page)
    found = canvas(page)
    assert (found[0], found[-1], len(found)) == ("h", "g", 4)


# --- several ---


def test_side_by_side_with_one_counter(page: Page) -> None:
    write(page)
    push(page, lambda: page.check("#compare"))
    page.wait_for_function("document.querySelectorAll('.scene .text').length === 2")
    assert page.input_value("#model-1") == "second"
    assert answer(page, 0) == answer(page, 1)
    page.locator("#slider").fill("2")
    assert len(canvas(page, 0)) == len(canvas(page, 1)) == 2


def test_the_same_sentence_in_another_order(page: Page) -> None:
    write(page)
    whole = canvas(page)
    push(page, lambda: page.select_option("#order-0", "r2l"))
    page.wait_for_function("document.querySelector('.scene .when').textContent !== '1'")
    page.locator("#slider").fill("1")
    assert canvas(page) == whole[-1:]


def test_orders_of_many_sentences(page: Page) -> None:
    page.click("#tab-many")
    page.fill("#lines", "a b c\nb c d e\nf g h")
    page.click("#write-many")
    page.wait_for_selector(".heat")
    assert page.locator(".several li").count() == 3
    assert "Kendall" in page.locator(".tau").inner_text()


# --- sharing and exporting ---


def test_an_address_holds_the_question(page: Page, browser: Browser, address: str) -> None:
    write(page, beam=2)
    page.locator(".scene .canvas li:not([hidden]) .word").first.click()
    push(page, lambda: page.click("#menu button:has-text('Forbid it')"))
    shared = page.url
    other = browser.new_context(reduced_motion="reduce").new_page()
    other.goto(shared)
    other.wait_for_selector(".scene .text")
    assert answer(other) == answer(page)
    assert other.input_value("#forbid") == page.input_value("#forbid")
    other.context.close()


def test_a_strange_fragment_does_no_harm(page: Page, address: str) -> None:
    for fragment in ("", "%%%", "bnVsbA", "W10", "eyJzIjpbXX0"):
        page.goto(f"{address}/#{fragment}")
        page.reload()
        page.wait_for_selector("body[data-ready]")
    assert page.locator(".empty").count() == 1


@pytest.mark.parametrize("name", ["SVG", "PNG", "GIF"])
def test_pictures(name: str, page: Page) -> None:
    from PIL import Image

    write(page)
    page.click("#export")
    with page.expect_download() as downloaded:
        page.click(f"#exports button:has-text('{name}')")
    path = downloaded.value.path()
    if name == "SVG":
        assert path.read_text().count("<rect") == 1 + sum(range(1, len(canvas(page)) + 1))
        return
    with Image.open(path) as picture:
        assert picture.format == name
        assert getattr(picture, "n_frames", 1) == (len(canvas(page)) if name == "GIF" else 1)
        for frame in range(getattr(picture, "n_frames", 1)):
            picture.seek(frame)
            picture.load()


def test_curl_and_python_make_the_same_request(browser: Browser, address: str, model: Generator) -> None:
    page = opened(browser, address, permissions=["clipboard-read", "clipboard-write"])
    page.fill("#must", "h")
    write(page, beam=2)
    copied = {}
    for name in ("curl", "Python", "JSON", "text"):
        page.click("#export")
        page.click(f"#exports button:has-text('Copy {name}')")
        page.wait_for_function("document.getElementById('said').textContent.endsWith('copied')")
        copied[name] = page.evaluate("navigator.clipboard.readText()")
    body = re.search(r"-d '(.*)'$", copied["curl"])
    assert body is not None
    assert json.loads(body[1]) == {"model": "first", "source": SOURCE, "beam": 2, "must": ["h"]}
    namespace = {"model": model}
    call = copied["Python"].splitlines()[-2]
    exec(call, namespace)
    assert namespace["answer"].text == answer(page) == copied["text"]
    assert json.loads(copied["JSON"])["hypotheses"][0]["text"] == copied["text"]
    page.context.close()


# --- what goes wrong ---


def test_wrong_input_is_explained(page: Page) -> None:
    page.fill("#template", "no blank here")
    page.fill("#source", SOURCE)
    page.press("#source", "Enter")
    page.wait_for_selector("#message:not([hidden])")
    assert "has no blank" in page.locator("#message").inner_text()
    page.fill("#template", "")
    write(page)
    assert page.locator("#message").is_hidden()


def test_a_server_that_is_gone_is_reported(browser: Browser, model: Generator) -> None:
    with serving({"run": model}) as address:
        page = opened(browser, address)
        write(page)
    page.press("#source", "Enter")
    page.wait_for_selector("#message:not([hidden])")
    assert "can't be reached" in page.locator("#message").inner_text()
    assert canvas(page)  # what was written stays
    page.context.close()


def test_a_key_is_asked_for(browser: Browser, model: Generator) -> None:
    with serving({"run": model}, ServerSettings(keys=[b"open-sesame"])) as address:
        context = browser.new_context(reduced_motion="reduce")
        page = context.new_page()
        page.goto(address)
        page.fill("#key", "open-sesame")
        page.click("#key-dialog button")
        page.wait_for_selector("body[data-ready]")
        write(page)
        assert answer(page)
        context.close()


# --- for everybody ---


@pytest.mark.parametrize(("wide", "high", "dark"), [(360, 740, False), (768, 1024, True), (1920, 1080, True)])
def test_nothing_is_cut_off(browser: Browser, address: str, wide: int, high: int, dark: bool) -> None:
    page = opened(browser, address, wide=wide, high=high, color_scheme="dark" if dark else "light")
    write(page, beam=3)
    for tab in ("Relations", "Beam", "Next word"):
        page.click(f"[role=tab]:has-text('{tab}')")
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
    page.context.close()


@pytest.mark.skipif(
    find_spec("axe_playwright_python") is None, reason="needs axe-core (pip install axe-playwright-python)"
)
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(browser: Browser, address: str, dark: bool) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(browser, address, color_scheme="dark" if dark else "light")
    write(page, beam=3)
    page.locator("#slider").fill("2")
    found = []
    for look in ("", "Relations", "Beam", "#help", "#export", "#tab-many", "docs"):
        if look == "docs":
            page.goto(f"{address}/docs")
        elif look.startswith("#"):
            page.keyboard.press("Escape")
            page.click(look)
        elif look:
            page.click(f"[role=tab]:has-text('{look}')")
        results = Axe().run(page).response["violations"]
        found += [
            (look, one["id"], one["nodes"][0]["target"])
            for one in results
            if one["impact"] in ("serious", "critical")
        ]
    assert found == []
    page.context.close()


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    """Write, step back, open a gap, write a word into it."""
    page.keyboard.press("/")
    page.keyboard.type(SOURCE)
    push(page, lambda: page.keyboard.press("Enter"))
    page.keyboard.press("Tab")
    for _ in range(40):
        if page.evaluate("document.activeElement.closest('.gap') !== null"):
            break
        page.keyboard.press("Tab")
    assert "write a word here" in (page.evaluate("document.activeElement.getAttribute('aria-label')") or "")
    page.keyboard.press("Enter")
    page.keyboard.type("h")
    push(page, lambda: page.keyboard.press("Enter"))
    assert "h" in page.locator(".word.given").all_inner_texts()


@pytest.mark.parametrize(
    ("words", "direction", "language"),
    [
        (["犬", "が", "走る"], "ltr", "ja"),
        (["הכלב", "רץ", "בחוץ"], "rtl", None),
        (["الكلب", "يركض"], "rtl", None),
        (["Über", "die", "Straße"], "ltr", None),
    ],
)
def test_other_scripts(page: Page, words: list[str], direction: str, language: str | None) -> None:
    """The first word of a sentence stands where its script begins."""
    order = list(range(1, len(words) + 1))
    page.evaluate(
        """([words, order]) => {
            const probabilities = order.map(() => 0.5);
            const trace = { words, writtenAt: order, probabilities, text: words.join(' ') };
            const player = new Player(trace);
            document.querySelector('main').replaceChildren(player.canvas);
            player.show(words.length);
        }""",
        [words, order],
    )
    made = page.locator(".canvas")
    assert (made.get_attribute("dir"), made.get_attribute("lang")) == (direction, language)
    lefts = [box["x"] for box in (chip.bounding_box() for chip in page.locator(".canvas .word").all()) if box]
    assert lefts == sorted(lefts, reverse=direction == "rtl")


def test_models_of_photos_are_asked_for_a_photo(page: Page) -> None:
    """No such model is served here, so the page has no field for a photo."""
    assert page.locator("#photo-field").is_hidden()
    assert page.locator("#source-field").is_visible()
