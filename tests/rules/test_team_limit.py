"""A further rule that counts takes part in every verb: its own file and a line in the list are enough."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cli.explain import report
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.tasks.rejected_pods import dependency_version, is_unchanged
from extender.verbs.explain.explaining import rejection_note
from extender.verbs.filter import FilterDecision, FilterVerb
from tests.builders import extender_args, node_json, settings
from tests.contenders import cluster, contender, contender_json, stage
from tests.explaining import explained
from tests.rules.team_limit import RACK, TeamLimit

REQUESTED: dict[str, Any] = {"priority": 100, "labels": {"team": "red"}}
NAMES = ("n0", "n1", "n2")


@pytest.fixture(autouse=True)
def _in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "RULES", (*catalog.RULES, TeamLimit(2)))


class Racks:
    """Two nodes in rack r0 and one in r1, with two red pods in r0, and a filter verb."""

    def __init__(self, **sections: Any) -> None:
        racks = zip(NAMES, ("r0", "r0", "r1"), strict=True)
        self.index: ClusterIndex = cluster(*(stage(name, labels={RACK: rack}) for name, rack in racks))
        self.settings = settings(**sections)
        self.verb = FilterVerb(self.index.view, self.settings)
        self.red = [self.add(f"red-{each}", f"n{each}", team="red") for each in range(2)]

    def add(self, name: str, on: str, **fields: Any) -> Pod:
        pod = contender(name, on=on, priority=1, **fields)
        self.index.upsert(pod)
        return pod

    def filter(self, *names: str) -> FilterDecision:
        return self.verb.decide(extender_args(contender_json("asking", **REQUESTED), *(names or NAMES)), 0)


def test_a_full_rack_rejects_pods_of_the_team_alone() -> None:
    racks = Racks()
    assert list(racks.filter().result.passed) == ["n2"]
    racks.add("blue", "n2", team="blue")
    other = extender_args(contender_json("other", labels={"team": "blue"}), *NAMES)
    assert list(racks.verb.decide(other, 0).result.passed) == list(NAMES)
    assert audit(racks.index) == []


def test_pods_of_every_namespace_count_and_share_one_group() -> None:
    racks = Racks()
    racks.add("far", "n2", team="red", namespace="far")
    racks.add("near", "n2", team="red")
    assert not racks.filter().result.passed
    groups = racks.index.statistics()["term_groups"]
    far = extender_args(contender_json("far-too", namespace="far", labels={"team": "red", "app": "x"}), *NAMES)
    assert not racks.verb.decide(far, 0).result.passed
    assert racks.index.statistics()["term_groups"] == groups


def test_a_rejection_has_its_parts() -> None:
    racks = Racks()
    pod, view = extender_args(contender_json("asking", **REQUESTED)).pod, racks.index.view
    filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame())
    blamed = ("default/red-0", "default/red-1")
    rejection = Rejection("TeamLimit", Reason.ANTI_AFFINITY, "", RACK, "r0", count=2, limit=1, blamed=blamed)
    assert [filters.verdict(number) for number in range(3)] == [rejection, rejection, None]


def test_hypothetical_nodes_are_judged_by_their_labels() -> None:
    racks = Racks()
    nodes = [node_json(f"x{rack}", labels={RACK: rack}) for rack in ("r0", "r1", "r9")] + [node_json("x")]
    passed = racks.verb.decide(extender_args(contender_json("asking", **REQUESTED), nodes=nodes), 0).result.passed
    assert list(passed) == ["xr1", "xr9", "x"]


def test_an_explanation_shows_the_racks_and_the_rejecting_nodes() -> None:
    racks = Racks()
    found = explained(racks.index, contender("asking", **REQUESTED), racks.settings)
    (state,) = found.constraints
    assert (state.kind, state.pods, state.limit) == ("teamLimit", "team=red", 1)
    assert [(each.domain, each.count, each.passes) for each in state.domains] == [("r0", 2, False), ("r1", 0, True)]
    assert [(each.rule, each.nodes, each.examples) for each in found.obstacles] == [("TeamLimit", 2, ("n0", "n1"))]


def test_an_explanation_is_printed_and_reported_by_the_kind_of_the_state() -> None:
    racks = Racks()
    for each in range(2, 4):
        racks.add(f"red-{each}", "n2", team="red")
    found = explained(racks.index, contender("asking", **REQUESTED), racks.settings)
    head = f"teamLimit by {RACK}"
    assert f"{head}; pods: team=red; namespaces: all (every namespace)" in list(report(found))
    assert rejection_note(found) == (
        f"{head} with pods team=red: r0: 2 counted, 1 would pass (because of default/red-0, default/red-1), "
        "r1: 2 counted, 1 would pass (because of default/red-2, default/red-3)"
    )


def test_a_pod_of_the_team_is_preempted_and_no_other() -> None:
    racks = Racks()
    racks.add("blue", "n0", team="blue")
    for each in range(2):
        racks.index.upsert(contender(f"senior-{each}", on="n2", priority=100, team="red"))
    plan = racks.filter().plan
    assert plan is not None
    assert (plan.node, [pod.name for pod in plan.victims]) in [("n0", ["red-0"]), ("n1", ["red-1"])]


def test_a_rejected_pod_is_tried_again_once_a_pod_of_the_team_has_left() -> None:
    racks = Racks(preemption={"mode": "off"})
    pod = extender_args(contender_json("asking", **REQUESTED)).pod
    racks.filter("n0", "n1")
    racks.filter("n0", "n1")
    assert racks.verb.rejections.hits == 1
    version = dependency_version(pod, racks.index.view)
    racks.add("blue", "n0", team="blue")
    assert is_unchanged(pod, version, racks.index.view)
    racks.index.delete(racks.red[0])
    assert not is_unchanged(pod, version, racks.index.view)
    assert list(racks.filter("n0", "n1").result.passed) == ["n0", "n1"]


def test_it_counts_nothing_before_a_node_has_a_rack_and_from_then_on() -> None:
    index = cluster(stage("n0"))
    verb = FilterVerb(index.view, settings())
    incoming = extender_args(contender_json("asking", **REQUESTED), "n0")
    for each in range(2):
        index.upsert(contender(f"red-{each}", on="n0", team="red", priority=100))
    assert list(verb.decide(incoming, 0).result.passed) == ["n0"]
    assert index.statistics()["term_groups"] == 0
    index.upsert(stage("n0", labels={RACK: "r0"}))
    assert not verb.decide(incoming, 0).result.passed
    assert audit(index) == []
