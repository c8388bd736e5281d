"""What holds for every view: the policy, a phone, contrast, headings and labels, the keyboard, and a path prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.page.browser import ENTER, TAB, USUAL_SIZE
from tests.page.conftest import Page
from tests.page.serving import behind_prefix

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By address: a text that is there once the view has its answer.
VIEWS: Final = {
    "": "Everything is in order",
    "pending": "shop/no-cache",
    "topology": "zone-2",
    "topology?key=topology.kubernetes.io%2Fzone&domain=zone-1&namespace=shop": "general-1",
    "pods/shop/uneven-ledger": "What would help",
    "pods/shop/quiet-old-0": "As they are for one more replica of this pod",
    "constraints": "app=quiet",
    "decisions": "shop/no-cache",
    "flight": "No pod is preempted now",
    "policies": "lab-nodes",
    "policies/PodSchedulingPolicy/shop/lab-nodes": "Pods that it selects now",
    "pending?rows=pod&reason=affinity": "shop/no-cache",
    "whatif?nodes=general-0": "Where pods would go",
    "constraints/shop/uneven-ledger": "Must be spread evenly by topology.kubernetes.io/zone",
}
EACH: Final = pytest.mark.parametrize("view", VIEWS)

# Text against what is behind it, by the formula of WCAG 2.2 (1.4.3): the texts below 4.5, or 3 where they are large.
LOW_CONTRAST: Final = """
const probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgba = (text) => {
  probe.clearRect(0, 0, 1, 1); probe.fillStyle = text; probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data];
};
const light = (colour) => {
  const [r, g, b] = colour.slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (one, other) => {
  const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const ground = rgba(getComputedStyle(at).backgroundColor);
    if (ground[3] === 255) return ground;
  }
  return [255, 255, 255, 255];
};
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("noscript, .visually-hidden, .skip, option")) continue;
  const style = getComputedStyle(element);
  const grounds = [behind(element)];
  const bar = element.closest(".bar");
  if (bar) grounds.push(rgba(getComputedStyle(bar, "::before").backgroundColor));
  const size = parseFloat(style.fontSize);
  const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  for (const ground of grounds) {
    const reached = ratio(rgba(style.color), ground);
    if (reached < least) found.push(`${texts.currentNode.data.trim()}: ${reached.toFixed(2)}`);
  }
}
return found;
"""

# Lines of text by their boxes on the screen, without texts that only a screen reader has. In a bar a value stands beside its figure.
LINES: Final = """
const lines = [];
const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (nodes.nextNode()) {
  const element = nodes.currentNode.parentElement, text = nodes.currentNode.data.trim();
  if (!text || !element.checkVisibility() || element.closest("noscript, .visually-hidden, .skip, option, thead")) continue;
  const range = document.createRange();
  range.selectNodeContents(nodes.currentNode);
  for (const box of range.getClientRects()) if (box.width > 1) lines.push({text, box});
}
"""
CUT: Final = (
    f"{LINES} return lines.filter(({{box}}) => box.left < 0 || box.right > innerWidth + 1).map(({{text}}) => text);"
)
OVERLAPPING: Final = f"""{LINES}
const found = [];
for (const [at, one] of lines.entries()) for (const other of lines.slice(at + 1)) {{
  const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
  const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
  if (wide > 1 && high > 3) found.push([one.text, other.text]);
}}
return found;
"""

# What a screen reader would stumble over.
UNNAMED: Final = """
const found = [];
const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
const all = (selector) => document.querySelectorAll(selector);
if (all("h1").length !== 1) found.push(`${all("h1").length} headings of the first level`);
let last = 1;
for (const heading of all("main :is(h1, h2, h3, h4)")) {
  const level = Number(heading.tagName[1]);
  if (level > last + 1) say("a level of headings is left out", heading);
  last = level;
}
for (const each of all("table")) {
  if (!each.caption?.textContent) say("a table without a caption", each);
  if (!each.querySelector("thead th[scope=col]")) say("a table without column headers", each);
  for (const row of each.querySelectorAll("tbody tr")) if (!row.querySelector("th[scope=row]")) say("a row without a header", row);
}
for (const each of all("input, select")) if (!each.labels?.length) say("a field without a label", each);
for (const each of all("button, a")) if (!each.textContent.trim()) say("nothing to read", each);
for (const each of all("canvas, img")) if (!each.getAttribute("aria-label") && !each.alt) say("a picture without words", each);
for (const each of all("[tabindex]")) if (each.tabIndex > 0) say("an order of its own", each);
const ids = [...all("[id]")].map((each) => each.id);
for (const id of ids.filter((each, at) => ids.indexOf(each) !== at)) found.push(`the id ${id} twice`);
if (document.documentElement.lang !== "en") found.push("no language");
return found;
"""


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _usual_screen(page: Page) -> AsyncIterator[None]:
    yield
    await page.browser.emulate(*USUAL_SIZE)


@EACH
async def test_it_is_shown_within_the_policy_readable_in_both_schemes_and_to_a_screen_reader(
    page: Page, view: str
) -> None:
    await page.browser.log()
    await page.browser.emulate(1440, 900, color_scheme="light", reduced_motion="reduce")
    await page.show(view, VIEWS[view])
    assert await page.browser.script(UNNAMED) == []
    grounds = []
    for scheme in ("light", "dark"):
        await page.browser.emulate(1440, 900, color_scheme=scheme, reduced_motion="reduce")
        grounds.append(await page.browser.script("return getComputedStyle(document.documentElement).backgroundColor"))
        assert await page.browser.script(LOW_CONTRAST) == [], scheme
    assert grounds[0] == "rgb(251, 251, 250)" != grounds[1]
    assert await page.browser.log() == []


@EACH
@pytest.mark.parametrize(("width", "height"), [(360, 740), (390, 844), (1280, 800)])
async def test_no_text_is_cut_or_printed_over_another(page: Page, view: str, width: int, height: int) -> None:
    await page.browser.emulate(width, height, color_scheme="light", reduced_motion="reduce")
    await page.show(view, VIEWS[view])
    for scheme in ("light", "dark"):
        await page.browser.emulate(width, height, color_scheme=scheme, reduced_motion="reduce")
        assert await page.browser.script("return document.documentElement.scrollWidth") <= width
        assert await page.browser.script(CUT) == [], scheme
        assert await page.browser.script(OVERLAPPING) == [], scheme


async def test_all_views_are_reached_by_keyboard_alone(page: Page) -> None:
    """From the top of the document: the skip link, the product's name, then one stop for each view."""
    names = await _names_of_views(page)
    assert len(names) > 1
    for at, name in enumerate(names):
        await page.show("", VIEWS[""])
        await page.browser.press(*[TAB] * (at + 3))
        focused = "return [document.activeElement.textContent, getComputedStyle(document.activeElement).outlineStyle]"
        assert await page.browser.script(focused) == [name, "solid"]
        await page.browser.press(ENTER)
        await page.browser.until(
            "return document.querySelector('nav [aria-current]')?.textContent === arguments[0]", name
        )
        if name != names[0]:
            await page.browser.until("return document.activeElement.tagName === 'H1'")


async def _names_of_views(page: Page) -> list[Any]:
    await page.show("", VIEWS[""])
    return list(await page.browser.script("return [...document.querySelectorAll('nav a')].map((e) => e.textContent)"))


async def test_the_skip_link_leads_past_the_list_of_views_and_keeps_the_view(page: Page) -> None:
    await page.show("pending", VIEWS["pending"])
    await page.browser.press(TAB)
    assert await page.browser.script("return document.activeElement.getBoundingClientRect().left >= 0")
    await page.browser.press(ENTER, TAB)
    assert await page.browser.script("return document.activeElement.id") == "field-namespace"
    assert await page.browser.script("return location.hash") == "#/pending"


@pytest.mark.parametrize("width", [360, 1440])
async def test_every_stop_of_the_keyboard_is_seen(page: Page, width: int) -> None:
    await page.browser.emulate(width, 740)
    await page.show("pending", VIEWS["pending"])
    await page.browser.until(  # rows grow as their explanations arrive, and move a link out of sight
        "const now = document.body.scrollHeight; if (window.seenHeight !== now) window.grewAt = performance.now();"
        "window.seenHeight = now; return performance.now() - window.grewAt > 1000"
    )
    stop = (
        "const at = document.activeElement, box = at.getBoundingClientRect();"
        "return at === document.body ? null : [at.outerHTML.slice(0, 80), getComputedStyle(at).outlineStyle,"
        " box.left >= 0 && box.right <= innerWidth && box.bottom > 0 && box.top < innerHeight]"
    )
    stops = []
    for _ in range(25):
        await page.browser.press(TAB)
        stops.append(await page.browser.script(stop))
    assert [each for each in stops if each is not None and each[1:] != ["solid", True]] == []
    assert len({each[0] for each in stops if each is not None}) > 15


async def test_with_reduced_motion_nothing_moves(page: Page) -> None:
    moves = "return getComputedStyle(document.querySelector('.bar'), '::before').transitionDuration"
    await page.show("pods/shop/uneven-ledger", VIEWS["pods/shop/uneven-ledger"])
    assert await page.browser.script(moves) == "0.25s"
    await page.browser.emulate(1440, 900, reduced_motion="reduce")
    assert await page.browser.script(moves) == "0s"


@EACH
async def test_it_works_below_a_path_prefix(page: Page, view: str) -> None:
    async with behind_prefix(page.url, "/clusters/one") as proxy:
        await page.browser.log()
        # The redirect keeps the prefix, and the browser the fragment.
        await page.browser.open(f"{proxy.url}/ui#/{view}")
        await page.browser.until_text(VIEWS[view])
        assert await page.browser.script("return location.pathname") == "/clusters/one/ui/"
        assert await page.browser.log() == []
        await page.browser.open("about:blank")  # else it goes on asking the proxy


async def test_an_address_without_a_view_is_said_so(page: Page) -> None:
    await page.show("nowhere", "There is no such view")


async def test_the_keyboard_stays_where_it_is_while_the_view_is_updated(page: Page) -> None:
    await page.show("pending", VIEWS["pending"])
    focus = (
        "const link = [...document.querySelectorAll('main a')].find((e) => e.textContent === 'shop/no-gpu');"
        "link.focus(); globalThis.focused = link; globalThis.updates = 0;"
        "new MutationObserver(() => updates++).observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true})"
    )
    await page.browser.script(focus)
    await page.browser.until("return updates > 0")
    assert await page.browser.script("return document.activeElement === focused")


async def test_a_choice_in_a_view_keeps_the_focus_where_it_is(page: Page) -> None:
    """Otherwise every arrow key in a list would throw the reader back to the top."""
    await page.show("topology", "zone-2")
    await page.browser.script(
        "const list = document.querySelector('#choice-topology-key'); globalThis.list = list; list.focus();"
        "list.value = 'kubernetes.io/hostname'; list.dispatchEvent(new Event('change'))"
    )
    await page.browser.until_text("3 domains of kubernetes.io/hostname", "general-1")
    assert await page.browser.script("return document.activeElement === list && list.isConnected")
    await page.browser.until("return document.querySelectorAll('canvas').length === 1")
    about = "return document.querySelector('canvas').getAttribute('aria-label')?.includes('3 domains with 3 nodes')"
    await page.browser.until(about)


async def test_another_view_takes_the_focus_to_its_heading_and_the_top(page: Page) -> None:
    await page.show("pending", VIEWS["pending"])
    await page.browser.script("scrollTo(0, 9999)")
    await page.go_to("pods/shop/no-gpu", "What rejects it")
    assert await page.browser.script("return [document.activeElement.textContent, scrollY]") == ["Pod shop/no-gpu", 0]
