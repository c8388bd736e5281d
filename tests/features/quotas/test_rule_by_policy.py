"""Terms that scheduling policies add count for quotas like those that a pod carries, for as long as the policy selects it."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.audit import audit
from extender.model.policies import EXEMPT_LABEL, PolicyObject
from tests.builders import REQUIRED, namespace, term
from tests.features.quotas.tenants import Tenants, limited, reaching
from tests.policies import policy


def apart_by_policy(**fields: Any) -> Any:
    terms = [term("zone", app="db", namespace_selector={})]
    return policy("apart", affinity={"podAntiAffinity": {REQUIRED: terms}}, **fields)


@pytest.mark.parametrize("mode", ["offload", "augment"])
async def test_terms_that_a_policy_adds_count_and_the_text_names_the_policy(mode: str) -> None:
    tenants = Tenants(limited(1), policies=[apart_by_policy()], mode=mode)
    assert await tenants.passes("a", apart=())
    assert (await tenants.text("b", apart=())).endswith(" (terms of ClusterPodSchedulingPolicy/apart)")
    tenants.put(reaching("a", apart=(), on="n1"))
    assert not await tenants.passes("b", apart=())
    assert audit(tenants.index) == []


@pytest.mark.parametrize(
    "made",
    [
        apart_by_policy(mode="Audit"),
        apart_by_policy(targets="Templates"),
        policy("own", affinity={"podAntiAffinity": {REQUIRED: [term("zone", app="db")]}}),
        policy("nodes", nodeSelector={"disk": "ssd"}),
    ],
    ids=["in mode Audit", "for templates", "within the namespace", "for nodes"],
)
def test_other_policies_put_no_pod_into_the_scope(made: Any) -> None:
    tenants = Tenants(reaching("bound", apart=(), on="n1"), policies=[made])
    assert tenants.index.statistics()["quota_pods"] == 0


def counted(tenants: Tenants) -> int:
    """The placed pods that count."""
    return tenants.index.statistics()["quota_pods"]


@pytest.mark.parametrize(
    "fields",
    [{"namespace": "kube-system"}, {"labels": {EXEMPT_LABEL: "true"}}],
    ids=["an exempt namespace", "an exempt pod"],
)
def test_pods_that_no_policy_applies_to_are_not_put_into_the_scope(fields: Any) -> None:
    tenants = Tenants(reaching("bound", apart=(), on="n1", **fields), policies=[apart_by_policy()])
    assert counted(tenants) == 0


def test_a_policy_that_selects_other_pods_now_concerns_the_earlier_ones_no_more() -> None:
    tenants = Tenants(reaching("bound", apart=(), on="n1"), limited(1), policies=[apart_by_policy()])
    assert counted(tenants) == 1
    tenants.put(PolicyObject(apart_by_policy(generation=2, podSelector={"matchLabels": {"app": "other"}})))
    assert counted(tenants) == 0
    tenants.put(reaching("second", apart=(), app="other", on="n2"))
    assert counted(tenants) == 1
    tenants.put(PolicyObject(policy("apart", generation=3, nodeSelector={"disk": "ssd"})))
    assert counted(tenants) == 0
    assert audit(tenants.index) == []


def test_a_relabelled_namespace_changes_which_pods_the_policy_puts_into_the_scope() -> None:
    chosen = apart_by_policy(namespaceSelector={"matchLabels": {"tenant": "yes"}})
    tenants = Tenants(
        *(reaching(f"{home}-pod", apart=(), namespace=home, on="n1") for home in ("team", "other")),
        limited(1),
        policies=[chosen],
    )
    assert counted(tenants) == 0
    tenants.put(namespace("team", tenant="yes"))
    assert counted(tenants) == 1
    tenants.put(namespace("team"))
    assert counted(tenants) == 0
    assert audit(tenants.index) == []
