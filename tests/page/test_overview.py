"""The overview of a service that compares its decisions with those of kube-scheduler's own plugins."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.model.answers.pages import Features, Overview
from extender.model.answers.shadow import RuleFigures, ShadowDifference, ShadowPage
from tests.page.conftest import Page
from tests.page.serving import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND = ShadowDifference(
    time=1_800_000_000.5,
    source="request",
    namespace="shop",
    pod="<b>web-1</b>",
    uid="u-1",
    confirmed=True,
    rule="PodTopologySpread",
    reason="spread_skew",
    text="node(s) didn't match pod topology spread constraints",
    node="general-0",
    bound_to="general-0",
    domain="zone-0",
    count=3,
    limit=2,
)
COUNTED = ShadowDifference(
    time=1_800_000_001.5,
    source="condition",
    namespace="shop",
    pod="web-2",
    uid="u-2",
    confirmed=True,
    rule="InterPodAffinity",
    reason="anti_affinity",
    text="node(s) didn't match pod anti-affinity rules",
    nodes=4,
    least=1,
    most=2,
)
RULES = (RuleFigures(rule="PodTopologySpread", agreed=7, assumed=2, late=1, differed=1, unproven=0),)
SHADOW = ShadowPage(compared=1204, differ=2, open=3, decisions={}, rules=RULES, differences=(COUNTED, BOUND))

OVERVIEW = Overview(
    nodes=3,
    pods=7,
    namespaces=2,
    pending=0,
    gated=0,
    assumed=0,
    preemptions_in_flight=0,
    groups_in_flight=0,
    policies=0,
    invalid_policies=0,
    rebuilds=0,
    topology_keys=(),
    more_keys=0,
    version="1.2.3",
    mode="augment",
    placement="cooperative",
    uptime_seconds=90_000.0,
    leader=True,
    ready=True,
    health=(),
    verbs=(),
    features=Features(whatif=True, policies=False, preemption="execute", quotas=False),
    resident_bytes=150_000_000,
    shadow=SHADOW,
)


async def test_it_shows_how_many_decisions_were_compared_and_the_last_that_differ(page: Page, proxy: Proxy) -> None:
    proxy.answers["/v1/overview"] = OVERVIEW
    await page.browser.open(f"{proxy.url}/ui/#/")
    await page.browser.until_text(
        *("1,204 decisions compared, 2 differ, 3 still open.", "shop/<b>web-1</b>", "bound the pod there"),
        *("rejects it in zone-0: 3 counted, at most 2", "rejected 4 nodes", "rejects 1 to 2"),
    )
    proxy.answers["/v1/overview"] = replace(OVERVIEW, shadow=replace(SHADOW, differ=0, differences=()))
    await page.browser.until_text("1,204 decisions compared, 0 differ, 3 still open.")


async def test_it_says_nothing_of_them_where_there_are_none(page: Page) -> None:
    text = await page.show("", "Health")
    assert "decisions compared" not in text
