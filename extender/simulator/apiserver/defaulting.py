"""Fills in the defaults of new objects, as the API server does. Pure: changes the objects in place.

Only fields that a scheduler or its extender reads get defaults: of pods by `wire/pods/completion.py`, as of every pod that a
person gives. Called by the operations.
"""

from extender.simulator.apiserver.kinds import ServedKind
from extender.simulator.json_objects import TOPOLOGY_LABELS, JsonObject, labels_of, set_condition, timestamp
from extender.wire.pods.completion import complete_spec, merge_label_keys


def complete_new(kind: ServedKind, obj: JsonObject, priority: int | None) -> None:
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


def complete_for_review(kind: ServedKind, obj: JsonObject, namespace: str) -> None:
    """Fill in what a new object has when admission webhooks see it: the defaults, but no identity and no status."""
    metadata = obj.setdefault("metadata", {})
    if kind.namespaced and namespace:
        metadata["namespace"] = namespace
    if kind.plural == "pods":
        complete_spec(obj)


def complete_loaded(kind: ServedKind, obj: JsonObject) -> None:
    """Fills in the defaults of an object that exists at the start, and keeps its status."""
    # Taken first, because `complete_new` gives every pod the status of a new one.
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
    complete_spec(pod)
    spec = pod["spec"]
    if priority is not None:
        spec["priority"] = priority
    spec.setdefault("priority", 0)
    merge_label_keys(pod)
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if spec.get("schedulingGates"):
        mark_gated(pod)


def mark_gated(pod: JsonObject) -> None:
    """Sets the condition of a pod with scheduling gates."""
    message = "Scheduling is blocked due to non-empty scheduling gates"
    set_condition(pod, {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message})


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
