"""The pods that a controller makes from the template of a workload: names, labels, owners and tolerations as it sets them.

https://kubernetes.io/docs/concepts/workloads/controllers/
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from extender.model.policies import JsonObject

TRIAL_HASH: Final = "0000000000"
"""The pod-template-hash of a pod that no controller has made."""

_OWNERS: Final = {"Deployment": ("apps/v1", "ReplicaSet"), "CronJob": ("batch/v1", "Job")}
_HASHED: Final = ("Deployment", "ReplicaSet")
_DAEMON_TOLERATIONS: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


def pod_of(workload: JsonObject, template: JsonObject, number: int = 0) -> JsonObject:
    """A pod of a template, the first of its controller or one of its later ones.

    Parts of a wrong type stay as they are, and are refused where it is checked.
    """
    kind, name = str(workload.get("kind")), str(workload["metadata"].get("name") or "")
    ordinal = _first_ordinal(workload) + number
    given = template.get("metadata")
    metadata: JsonObject = deepcopy(given) if isinstance(given, dict) else {}
    metadata["namespace"] = workload["metadata"].get("namespace")
    metadata |= {"name": f"{name}-{ordinal}"} if kind == "StatefulSet" else {"generateName": f"{name}-"}
    version, owner_kind = _OWNERS.get(kind, (str(workload.get("apiVersion")), kind))
    owner = {"apiVersion": version, "kind": owner_kind, "name": name, "uid": f"{owner_kind}/{name}", "controller": True}
    metadata["ownerReferences"] = [owner]
    labels = metadata.get("labels")
    if isinstance(labels, dict) or labels is None:
        metadata["labels"] = {**(labels or {}), **_labels(kind, name, workload, ordinal)}
    spec = deepcopy(template.get("spec"))
    if kind == "DaemonSet" and isinstance(spec, dict):
        _tolerate_as_daemon(spec)
    if kind == "StatefulSet" and isinstance(spec, dict):
        _claim_volumes(spec, workload, metadata["name"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def has_own_labels(workload: JsonObject) -> bool:
    """Whether each pod of a controller has labels of its own."""
    return workload.get("kind") == "StatefulSet" or _is_indexed(workload)


def _is_indexed(workload: JsonObject) -> bool:
    return _job_spec(workload).get("completionMode") == "Indexed"


def _job_spec(workload: JsonObject) -> JsonObject:
    """The spec that says how many pods are made; an empty one where it is missing."""
    spec = workload.get("spec")
    job = spec.get("jobTemplate") if isinstance(spec, dict) else None
    found = job.get("spec") if isinstance(job, dict) else spec
    return found if isinstance(found, dict) else {}


def _first_ordinal(workload: JsonObject) -> int:
    ordinals = _job_spec(workload).get("ordinals")
    return _number(ordinals.get("start"), 0) if isinstance(ordinals, dict) else 0


def _claim_volumes(spec: JsonObject, workload: JsonObject, pod: str) -> None:
    """Adds the volumes of volumeClaimTemplates, each a claim of the pod's own, in place of those of the same name."""
    claims = _job_spec(workload).get("volumeClaimTemplates")
    metadata = [each.get("metadata") for each in claims if isinstance(each, dict)] if isinstance(claims, list) else []
    names = [str(each["name"]) for each in metadata if isinstance(each, dict) and each.get("name")]
    given = spec.get("volumes")
    if names and (isinstance(given, list) or given is None):
        others = [each for each in given or () if not isinstance(each, dict) or each.get("name") not in names]
        added = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names]
        spec["volumes"] = [*others, *added]


def _labels(kind: str, name: str, workload: JsonObject, ordinal: int) -> JsonObject:
    """What the controller adds to the labels of the template."""
    if kind in _HASHED and "pod-template-hash" not in (workload["metadata"].get("labels") or {}):
        return {"pod-template-hash": TRIAL_HASH}
    if kind == "StatefulSet":
        return {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
        }
    if kind in ("Job", "CronJob"):
        index = {"batch.kubernetes.io/job-completion-index": str(ordinal)} if _is_indexed(workload) else {}
        return {"batch.kubernetes.io/job-name": name, "job-name": name, **index}
    return {}


def _tolerate_as_daemon(spec: JsonObject) -> None:
    added: list[JsonObject] = [
        {"key": key, "operator": "Exists", "effect": effect} for key, effect in _DAEMON_TOLERATIONS
    ]
    if spec.get("hostNetwork") is True:
        key = "node.kubernetes.io/network-unavailable"
        added.append({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    given = spec.get("tolerations")
    if isinstance(given, list) or given is None:
        spec["tolerations"] = [*(given or ()), *(each for each in added if each not in (given or ()))]


def pods_at_once(workload: JsonObject) -> int:
    """How many pods a controller makes of one template at a time; 1 of a DaemonSet for each node, and where no number is given."""
    spec = _job_spec(workload)
    if "parallelism" in spec or "completions" in spec:
        most = _number(spec.get("parallelism"), 1)
        return min(most, _number(spec.get("completions"), most))
    return _number(spec.get("replicas"), 1)


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
