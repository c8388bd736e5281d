"""Limits on what affinity reaches: how many namespaces now, over which topology keys, and only those that consent."""

from __future__ import annotations

from typing import Any

import pytest

from extender.features.quotas.rule import AUDITED
from tests.builders import namespace, term, weighted
from tests.features.quotas.tenants import ALL_NAMESPACES, Tenants


def reach(**limits: Any) -> Any:
    return {"reach": limits}


async def test_a_term_may_reach_so_many_other_namespaces_now() -> None:
    tenants = Tenants(namespace("third"), **reach(maxNamespaces={"limit": 1}))
    assert await tenants.passes("one", apart=[term(app="db", namespaces=["team", "other"])])
    assert await tenants.passes("own", apart=[term(app="db", namespaces=["team"])])
    assert await tenants.text("all") == (
        "namespace team: an affinity term reaches 2 other namespaces, quota.reach.maxNamespaces is 1"
    )
    before = tenants.version("all")
    tenants.index.delete(namespace("third"))
    assert tenants.version("all") != before
    assert await tenants.passes("all")


async def test_a_tenant_may_keep_apart_by_host_and_not_by_zone() -> None:
    tenants = Tenants(**reach(topologyKeys={"allowed": ["kubernetes.io/hostname"]}))
    assert await tenants.passes("host", apart=[term("host", app="db", namespace_selector={})])
    assert await tenants.passes("within", apart=[term("zone", app="db", namespaces=["team"])])
    assert "topology.kubernetes.io/zone is not allowed" in await tenants.text("zone")


async def test_the_namespaces_that_a_term_reaches_must_consent() -> None:
    tenants = Tenants(**reach(consent={"label": "example.com/reachable"}))
    assert await tenants.text("a") == (
        "namespace team: affinity reaches other without the label example.com/reachable=true (quota.reach.consent)"
    )
    tenants.put(namespace("other", {"example.com/reachable": "true"}))
    assert await tenants.passes("a")
    assert "reaches not-there without" in await tenants.text("b", apart=[term(app="db", namespaces=["not-there"])])


async def test_the_first_few_namespaces_are_named_and_the_others_counted() -> None:
    others = [namespace(f"n{number}") for number in range(4)]
    tenants = Tenants(*others, **reach(consent={"label": "example.com/reachable"}))
    assert "reaches n0, n1, n2 and 2 more without" in await tenants.text("a")
    for each in others[2:]:
        tenants.put(namespace(each.name, {"example.com/reachable": "true"}))
    assert "reaches n0, n1, other without" in await tenants.text("b")


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"maxNamespaces": {"limit": 0, "mode": "Audit"}}, "max_namespaces"),
        ({"topologyKeys": {"allowed": ["kubernetes.io/hostname"], "mode": "Audit"}}, "topology_keys"),
        ({"consent": {"label": "example.com/reachable", "mode": "Audit"}}, "consent"),
    ],
)
async def test_each_limit_on_reach_has_a_mode_of_its_own(limits: Any, limit: str) -> None:
    tenants = Tenants(**reach(**limits))
    assert await tenants.passes("a")
    assert {key: n for key, n in tenants.verb.quotas.counts.items() if n} == {(limit, AUDITED): 1}


async def test_preferred_terms_are_limited_like_required_ones() -> None:
    tenants = Tenants(**reach(maxNamespaces={"limit": 0}))
    assert not await tenants.passes("a", apart=[], avoids=[weighted(1, ALL_NAMESPACES[0])])
