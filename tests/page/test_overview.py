"""The overview of a service that compares its decisions with those of kube-scheduler's own plugins."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession
from msgspec.json import decode
from msgspec.structs import replace

from extender.model.answers.pages import Overview
from extender.model.answers.shadow import RuleFigures, ShadowDifference, ShadowPage
from tests.page.conftest import Page
from tests.page.serving import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

APART = "node(s) didn't match pod anti-affinity rules"
TEXT = "node(s) didn't match pod topology spread constraints"
BOUND = ShadowDifference(
    1.8e9, "request", "shop", "<b>web-1</b>", "u-1", True, "PodTopologySpread", "spread_skew", TEXT
)
COUNTED = ShadowDifference(1.8e9, "condition", "shop", "web-2", "u-2", True, "InterPodAffinity", "anti_affinity", APART)
DIFFERENCES = (
    replace(COUNTED, nodes=4, least=1, most=2),
    replace(BOUND, node="general-0", bound_to="general-0", domain="zone-0", count=3, limit=2),
)
RULES = (RuleFigures(rule="PodTopologySpread", agreed=7, assumed=2, late=1, differed=1, unproven=0),)
SHADOW = ShadowPage(compared=1204, differ=2, open=3, decisions={}, rules=RULES, differences=DIFFERENCES)


async def test_it_shows_how_many_decisions_were_compared_and_the_last_that_differ(page: Page, proxy: Proxy) -> None:
    async with ClientSession() as http, http.get(f"{page.url}/v1/overview") as answer:
        overview = decode(await answer.read(), type=Overview)
    proxy.answers["/v1/overview"] = replace(overview, shadow=SHADOW)
    await page.browser.open(f"{proxy.url}/ui/#/")
    await page.browser.until_text(
        *("1,204 decisions compared, 2 differ, 3 still open.", "shop/<b>web-1</b>", "bound the pod there"),
        *("rejects it in zone-0: 3 counted, at most 2", "rejected 4 nodes", "rejects 1 to 2"),
    )
    proxy.answers["/v1/overview"] = replace(overview, shadow=replace(SHADOW, differ=0, differences=()))
    await page.browser.until_text("1,204 decisions compared, 0 differ, 3 still open.")


async def test_it_says_nothing_of_them_where_there_are_none(page: Page) -> None:
    text = await page.show("", "Health")
    assert "decisions compared" not in text
