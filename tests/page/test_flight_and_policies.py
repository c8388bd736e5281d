"""Preemptions and groups in flight, and policies with whom they select. The answers are values of the API's model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.model.answers.explanations import Value
from extender.model.answers.pages import (
    GroupPage,
    GroupRow,
    PolicyPage,
    PolicyRow,
    PreemptionPage,
    PreemptionRow,
    VictimRow,
)
from tests.page.conftest import Page
from tests.page.serving import Proxy, behind_prefix

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREEMPTION = PreemptionRow(
    pod="shop/urgent",
    node="general-0",
    state="victims terminating",
    since="2026-01-01T00:00:00Z",
    priority=1000,
    victims=(VictimRow(pod="shop/a", state="terminating"), VictimRow(pod="shop/b", state="gone")),
    more_victims=3,
    pdb_violations=1,
)
GROUP = GroupRow(
    policy="shop/gangs",
    namespace="shop",
    key="train-1",
    state="waiting",
    pods=3,
    needed=4,
    gated=3,
    released=0,
    bound=0,
    text="1 of 4 pods is missing",
)
POLICIES = PolicyPage(
    policies=(
        PolicyRow(
            kind="PodSchedulingPolicy",
            namespace="shop",
            name="<b>bold</b>",
            valid=False,
            matched=0,
            problem="spec.nodeSelector: <script>globalThis.owned=1</script>",
        ),
        PolicyRow(
            kind="ClusterPodSchedulingPolicy",
            namespace="",
            name="ssd",
            valid=True,
            matched=12,
            moments=("Admission", "Scheduling"),
            directives=("nodeSelector disk=ssd",),
            examples=("shop/a", "shop/b"),
        ),
    )
)


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(page: Page) -> AsyncIterator[Proxy]:
    """In front of the service."""
    async with behind_prefix(page.url, "/one") as found:
        yield found
        await page.browser.open("about:blank")


async def show(page: Page, proxy: Proxy, view: str, answers: dict[str, Value], *words: str) -> str:
    """The text of a view with these answers, once it holds all words."""
    proxy.answers = answers
    await page.browser.open(f"{proxy.url}/ui/#/{view}")
    return await page.browser.until_text(*words)


async def test_preemptions_are_shown_with_the_pods_that_end_and_groups_with_how_far_they_are(
    page: Page, proxy: Proxy
) -> None:
    answers: dict[str, Value] = {
        "/v1/preemptions": PreemptionPage(preemptions=(PREEMPTION,)),
        "/v1/groups": GroupPage(groups=(GROUP,), more=7),
    }
    await show(
        page,
        proxy,
        "flight",
        answers,
        *("shop/urgent", "general-0", "victims terminating", "violates 1 disruption budget", "and 3 more"),
        *("shop train-1", "waiting", "1 of 4 pods is missing", "3 of 4", "7 more are not shown"),
    )
    link = "return document.querySelector('main a').getAttribute('href')"
    assert await page.browser.script(link) == "#/pods/shop/urgent"


async def test_a_change_is_told_to_screen_readers(page: Page, proxy: Proxy) -> None:
    nothing: dict[str, Value] = {"/v1/preemptions": PreemptionPage(preemptions=()), "/v1/groups": GroupPage(groups=())}
    await show(page, proxy, "flight", nothing, "No pod is preempted now", "No group of gated pods waits")
    proxy.answers["/v1/groups"] = GroupPage(groups=(GROUP,))
    await page.browser.until_text("0 preemptions and 1 group in flight.", selector="#said")


async def test_policies_are_shown_with_what_they_direct_and_why_one_is_invalid(page: Page, proxy: Proxy) -> None:
    text = await show(
        page, proxy, "policies", {"/v1/policies": POLICIES}, "ssd", "nodeSelector disk=ssd", "and 10 more"
    )
    assert "shop/<b>bold</b>" in text
    assert "spec.nodeSelector: <script>globalThis.owned=1</script>" in text
    assert await page.browser.script("return globalThis.owned ?? null") is None
