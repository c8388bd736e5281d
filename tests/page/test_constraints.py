"""Constraints as bars against their limit, from the list of workloads, and the map of the pods of a workload."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from extender.model.answers.explanations import ConstraintState, DomainState, TermReach
from extender.model.answers.pages import ConstraintsPage
from tests.page.conftest import Page
from tests.page.serving import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of the first constraint: by domain the count, the width of the bar and the place of the limit as shares, and the verdict.
BARS: Final = """
const rows = document.querySelectorAll('.constraint:first-of-type tbody tr');
return [...rows].map((row) => {
  const bar = row.querySelector('.bar');
  const share = (name) => Number(bar.style.getPropertyValue(name));
  const width = parseFloat(getComputedStyle(bar, '::before').width) / bar.clientWidth;
  return [row.querySelector('th').textContent, bar.textContent, Math.round(100 * width), share('--limit'), row.querySelector('.badge').textContent];
});
"""


async def test_a_workload_leads_to_its_constraints_with_bars_against_the_limit(page: Page) -> None:
    await page.show("constraints?namespace=shop", "app=ledger", "1 × topology spread")
    link = "[...document.querySelectorAll('main a')].find((e) => e.textContent === 'app=ledger')"
    await page.browser.script(f"{link}.click()")
    await page.browser.until_text("Constraints of shop/uneven-ledger", "Skew at most 1", "app=ledger")
    bars: list[Any] = await page.browser.until(f"const bars = (() => {{ {BARS} }})(); return bars.length && bars")
    assert bars[:2] == [["zone-0", "1", 100, 0, "rejects"], ["zone-1", "1", 100, 0, "rejects"]]
    assert bars[2] == ["zone-2", "0", 0, 0, "passes"]


def lacking(kind: str, nodes: int, *, rejects: bool) -> ConstraintState:
    """A constraint with one domain, and nodes that lack its label."""
    reach, domains = TermReach("its own namespace", 1, ("shop",)), (DomainState("zone-0", 1, 1, passes=True),)
    state = ConstraintState("rule", kind, "zone", "app=web", reach, limit=1, domains=domains)
    return replace(state, lacking=nodes, rejects_lacking=rejects)


async def test_nodes_without_the_label_pass_or_reject_as_the_rule_says(page: Page, proxy: Proxy) -> None:
    states = (lacking("podAffinity", 3, rejects=True), lacking("podAntiAffinity", 1, rejects=False))
    proxy.answers["/v1/constraints/shop/web"] = ConstraintsPage("shop/web", "", states)
    await page.browser.open(f"{proxy.url}/ui/#/constraints/shop/web")
    await page.browser.until_text("3 nodes without the label: they reject it.", "1 node without the label: they pass.")


async def test_the_pods_of_a_workload_are_on_the_map_and_in_the_table(page: Page) -> None:
    await page.show("constraints?namespace=shop", "app=ledger")
    await page.browser.script(
        "[...document.querySelectorAll('tbody tr')].find((e) => e.textContent.includes('app=ledger'))"
        ".querySelector('td:last-child a').click()"
    )
    await page.browser.until_text("2 pods match", "zone-2")
    about = "Map of 3 domains with 3 nodes, coloured by pods that match. The table below has the figures."
    await page.browser.until(
        "return document.querySelector('canvas').getAttribute('aria-label') === arguments[0]", about
    )


async def test_a_click_on_a_node_of_the_map_leads_to_its_domain(page: Page) -> None:
    await page.show("topology", "zone-2")
    await page.browser.until("return document.querySelector('canvas')?.getAttribute('aria-label')?.includes('3 nodes')")
    await page.browser.script(
        "const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect();"
        "canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + 10, clientY: box.top + 40, bubbles: true}))"
    )
    await page.browser.until_text("topology.kubernetes.io/zone zone-0: 1 node", "general-0")


async def test_a_map_by_a_key_with_many_values_is_one_element_and_says_what_it_shows(page: Page) -> None:
    await page.show("topology?key=kubernetes.io%2Fhostname", "general-1")
    await page.browser.until("return document.querySelector('canvas')?.getAttribute('aria-label')?.includes('3 nodes')")
    assert await page.browser.script("return document.querySelectorAll('.map canvas, .map :has(*)').length") == 1


async def test_a_selector_that_cannot_be_read_is_said_so_with_the_field(page: Page) -> None:
    await page.show("topology?namespace=shop&selector=a%20in%20(", "cannot read the request", "(selector)")
    await page.browser.log()


async def test_a_field_leads_to_an_address_that_shows_the_same(page: Page) -> None:
    await page.show("topology", "zone-2")
    await page.browser.type("#field-pods-with-labels", "app=archive\ue007")
    await page.browser.until_text("2 pods match")
    address = await page.browser.script("return location.hash")
    assert "selector=app%3Darchive" in address
    await page.show(address.removeprefix("#/"), "2 pods match")
