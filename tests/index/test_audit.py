"""The audit names whatever is not true in the index, table by table and group by group, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from extender.index import audit as module
from extender.index.audit import _places, audit, audit_steps, part
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import SelectedGroup, SignatureCounts, SpreadGroup
from extender.index.counts.term_counts import OwnerGroup
from extender.index.nodes.domains import Inclusion
from extender.model.bounded import Few, without_item
from extender.model.constraints.taints import PREFER_NO_SCHEDULE, Taint
from extender.model.objects import Node, Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from tests.builders import read_node, read_pod

HOST = "kubernetes.io/hostname"
SOFT = Taint("busy", effect=PREFER_NO_SCHEDULE)
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
    return read_pod({"metadata": meta, "spec": {**spec, **({"nodeName": on} if on else {})}})


def cluster() -> ClusterIndex:
    """Two nodes; a pod on each that carries a term, another that carries none; asked by terms and by spread."""
    made = ClusterIndex(Settings().rules, counts_of_rules())
    for name in ("n1", "n2"):
        made.upsert(read_node({"metadata": {"name": name, "labels": {HOST: name}}}))
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


def on(index: ClusterIndex, name: str) -> dict[str, Pod]:
    """The pods that are filed under a node."""
    return index.nodes._pods[index.view.known[name]]


def unfile(buckets: dict[str, Few[SignatureCounts]], index: ClusterIndex) -> None:
    """Takes the pods without a term out of where their namespace is looked for."""
    buckets["ns"] = without_item(buckets["ns"], plain(index))


def groups(index: ClusterIndex, kind: type[SpreadGroup] | None) -> list[SelectedGroup]:
    """Those of spread constraints, or those of terms."""
    every = [group for _, groups in index.counts.selections.acquired() for group in groups]
    return [group for group in every if isinstance(group, SpreadGroup) is (kind is SpreadGroup)]


def owned(index: ClusterIndex) -> OwnerGroup:
    """The group of the term that a pod carries."""
    return next(iter(index.counts.terms.owned()))


def test_a_true_index_has_no_differences(index: ClusterIndex) -> None:
    assert audit(index) == []


UNFILED = "a signature of ns: is not filed under its namespace and labels"
ROW = "419430400, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0"
REQUESTED = f"requested on n2: (201, {ROW}) counted, (200, {ROW}) there"
UNSHARED = f"requested on n2: (200, 419430400, 0.0, 0.0, 0.0) counted, (200, {ROW}) there"
INVERSE = f"inverse group (required anti-affinity) over {HOST}"
HARM: list[tuple[Callable[[ClusterIndex], object], str]] = [
    (lambda index: on(index, "n1").pop("plain"), "pod ns/plain: is not on n1"),
    (lambda index: on(index, "n2").clear(), "assumed pod ns/assumed: is not on n2"),
    (lambda index: index._count(pod("stranger", "n2"), 1), "pod ns/stranger: is on n2, and not held"),
    (lambda index: index.unplaced.pop("waiting"), "pod ns/waiting: is not among those without a node"),
    (
        lambda index: index.unplaced.update(plain=index.pods["plain"]),
        "pod plain: is among those without a node",
    ),
    (lambda index: index.unplaced.update(deleted=pod("deleted")), "pod deleted: is among those without a node"),
    (lambda index: index.shares.cpu.__setitem__(index.view.known["n2"], 201), REQUESTED),
    (lambda index: index.shares.of_node.pop("n2"), UNSHARED),
    (
        lambda index: index.topology.soft_taints.update({(SOFT,): {index.view.known["n1"]}}),
        "node n1: is filed under other taints than it has",
    ),
    (lambda index: plain(index).nodes.update({index.view.known["n1"]: 2}), "pods on n1: 3 counted, 2 there"),
    (
        lambda index: plain(index).nodes.update({index.view.known["n2"]: 2}),
        "a signature of ns: is counted where its pods are not",
    ),
    (lambda index: unfile(index.counts.signatures._by_namespace, index), UNFILED),
    (lambda index: unfile(index.counts.signatures._by_label["app"]["web"], index), UNFILED),
    (
        lambda index: index.counts.signatures.acquire_label("tier"),
        "label tier: 1 selections anchor on it, should be 0",
    ),
    (
        lambda index: apart(index).groups.pop(owned(index)),
        "a signature of ns: is not counted once for each of its terms",
    ),
    (
        lambda index: groups(index, None)[0].counts.clear(),
        f"term group over {HOST}: 'n1' is counted 0 times, should be 2",
    ),
    (lambda index: owned(index).counts.clear(), f"{INVERSE}: 'n1' is counted 0 times, should be 1"),
    (
        lambda index: index.counts.terms._offer(owned(index), -1),
        f"{INVERSE}: is part of compiled constraints and no node has the key, or the other way round",
    ),
    (
        lambda index: groups(index, SpreadGroup)[0].counts.clear(),
        f"spread group over {HOST} in ns: 'n2' is counted 0 times, should be 1",
    ),
]


@pytest.mark.parametrize(("harm", "problem"), HARM, ids=[problem for _, problem in HARM])
def test_what_is_not_true_is_named(index: ClusterIndex, harm: Callable[[ClusterIndex], object], problem: str) -> None:
    index.upsert(pod("waiting"))
    harm(index)
    assert problem in audit(index)


def test_the_counts_of_domains_and_of_gated_groups_are_asked_for(
    index: ClusterIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(index.domains), "wrong_counts", lambda _: ["of domains"])
    monkeypatch.setattr(type(index.gated), "wrong_groups", lambda _: ["of groups"])
    assert audit(index) == ["of domains", "of groups"]


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


@pytest.mark.parametrize(("harm", "problem"), HARM, ids=[problem for _, problem in HARM])
def test_what_is_not_true_of_a_group_with_many_pods_is_named(
    index: ClusterIndex, harm: Callable[[ClusterIndex], object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PLACES_COUNTED_A_STEP", 1)
    test_what_is_not_true_is_named(index, harm, problem)


def test_a_group_with_many_pods_is_counted_in_steps_between_which_it_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PLACES_COUNTED_A_STEP", 1)
    index, more = cluster(), 0
    for number in range(9):
        index.upsert(pod(f"more-{number}", f"n{number % 2 + 1}", f"app-{number}", **APART))
    for number, step in enumerate(audit_steps(index)):
        more += getattr(step, "__name__", "") == "_go_on"
        assert step() == []
        index.upsert(pod(f"new-{number}", "n1"))
        if (deleted := index.pods.get(f"more-{more}")) is not None:
            index.delete(deleted)
        moved = {"metadata": {"name": "n2", "labels": {HOST: f"n2-{number}"}}}
        index.upsert(read_node(moved))
    assert more > 9


def test_a_group_is_counted_without_a_look_at_nodes_that_have_none_of_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are thousands of groups, and a hundred thousand nodes."""
    looked: list[int] = []
    admitted = Inclusion.admitted

    def noted(self: Inclusion, carried: str, numbers: Iterable[int], nodes: Sequence[Node | None]) -> list[int]:
        looked.append(len(found := list(numbers)))
        return admitted(self, carried, found, nodes)

    index = cluster()
    for number in range(100):
        index.upsert(read_node({"metadata": {"name": f"x{number}", "labels": {HOST: "x"}}}))
    monkeypatch.setattr(Inclusion, "admitted", noted)
    assert audit(index) == []
    assert looked
    assert max(looked) <= 2


@pytest.mark.parametrize("start", range(0, 33, 5))  # the table may have shrunk since the steps were laid out
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
    monkeypatch.setattr("extender.index.audit._ADDED_A_STEP", 1)
    index = cluster()
    index.topology._carriers["carried-by-none"] = 1
    assert audit(index) == [
        "label carried-by-none: is counted as a label of nodes and no node has it, or the other way round"
    ]
    found = []
    for number, step in enumerate(audit_steps(index)):
        found += step()
        index.upsert(read_node({"metadata": {"name": "n2", "labels": {"step": str(number)}}}))
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
