"""Preemptions and groups in flight, and policies with whom they select.

The answers are values of the API's model, but for one test whose preemption and group are those of the control plane.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct
from msgspec.structs import replace

from extender.features.execution.answers import MoveRow, MovesAnswer
from extender.model.answers.pages import (
    AmountRow,
    GroupPage,
    GroupRow,
    PolicyDomainRow,
    PolicyPage,
    PolicyRow,
    PreemptionPage,
    PreemptionRow,
    VictimRow,
)
from extender.simulator.apiserver.kinds import PODS, POLICY_KINDS, Target
from tests.fakes import PATIENCE
from tests.page.conftest import Page
from tests.page.serving import Proxy
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, pod, term

pytestmark = pytest.mark.asyncio(loop_scope="module")

VICTIMS = (VictimRow("shop/a", "terminating"), VictimRow("shop/b", "gone"))
PREEMPTION = PreemptionRow(
    "shop/urgent",
    "general-0",
    "victims terminating",
    "2026-01-01T00:00:00Z",
    1000,
    VICTIMS,
    more_victims=3,
    pdb_violations=1,
)
GROUP = GroupRow(
    "shop/gangs",
    "shop",
    "train-1",
    "waiting",
    pods=3,
    needed=4,
    gated=3,
    released=0,
    bound=0,
    text="1 of 4 pods is missing",
)
PROBLEM = "spec.nodeSelector: <script>globalThis.owned=1</script>"
BAD = PolicyRow("PodSchedulingPolicy", "shop", "<b>bold</b>", valid=False, matched=0, problem=PROBLEM)
SSD = PolicyRow("ClusterPodSchedulingPolicy", "", "ssd", valid=True, matched=12, directives=("nodeSelector disk=ssd",))
POLICIES = (BAD, replace(SSD, moments=("Admission", "Scheduling"), examples=("shop/a", "shop/b")))
SPOT = PolicyDomainRow("spot", (AmountRow("pods", "3", "4"), AmountRow("cpu", "1500m", "2")))
DOMAINS = (SPOT, PolicyDomainRow("on-demand", (AmountRow("pods", "1"),), may_grow=True))
RELEASING = PolicyRow(
    "ClusterPodSchedulingPolicy",
    "",
    "gangs",
    valid=True,
    matched=3,
    moments=("Release",),
    domains=DOMAINS,
    more_domains=2,
)


async def show(page: Page, proxy: Proxy, view: str, answers: dict[str, Struct], *words: str) -> str:
    """The text of a view with these answers, once it holds all words."""
    proxy.answers = answers
    await page.browser.open(f"{proxy.url}/ui/#/{view}")
    return await page.browser.until_text(*words)


async def test_preemptions_are_shown_with_the_pods_that_end_and_groups_with_how_far_they_are(
    page: Page, proxy: Proxy
) -> None:
    answers: dict[str, Struct] = {
        "/v1/preemptions": PreemptionPage((PREEMPTION,)),
        "/v1/groups": GroupPage((GROUP,), more=7),
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


async def test_broken_constraints_of_running_pods_are_shown_with_their_moves(page: Page, proxy: Proxy) -> None:
    move = MoveRow(
        "shop/web-0", "TopologySpread", "zone=a has 3 pods", "a0", "ClusterPodSchedulingPolicy/watch", "underWay"
    )
    stuck = replace(move, pod="shop/web-1", state="stuck", why="no node passes: <b>none</b>")
    answers: dict[str, Struct] = {
        "/v1/preemptions": PreemptionPage(()),
        "/v1/groups": GroupPage(()),
        "/v1/moves": MovesAnswer((replace(move, target="b0"),), (stuck,), 2, 1, ("7 more rows",)),
    }
    shown = ("shop/web-0", "zone=a has 3 pods", "a0", "b0", "under way", "no node passes: <b>none</b>", "7 more rows")
    await show(page, proxy, "flight", answers, *shown)
    proxy.answers["/v1/moves"] = MovesAnswer()
    await page.browser.until_text("No watched constraint is broken.")


async def test_a_change_is_reported_to_screen_readers(page: Page, proxy: Proxy) -> None:
    nothing: dict[str, Struct] = {"/v1/preemptions": PreemptionPage(()), "/v1/groups": GroupPage(())}
    await show(page, proxy, "flight", nothing, "No pod is preempted now", "No group of gated pods waits")
    proxy.answers["/v1/groups"] = GroupPage((GROUP,))
    await page.browser.until_text("0 preemptions and 1 group in flight.", selector="#said")


async def test_policies_are_shown_with_what_they_direct_and_why_one_is_invalid(page: Page, proxy: Proxy) -> None:
    text = await show(
        page, proxy, "policies", {"/v1/policies": PolicyPage(POLICIES)}, "ssd", "nodeSelector disk=ssd", "and 10 more"
    )
    assert "shop/<b>bold</b>" in text
    assert PROBLEM in text
    assert await page.browser.script("return globalThis.owned ?? null") is None


async def test_the_domains_of_a_policy_are_shown_in_order_with_what_pods_have_of_them(page: Page, proxy: Proxy) -> None:
    shown = ("spot: 3 of 4 pods, 1500m of 2 cpu", "on-demand: 1 pods, may grow", "and 2 more")
    answers: dict[str, Struct] = {"/v1/policies": PolicyPage((*POLICIES, RELEASING))}
    text = await show(page, proxy, "policies", answers, *shown)
    assert text.index("spot:") < text.index("on-demand:")


async def test_a_policy_has_a_page_with_its_domains_and_its_groups(page: Page, proxy: Proxy) -> None:
    group = replace(GROUP, policy="ClusterPodSchedulingPolicy/gangs")
    answers: dict[str, Struct] = {
        "/v1/policies": PolicyPage((*POLICIES, RELEASING)),
        "/v1/groups": GroupPage((GROUP, group)),
    }
    await show(page, proxy, "policies", answers, "gangs")
    links = "return [...document.querySelectorAll('main th a')].map((e) => e.hash)"
    bad, _, gangs = await page.browser.script(links)
    await page.go_to_at(
        proxy.url, gangs, "ClusterPodSchedulingPolicy gangs", "spot: 3 of 4 pods", "shop train-1", "0 of 4"
    )
    text = await page.go_to_at(proxy.url, bad, "PodSchedulingPolicy shop/<b>bold</b>", "It is not applied.", PROBLEM)
    assert "train-1" not in text
    none = await page.go_to_at(
        proxy.url, "#/policies/PodSchedulingPolicy/shop/none", "PodSchedulingPolicy shop/none is not known"
    )
    assert "spot" not in none


async def test_a_preemption_and_a_gated_group_of_the_cluster_are_shown_until_they_end(page: Page) -> None:
    """Nothing is given here: the pods are in the control plane, whose victims take their time to end."""
    api = page.simulated.api
    api.pods.kubelet_delay = 600
    release = {"group": {"label": "gang"}, "size": {"count": 2}, "topology": [ZONE]}
    gangs = {"podSelector": {"matchLabels": {"app": "gang"}}, "when": ["Release"], "release": release}
    await api.create(POLICY_KINDS[0], {"metadata": {"name": "gangs", "namespace": "data"}, "spec": gangs})
    victim = pod("victim", "data", on="general-0", labels={"app": "victim"}, priority=0)
    await api.create(PODS, victim | {"spec": victim["spec"] | {"terminationGracePeriodSeconds": 600}})
    apart = anti_affinity(term(HOSTNAME, app="victim"))
    await api.create(PODS, pod("urgent", "data", affinity=apart, nodeSelector={HOSTNAME: "general-0"}, priority=1000))
    await _gated(page, "first")
    shown = ("data/urgent", "general-0", "data/victim", "terminating", "data ring", "1 of 2 pods exists")
    await page.show("flight", *shown)

    api.store.remove(PODS, "data/victim")  # it has ended
    await _gated(page, "second")
    await page.browser.until_text("No pod is preempted now", "No group of gated pods waits")


async def _gated(page: Page, name: str) -> None:
    """A pod of the group, which the webhook gates as soon as it knows the policy."""
    api = page.simulated.api
    async with asyncio.timeout(PATIENCE):
        while True:
            made = await api.create(PODS, pod(name, "data", labels={"app": "gang", "gang": "ring"}))
            if made.read()["spec"].get("schedulingGates"):
                return
            api.operations.delete(Target(PODS, "data", name), {})
            await asyncio.sleep(0.01)
