"""The oracle of scheduling policies: which pods it judges, and each way to place a pod against a policy."""

from __future__ import annotations

from typing import Any

import pytest

from extender.simulator.apiserver.kinds import OWN_POLICY_KINDS, POLICY_KINDS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.policies import PolicyOracle, Tally
from extender.simulator.oracle.violations import violations
from tests.builders import REQUIRED, requirement
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, namespace, node, pod, spread, term

GOOD, BAD = "n1", "n2"
NODES = [node(GOOD, "z1", labels={"pool": "db"}), node(BAD, "z2", labels={"pool": "web"})]


def policy(kind: str = "PodSchedulingPolicy", **spec: Any) -> JsonObject:
    """Selects the pods of app web, in `default` or in every namespace."""
    scope: JsonObject = {"namespaceSelector": {}} if kind.startswith("Cluster") else {}
    home = {} if scope else {"namespace": "default"}
    return {
        "kind": kind,
        "apiVersion": "placement.extender.dev/v1alpha1",
        "metadata": {"name": "found", **home},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, **scope, **spec},
    }


def node_terms(*values: str) -> JsonObject:
    """Required node affinity for these pools."""
    terms = [{"matchExpressions": [requirement("pool", "In", list(values))]}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def web(
    name: str = "a", home: str = "default", on: str = "", labels: dict[str, str] | None = None, **spec: Any
) -> JsonObject:
    found = pod(name, home, on=on, labels={"app": "web"} | (labels or {}), **spec)
    found["metadata"]["uid"] = f"uid-{home}-{name}"
    return found


def found(policy: JsonObject, placed: JsonObject, on: str, *others: JsonObject, missed: bool = False) -> list[str]:
    """The reasons of the violations, after this pod was placed there."""
    store = Store()
    store.load([*NODES, namespace("default"), namespace("other", tenant="yes"), *others, policy])
    journal = Journal(store)
    journal.decided(1.0, 1.0, placed["metadata"]["uid"], placed, on)
    name = f"{placed['metadata']['namespace']}/{placed['metadata']['name']}"
    return [each.status.reason for each in violations(journal, missed={name} if missed else ())]


@pytest.mark.parametrize("missed", [False, True])
@pytest.mark.parametrize(
    "directive",
    [{"nodeSelector": {"pool": "db"}}, {"nodeName": GOOD}, {"affinity": node_terms("db", "cache")}],
    ids=["nodeSelector", "nodeName", "nodeAffinity"],
)
@pytest.mark.parametrize("kind", ["PodSchedulingPolicy", "ClusterPodSchedulingPolicy"])
def test_every_pod_keeps_the_nodes_of_a_policy(kind: str, directive: JsonObject, *, missed: bool) -> None:
    assert found(policy(kind, **directive), web(), GOOD, missed=missed) == []
    (reason,) = found(policy(kind, **directive), web(), BAD, missed=missed)
    assert reason.startswith("violates node selector, node name or required node affinity of ")
    assert reason.endswith(" found")


IN_DB: JsonObject = {"nodeSelector": {"pool": "db"}}
CLUSTER = "ClusterPodSchedulingPolicy"
EXEMPT = web(labels={"placement.extender.dev/exempt": "true"})
TENANTS: JsonObject = {"namespaceSelector": {"matchLabels": {"tenant": "yes"}}}
SOFT: JsonObject = {"topologySpreadConstraints": [spread(hard=False, labels={"app": "web"})]}


@pytest.mark.parametrize(
    ("policy", "placed", "missed", "is_judged"),
    [
        pytest.param(policy(**IN_DB), web(), False, True, id="selected"),
        *(
            pytest.param(policy(**IN_DB, **spec), web(), False, False, id=str(spec))
            for spec in (
                {"podSelector": {"matchLabels": {"app": "db"}}},
                {"podSelector": None},
                {"mode": "Audit"},
                {"targets": "Templates"},
                {"when": ["Release"]},
                {"matchConditions": {"ownerKinds": ["Job"]}},
                {"matchConditions": {"serviceAccounts": ["robot"]}},
                {"matchConditions": {"priorityClassNames": ["high"]}},
                {"matchConditions": {"exclude": {"podSelector": {"matchLabels": {"app": "web"}}}}},
                {"matchConditions": {"exclude": {"namespaces": ["default"]}}},
                {"matchConditions": {"exclude": {"serviceAccounts": ["default"]}}},
            )
        ),
        pytest.param(policy(CLUSTER, **IN_DB, **TENANTS), web(home="other"), False, True, id="a selected namespace"),
        pytest.param(policy(CLUSTER, **IN_DB, **TENANTS), web(), False, False, id="another namespace"),
        pytest.param(policy(**IN_DB), web(home="other"), False, False, id="not the namespace of the policy"),
        pytest.param(policy(CLUSTER, **IN_DB), web(home="kube-system"), False, False, id="an exempt namespace"),
        pytest.param(policy(CLUSTER, **IN_DB), EXEMPT, False, True, id="a label that a tenant can write"),
        pytest.param(policy(**IN_DB, when=["Admission"]), web(), False, True, id="at admission"),
        pytest.param(policy(**IN_DB, when=["Admission"]), web(), True, False, id="missed by admission"),
        pytest.param(policy(**IN_DB, when=["Scheduling"]), web(), True, True, id="missed, at scheduling"),
        pytest.param(policy(**SOFT), web(), False, False, id="soft spread"),
    ],
)
def test_a_pod_is_judged_by_the_policies_that_select_it(
    policy: JsonObject, placed: JsonObject, *, missed: bool, is_judged: bool
) -> None:
    assert bool(found(policy, placed, BAD, web("there", on=BAD), missed=missed)) is is_judged


@pytest.mark.parametrize(
    "directive",
    [
        {"affinity": anti_affinity(term(ZONE, app="web"))},
        {"affinity": anti_affinity({**term(HOSTNAME, app="web"), "matchLabelKeys": ["app"]})},
        {"topologySpreadConstraints": [spread(labels={"app": "web"})]},
    ],
    ids=["anti-affinity", "matchLabelKeys", "spread"],
)
@pytest.mark.parametrize("missed", [False, True])
def test_every_pod_keeps_the_terms_for_other_pods_although_its_spec_lacks_them(
    directive: JsonObject, *, missed: bool
) -> None:
    """A webhook that loses a field is found, and not only a rule that decides wrongly."""
    there = web("there", on=BAD)
    assert found(policy(**directive), web(), GOOD, there, missed=missed) == []
    assert found(policy(**directive), web(), BAD, there, missed=missed) == [
        "violates required pod affinity, anti-affinity or spread of policy default / found"
    ]


@pytest.mark.parametrize(
    "directive",
    [
        {"nodeSelector": {"pool": "db"}},
        {"affinity": node_terms("db")},
        {"affinity": node_terms("db"), "nodeSelector": {"pool": "db"}},
    ],
)
@pytest.mark.parametrize("own", [{}, {"affinity": node_terms("db", "web")}], ids=["none", "own node affinity"])
def test_spread_counts_no_pod_on_a_node_that_the_policy_excludes(directive: JsonObject, own: JsonObject) -> None:
    """A pod that admission missed has no node selector of its own. Nodes may lose the label while pods run there."""
    constraint = spread(labels={"app": "web"})
    left = node("left", "z1", labels={"pool": "web"})
    placed = web(**own)
    held = policy(**directive, topologySpreadConstraints=[constraint])
    two = [web("there", on="left"), node("free", "z2", labels={"pool": "db"})]
    assert found(held, placed, GOOD, left, *two, missed=True) == []
    assert len(found(policy(topologySpreadConstraints=[constraint]), placed, GOOD, left, *two, missed=True)) == 1


def test_the_pods_that_were_judged_are_counted() -> None:
    oracle = PolicyOracle([policy()], {"default/b", "default/free"})
    free = pod("free", labels={"app": "free"})
    assert oracle.tally([web("a"), web("b"), free], {}) == Tally(2, 1)


def test_policies_of_another_group_are_not_judged() -> None:
    assert {kind.group for kind in OWN_POLICY_KINDS} == {"placement.extender.dev"}
    assert len(POLICY_KINDS) == 2 * len(OWN_POLICY_KINDS)
