"""What-if in the browser: a node is clicked away, and the page shows where its pods would go; nothing changes."""

from __future__ import annotations

from typing import Final

import pytest

from tests.page.browser import ENTER
from tests.page.conftest import Page
from tests.page.serving import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAP_IS_THERE: Final = "return document.querySelector('canvas')?.getAttribute('aria-label')?.includes('3 nodes')"
CLICK: Final = (
    "const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect();"
    "canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + 10, clientY: box.top + 40, bubbles: true}))"
)
CORDONED: Final = (
    "const shown = document.body.innerText;"
    "return shown.includes('Where pods would go') && !shown.includes('without their node')"
)
ROWS: Final = "return [...document.querySelectorAll('tbody tr')].map((e) => [...e.children].map((c) => c.innerText))"


async def test_a_node_that_is_clicked_away_shows_where_its_pods_would_go(page: Page) -> None:
    before = {pod.key: pod.node for pod in page.simulated.pods()}
    await page.show("whatif", "No node is away")
    await page.browser.until(MAP_IS_THERE)
    await page.browser.script(CLICK)
    await page.browser.until_text(
        "general-0", "Put back", "5 pods without their node: 5 would be placed", "Where pods would go"
    )
    rows = await page.browser.script(ROWS)
    by_pod = {row[0]: row[1:4] for row in rows}
    assert by_pod["shop/ledger-old-0"][:2] == ["placed", "general-0"]
    assert by_pod["shop/ledger-old-0"][2] in {"general-1", "reserved-0"}
    assert by_pod["shop/no-gpu"][:2] == ["rejected", "pending"]
    assert await page.browser.script("return location.hash") == "#/whatif?nodes=general-0"
    assert {pod.key: pod.node for pod in page.simulated.pods()} == before


async def test_it_is_put_back_and_the_history_remembers_both(page: Page) -> None:
    await page.show("whatif?nodes=general-0", "Where pods would go")
    await page.browser.click(".chips button")
    await page.browser.until_text("No node is away")
    assert await page.browser.script("return location.hash") == "#/whatif"
    await page.browser.script("history.back()")
    await page.browser.until_text("Where pods would go")


async def test_by_keyboard_a_node_is_named_and_its_pods_may_be_gone(page: Page) -> None:
    await page.show("whatif", "No node is away")
    await page.browser.type("#field-take-a-node-away", f"general-1{ENTER}")
    await page.browser.until_text("general-1", "Where pods would go")
    assert await page.browser.script("return document.activeElement.id") == "field-take-a-node-away"
    await page.browser.script(
        "const select = document.querySelector('#choice-its-pods'); select.value = 'gone';"
        "select.dispatchEvent(new Event('change'))"
    )
    await page.browser.until_text("pods would be gone")
    assert "displaced=gone" in await page.browser.script("return location.hash")


async def test_the_nodes_may_be_drained_or_cordoned(page: Page) -> None:
    await page.show("whatif?nodes=general-0&verb=drain", "5 pods without their node: 5 would be placed")
    await page.browser.script(
        "const select = document.querySelector('#choice-the-nodes'); select.value = 'cordon';"
        "select.dispatchEvent(new Event('change'))"
    )
    await page.browser.until(CORDONED)
    assert "verb=cordon" in await page.browser.script("return location.hash")
    await page.browser.log()  # a service that was busy was asked again


async def test_a_node_that_is_not_known_is_said_so_with_the_field(page: Page) -> None:
    await page.show("whatif?nodes=none", "delete[0]", "none")
    (refused,) = await page.browser.log()
    assert "400" in refused


async def test_the_nodes_of_a_domain_lead_there(page: Page) -> None:
    await page.show("topology?key=topology.kubernetes.io%2Fzone&domain=zone-1", "general-1", "without it")
    await page.browser.click("tbody td:last-child a")
    await page.browser.until_text("general-1", "Where pods would go")


async def test_it_works_behind_a_reverse_proxy(page: Page, proxy: Proxy) -> None:
    """The browser says that the request is of the same site; the host that the proxy asks is another one."""
    await page.browser.open(f"{proxy.url}/ui/#/whatif?nodes=general-0")
    await page.browser.until_text("Where pods would go")
