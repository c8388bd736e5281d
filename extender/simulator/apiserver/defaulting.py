"""Fills in the defaults of new objects, as the API server does. Pure: changes the objects in place.

Only fields that a scheduler or its extender reads get defaults. Called by the operations.
"""

from typing import Any

from extender.simulator.apiserver.kinds import Kind
from extender.simulator.json_objects import JsonObject, labels_of, set_condition, timestamp

_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_POD_SPEC: JsonObject = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


def complete_new(kind: Kind, obj: JsonObject, priority: int | None) -> None:
    """Fills in the defaults of a new object; `priority` is the value of the pod's priority class, if it has one."""
    if kind.plural == "pods":
        _complete_pod(obj, priority)
    elif kind.plural == "namespaces":
        metadata = obj["metadata"]
        metadata["labels"] = {"kubernetes.io/metadata.name": metadata["name"], **(metadata.get("labels") or {})}
        obj.setdefault("spec", {"finalizers": ["kubernetes"]})
        obj["status"] = {"phase": "Active"}
    elif kind.plural == "nodes":
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        status.setdefault("allocatable", dict(status.get("capacity") or {}))
    elif kind.has_status:
        obj.setdefault("status", {})


def complete_for_review(kind: Kind, obj: JsonObject, namespace: str) -> None:
    """Fill in what a new object has when admission webhooks see it: the defaults, but no identity and no status."""
    metadata = obj.setdefault("metadata", {})
    if kind.namespaced and namespace:
        metadata["namespace"] = namespace
    if kind.plural == "pods":
        _default_pod_spec(obj)


def complete_loaded(kind: Kind, obj: JsonObject) -> None:
    """Fills in the defaults of an object that exists at the start, and keeps its status."""
    status = obj.get("status")
    complete_new(kind, obj, None)
    if kind.plural == "pods":
        obj["status"] = status or {"phase": "Running" if obj["spec"].get("nodeName") else "Pending"}


def copy_topology(pod: JsonObject, node: JsonObject) -> None:
    """Copies a node's zone and region to the labels of a pod that is bound to it."""
    labels = labels_of(node)
    copied = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
    if copied:
        pod["metadata"]["labels"] = {**labels_of(pod), **copied}


def _complete_pod(pod: JsonObject, priority: int | None) -> None:
    spec = _default_pod_spec(pod)
    if priority is not None:
        spec["priority"] = priority
    spec.setdefault("priority", 0)
    merge_label_keys(pod)
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if spec.get("schedulingGates"):
        mark_gated(pod)


def _default_pod_spec(pod: JsonObject) -> JsonObject:
    spec: JsonObject = pod.setdefault("spec", {})
    for name, value in _POD_SPEC.items():
        spec.setdefault(name, value if not isinstance(value, dict) else dict(value))
    tolerate_unready_nodes(spec)
    return spec


def mark_gated(pod: JsonObject) -> None:
    """Sets the condition of a pod with scheduling gates."""
    message = "Scheduling is blocked due to non-empty scheduling gates"
    set_condition(pod, {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message})


def tolerate_unready_nodes(spec: JsonObject) -> None:
    """Adds the default tolerations where they are absent; the API server does that at updates too."""
    tolerations = spec.get("tolerations") or []
    if not isinstance(tolerations, list) or not all(isinstance(each, dict) for each in tolerations):
        return  # refused when it is checked
    spec["tolerations"] = tolerations
    for key in _NOT_READY:
        if not any(toleration.get("key", "") in {key, ""} for toleration in tolerations):
            fill = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(fill)


def merge_label_keys(pod: JsonObject) -> None:
    """Merges matchLabelKeys and mismatchLabelKeys into the selectors, as the API server does at creation.

    Affinity terms: KEP-3633. Topology spread: KEP-3243, in the API server since 1.34.
    """
    spec, labels = pod["spec"], labels_of(pod)
    for term in _affinity_terms(spec.get("affinity") or {}):
        _append(term, term.get("matchLabelKeys"), "In", labels)
        _append(term, term.get("mismatchLabelKeys"), "NotIn", labels)
    for constraint in spec.get("topologySpreadConstraints") or []:
        _append(constraint, constraint.get("matchLabelKeys"), "In", labels)


def _affinity_terms(affinity: JsonObject) -> list[JsonObject]:
    terms: list[JsonObject] = []
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        terms += [weighted["podAffinityTerm"] for weighted in preferred]
    return terms


def _append(owner: JsonObject, keys: list[str] | None, operator: str, labels: dict[str, Any]) -> None:
    selector = owner.get("labelSelector")
    if selector is None:
        return
    for key in keys or []:
        if key in labels:
            requirement = {"key": key, "operator": operator, "values": [labels[key]]}
            expressions = selector.setdefault("matchExpressions", [])
            if requirement not in expressions:
                expressions.append(requirement)


def stamp(obj: JsonObject, uid: str) -> None:
    """Sets the fields of a new object that the server owns, whatever the client sent for them."""
    metadata = obj["metadata"]
    obj["metadata"] = {
        "name": metadata["name"],
        **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
        "uid": uid,
        "resourceVersion": "",
        "generation": 1,
        "creationTimestamp": timestamp(),
        **{name: value for name, value in metadata.items() if name not in _SERVER_OWNED},
    }


_SERVER_OWNED = {
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "managedFields",
    "selfLink",
}
