"""A node or a namespace as a manifest: as decisions read it, in the form that a what-if takes to change it."""

from __future__ import annotations

from extender.index.view import ClusterView
from extender.model.objects import Namespace, Node
from extender.model.policies import JsonObject
from extender.model.resources import CPU

KINDS = ("Namespace", "Node")


def manifest_of(kind: str, name: str, view: ClusterView) -> JsonObject | None:
    """The manifest; None where there is no such object. O(its fields)."""
    if kind == "Namespace":
        namespace = view.namespaces.get(name)
        return None if namespace is None else _of_namespace(namespace)
    number = view.known.get(name)
    node = None if number is None else view.node(number)
    return None if node is None else _of_node(node)


def _of_namespace(namespace: Namespace) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata(namespace)}


def _of_node(node: Node) -> JsonObject:
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints]
    amounts = node.allocatable.items()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(node),
        "spec": {"unschedulable": node.unschedulable, "taints": taints},
        "status": {"allocatable": {key: f"{amount}m" if key == CPU else str(amount) for key, amount in amounts}},
    }


def _metadata(obj: Namespace | Node) -> JsonObject:
    return {"name": obj.name, "labels": dict(obj.labels)}
