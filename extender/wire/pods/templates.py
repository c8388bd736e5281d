"""The pods that a controller makes from a workload's template, with the names, labels, owners that it sets.

https://kubernetes.io/docs/concepts/workloads/controllers/
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from extender.model.policies import JsonObject

TRIAL_HASH: Final = "0000000000"
"""The pod-template-hash of pods that no controller has made."""

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
    """A pod of a template: the controller's first, or a later one.

    Parts with a wrong type stay as they are. The check refuses them.
    """
    kind, name = str(workload.get("kind")), str(workload["metadata"].get("name") or "")
    ordinal = _first_ordinal(workload) + number
    template_metadata = template.get("metadata")
    metadata: JsonObject = deepcopy(template_metadata) if isinstance(template_metadata, dict) else {}
    metadata["namespace"] = workload["metadata"].get("namespace")
    # Only a StatefulSet gives its pods fixed names.
    # The name of the pod is a label too, and names the claims of its volumes.
    metadata |= {"name": f"{name}-{ordinal}"} if kind == "StatefulSet" else {"generateName": f"{name}-"}
    version, owner_kind = _OWNERS.get(kind, (str(workload.get("apiVersion")), kind))
    # Nothing has created the owner, so its UID is made of its name: equal for all pods of the workload.
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
    """Whether each pod of a controller has different labels."""
    return workload.get("kind") == "StatefulSet" or _is_indexed(workload)


def _is_indexed(workload: JsonObject) -> bool:
    return _job_spec(workload).get("completionMode") == "Indexed"


def _job_spec(workload: JsonObject) -> JsonObject:
    """The spec with the number of pods; empty if it is missing."""
    spec = workload.get("spec")
    # A CronJob has the Job's spec one level deeper.
    job = spec.get("jobTemplate") if isinstance(spec, dict) else None
    job_spec = job.get("spec") if isinstance(job, dict) else spec
    return job_spec if isinstance(job_spec, dict) else {}


def _first_ordinal(workload: JsonObject) -> int:
    ordinals = _job_spec(workload).get("ordinals")
    return _number(ordinals.get("start"), 0) if isinstance(ordinals, dict) else 0


def _claim_volumes(spec: JsonObject, workload: JsonObject, pod: str) -> None:
    """Adds the volumes of volumeClaimTemplates: each is a claim of this pod, and replaces a volume of the same name."""
    claims = _job_spec(workload).get("volumeClaimTemplates")
    metadata = (
        [claim.get("metadata") for claim in claims if isinstance(claim, dict)] if isinstance(claims, list) else []
    )
    names = [
        str(claim_metadata["name"])
        for claim_metadata in metadata
        if isinstance(claim_metadata, dict) and claim_metadata.get("name")
    ]
    template_volumes = spec.get("volumes")
    if names and (isinstance(template_volumes, list) or template_volumes is None):
        others = [
            volume
            for volume in template_volumes or ()
            if not isinstance(volume, dict) or volume.get("name") not in names
        ]
        added = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names]
        spec["volumes"] = [*others, *added]


def _labels(kind: str, name: str, workload: JsonObject, ordinal: int) -> JsonObject:
    """The labels that the controller adds to the template's labels."""
    # A ReplicaSet from a cluster has the hash of its Deployment already, in its labels and in its template.
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
    tolerations = spec.get("tolerations")
    if isinstance(tolerations, list) or tolerations is None:
        spec["tolerations"] = [
            *(tolerations or ()),
            *(toleration for toleration in added if toleration not in (tolerations or ())),
        ]


def pods_at_once(workload: JsonObject) -> int:
    """How many pods of a template a controller makes at a time.

    1 without a number, and for a DaemonSet (on each node).
    """
    spec = _job_spec(workload)
    # A Job: at most as many pods at a time as are still to complete.
    if "parallelism" in spec or "completions" in spec:
        most = _number(spec.get("parallelism"), 1)
        return min(most, _number(spec.get("completions"), most))
    return _number(spec.get("replicas"), 1)


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
