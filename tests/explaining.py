"""Explanations as tests ask for them, and the changes that they offer, applied to an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import Explanation, TriedChange
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels
from extender.model.objects import Namespace, Node, Pod
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.explain.explaining import explain
from extender.verbs.explain.node_changes import uncordoned
from tests.builders import Json

T = TypeVar("T")


def finished(steps: Steps[T], between: Callable[[], None] = lambda: None) -> T:
    """The result of work in steps; ``between`` is called after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        between()


def explained(index: ClusterIndex, pod: Pod, settings: Settings, node: str = "") -> Explanation:
    return finished(explain(pod, index.view, settings, node))


def apply(change: TriedChange, index: ClusterIndex) -> None:
    """Makes the change to the objects of an index."""
    by_name = {pod.full_name: pod for pod in index.pods.values()}
    match change.kind:
        case "addRoom":
            node = _node(index, change.node)
            more = {name: node.allocatable.get(name, 0) + amount for name, amount in change.room.items()}
            index.upsert(structs.replace(node, allocatable={**node.allocatable, **more}))
        case "addNode":
            like = uncordoned(_node(index, change.like))
            index.upsert(Node(change.node, dict(change.labels), like.taints, allocatable=like.allocatable))
        case "movePod":
            (name,) = change.pods
            assert by_name[name].node == change.from_node
            index.upsert(structs.replace(by_name[name], node=change.to))
        case "labelNamespace":
            index.upsert(
                Namespace(change.namespace, _relabelled(index.namespaces.objects[change.namespace].labels, change))
            )
        case "labelNode":
            node = _node(index, change.node)
            index.upsert(structs.replace(node, labels=_relabelled(node.labels, change)))
        case "uncordonNode":
            index.upsert(uncordoned(_node(index, change.node)))
        case "removeTaints":
            node = _node(index, change.node)
            kept = tuple(each for each in node.taints if f"{each.key}={each.value}:{each.effect}" not in change.taints)
            index.upsert(structs.replace(node, taints=kept))
        case "deletePods":
            for name in change.pods:
                index.delete(by_name[name])
        case _:
            raise AssertionError(change)


def changed(body: Json, change: TriedChange) -> Json:
    """A pod whose spread constraint has the fields of the change."""
    fields = {name: [value] if name == "matchLabelKeys" else value for name, value in change.fields.items()}
    constraints = [
        {**each, **fields}
        if (each["topologyKey"], each["whenUnsatisfiable"]) == (change.topology_key, "DoNotSchedule")
        else each
        for each in body["spec"]["topologySpreadConstraints"]
    ]
    return body | {"spec": body["spec"] | {"topologySpreadConstraints": constraints}}


def _relabelled(labels: Labels, change: TriedChange) -> Labels:
    return {key: value for key, value in {**labels, **change.labels}.items() if key not in change.removed_labels}


def _node(index: ClusterIndex, name: str) -> Node:
    node = index.view.node(index.view.known[name])
    assert node is not None
    return node


def fits(index: ClusterIndex, pod: Pod, name: str) -> bool:
    """Whether node fit lets the pod pass on a node."""
    compiled = index.view.compiled(pod.signature)
    fit = catalog.NODE_FIT.prepare_filter(pod, compiled, index.view, IndexFrame())
    return fit.reason(index.view.known[name]) is None
