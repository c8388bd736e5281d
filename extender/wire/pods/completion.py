"""Fills in what the API server fills in when a pod is created, as far as scheduling depends on it. Changes the pod in place.

As ``SetDefaults_Pod`` and ``podStrategy.PrepareForCreate`` of Kubernetes 1.36, and the admission plugins
DefaultTolerationSeconds and Priority. Left out is what depends on objects that the extender does not read: LimitRanges,
RuntimeClasses, and every PriorityClass but the two of the system. A part of a wrong type stays as it is.
https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#requests-and-limits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from extender.model.objects import NO_RESOURCES
from extender.model.policies import JsonObject
from extender.model.resources import CPU, MEMORY, Resources, quantity_text
from extender.wire.errors import WireError
from extender.wire.objects.amounts import REQUESTS
from extender.wire.policies.node_terms import PREFERRED, REQUIRED

SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The PriorityClasses that every cluster has."""

_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINERS: Final = ("containers", "initContainers")
HUGE_PAGES: Final = "hugepages-"
# Set by the API server alone: a pod that has one of them was created, and its label keys were merged then.
_OF_CREATED_PODS: Final = ("uid", "resourceVersion", "creationTimestamp")


def complete_pod(pod: JsonObject) -> None:
    """Completes a pod that a person gives. One that was created is not changed by it. O(size of the pod)."""
    complete_spec(pod)
    spec = pod["spec"]
    if spec.get("priority") is None:
        spec["priority"] = SYSTEM_PRIORITIES.get(str(spec.get("priorityClassName")), 0)
    merge_label_keys(pod, is_merged=is_created(pod))


def complete_spec(pod: JsonObject) -> None:
    """Fills in the defaults that admission webhooks see: every one but the priority and the merged label keys."""
    spec: JsonObject = pod.setdefault("spec", {})
    for name, value in _SPEC.items():
        spec.setdefault(name, value if not isinstance(value, dict) else dict(value))
    complete_amounts(spec)
    complete_ports(spec)
    tolerate_unready_nodes(spec)


def is_created(pod: JsonObject) -> bool:
    """Whether a pod has what the API server gives it when it is created."""
    metadata = pod.get("metadata")
    return isinstance(metadata, dict) and any(metadata.get(name) for name in _OF_CREATED_PODS)


def complete_amounts(spec: JsonObject) -> None:
    """Requests that are missing become the limits, those of the pod (KEP-2837) the requests of its containers before."""
    for container in _containers(spec):
        resources = container.get("resources")
        limits = _object(resources, "limits")
        if isinstance(resources, dict) and limits:
            resources["requests"] = {**limits, **_object(resources, "requests")}
    if isinstance(spec.get("resources"), dict):
        _complete_pod_level(spec, spec["resources"])


def _complete_pod_level(spec: JsonObject, resources: JsonObject) -> None:
    limits, requests = dict(_object(resources, "limits")), dict(_object(resources, "requests"))
    if limits or requests:
        huge = {name: text for name, text in _aggregated_texts(spec, "limits").items() if name.startswith(HUGE_PAGES)}
        limits |= {name: text for name, text in huge.items() if name not in limits and name not in requests}
    if not limits:
        return
    resources["limits"] = limits
    of_containers = {name: text for name, text in _aggregated_texts(spec, "requests").items() if name in (CPU, MEMORY)}
    of_limits = {name: text for name, text in limits.items() if _is_of_pods(name)}
    if completed := {**of_limits, **of_containers, **requests}:
        resources["requests"] = completed


def _is_of_pods(name: str) -> bool:
    """Whether a resource may be requested for the pod as a whole."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def aggregated(spec: JsonObject, name: str) -> Resources:
    """The "requests" or "limits" of all containers together; empty where one of them cannot be read."""
    raw = [orjson.dumps(_object(each.get("resources"), name)) for each in _objects(spec.get("containers"))]
    init = [
        (each.get("restartPolicy") == "Always", orjson.dumps(_object(each.get("resources"), name)))
        for each in _objects(spec.get("initContainers"))
    ]
    try:
        return REQUESTS.read((tuple(raw), tuple(init), b"", b"")).now
    except WireError:
        return NO_RESOURCES  # the pod is refused where it is checked


def _aggregated_texts(spec: JsonObject, name: str) -> dict[str, str]:
    return {resource: quantity_text(resource, amount) for resource, amount in aggregated(spec, name).items()}


def complete_ports(spec: JsonObject) -> None:
    """The protocol of ports is TCP. Under hostNetwork each port of a container is one of the node."""
    for container in _containers(spec):
        for port in _objects(container.get("ports")):
            port["protocol"] = port.get("protocol") or "TCP"
            if spec.get("hostNetwork") is True and port.get("containerPort"):
                port["hostPort"] = port.get("hostPort") or port["containerPort"]


def tolerate_unready_nodes(spec: JsonObject) -> None:
    """Adds the default tolerations where they are absent; the API server does that at updates too."""
    tolerations = spec.get("tolerations") or []
    if not isinstance(tolerations, list) or not all(isinstance(each, dict) for each in tolerations):
        return  # refused when it is checked
    spec["tolerations"] = tolerations
    for key in _NOT_READY:
        if not any(toleration.get("key", "") in (key, "") for toleration in tolerations):
            fill = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(fill)


def merge_label_keys(pod: JsonObject, *, is_merged: bool = False) -> None:
    """Merges matchLabelKeys and mismatchLabelKeys into the selectors, as the API server does at creation.

    ``is_merged``: it was done at creation, with the labels of that time, so that a key in the selector stays as it is.
    Affinity terms: KEP-3633. Topology spread: KEP-3243, in the API server since 1.34.
    """
    labels = _object(pod.get("metadata"), "labels")
    for owner, _ in label_key_owners(_object(pod, "spec")):
        selector = owner.get("labelSelector")
        if not isinstance(selector, dict):
            continue
        wanted = [
            (key, operator, labels[key])
            for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in _texts_of(owner.get(name))
            if isinstance(labels.get(key), str)
        ]
        expressions = selector.get("matchExpressions") or []
        if wanted and isinstance(expressions, list):
            selector["matchExpressions"] = [*expressions, *_missing(wanted, expressions, is_merged=is_merged)]


def _missing(
    wanted: Iterable[tuple[str, str, str]], expressions: list[Any], *, is_merged: bool
) -> Iterator[JsonObject]:
    """The requirements that a selector does not have yet. ``is_merged``: with whatever value. O(requirements)."""
    present: set[tuple[str, ...]] = set()
    for each in _objects(expressions):
        key, operator, values = each.get("key"), each.get("operator"), _texts_of(each.get("values"))
        if isinstance(key, str) and isinstance(operator, str):
            present |= {(key, operator), *((key, operator, value) for value in values[:1] if len(values) == 1)}
    for key, operator, value in wanted:
        if (key, operator) not in present if is_merged else (key, operator, value) not in present:
            present |= {(key, operator), (key, operator, value)}
            yield {"key": key, "operator": operator, "values": [value]}


def label_key_owners(spec: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    """The parts of a pod spec that may have matchLabelKeys, with their paths: terms of (anti-)affinity, and spread constraints."""
    for side in ("podAffinity", "podAntiAffinity"):
        rules, at = _object(spec.get("affinity"), side), f"spec.affinity.{side}"
        for number, term in enumerate(_objects(rules.get(REQUIRED))):
            yield term, f"{at}.{REQUIRED}[{number}]"
        for number, weighted in enumerate(_objects(rules.get(PREFERRED))):
            yield _object(weighted, "podAffinityTerm"), f"{at}.{PREFERRED}[{number}].podAffinityTerm"
    for number, constraint in enumerate(_objects(spec.get("topologySpreadConstraints"))):
        yield constraint, f"spec.topologySpreadConstraints[{number}]"


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    for name in _CONTAINERS:
        yield from _objects(spec.get(name))


def _objects(value: Any) -> Iterator[JsonObject]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _object(value: Any, name: str) -> JsonObject:
    """The object in a field; an empty one where there is none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, dict) else {}


def _texts_of(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
