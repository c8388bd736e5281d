"""What-ifs of a cluster: the placements that filter and node fit allow, and random changes of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import inf
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from extender.index.cluster import ClusterIndex
from extender.model.answers.what_if import Displaced, Given, Placement, WhatIf, WhatIfAnswer
from extender.model.constraints.taints import CORDON
from extender.model.objects import Node, Object, Pod
from extender.settings.configuration import Settings
from extender.tasks.what_if.computing import compute
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs
from extender.wire.pods.new_pod import complete_and_check
from tests.builders import Json, read_pod
from tests.explaining import finished, fits
from tests.laws.explain_strategies import requesting_pods, with_room
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.strategies import NODE_NAMES, POD_NAMES, Change, nodes, one_of


def answered(what_if: WhatIf, index: ClusterIndex, chosen: Settings) -> WhatIfAnswer:
    return finished(compute(what_if, index, chosen))


def allowed(index: ClusterIndex, pod: Pod, chosen: Settings) -> set[str]:
    """The nodes that filter and node fit let the pod pass, each asked about alone."""
    return {
        name
        for name in index.view.known
        if fits(index, pod, name) and FilterVerb(index.view, chosen).decide(ExtenderArgs(pod, [name]), 0).result.passed
    }


def by_name(index: ClusterIndex, name: str) -> Pod:
    (found,) = [pod for pod in index.pods.values() if pod.full_name == name]
    return found


def agrees(placements: Sequence[Placement], index: ClusterIndex, chosen: Settings) -> int:
    """Checks each verdict against an index in which the pods are placed one after the other; how many were rejected."""
    rejected = 0
    for each in placements:
        if each.state not in ("placed", "rejected"):
            continue
        pod = by_name(index, each.pod)
        nodes_of_pod = allowed(index, pod, chosen)
        assert (each.node in nodes_of_pod) if each.state == "placed" else not nodes_of_pod
        if each.state == "placed":
            index.upsert(structs.replace(pod, node=each.node))
        else:
            assert each.reason
            assert each.obstacles or not index.view.known
            rejected += 1
    return rejected


def in_order(answer: WhatIfAnswer, pods: dict[str, Pod]) -> bool:
    """Whether pods of higher priority were placed before others."""
    tried = [pods[each.pod].priority for each in answer.placements if each.state in ("placed", "rejected")]
    return tried == sorted(tried, reverse=True)


@st.composite
def pending(draw: st.DrawFn, index: ClusterIndex, cluster: Cluster) -> None:
    """Adds pods without a node to an index and the table beside it."""
    for number in range(draw(st.integers(2, 5))):
        name = f"waiting-{number}"
        body = draw(requesting_pods())
        body = body | {"metadata": body["metadata"] | {"name": name, "uid": name, "namespace": "red"}}
        cluster.objects["pods", name] = body
        index.upsert(read_pod(body))


def _is_valid(body: Json) -> bool:
    return not complete_and_check(deepcopy(body))


@st.composite
def changes(draw: st.DrawFn, index: ClusterIndex) -> Json:
    """The body of a what-if: nodes and pods taken away, given anew and added."""
    names, pods = sorted(index.view.known), sorted(pod.full_name for pod in index.pods.values())
    chosen = draw(st.sets(one_of(names), max_size=2)) if names else set()
    removals: list[Json] = [{"kind": "Node", "name": name} for name in sorted(chosen)]
    for full_name in draw(st.sets(one_of(pods), max_size=1)) if pods else ():
        namespace, name = full_name.split("/")
        removals.append({"kind": "Pod", "namespace": namespace, "name": name})
    given_objects: list[Any] = []
    for name in draw(st.lists(one_of([*NODE_NAMES, "new"]), max_size=2)):
        made = with_room(Change("nodes", name, draw(nodes(name))), draw)
        assert isinstance(made, Change)
        assert made.body is not None
        given_objects.append(made.body | {"kind": "Node"})
    for name in draw(st.lists(one_of([*POD_NAMES, "asking"]), max_size=3)):
        body = draw(requesting_pods().filter(_is_valid))
        given_objects.append(body | {"kind": "Pod", "metadata": body["metadata"] | {"name": name}})
    displaced = draw(one_of(["place", "gone"]))
    kept = [name for name in names if name not in chosen]
    return {
        "delete": removals,
        **{verb: sorted(draw(st.sets(one_of(kept), max_size=1))) if kept else [] for verb in ("cordon", "drain")},
        "apply": given_objects,
        "displaced": displaced,
        "place": {"pending": draw(st.booleans())},
    }


def changed(cluster: Cluster, what_if: WhatIf) -> tuple[ClusterIndex, set[str], set[str]]:
    """A fresh index of the changed objects; the pods that are displaced, and those that are gone with their node."""
    index = fresh(cluster, SYSTEM_DEFAULTS)
    removed = {(each.kind, f"{each.namespace}/{each.name}") for each in what_if.removals}
    objects: dict[str, Object] = {
        name: node
        for name, number in index.view.known.items()
        if ("Node", f"/{name}") not in removed and (node := index.view.node(number)) is not None
    }
    for change in what_if.nodes:
        before = objects[change.name]
        assert isinstance(before, Node)
        taints = dict.fromkeys((*before.taints, CORDON))
        objects[change.name] = structs.replace(before, unschedulable=True, taints=tuple(taints), unavailable_at=inf)
    drained = {change.name for change in what_if.nodes if change.is_drain}
    pods = [pod for pod in index.pods.values() if ("Pod", pod.full_name) not in removed]
    leaving = [pod for pod in pods if ("Node", f"/{pod.node}") in removed or pod.node in drained]
    deleted = {
        pod.full_name
        for pod in leaving
        if pod.terminating or not pod.signature.owner_kind or what_if.displaced is Displaced.GONE
    }
    displaced = {pod.full_name for pod in leaving} - deleted
    for pod in pods:
        if pod.full_name not in deleted:
            there = "" if pod.full_name in displaced else pod.node
            objects[pod.full_name] = structs.replace(pod, node=there)
    for obj in (each.obj for each in what_if.given if isinstance(each, Given)):
        if isinstance(obj, Pod):
            objects[obj.full_name] = structs.replace(obj, uid=obj.full_name)
            displaced.discard(obj.full_name)
        elif isinstance(obj, Node):
            objects[obj.name] = obj
    made = fresh(
        Cluster({key: body for key, body in cluster.objects.items() if key[0] not in ("nodes", "pods")}),
        SYSTEM_DEFAULTS,
    )
    for obj in objects.values():
        made.upsert(obj)
    return made, displaced, deleted
