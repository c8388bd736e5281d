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
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, namespace, node, pod, spread, term

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
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
    expression = {"key": "pool", "operator": "In", "values": list(values)}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def web(name: str = "a", home: str = "default", on: str = "", **spec: Any) -> JsonObject:
    found = pod(name, home, on=on, labels={"app": "web"}, **spec)
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


@pytest.mark.parametrize(
    "spec",
    [
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
    ],
    ids=str,
)
def test_a_pod_that_a_policy_does_not_concern_is_free(spec: JsonObject) -> None:
    assert found(policy(nodeSelector={"pool": "db"}), web(), BAD) != []
    assert found(policy(nodeSelector={"pool": "db"}, **spec), web(), BAD) == []


def test_namespaces_select_and_exempt() -> None:
    held: JsonObject = {"nodeSelector": {"pool": "db"}}
    tenants = policy("ClusterPodSchedulingPolicy", **held, namespaceSelector={"matchLabels": {"tenant": "yes"}})
    assert found(tenants, web(home="other"), BAD) != []
    assert found(tenants, web(), BAD) == []
    assert found(policy(**held), web(home="other"), BAD) == []
    every = policy("ClusterPodSchedulingPolicy", **held)
    assert found(every, web(home="kube-system"), BAD) == []
    labelled = web()
    labelled["metadata"]["labels"]["placement.extender.dev/exempt"] = "true"
    assert found(every, labelled, BAD) != [], "a tenant can write the label"


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


def test_soft_spread_holds_nothing() -> None:
    soft = {**spread(labels={"app": "web"}), "whenUnsatisfiable": "ScheduleAnyway"}
    assert found(policy(topologySpreadConstraints=[soft]), web(), BAD, web("there", on=BAD)) == []


def test_of_a_policy_for_admission_only_a_missed_pod_is_free() -> None:
    found_at_admission = policy(nodeSelector={"pool": "db"}, when=["Admission"])
    assert found(found_at_admission, web(), BAD) != []
    assert found(found_at_admission, web(), BAD, missed=True) == []
    at_scheduling = policy(nodeSelector={"pool": "db"}, when=["Scheduling"])
    assert found(at_scheduling, web(), BAD, missed=True) != []


def test_the_pods_that_were_judged_are_counted() -> None:
    oracle = PolicyOracle([policy()], {"default/b", "default/free"})
    free = pod("free", labels={"app": "free"})
    assert oracle.tally([web("a"), web("b"), free], {}) == Tally(2, 1)


def test_policies_of_another_group_are_not_judged() -> None:
    assert {kind.group for kind in OWN_POLICY_KINDS} == {"placement.extender.dev"}
    assert len(POLICY_KINDS) == 2 * len(OWN_POLICY_KINDS)
