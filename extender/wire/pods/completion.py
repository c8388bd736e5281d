"""Fills in the fields that the API server fills in when a pod is created, if scheduling depends on them.

Changes the pod.

As ``SetDefaults_Pod`` and ``podStrategy.PrepareForCreate`` of Kubernetes 1.36, and the admission plugins
DefaultTolerationSeconds and Priority. Left out are defaults from objects that the extender does not read: LimitRanges,
RuntimeClasses, and every PriorityClass but the system's two. A part with a wrong type stays as it is.
https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#requests-and-limits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from extender.model.constraints.taints import NO_EXECUTE
from extender.model.objects import NO_RESOURCES
from extender.model.policies import JsonObject
from extender.model.resources import CPU, HUGE_PAGES, MEMORY, Resources, is_of_pod_level, quantity_text
from extender.wire.errors import WireError
from extender.wire.objects.amounts import REQUESTS
from extender.wire.policies.field_errors import PREFERRED, REQUIRED

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
# Only the API server sets these. A pod with one of them was created already, and its label keys were merged then.
_OF_CREATED_PODS: Final = ("uid", "resourceVersion", "creationTimestamp")


def complete_pod(pod: JsonObject) -> None:
    """Completes a given pod. A pod that was created already does not change. O(size of the pod)."""
    complete_spec(pod)
    spec = pod["spec"]
    if spec.get("priority") is None:
        spec["priority"] = SYSTEM_PRIORITIES.get(str(spec.get("priorityClassName")), 0)
    merge_label_keys(pod, is_merged=is_created(pod))


def complete_spec(pod: JsonObject) -> None:
    """Fills in the defaults that admission webhooks see: all but the priority and merged label keys."""
    spec: JsonObject = pod.setdefault("spec", {})
    for name, value in _SPEC.items():
        # A copy, so that two pods never share the object of the default.
        spec.setdefault(name, value if not isinstance(value, dict) else dict(value))
    complete_amounts(spec)
    complete_ports(spec)
    tolerate_unready_nodes(spec)


def is_created(pod: JsonObject) -> bool:
    """Whether a pod has a field that the API server sets when it creates the pod."""
    metadata = pod.get("metadata")
    return isinstance(metadata, dict) and any(metadata.get(name) for name in _OF_CREATED_PODS)


def complete_amounts(spec: JsonObject) -> None:
    """Missing requests become the limits.

    Before that, missing requests of the pod become its containers' sum (KEP-2837).
    """
    for container in _containers(spec):
        resources = container.get("resources")
        limits = _object(resources, "limits")
        if isinstance(resources, dict) and limits:
            resources["requests"] = {**limits, **_object(resources, "requests")}
    # After the containers, because the sum over them below reads the requests that they have just got.
    if isinstance(spec.get("resources"), dict):
        _complete_pod_level(spec, spec["resources"])


def _complete_pod_level(spec: JsonObject, resources: JsonObject) -> None:
    limits, requests = dict(_object(resources, "limits")), dict(_object(resources, "requests"))
    if limits or requests:
        # Huge pages are requested as limits, so limits of containers become limits of the pod.
        huge = {name: text for name, text in _aggregated_texts(spec, "limits").items() if name.startswith(HUGE_PAGES)}
        limits |= {name: text for name, text in huge.items() if name not in limits and name not in requests}
    if not limits:
        return
    resources["limits"] = limits
    of_containers = {name: text for name, text in _aggregated_texts(spec, "requests").items() if name in (CPU, MEMORY)}
    # In the order of precedence: what is given, the containers' sum, the pod's limits.
    of_limits = {name: text for name, text in limits.items() if is_of_pod_level(name)}
    if completed := {**of_limits, **of_containers, **requests}:
        resources["requests"] = completed


def aggregated(spec: JsonObject, name: str) -> Resources:
    """The sum of "requests" or "limits" over all containers; empty if one of them cannot be read."""
    # Encoded again, so that the same code adds them up as for pods of the watch: sidecars and the largest init
    # container included.
    raw = [orjson.dumps(_object(container.get("resources"), name)) for container in _objects(spec.get("containers"))]
    init = [
        (container.get("restartPolicy") == "Always", orjson.dumps(_object(container.get("resources"), name)))
        for container in _objects(spec.get("initContainers"))
    ]
    try:
        return REQUESTS.read((tuple(raw), tuple(init), b"", b"")).now
    except WireError:
        return NO_RESOURCES  # the check refuses the pod


def _aggregated_texts(spec: JsonObject, name: str) -> dict[str, str]:
    return {resource: quantity_text(resource, amount) for resource, amount in aggregated(spec, name).items()}


def complete_ports(spec: JsonObject) -> None:
    """The default protocol of ports is TCP. Under hostNetwork each port of a container is also a host port."""
    for container in _containers(spec):
        for port in _objects(container.get("ports")):
            port["protocol"] = port.get("protocol") or "TCP"
            if spec.get("hostNetwork") is True and port.get("containerPort"):
                # Two such pods with one port thus never share a node.
                port["hostPort"] = port.get("hostPort") or port["containerPort"]


def tolerate_unready_nodes(spec: JsonObject) -> None:
    """Adds the default tolerations if they are missing, as the admission plugin DefaultTolerationSeconds does.

    On creations and on updates. A toleration of another effect than NoExecute is not enough.
    """
    tolerations = spec.get("tolerations") or []
    if not isinstance(tolerations, list) or not all(isinstance(toleration, dict) for toleration in tolerations):
        return  # the check refuses it
    spec["tolerations"] = tolerations
    for key in _NOT_READY:
        if not any(
            (toleration.get("key") or "") in (key, "") and (toleration.get("effect") or "") in (NO_EXECUTE, "")
            for toleration in tolerations
        ):
            fill = {"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 300}
            tolerations.append(fill)


def merge_label_keys(pod: JsonObject, *, is_merged: bool = False) -> None:
    """Merges matchLabelKeys and mismatchLabelKeys into the selectors, as the API server does at creation.

    ``is_merged``: they were merged at creation, with the labels of that time, so a key in the selector stays as it is.
    Affinity terms: KEP-3633. Topology spread: KEP-3243, in the API server since 1.34.
    """
    labels = _object(pod.get("metadata"), "labels")
    for owner, _ in label_key_owners(_object(pod, "spec")):
        selector = owner.get("labelSelector")
        # A null selector selects nothing, and nothing is merged into it.
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
    """The requirements that a selector lacks. ``is_merged``: a requirement with any value counts. O(requirements)."""
    present: set[tuple[str, ...]] = set()
    for expression in _objects(expressions):
        key, operator, values = expression.get("key"), expression.get("operator"), _texts_of(expression.get("values"))
        if isinstance(key, str) and isinstance(operator, str):
            # Only requirements with one value can be equal to a merged key, which has one value.
            # The pair without a value stands for any value, for keys that were merged at creation.
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
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _object(value: Any, name: str) -> JsonObject:
    """The object in a field; an empty object if there is none."""
    field = value.get(name) if isinstance(value, Mapping) else None
    return field if isinstance(field, dict) else {}


def _texts_of(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
