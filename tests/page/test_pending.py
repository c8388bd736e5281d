"""Ten pods that are pending for ten reasons: the page names each cause, and what would help."""

from __future__ import annotations

from typing import Final

import pytest

from tests.page.conftest import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By pod: words of its cause, and of what would help or of what its constraints count.
CAUSES: Final = {
    "no-cache": ("No pod that it must be near on 3 of 3 nodes", "label team=shop on namespace data"),
    "avoids-agents": ("Pods that it must be apart from", "kube-agents/agent-old-0"),
    "is-loud": ("Existing pods keep it away from them", "Carried by shop/quiet-old-"),
    "uneven-ledger": ("Topology spread would be too uneven", "a domain may have at most 0 before this pod"),
    "too-few-zones": ("Topology spread would be too uneven", "minDomains 4 is more than the eligible domains"),
    "no-racks": ("Nodes lack the topology key of its spread constraint", "example.com/rack"),
    "missed-policy": ("A scheduling policy allows other nodes only", "lab-nodes"),
    "above-a-limit": ("Its constraints are above a limit", "limits.topologyKeys"),
    "too-large": ("Too little free room", "more room on general-"),
    "no-gpu": ("Node selector or node affinity matches no node", "didn't match Pod's node affinity/selector"),
}


@pytest.mark.parametrize("name", CAUSES)
async def test_the_view_of_each_pod_names_its_cause(page: Page, name: str) -> None:
    cause, detail = CAUSES[name]
    about = await page.show(f"pods/shop/{name}", f"Pod shop/{name}", cause.partition(" on ")[0], detail)
    assert about.count("pending")
    assert await page.browser.script("return document.title") == f"Pod shop/{name} · placement-extender"


async def test_when_a_scheduler_last_asked_about_a_pod_is_said(page: Page) -> None:
    await page.show(
        "pods/shop/no-cache", "Schedulers: default-scheduler sent its last request about it", "none of 2 nodes passed"
    )


async def test_a_node_has_its_obstacles_when_it_is_asked_for(page: Page) -> None:
    await page.show("pods/shop/uneven-ledger", "One node")
    await page.browser.type("#field-node", "general-0\ue007")
    await page.browser.until_text("(topology.kubernetes.io/zone zone-0; 1 counted, 0 would pass)")
    assert await page.browser.script("return location.hash") == "#/pods/shop/uneven-ledger?node=general-0"


async def test_a_pod_that_is_not_known_is_said_so(page: Page) -> None:
    await page.show("pods/shop/none", "pod shop/none is not known", "The pending pods")
    (refused,) = await page.browser.log()
    assert "404" in refused
