"""Workloads that users give: the pods that their controllers make, and the selector that default constraints read.

A misspelt field, or one of a wrong type, is an error, because the answer would be about other pods.
https://kubernetes.io/docs/concepts/workloads/controllers/
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from extender.model.answers.what_if import MOST_PLACED, GivenWorkload
from extender.model.objects import DAEMON_SET, Pod, Workload
from extender.model.policies import JsonObject
from extender.wire.errors import WireError
from extender.wire.objects.constraints import parse_label_selector
from extender.wire.objects.kinds import Kind
from extender.wire.pods.new_pod import checked_pod, refuse
from extender.wire.pods.templates import TRIAL_HASH, has_own_labels, pod_of, pods_at_once
from extender.wire.policies.field_errors import INT32, ErrorType, FieldError, Problems, check_label_selector
from extender.wire.snapshots import Kinds

_COMMON: Final = ("selector", "template", "minReadySeconds", "revisionHistoryLimit")
_REPLICATED: Final = (*_COMMON, "replicas")
_FIELDS: Final = {
    "Deployment": (*_REPLICATED, "strategy", "paused", "progressDeadlineSeconds"),
    "ReplicaSet": _REPLICATED,
    "ReplicationController": _REPLICATED,
    "StatefulSet": (
        *_REPLICATED, "volumeClaimTemplates", "serviceName", "podManagementPolicy", "updateStrategy",
        "persistentVolumeClaimRetentionPolicy", "ordinals",
    ),
    "DaemonSet": (*_COMMON, "updateStrategy"),
    "Job": (
        "parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy", "successPolicy", "backoffLimit",
        "backoffLimitPerIndex", "maxFailedIndexes", "failedPodsLimit", "selector", "manualSelector", "template",
        "ttlSecondsAfterFinished", "completionMode", "suspend", "podReplacementPolicy", "managedBy",
    ),
    "CronJob": (
        "schedule", "timeZone", "startingDeadlineSeconds", "concurrencyPolicy", "suspend", "jobTemplate",
        "successfulJobsHistoryLimit", "failedJobsHistoryLimit",
    ),
}  # fmt: skip
_NUMBERS: Final = ("replicas", "parallelism", "completions")
_LONGEST_NAME: Final = 100  # of an unknown field, in a path
_SELECTING: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")

GROUPS: Final = {
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicationController": "",
    "Job": "batch",
    "CronJob": "batch",
}
"""The kinds of workloads, with their groups."""


class _Template(NamedTuple):
    """The template of a workload and its path. ``spec``: the spec with the number of pods."""

    value: JsonObject
    path: str
    spec: JsonObject
    spec_path: str


def has_template(workload: JsonObject) -> bool:
    """Whether pods can be made of a workload."""
    return _template_of(workload) is not None


def read_workload(workload: JsonObject, path: str, kinds: Kinds, most: int) -> GivenWorkload:
    """A workload with a name and a namespace. ``most``: how many more pods may be made.

    Raises ``WireError`` naming the field. If the API server would refuse a pod, the error comes when the pod is made.
    """
    kind, metadata = str(workload["kind"]), workload["metadata"]
    template = _template_of(workload)
    if template is None:
        raise WireError(f"{path}.spec.template", "is missing")
    refuse(_errors(workload, kind, template), path)
    count = 1 if kind == DAEMON_SET else pods_at_once(workload)
    note = ""
    if _is_suspended(workload, template):
        count, note = 0, "is suspended: its controller makes no pods"
    if count > most:
        # The error names the field to lower; without a number the template stands for it.
        names = [name for name in _NUMBERS if name in template.spec]
        text = f"{count} pods; a what-if places at most {MOST_PLACED} pods of workloads, {most} of them are left"
        raise WireError(f"{path}.{template.spec_path}.{names[0] if names else 'template'}", text)
    return GivenWorkload(
        kind,
        str(metadata["namespace"]),
        str(metadata["name"]),
        path,
        count,
        partial(_pods, workload, template, count, f"{path}.{template.path}", kinds["Pod", ""]),
        is_per_node=kind == DAEMON_SET,
        selector=_selector(workload, kind, kinds),
        note=note,
    )


def _template_of(workload: JsonObject) -> _Template | None:
    spec, path = workload.get("spec"), "spec"
    if workload.get("kind") == "CronJob":
        job = spec.get("jobTemplate") if isinstance(spec, dict) else None
        spec, path = (job.get("spec") if isinstance(job, dict) else None), "spec.jobTemplate.spec"
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict):
        return None
    return _Template(template, f"{path}.template", spec, path)


def _errors(workload: JsonObject, kind: str, template: _Template) -> list[FieldError]:
    problems, spec, path = Problems(), template.spec, template.spec_path
    problems.errors += _unknown(workload["spec"], "spec", kind)
    if kind == "CronJob":
        problems.errors += _unknown(spec, path, "Job")
    for name in _NUMBERS:
        problems.read_number(spec.get(name), f"{path}.{name}", 0, INT32)
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet") and spec.get("selector") is not None:
        _check_selector(problems, spec["selector"], template.value)
    return problems.errors


def _unknown(spec: JsonObject, path: str, kind: str) -> Iterator[FieldError]:
    names = (name for name in spec if name not in _FIELDS[kind])
    return (FieldError(f"{path}.{name[:_LONGEST_NAME]}", ErrorType.FORBIDDEN, "unknown field") for name in names)


def _check_selector(problems: Problems, selector: Any, template: JsonObject) -> None:
    """The selector of a controller must select its own pods."""
    known = len(problems.errors)
    check_label_selector(problems, selector, "spec.selector")
    metadata = problems.read_object(template.get("metadata"), "spec.template.metadata")
    labels = metadata.get("labels") or {}
    if len(problems.errors) > known or not isinstance(labels, dict):
        return
    parsed = parse_label_selector(orjson.dumps(selector), "spec.selector")
    if parsed is None or not parsed.matches({key: str(value) for key, value in labels.items()}):
        problems.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _is_suspended(workload: JsonObject, template: _Template) -> bool:
    return template.spec.get("suspend") is True or workload["spec"].get("suspend") is True


def _pods(workload: JsonObject, template: _Template, count: int, path: str, pods: Kind[Any]) -> Iterator[Pod]:
    """The pods of a controller. Where the controller would generate names, they are made up.

    After the first, 20 µs each if they differ only in their name, else 150 µs.
    """
    first: Pod | None = None
    is_equal = not has_own_labels(workload)
    for number in range(count):
        if first is not None and is_equal:
            # Only the ordinal differs, so the pod is not completed and checked again.
            name = f"{first.name.rpartition('-')[0]}-{number}"
            yield msgspec.structs.replace(first, name=name, uid=f"{first.namespace}/{name}")
            continue
        pod = pod_of(workload, template.value, number)
        prefix = pod["metadata"].pop("generateName", "")
        pod["metadata"].setdefault("name", f"{prefix}new-{number}")
        first = pods.decode_object(checked_pod(pod, path))
        yield first


def _selector(workload: JsonObject, kind: str, kinds: Kinds) -> Workload | None:
    """What default constraints read of the pods' owner (of a Deployment: its ReplicaSet). None if they read nothing."""
    spec = workload["spec"]
    selector = spec.get("selector") if isinstance(spec.get("selector"), dict) else None
    owner = kind
    if kind == "Deployment" and selector is not None:
        # The ReplicaSet has the selector of its Deployment and the hash. Default constraints read this selector.
        owner = "ReplicaSet"
        hashed = {**(selector.get("matchLabels") or {}), "pod-template-hash": TRIAL_HASH}
        selector = {**selector, "matchLabels": hashed}
    # None if the settings have no default constraints: then workloads are not watched.
    known = kinds.get((owner, GROUPS[owner]))
    if owner not in _SELECTING or selector is None or known is None:
        return None
    metadata = {name: workload["metadata"][name] for name in ("name", "namespace")}
    decoded: Workload = known.decode_object(orjson.dumps({"metadata": metadata, "spec": {"selector": selector}}))
    return decoded
