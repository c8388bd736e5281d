"""What is broken of running pods equals a brute-force recount, whatever the order of events and rounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from extender.features.execution.broken import BrokenConstraints, WatchedPods
from extender.features.execution.directive import WatchedConstraint
from extender.index.cluster import ClusterIndex
from extender.model.bounded import at_once
from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.simulator.oracle.brute_force import (
    AFFINITY_REJECTED,
    ANTI_AFFINITY_REJECTED,
    EXISTING_REJECTED,
    SPREAD_REJECTED,
    UNPARSABLE_CONSTRAINT,
    PluginStatus,
    are_parsable,
    feasible,
    matches_node_affinity,
    tolerates_taints,
)
from tests.builders import Json, settings
from tests.laws.observing import Cluster, apply, fresh
from tests.policies import policy
from tests.strategies import NODE_NAMES, POD_NAMES, Change, Step, histories, linked_pods

SETTINGS: Final = settings(policies={"enabled": True})
WATCH: Final = PolicyObject(policy("watch", when=["Execution"]))


def crowded() -> st.SearchStrategy[list[Step]]:
    """Histories in which pods with constraints on each other come to any nodes."""
    named = st.sampled_from(POD_NAMES).flatmap(lambda name: st.tuples(st.just(name), linked_pods(name)))
    placed = st.builds(on_node, named, st.sampled_from(NODE_NAMES[:3]))
    return st.builds(lambda one, other: [*one, *other], histories(3), st.lists(placed, min_size=4, max_size=8))


def on_node(named: tuple[str, Json], node: str) -> Step:
    name, body = named
    return Change("pods", name, {**body, "spec": {**body["spec"], "nodeName": node}})


Broken = set[tuple[str, WatchedConstraint]]


def watching(index: ClusterIndex) -> BrokenConstraints:
    index.upsert(WATCH)
    return BrokenConstraints(index.view, SETTINGS)


def uid_of(body: Json) -> str:
    return str(body["metadata"]["uid"])


def found_in(broken: BrokenConstraints, index: ClusterIndex) -> Broken:
    """Each pod with each of its broken constraints."""
    return {
        (pod.uid, finding.place.kind)
        for watched in broken.found.values()
        for finding in watched.found
        for number in finding.nodes
        for pod in index.view.pods_on(number).values()
        if is_of(watched, pod)
    }


def is_of(watched: WatchedPods, pod: Pod) -> bool:
    return pod.signature is watched.signature and not pod.terminating


def runs(body: Json) -> bool:
    phase = (body.get("status") or {}).get("phase")
    return bool(body["spec"].get("nodeName")) and phase not in ("Succeeded", "Failed")


def with_affinity(body: Json, *parts: str) -> Json:
    """A pod with these parts of its affinity only, and without spread constraints."""
    affinity = {part: terms for part, terms in (body["spec"].get("affinity") or {}).items() if part in parts}
    return {**body, "spec": {**body["spec"], "affinity": affinity, "topologySpreadConstraints": []}}


def hard_of(body: Json) -> list[Json]:
    constraints = body["spec"].get("topologySpreadConstraints") or []
    return [each for each in constraints if each["whenUnsatisfiable"] == "DoNotSchedule"]


def is_counted(body: Json, node: Json) -> bool:
    """Whether the pod counts for all of its spread constraints: its node is not excluded by an inclusion policy."""
    labels = node["metadata"].get("labels") or {}
    hard = hard_of(body)
    if not all(each["topologyKey"] in labels for each in hard):
        return False
    honors = any(each.get("nodeAffinityPolicy") != "Ignore" for each in hard)
    if honors and not matches_node_affinity(body, node):
        return False
    return not any(each.get("nodeTaintsPolicy") == "Honor" for each in hard) or tolerates_taints(body, node)


def recounted(cluster: Cluster) -> tuple[Broken, Broken]:
    """What is broken by the oracle, and what it cannot judge."""
    broken, undecided = Broken(), Broken()
    nodes = {node["metadata"]["name"]: node for node in cluster.of("nodes")}
    running = [body for body in cluster.of("pods") if runs(body)]
    for body in running:
        node = nodes.get(body["spec"]["nodeName"])
        if node is None or body["metadata"].get("deletionTimestamp"):
            continue
        kinds = judged(body, node, cluster, [other for other in running if other is not body])
        broken |= {(uid_of(body), kind) for kind, is_broken in kinds.items() if is_broken}
        undecided |= {(uid_of(body), kind) for kind in WatchedConstraint if kind not in kinds}
    return broken, undecided


def judged(body: Json, node: Json, cluster: Cluster, others: Iterable[Json]) -> dict[WatchedConstraint, bool]:
    """Whether a pod would be rejected on its node today, by kind of constraint; without what the oracle cannot judge."""
    if not are_parsable(body):
        return {}

    def status(pod: Json) -> PluginStatus:
        return feasible(pod, cluster.of("nodes"), cluster.of("namespaces"), others)[node["metadata"]["name"]]

    rejects = (ANTI_AFFINITY_REJECTED, EXISTING_REJECTED)
    kinds = {
        WatchedConstraint.NODE_AFFINITY: not matches_node_affinity(body, node),
        WatchedConstraint.POD_AFFINITY: status(with_affinity(body, "podAffinity")) == AFFINITY_REJECTED,
        WatchedConstraint.POD_ANTI_AFFINITY: status(with_affinity(body, "podAntiAffinity")) in rejects,
    }
    spread = status(body)
    if is_counted(body, node) and spread != UNPARSABLE_CONSTRAINT:
        kinds[WatchedConstraint.TOPOLOGY_SPREAD] = spread == SPREAD_REJECTED
    return kinds


@given(st.one_of(histories(), crowded()), st.lists(st.booleans(), min_size=30, max_size=30))
def test_what_is_broken_equals_a_brute_force_recount(history: list[Step], rounds: list[bool]) -> None:
    cluster = Cluster()
    index = fresh(cluster, SETTINGS)
    broken = watching(index)
    for step, has_round in zip(history, rounds, strict=False):
        apply(index, cluster, step)
        if has_round:
            at_once(broken.round(0.0))
    at_once(broken.round(1.0))
    want, undecided = recounted(cluster)
    assert found_in(broken, index) - undecided == want - undecided


@given(st.one_of(histories(), crowded()), st.lists(st.booleans(), min_size=30, max_size=30))
def test_rounds_between_events_find_what_one_round_over_a_fresh_index_finds(
    history: list[Step], rounds: list[bool]
) -> None:
    cluster = Cluster()
    index = fresh(cluster, SETTINGS)
    broken = watching(index)
    for step, has_round in zip(history, rounds, strict=False):
        apply(index, cluster, step)
        if has_round:
            at_once(broken.round(0.0))
    at_once(broken.round(1.0))
    other = fresh(cluster, SETTINGS)
    once = watching(other)
    at_once(once.round(0.0))
    assert found_in(broken, index) == found_in(once, other)
    assert broken.measure == once.measure
    assert bool(broken.measure) == bool(broken.found)


@given(crowded())
def test_nothing_is_judged_again_while_nothing_changes(history: list[Step]) -> None:
    cluster = Cluster()
    index = fresh(cluster, SETTINGS)
    broken = watching(index)
    for step in history:
        apply(index, cluster, step)
    at_once(broken.round(0.0))
    judged, found = broken.judged, dict(broken.found)
    broken._versions = None  # so that the versions of each signature decide
    at_once(broken.round(1.0))
    assert (broken.judged, broken.found) == (judged, found)


@given(crowded())
def test_without_a_policy_nothing_is_kept(history: list[Step]) -> None:
    cluster = Cluster()
    index = fresh(cluster, SETTINGS)
    broken = watching(index)
    for step in history:
        apply(index, cluster, step)
    at_once(broken.round(0.0))
    index.delete(WATCH)
    at_once(broken.round(1.0))
    assert (broken.found, broken.since, broken._known) == ({}, {}, {})
