"""The map of nodes without a mouse: by the arrow keys, and by touch."""

from __future__ import annotations

from typing import Final

import pytest

from tests.page.browser import ENTER
from tests.page.conftest import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

RIGHT, DOWN, END, HOME = "\ue014", "\ue015", "\ue010", "\ue011"
MAP_IS_THERE: Final = "return document.querySelector('canvas')?.getAttribute('aria-label')?.includes('3 nodes')"
LINE: Final = "return document.querySelector('#map-line').innerText"
TOUCH: Final = (
    "const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect();"
    "const at = {clientX: box.left + 10, clientY: box.top + 40, bubbles: true};"
    "canvas.dispatchEvent(new PointerEvent('pointerdown', {...at, pointerType: 'touch'}));"
    "canvas.dispatchEvent(new MouseEvent('click', at))"
)


async def shown(page: Page, view: str) -> None:
    await page.show(view)
    await page.browser.until(MAP_IS_THERE)


async def test_the_arrow_keys_name_each_node_and_enter_chooses_it(page: Page) -> None:
    await shown(page, "topology")
    assert "with the arrow keys" in await page.browser.script(LINE)
    await page.browser.script("document.querySelector('canvas').focus()")
    names = []
    for key in (RIGHT, RIGHT, RIGHT, RIGHT, HOME, END):
        await page.browser.press(key)
        names.append((await page.browser.script(LINE)).partition(":")[0])
    assert names == ["general-0", "general-1", "reserved-0", "reserved-0", "general-0", "reserved-0"]
    await page.browser.press(HOME, DOWN)
    assert (await page.browser.script(LINE)).startswith("general-0: ")  # no node is below it
    await page.browser.press(RIGHT, ENTER)
    await page.browser.until_text("topology.kubernetes.io/zone zone-1: 1 node", "general-1")


async def test_a_first_touch_names_the_node_and_a_second_one_chooses_it(page: Page) -> None:
    await shown(page, "whatif")
    await page.browser.script(TOUCH)
    assert (await page.browser.script(LINE)).startswith("general-0: ")
    assert "Touch it again to choose it." in await page.browser.script(LINE)
    assert await page.browser.script("return location.hash") == "#/whatif"
    await page.browser.script(TOUCH)
    await page.browser.until_text("Where pods would go", "Put back")
    assert await page.browser.script("return location.hash") == "#/whatif?nodes=general-0"
