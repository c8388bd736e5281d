"""The dry runs for one preemptor have a budget: many terms, nodes and pods cost no more than it, and harm nothing."""

from __future__ import annotations

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import Group
from extender.index.nodes.topology import NodePods
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.verbs import dry_run
from extender.verbs.dry_run import DryRun, best_among
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs
from tests.builders import Json, matching, settings, term
from tests.contenders import cluster, contender, contender_json, stage
from tests.index.counting import unlimited
from tests.index.test_compile_costs import Calls

SETTINGS: Settings = settings(preemption={"mode": "execute"})


def terms(number: int, key: str = "host") -> list[Json]:
    """So many different terms about web pods."""
    return [term(key, selector=matching((f"x{each}", "DoesNotExist", []), app="web")) for each in range(number)]


def preemptor(number: int = 30, key: str = "host") -> Pod:
    return unlimited(contender_json("asking", priority=100, apart=terms(number, key)))


def crowd(nodes: int, pods: int = 3, *, spared: int = -1) -> ClusterIndex:
    """On each node web pods that may go and one that may not, except on the node ``spared``."""
    made = cluster(*(stage(f"n{number}", "z1") for number in range(nodes)))
    for number in range(nodes):
        for each in range(pods):
            made.upsert(contender(f"w{number}-{each}", on=f"n{number}", app="web"))
        if number != spared:
            made.upsert(contender(f"high-{number}", on=f"n{number}", priority=1000, app="web"))
    return made


def search(index: ClusterIndex, pod: Pod) -> tuple[DryRun, str]:
    """The run over all nodes, and the node that it found."""
    run = DryRun(pod, index.view)
    removal = best_among(sorted(index.view.known.values()), run, 0)
    return run, "" if removal is None else removal.node


def test_many_terms_cost_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MOST_WORK", 5_000)
    index, changes = crowd(40), Calls(monkeypatch, (Group, "add"))
    costs = []
    for number in (100, 200):
        pod = preemptor(number)
        index.view.compiled(pod.signature)
        changes.taken()
        run, found = search(index, pod)
        assert (run.budget.is_spent(), found) == (True, "")
        costs.append(changes.taken())
    assert max(costs) <= 2 * 5_000 / 5 + 2 * 4 * 200  # each change is undone, and a last node is left half way
    assert audit(index) == []


def test_a_run_that_is_abandoned_on_a_node_leaves_no_trace_and_no_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever step the budget ends: never with the pods that happened to be away by then."""
    index, pod = crowd(1, spared=0), preemptor(3)
    before = index.view.dependency_version(index.view.compiled(pod.signature))
    run = DryRun(pod, index.view)
    for most in range(0, 800, 10):
        monkeypatch.setattr(dry_run, "MOST_WORK", most)
        run = DryRun(pod, index.view)
        removal = run.on(index.view.known["n0"])
        assert run.budget.is_spent() is (removal is None)
        assert removal is None or len(removal.victims) == 3
        assert index.view.dependency_version(index.view.compiled(pod.signature)) == before
    assert not run.budget.is_spent()
    assert audit(index) == []


def test_nodes_that_were_not_tried_are_tried_at_the_next_request_for_the_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, pod = crowd(40, spared=30), preemptor(3)
    verb = FilterVerb(index.view, SETTINGS)
    monkeypatch.setattr(dry_run, "MOST_WORK", 2_000)
    args = ExtenderArgs(pod=pod, node_names=sorted(index.view.known, key=index.view.known.__getitem__))
    plans: list[PreemptionPlan | None] = []
    while not any(plans):
        assert len(plans) < 20
        plans.append(verb.decide(args, 0).plan)
    assert len(plans) > 2
    assert plans[-1] is not None
    assert plans[-1].node == "n30"


def test_an_ordinary_preemptor_looks_at_every_node() -> None:
    index = crowd(100, 10, spared=99)
    run, found = search(index, preemptor(2))
    assert (found, len(run.done), run.budget.is_spent()) == ("n99", 100, False)


@pytest.mark.parametrize("number", [1, 50])
def test_pods_elsewhere_in_a_domain_are_looked_for_once_whatever_the_number_of_terms(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    looks, index = Calls(monkeypatch, (NodePods, "pods_on")), crowd(10, 1, spared=0)
    run = DryRun(preemptor(number, "zone"), index.view, across=True)
    looks.taken()
    run.on(index.view.known["n0"])
    assert 0 < looks.taken() <= 12
