"""Pods that users give: completed, and checked as the API server checks a new pod.

Errors name the field as ``kubectl apply`` does. The checks cover what scheduling reads, the rest of the containers, and
names of fields: a misspelt field is an error, because the answer would be about a pod without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from extender.model.policies import JsonObject
from extender.wire.errors import WireError
from extender.wire.pods.completion import complete_pod, is_created, label_key_owners
from extender.wire.pods.containers import check_containers
from extender.wire.pods.validity import check_owners, check_pod
from extender.wire.policies.field_errors import (
    INT32,
    ErrorType,
    FieldError,
    Problems,
    check_labels,
    check_namespace,
    check_subdomain,
)
from extender.wire.policies.policy_fields import WRITTEN_FIELDS, Fields, unknown_fields

NO_NAMESPACE: Final = "default"
"""The namespace of an object without one."""

_MOST_ERRORS: Final = 10  # reported for one object


def _fields(*names: str) -> dict[str, Fields | None]:
    return dict.fromkeys(names)


_RESOURCES: Final[Fields] = {**_fields("limits", "requests"), "claims": _fields("name", "request")}
_CONTAINER: Final[Fields] = {
    **_fields(
        "name", "image", "command", "args", "workingDir", "envFrom", "env", "resizePolicy", "restartPolicy", "restartPolicyRules",
        "volumeMounts", "volumeDevices", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
        "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext", "stdin", "stdinOnce", "tty",
    ),
    "ports": _fields("name", "hostPort", "containerPort", "protocol", "hostIP"),
    "resources": _RESOURCES,
}  # fmt: skip
_SPEC: Final[Fields] = {
    **_fields(
        "volumes", "ephemeralContainers", "restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy",
        "nodeSelector", "serviceAccountName", "serviceAccount", "automountServiceAccountToken", "nodeName", "hostNetwork",
        "hostPID", "hostIPC", "shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname", "subdomain",
        "schedulerName", "hostAliases", "priorityClassName", "priority", "dnsConfig", "readinessGates", "runtimeClassName",
        "enableServiceLinks", "preemptionPolicy", "overhead", "setHostnameAsFQDN", "os", "hostUsers", "hostnameOverride",
        "workloadRef", "schedulingGroup",
    ),
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "resources": _RESOURCES,
    "resourceClaims": _fields("name", "source", "resourceClaimName", "resourceClaimTemplateName"),
    **WRITTEN_FIELDS,
}  # fmt: skip
_METADATA: Final[Fields] = {
    **_fields(
        "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
        "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers", "clusterName", "managedFields",
    ),
    "ownerReferences": _fields("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"),
}  # fmt: skip
_POD: Final[Fields] = {**_fields("apiVersion", "kind", "status"), "metadata": _METADATA, "spec": _SPEC}


def checked_pod(pod: JsonObject, path: str) -> bytes:
    """A user's pod as the API server would store it. Raises ``WireError`` for a pod that it would refuse."""
    pod["metadata"]["namespace"] = pod["metadata"].get("namespace") or NO_NAMESPACE
    refuse(complete_and_check(pod), path)
    return orjson.dumps(pod)


def refuse(errors: Sequence[FieldError], path: str) -> None:
    """Raises ``WireError`` with the first errors, if there are any. ``path``: the position of the object."""
    if errors:
        first, *others = errors[:_MOST_ERRORS]
        more = [f"and {len(errors) - _MOST_ERRORS} more errors"] if len(errors) > _MOST_ERRORS else []
        field = f"{path}.{first.field}".removeprefix(".")
        raise WireError(field, "; ".join([first.message, *map(str, others), *more]))


def complete_and_check(pod: JsonObject) -> tuple[FieldError, ...]:
    """Completes a pod in place, and returns why the API server would refuse it. O(size of the pod).

    As in the API server, what cannot be decoded is reported alone: values of a wrong type, else unknown fields. For a
    pod that was created before, a label key may also stand in the selector, because it was merged into it then.
    """
    problems = Problems()
    unknown = [
        FieldError(path.removeprefix("."), ErrorType.FORBIDDEN, "unknown field")
        for path in unknown_fields(pod, _POD, "")
    ]
    for name in ("metadata", "spec"):
        # A part of a wrong type becomes empty, so that no later check has to expect one. Its error hides theirs.
        pod[name] = problems.read_object(pod.get(name), name)
    metadata, spec = pod["metadata"], pod["spec"]
    # Before completion, which merges the keys itself.
    if not is_created(pod):
        _check_merged_keys(problems, spec, problems.read_object(metadata.get("labels"), "metadata.labels"))
    complete_pod(pod)
    _check_metadata(problems, metadata)
    problems.errors += spec_errors(spec)
    check_containers(problems, spec)
    # Wrong types come first, then unknown fields, then all else, as far as the API server gets.
    errors = merged(problems.errors)
    return tuple(unknown) if unknown and not any(map(_is_of_a_type, errors)) else errors


def scheduling_errors(pod: JsonObject) -> tuple[FieldError, ...]:
    """Why the API server would not store a pod as it stands; by fields that scheduling reads and their names."""
    problems = Problems()
    spec = problems.read_object(pod.get("spec"), "spec")
    parts = {name: spec[name] for name in WRITTEN_FIELDS if name in spec}
    unknown = unknown_fields(parts, WRITTEN_FIELDS, "spec")
    problems.errors += [FieldError(path, ErrorType.FORBIDDEN, "unknown field") for path in unknown]
    return merged(problems.errors + spec_errors(spec))


def spec_errors(spec: JsonObject) -> list[FieldError]:
    """The errors of a new pod in what scheduling reads, without its containers."""
    problems = Problems()
    check_pod(problems, {}, spec)
    problems.read_number(spec.get("priority"), "spec.priority", -INT32 - 1, INT32)
    problems.read_choice(spec.get("restartPolicy"), "spec.restartPolicy", ("Always", "OnFailure", "Never"))
    problems.read_choice(spec.get("preemptionPolicy"), "spec.preemptionPolicy", ("PreemptLowerPriority", "Never"))
    for name in ("schedulerName", "priorityClassName", "serviceAccountName"):
        problems.read_text(spec.get(name), f"spec.{name}")
    # A gate holds a pod back before scheduling, which a pod with a node never passes.
    if spec.get("schedulingGates") and spec.get("nodeName"):
        problems.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    return problems.errors


def merged(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Each error once. Errors of a wrong type hide all others, because the API server cannot decode such a pod."""
    known = tuple(dict.fromkeys(errors))
    return tuple(filter(_is_of_a_type, known)) or known


def _is_of_a_type(error: FieldError) -> bool:
    return error.type is ErrorType.TYPE_INVALID


def _check_metadata(problems: Problems, metadata: JsonObject) -> None:
    name, namespace = (problems.read_text(metadata.get(field), f"metadata.{field}") for field in ("name", "namespace"))
    if name:
        check_subdomain(problems, name, "metadata.name")
    if namespace:
        check_namespace(problems, namespace, "metadata.namespace")
    check_labels(problems, metadata.get("labels"), "metadata.labels")
    problems.read_strings(metadata.get("annotations"), "metadata.annotations")
    check_owners(problems, metadata.get("ownerReferences"), "metadata.ownerReferences")


def _check_merged_keys(problems: Problems, spec: JsonObject, labels: JsonObject) -> None:
    """A key of matchLabelKeys may also be in the selector, once: as the API server merges it into the selector."""
    for owner, at in label_key_owners(spec):
        keys, selector = owner.get("matchLabelKeys"), owner.get("labelSelector")
        if not isinstance(keys, list) or not isinstance(selector, dict):
            continue
        numbers = {key: number for number, key in enumerate(keys) if isinstance(key, str)}
        pairs = selector.get("matchLabels")
        seen = set(pairs if isinstance(pairs, dict) else ())
        # Keys that the selector has, then keys that the API server would merge: a key that comes twice is an error.
        for key in [*_expression_keys(selector), *(key for key in numbers if key in labels)]:
            if key in numbers and key in seen:
                text = "exists in both matchLabelKeys and labelSelector"
                problems.invalid(f"{at}.matchLabelKeys[{numbers[key]}]", key, text)
            seen.add(key)


def _expression_keys(selector: JsonObject) -> list[str]:
    expressions = selector.get("matchExpressions")
    listed = (
        [expression.get("key") for expression in expressions if isinstance(expression, dict)]
        if isinstance(expressions, list)
        else []
    )
    return [key for key in listed if isinstance(key, str)]
