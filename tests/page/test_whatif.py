"""What-if in the browser: a node is clicked away, and the page shows where its pods would go; nothing changes."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

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


async def submit(page: Page, form: str, **fields: str) -> None:
    """Fills a form of the view, which is named by its legend, and submits it."""
    await page.browser.script(
        "const found = [...document.querySelectorAll('form.change')].find((e) => e.querySelector('legend').textContent === arguments[0]);"
        "found.closest('details').open = true;"
        "for (const [name, value] of Object.entries(arguments[1])) found.elements[name].value = value;"
        "found.requestSubmit()",
        form,
        fields,
    )


async def test_a_zone_is_taken_away_as_a_whole(page: Page) -> None:
    await page.show("whatif", "No node is away")
    await page.browser.until(MAP_IS_THERE)
    await submit(page, "Take a domain away", key="topology.kubernetes.io/zone", domain="zone-0")
    await page.browser.until_text("all nodes with topology.kubernetes.io/zone=zone-0", "5 pods without their node")
    await page.browser.click(".chips button")
    await page.browser.until_text("No node is away")


async def test_nodes_are_added_and_labels_are_changed_and_both_are_in_the_address(page: Page) -> None:
    await page.show("whatif", "No node is away")
    await page.browser.until(MAP_IS_THERE)
    given = {"like": "general-0", "number": "2", "labels": "topology.kubernetes.io/zone=zone-9"}
    await submit(page, "Add nodes", **given)
    await page.browser.until_text(
        "2 more nodes like general-0, with topology.kubernetes.io/zone=zone-9", "new-1-like-general-0"
    )
    await submit(page, "Change labels", kind="Namespace", name="data", labels="team=shop,gone-")
    await page.browser.until_text("namespace data: team=shop without gone", "Where pods would go")
    address = await page.browser.script("return location.hash")
    await page.show(address.removeprefix("#/"), "2 more nodes like general-0", "namespace data: team=shop without gone")


async def test_a_policy_is_applied_and_what_is_none_is_said(page: Page) -> None:
    await page.show("whatif", "No node is away")
    await page.browser.until(MAP_IS_THERE)
    await submit(page, "Apply objects", json="{")
    await page.browser.until_text("This is no object in JSON")
    await submit(page, "Apply objects", json='{"kind": "Pod"}')
    await page.browser.until_text("an object has a kind and metadata.name")
    await submit(page, "Change labels", name="general-0", labels="no label")
    await page.browser.until_text("Labels are written as kubectl takes them")
    await submit(page, "Add nodes", like="general-0", number="none")
    await page.browser.until_text("New nodes need a node that they are like")
    await submit(page, "Take a domain away", key="", domain="")
    await page.browser.until_text("A domain has a topology key and a name")
    spec = {"podSelector": {}, "when": ["Scheduling"], "nodeSelector": {"disk": "ssd"}}
    meta = {"apiVersion": "placement.extender.dev/v1alpha1", "kind": "PodSchedulingPolicy"}
    policy = {**meta, "metadata": {"name": "ssd", "namespace": "shop"}, "spec": spec}
    await submit(page, "Apply objects", json=json.dumps(policy))
    await page.browser.until_text("PodSchedulingPolicy shop/ssd", "Where pods would go")
    await page.browser.log()


@pytest.mark.parametrize("edits", ["{", "[1]", '[{"do":"constructor"}]', '[{"do":"label"}]', '[{"do":"object"}]'])
async def test_an_address_that_cannot_be_read_breaks_nothing(page: Page, edits: str) -> None:
    await page.show(f"whatif?edits={quote(edits)}", "Computed on a copy with the rules of the extender.")
    await page.browser.until("return !document.querySelector('main').innerText.includes('Trying…')")
    await page.browser.log()
