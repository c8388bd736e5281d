"""Which workloads have a figure of skew, by which names, and how many; `tests/laws/test_excluded_domains.py` has the figures."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.bounded import at_once
from extender.model.constraints.labels import ZONE
from extender.model.policies import Policy, PolicyObject
from extender.verbs import spread_skew
from extender.verbs.effective_pod import enforced_directives
from extender.verbs.spread_skew import SkewFigures, skew_figures
from tests.builders import Json, index_of, node, pod_json, read_pod, settings, spread
from tests.policies import policy

ENABLED = settings(policies={"enabled": True})
DIRECTED: Json = {"spread": [{"topologyKey": ZONE, "unavailableDomains": "Exclude"}]}


def put(
    index: ClusterIndex,
    name: str,
    owner: tuple[str, str] | None,
    zone: str = "a",
    namespace: str = "default",
    **more: Any,
) -> None:
    hard = spread("zone", app="web", **more)
    labels = {ZONE: zone}  # as a binding adds it (KEP-4742), so that each zone has a signature of its own
    if owner is not None:
        labels |= {"set": owner[1], "pod-template-hash": owner[1].removeprefix("web-")}
    body = pod_json(name, on=f"n{zone}", namespace=namespace, labels=labels, app="web", spreads=[hard], owner=owner)
    index.upsert(read_pod(body))


def cluster(*policies: Policy) -> ClusterIndex:
    return index_of(*map(PolicyObject, policies), node("na", zone="a"), node("nb", zone="b"))


def figures(index: ClusterIndex) -> SkewFigures:
    return at_once(skew_figures(index.view, ENABLED))


def test_pods_that_terminate_make_no_workload() -> None:
    index = cluster(policy(**DIRECTED))
    body = pod_json("going", on="na", app="web", spreads=[spread("zone", app="web")], owner=("ReplicaSet", "web-old"))
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    index.upsert(read_pod(body))
    assert sum(figures(index).workloads.values()) == 0


def test_a_deployment_counts_once_with_the_replica_set_that_is_furthest_above() -> None:
    index = cluster(policy(**DIRECTED))
    for number in range(3):
        put(index, f"old-{number}", ("ReplicaSet", "web-old"), match_label_keys=["pod-template-hash"])
    put(index, "new", ("ReplicaSet", "web-new"), match_label_keys=["pod-template-hash"])
    assert figures(index).shown == {("default", "Deployment/web", ZONE): (3, 1)}
    assert figures(index).workloads == {"within": 0, "above": 1, "not_looked_at": 0}


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet", "ReplicationController"])
def test_other_controllers_are_named_by_their_kind(kind: str) -> None:
    index = cluster(policy(**DIRECTED))
    put(index, "web-0", (kind, "web"))
    assert figures(index).shown == {("default", f"{kind}/web", ZONE): (1, 1)}
    assert figures(index).workloads["within"] == 1


@pytest.mark.parametrize(
    "policies",
    [
        [],
        [{}],
        [{**DIRECTED, "mode": "Audit"}],
        [{"spread": [{"topologyKey": "rack", "unavailableDomains": "Exclude"}]}],
        [{**DIRECTED, "podSelector": {"matchLabels": {"app": "db"}}}],
    ],
    ids=["no policy", "no directive", "not enforced", "another key", "other pods"],
)
def test_without_an_enforced_directive_there_is_no_figure(policies: list[Json]) -> None:
    index = cluster(*(policy(**each) for each in policies))
    put(index, "web-0", ("ReplicaSet", "web"))
    assert figures(index) == SkewFigures()


def test_a_pod_without_a_controller_has_no_figure() -> None:
    index = cluster(policy(**DIRECTED))
    put(index, "web-0", None)
    assert figures(index) == SkewFigures()


def test_the_series_are_those_of_the_workloads_furthest_above_and_no_more_are_looked_at_than_a_round_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spread_skew, "MOST_SHOWN", 2)
    monkeypatch.setattr(spread_skew, "MOST_WORKLOADS", 4)
    index = cluster(policy(**DIRECTED))
    for number, skew in enumerate([1, 3, 2, 1, 1, 1]):
        for each in range(skew):
            put(index, f"{number}-{each}", ("StatefulSet", f"s{number}"), match_label_keys=["set"])
    found = figures(index)
    assert {name for _, name, _ in found.shown} == {"StatefulSet/s1", "StatefulSet/s2"}
    assert sum(found.workloads.values()) == 6
    assert found.workloads["not_looked_at"] == 2


@pytest.mark.parametrize("most", [("MOST_SHOWN", 4), ("MOST_WORKLOADS", 4)], ids=["shown", "looked at"])
def test_a_tenant_with_many_controllers_hides_no_other(monkeypatch: pytest.MonkeyPatch, most: tuple[str, int]) -> None:
    monkeypatch.setattr(spread_skew, *most)
    index = cluster(policy(**DIRECTED))
    for number in range(20):
        for each in range(9):
            put(index, f"{number}-{each}", ("StatefulSet", f"s{number}"), namespace="hostile", match_label_keys=["set"])
    for each in range(3):
        put(index, f"web-{each}", ("StatefulSet", "web"), match_label_keys=["set"])
    found = figures(index)
    assert len(found.shown) == 4
    assert ("default", "StatefulSet/web", ZONE) in found.shown


def test_a_name_of_an_owner_is_cut() -> None:
    """It is what a tenant writes, and no object needs to have it."""
    index = cluster(policy(**DIRECTED))
    put(index, "web-0", ("StatefulSet", "x" * 5000))
    assert [len(name) for _, name, _ in figures(index).shown] == [len("StatefulSet/") + 253]


def test_which_policies_select_the_pods_is_asked_once_for_a_controller_and_in_a_step_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = cluster(policy(**DIRECTED, podSelector={"matchLabels": {"app": "db"}}))
    for number in range(5):
        for zone in "ab":
            put(index, f"{number}-{zone}", ("StatefulSet", f"s{number}"), zone=zone)
    selections: list[str] = []

    def counted(*arguments: Any) -> Any:
        selections.append("")
        return enforced_directives(*arguments)

    monkeypatch.setattr(spread_skew, "enforced_directives", counted)
    in_steps = []
    for _ in skew_figures(index.view, ENABLED):
        in_steps.append(len(selections))
        selections.clear()
    assert max(in_steps) == 1
    assert sum(in_steps) == 5
