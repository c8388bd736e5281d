"""Trying out policies without an API server: the review that it would send, and which nodes a pod fits by itself.

Called by `extender policy test`, which asks `AdmitVerb` as the webhook does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.model.objects import Node, Pod
from extender.model.policies import INJECTED_ANNOTATION, JsonObject
from extender.rules.node_fit import static_rejection
from extender.verbs.admit.injected import read_records, subtract
from extender.verbs.admit.json_edits import drop, put
from extender.verbs.admit.reviews import API_VERSION, CREATE, KIND

_OTHER_NODE: Final = "node(s) other than the pod's spec.nodeName"
_SET_LATER: Final = ("status", ("metadata", "uid"), ("metadata", "resourceVersion"), ("metadata", "managedFields"))


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """The names of the nodes that a pod fits by cordon, taints, node selector and node affinity; the others by reason."""

    matching: tuple[str, ...]
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many nodes were looked at."""
        return len(self.matching) + sum(self.rejected.values())


def review_of(obj: JsonObject, namespace: str) -> JsonObject:
    """The AdmissionReview of an object that is created in a namespace; empty for one of the cluster."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    request = {
        "uid": "trial",
        "kind": {"group": group, "version": version, "kind": obj.get("kind")},
        "operation": CREATE,
        "namespace": namespace,
        "object": obj,
        "dryRun": True,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "request": request}


def as_created(pod: JsonObject) -> JsonObject:
    """A pod of a cluster as it would be created again: without status, its node, and what policies had injected."""
    was_bound = bool(pod.get("status"))
    for path in _SET_LATER:
        pod = drop(pod, (path,) if isinstance(path, str) else path)
    if was_bound:
        pod = drop(pod, ("spec", "nodeName"))
    annotations = pod["metadata"].get("annotations")
    record = read_records(annotations).get("")
    if record is not None:
        pod = put(pod, ("spec",), subtract(pod["spec"], record))
        pod = drop(pod, ("metadata", "annotations", INJECTED_ANNOTATION))
    return pod


def match_nodes(pod: Pod, nodes: Iterable[Node]) -> NodeMatch:
    """Which nodes could take the pod if they were empty. O(nodes × (taints + terms))."""
    matching: list[str] = []
    rejected: Counter[str] = Counter()
    for node in nodes:
        if pod.node:
            reason = "" if node.name == pod.node else _OTHER_NODE
        else:
            found = static_rejection(pod, node)
            reason = "" if found is None else found.reason.text
        if reason:
            rejected[reason] += 1
        else:
            matching.append(node.name)
    return NodeMatch(tuple(sorted(matching)), dict(rejected))
