"""Ten pods that are pending for ten reasons: the page names each cause, and what would help."""

from __future__ import annotations

from typing import Final

import pytest

from extender.simulator.apiserver.kinds import PODS
from tests.page.conftest import Page
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

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


async def choose(page: Page, selector: str, value: str) -> None:
    script = "const list = document.querySelector(arguments[0]); list.value = arguments[1]; list.dispatchEvent(new Event('change'))"
    await page.browser.script(script, selector, value)


async def test_pods_are_filtered_by_their_reason_with_how_many_have_it(page: Page) -> None:
    await page.show("pending", "10 pods without a node, 10 workloads by reason, the longest waiting first")
    reasons = await page.browser.script(
        "return [...document.querySelectorAll('#choice-reason option')].map((e) => e.text)"
    )
    assert reasons[0] == "all (10)"
    assert "no pod that it must be near (1)" in reasons
    await choose(page, "#choice-reason", "affinity")
    text = await page.browser.until_text("1 pod without a node, 1 workload by reason", "shop/no-cache")
    assert "shop/no-gpu" not in text
    assert await page.browser.script("return location.hash") == "#/pending?reason=affinity"
    await page.show("pending?reason=volumes", "No pod is pending because of this: its volumes.")


async def test_pods_of_a_workload_have_one_row_unless_each_is_wanted(page: Page) -> None:
    apart = anti_affinity(term(HOSTNAME, app="many"))
    for at in range(6):
        made = pod(f"many-{at}", "data", labels={"app": "many"}, affinity=apart, nodeSelector={"none": "here"})
        await page.simulated.api.create(PODS, made)
    try:
        await page.show("pending?namespace=data", "6 pods without a node, 1 workload by reason", "and 5 younger pods")
        await choose(page, "#choice-rows", "pod")
        await page.browser.until_text("data/many-0", "data/many-5", "6 pods without a node, the longest waiting first")
        assert await page.browser.script("return location.hash") == "#/pending?namespace=data&rows=pod"
    finally:
        for at in range(6):
            page.simulated.api.store.remove(PODS, f"data/many-{at}")


# What would help, and the pod that is then placed.
HELPS: Final = {
    "no-cache": ("What if: label team=shop on namespace data", "namespace data: team=shop"),
    "no-gpu": ("What if: label accelerator=gpu on node general-0", "node general-0: accelerator=gpu"),
    "too-large": ("What if: more room on general-1", "more room on general-1: cpu"),
    "uneven-ledger": ("What if: one more node like general-0", "1 more node like general-0"),
    "too-few-zones": (
        "What if: remove the taint reserved=yes:NoSchedule",
        "reserved-0 without reserved=yes:NoSchedule",
    ),
}


@pytest.mark.parametrize("name", HELPS)
async def test_what_would_help_opens_what_if_where_the_pod_is_placed(page: Page, name: str) -> None:
    label, edit = HELPS[name]
    await page.show(f"pods/shop/{name}", "What would help")
    link = await page.browser.until(
        "return [...document.querySelectorAll('main a')].find((e) => e.getAttribute('aria-label')?.startsWith(arguments[0]))?.hash",
        label,
    )
    await page.go_to(link.removeprefix("#/"), "Where pods would go", edit)
    rows = "return Object.fromEntries([...document.querySelectorAll('tbody tr')].map((e) => [...e.children].map((c) => c.innerText)))"
    assert (await page.browser.script(rows))[f"shop/{name}"] == "placed"
