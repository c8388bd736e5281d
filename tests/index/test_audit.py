"""The audit names whatever is not true in the index, table by table and group by group, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from extender.index.audit import _places, audit, audit_steps, part
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import SpreadGroup
from extender.index.counts.signature_counts import SignatureCounts
from extender.index.counts.term_counts import OwnerGroup
from extender.model.bounded import without_item
from extender.model.constraints.taints import PREFER_NO_SCHEDULE, Taint
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from extender.wire.objects.kinds import NODES, PODS

HOST = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}
TERM: dict[str, Any] = {"topologyKey": HOST, "labelSelector": WEB}
APART: dict[str, Any] = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    ]
}


def pod(name: str, on: str = "", app: str = "web", **spec: Any) -> Pod:
    meta = {"name": name, "uid": name, "namespace": "ns", "labels": {"app": app}}
    return PODS.decode_object(orjson.dumps({"metadata": meta, "spec": {**spec, **({"nodeName": on} if on else {})}}))


def cluster() -> ClusterIndex:
    """Two nodes; a pod on each that carries a term, another that carries none; asked by terms and by spread."""
    made = ClusterIndex(Settings().rules, counts_of_rules())
    for name in ("n1", "n2"):
        made.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
    made.upsert(pod("apart", "n1", **APART))
    made.upsert(pod("plain", "n1"))
    made.upsert(pod("other", "n2", "other", **APART))
    made.assume(pod("assumed"), ("n2",), 0.0)
    made.view.compiled(pod("asking", **APART, **SPREAD).signature)
    return made


@pytest.fixture
def index() -> ClusterIndex:
    """One for each test, to do harm to."""
    return cluster()


def plain(index: ClusterIndex) -> SignatureCounts:
    """Where the pods without a term are counted."""
    found = index.counts.signatures.find(pod("plain").signature, terminating=False)
    assert found
    return found


def apart(index: ClusterIndex) -> SignatureCounts:
    """Where the pod with a term is counted."""
    found = index.counts.signatures.find(pod("apart", **APART).signature, terminating=False)
    assert found
    return found


def nowhere(index: ClusterIndex) -> None:
    del index.nodes._pods[index.view.known["n1"]]["plain"]


def assumed_nowhere(index: ClusterIndex) -> None:
    index.nodes._pods[index.view.known["n2"]].clear()


def stranger(index: ClusterIndex) -> None:
    index._count(pod("stranger", "n2"), 1)


def miscounted(index: ClusterIndex) -> None:
    plain(index).nodes[index.view.known["n1"]] += 1


def counted_elsewhere(index: ClusterIndex) -> None:
    plain(index).nodes[index.view.known["n2"]] += 1


def not_in_its_namespace(index: ClusterIndex) -> None:
    by_namespace = index.counts.signatures._by_namespace
    by_namespace["ns"] = without_item(by_namespace["ns"], plain(index))


def not_under_its_label(index: ClusterIndex) -> None:
    there = index.counts.signatures._by_label["app"]["web"]
    there["ns"] = without_item(there["ns"], plain(index))


def a_label_too_many(index: ClusterIndex) -> None:
    index.counts.signatures.acquire_label("tier")


def not_an_owner(index: ClusterIndex) -> None:
    groups = apart(index).groups
    del groups[next(each for each in groups if isinstance(each, OwnerGroup))]


def asked_group(index: ClusterIndex) -> None:
    groups = [group for _, groups in index.counts.selections.acquired() for group in groups]
    next(group for group in groups if not isinstance(group, SpreadGroup)).counts.clear()


def owned_group(index: ClusterIndex) -> None:
    next(iter(index.counts.terms.owned())).counts.clear()


def not_offered(index: ClusterIndex) -> None:
    index.counts.terms._offer(next(iter(index.counts.terms.owned())), -1)


def spread_group(index: ClusterIndex) -> None:
    groups = [group for _, groups in index.counts.selections.acquired() for group in groups]
    next(group for group in groups if isinstance(group, SpreadGroup)).counts.clear()


def not_without_a_node(index: ClusterIndex) -> None:
    index.upsert(pod("waiting"))
    del index.unplaced["waiting"]


def without_a_node(index: ClusterIndex) -> None:
    index.unplaced["plain"] = index.pods["plain"]


def without_a_node_and_gone(index: ClusterIndex) -> None:
    index.unplaced["gone"] = pod("gone")


def requested_more(index: ClusterIndex) -> None:
    index.shares.cpu[index.view.known["n2"]] += 1


def tainted(index: ClusterIndex) -> None:
    index.topology.soft_taints[Taint("busy", effect=PREFER_NO_SCHEDULE),] = {index.view.known["n1"]}


def test_a_true_index_has_no_differences(index: ClusterIndex) -> None:
    assert audit(index) == []


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (nowhere, "pod ns/plain: is not on n1"),
        (assumed_nowhere, "assumed pod ns/assumed: is not on n2"),
        (stranger, "pod ns/stranger: is on n2, and not held"),
        (not_without_a_node, "pod ns/waiting: is not among those without a node"),
        (without_a_node, "pod plain: is among those without a node"),
        (without_a_node_and_gone, "pod gone: is among those without a node"),
        (
            requested_more,
            "requested on n2: (201, 419430400, 0.0, 0.0, 0.0) counted, (200, 419430400, 0.0, 0.0, 0.0) there",
        ),
        (tainted, "node n1: is filed under other taints than it has"),
        (miscounted, "pods on n1: 3 counted, 2 there"),
        (counted_elsewhere, "a signature of ns: is counted where its pods are not"),
        (not_in_its_namespace, "a signature of ns: is not filed under its namespace and labels"),
        (not_under_its_label, "a signature of ns: is not filed under its namespace and labels"),
        (a_label_too_many, "label tier: 1 selections anchor on it, should be 0"),
        (not_an_owner, "a signature of ns: is not counted once for each of its terms"),
        (asked_group, f"term group over {HOST}: 'n1' is counted 0 times, should be 2"),
        (owned_group, f"inverse group (required anti-affinity) over {HOST}: 'n1' is counted 0 times, should be 1"),
        (
            not_offered,
            f"inverse group (required anti-affinity) over {HOST}: is part of compiled constraints, or is not, against what nodes carry",
        ),
        (spread_group, f"spread group over {HOST} in ns: 'n2' is counted 0 times, should be 1"),
    ],
)
def test_what_is_not_true_is_named(index: ClusterIndex, harm: Callable[[ClusterIndex], None], told: str) -> None:
    harm(index)
    assert told in audit(index)


def test_the_pods_that_carry_a_term_may_change_between_any_two_steps() -> None:
    """One signature that carries it goes and another comes: as many as may have been noted, and not the same."""
    for done in range(len([*audit_steps(cluster())]) + 1):
        index = cluster()
        steps = [*audit_steps(index)]
        found = [line for step in steps[:done] for line in step()]
        index.delete(index.pods["apart"])
        index.upsert(pod("new", "n2", "new", **APART))
        found += [line for step in steps[done:] for line in step()]
        assert found == []


@pytest.mark.parametrize("start", range(0, 23, 5))
def test_a_part_of_the_pods_is_the_same_from_either_end(start: int) -> None:
    pods = {f"uid-{number}": pod(f"uid-{number}") for number in range(23)}
    assert sorted(part(pods, start, 5)) == sorted(list(pods)[start : start + 5])


def test_no_step_reads_more_than_a_thousand_places_and_all_of_them_are_read() -> None:
    """The pods of one signature may be on a hundred thousand nodes."""
    index = ClusterIndex(Rules(), counts_of_rules())
    for number in range(2500):
        index.upsert(pod(f"p{number}", f"n{number}"))
    index.upsert(pod("other", "n1", "other"))
    parts = list(_places(index))
    assert [sum(len(numbers) for _, numbers in each) for each in parts] == [1000, 1000, 501]


def test_what_nodes_carry_is_added_up_in_steps_and_compared_if_no_node_has_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.index.audit._NODES_ADDED_A_STEP", 1)
    index = cluster()
    index.topology._carriers["carried-by-none"] = 1
    assert audit(index) == ["label carried-by-none: nodes carry it, or do not, against what is known"]
    found = []
    for number, step in enumerate(audit_steps(index)):
        found += step()
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": "n2", "labels": {"step": str(number)}}})))
    assert found == []


def test_the_budget_of_a_namespace_is_added_up_in_steps_and_compared_if_it_has_not_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A namespace may have the pods of ten thousand templates."""
    monkeypatch.setattr("extender.index.audit._BUDGETED_A_STEP", 1)

    def harmed() -> ClusterIndex:
        index = cluster()
        for number in range(3):
            other = {**TERM, "labelSelector": {"matchLabels": {"app": f"a{number}"}}}
            anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [other]}}
            index.upsert(pod(f"more-{number}", "n1", f"a{number}", affinity=anti))
        use = index.namespace_budgets.by_namespace["ns"]
        use._topology_keys["made up"] = 1
        return index

    assert [line.partition(":")[0] for line in audit(harmed())] == ["budget of namespace ns"]
    index, found = harmed(), list[str]()
    for number, step in enumerate(audit_steps(index)):
        found += step()
        index.upsert(pod(f"new-{number}", "n2", f"b{number}", **APART))
    assert found == []
