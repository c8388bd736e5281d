"""Compiling constraints is linear in the terms of the pod, and a correction looks only at what has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import ConstraintCompiler
from extender.index.counts.selections import PodSelector, Selection, Selections
from extender.index.objects.workloads import Workloads
from extender.model.objects import Object
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.rules.topology_spread import spread_groups
from tests.builders import Json, index_of, matching, namespace, node, pod, pod_json, spread, term, workload
from tests.index.counting import compiled_of, counts_of, drop_all, near


class Calls:
    """How often some methods are called."""

    def __init__(self, patch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> None:
        self.made = 0
        for owner, name in methods:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            self.made += 1
            return method(*arguments, **named)

        return counted

    def taken(self) -> int:
        """How many since the last time."""
        made, self.made = self.made, 0
        return made


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Everything that compiling does once for each term, or for each of its groups."""
    return Calls(
        monkeypatch,
        (PodSelector, "__hash__"),
        (PodSelector, "__eq__"),
        (Selection, "selects"),
        (Selections, "add_group"),
        (Selections, "remove_group"),
    )


def zoned() -> ClusterIndex:
    """Two nodes in two zones, a web pod on the first, and namespaces of two teams."""
    return index_of(
        node("n1", zone="z1"),
        node("n2", zone="z2"),
        namespace("default", team="a"),
        namespace("other", team="b"),
        pod("web", on="n1", app="web"),
    )


def many(number: int, key: str = "zone") -> list[Json]:
    """So many different terms about web pods."""
    return [term(key, selector=matching((f"x{each}", "DoesNotExist", []), app="web")) for each in range(number)]


@pytest.mark.parametrize("key", ["zone", ""], ids=["one key", "a key for each term"])
def test_required_affinity_compiles_in_time_linear_in_its_terms(work: Calls, key: str) -> None:
    costs = []
    for number in (50, 100):
        index = zoned()
        terms = many(number)
        if not key:
            terms = [{**each, "topologyKey": f"example.com/k{at}"} for at, each in enumerate(terms)]
        asked = pod_json(near=terms)
        work.taken()
        compiled_of(index, asked)
        drop_all(index)
        costs.append(work.taken())
    assert costs[1] <= 2.2 * costs[0]


def test_required_terms_over_one_key_share_one_group() -> None:
    index = zoned()
    assert near(index, pod_json(near=[*many(20), *many(3, "host")])) == [{"z1": 1}, {"n1": 1}]


UNRELATED = [
    pytest.param(workload("ReplicaSet", "rs", matching(app="x")), id="a ReplicaSet"),
    pytest.param(workload("Service", "svc", {"app": "x"}, namespace="other"), id="a Service elsewhere"),
    pytest.param(namespace("other", team="a"), id="another namespace"),
    pytest.param(namespace("new", team="c"), id="a new namespace"),
]


@pytest.mark.parametrize("change", UNRELATED)
def test_a_change_that_does_not_concern_a_request_costs_none_of_its_terms(work: Calls, change: Object) -> None:
    index, asked = zoned(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, asked)
    index.upsert(change)
    work.taken()
    assert compiled_of(index, asked) is compiled
    assert work.taken() == 0


@pytest.mark.parametrize("change", UNRELATED)
def test_default_constraints_are_deduced_again_only_where_their_workloads_change(
    monkeypatch: pytest.MonkeyPatch, change: Object
) -> None:
    deduced = Calls(monkeypatch, (Workloads, "default_selector"))
    index, asked = zoned(), pod_json(app="web")
    index.upsert(workload("Service", "own", {"app": "web"}))
    compiled_of(index, asked)
    deduced.taken()
    index.upsert(change)
    compiled_of(index, asked)
    assert deduced.taken() == 0
    index.upsert(workload("Service", "own", {"app": "db"}))
    assert spread_groups(compiled_of(index, asked)).soft == ()
    index.delete(workload("Service", "own", {"app": "db"}))
    index.upsert(workload("Service", "own", {"app": "web"}))
    assert len(spread_groups(compiled_of(index, asked)).soft) == 2
    assert audit(index) == []


def test_terms_of_existing_pods_that_come_and_go_leave_the_request_s_own_groups(work: Calls) -> None:
    index, asked = zoned(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, asked)
    index.upsert(repelling := pod("repelling", on="n2", apart=[term("zone", app="web")]))
    work.taken()
    now = compiled_of(index, asked)
    assert work.taken() == 0
    assert own_terms(now).affinity is own_terms(compiled).affinity
    assert [counts_of(group) for group in terms_of_others(now).anti] == [{"z2": 1}]
    index.delete(repelling)
    assert terms_of_others(compiled_of(index, asked)).anti == ()


def test_own_labels_of_a_namespace_decide_anew_whether_a_pod_matches_itself() -> None:
    index = zoned()
    asked = pod_json(app="lone", near=[term("zone", namespace_selector=matching(team="a"), app="lone")])
    seen = [own_terms(compiled_of(index, asked)).matches_itself]
    for team in ("b", "a"):
        index.upsert(namespace("default", team=team))
        compiled_of(index, pod_json("another", near=[term("zone", namespace_selector=matching(team="a"), app="lone")]))
        seen.append(own_terms(compiled_of(index, asked)).matches_itself)
    assert seen == [True, False, True]


def test_members_in_a_relabelled_namespace_are_corrected_when_the_request_is_put_again() -> None:
    index = zoned()
    asked = pod_json(near=[term("zone", namespace_selector=matching(team="a"), app="web")])
    seen = [near(index, asked)]
    for team in ("b", "a"):
        index.upsert(namespace("default", team=team))
        seen.append(near(index, asked))
    assert seen == [[{"z1": 1}], [{}], [{"z1": 1}]]


def test_services_leave_nothing_of_their_namespace_behind() -> None:
    workloads = zoned().workloads
    for number in range(10):
        service = workload("Service", "svc", {"app": "web"}, namespace=f"ns{number}")
        workloads.change(service.key, service)
        workloads.change(service.key, None)
    assert (workloads.objects, workloads._services, workloads._service_versions) == ({}, {}, {})


def test_every_request_can_be_dropped_at_once() -> None:
    index = zoned()
    for number in range(3):
        compiled_of(index, pod_json(near=many(3), spreads=[spread("zone", app="web")], app=f"a{number}"))
    assert isinstance(index.counts.compiler, ConstraintCompiler)
    drop_all(index)
    sizes = index.statistics()
    kept = ("compiled_constraints", "term_groups", "spread_groups", "scopes", "topology_keys", "indexed_labels")
    assert [sizes[name] for name in kept] == [0] * len(kept)
