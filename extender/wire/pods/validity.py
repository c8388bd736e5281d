"""Whether a pod is valid: its metadata after an update, and the fields that scheduling reads or an update may change.

Of a new pod `check_pod` is asked with an empty ``old``: then nothing is tolerated.

What old pods were accepted with stays legal: label values of selectors were not always checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from extender.model.constraints.labels import is_label_key, is_label_value
from extender.model.policies import JsonObject
from extender.model.resources import CPU, QuantityError, Resources, parse_quantity
from extender.wire.pods.completion import HUGE_PAGES, aggregated
from extender.wire.policies.field_errors import (
    ErrorType,
    FieldError,
    Problems,
    check_affinity,
    check_label_key,
    check_labels,
    check_namespace,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)
from extender.wire.policies.node_terms import REQUIRED, value_at

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_APPARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_IMMUTABLE: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_INT32: Final = 2**31


def check_metadata_update(found: Problems, old: JsonObject, new: JsonObject) -> None:
    """Every error of the new metadata."""
    _check_identity(found, old, new)
    check_labels(found, new.get("labels"), "metadata.labels")
    _check_annotations(found, old, new)
    _check_finalizers(found, old, new)
    check_owners(found, new.get("ownerReferences"), "metadata.ownerReferences")


def check_mirror(found: Problems, pod: JsonObject) -> None:
    """A mirror pod is one of a node."""
    annotations, spec = (pod.get("metadata") or {}).get("annotations"), pod.get("spec")
    if isinstance(annotations, dict) and MIRROR_ANNOTATION in annotations and not (spec or {}).get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        found.invalid(f"metadata.annotations[{MIRROR_ANNOTATION}]", annotations[MIRROR_ANNOTATION], text)


def _check_identity(found: Problems, old: JsonObject, new: JsonObject) -> None:
    if not new.get("resourceVersion"):
        found.invalid("metadata.resourceVersion", new.get("resourceVersion"), "must be specified for an update")
    generation = found.read_number(new.get("generation"), "metadata.generation", 0, 2**63 - 1)
    if (generation or 0) < (old.get("generation") or 0):
        found.invalid("metadata.generation", generation, "must not be decremented")
    for name in _IMMUTABLE:
        if (new.get(name) or None) != (old.get(name) or None):
            found.invalid(f"metadata.{name}", new.get(name), "field is immutable")
    name, namespace = (found.read_text(new.get(each), f"metadata.{each}") for each in ("name", "namespace"))
    if name:
        check_subdomain(found, name, "metadata.name")
    else:
        found.required("metadata.name", "name or generateName is required")
    if namespace:
        check_namespace(found, namespace, "metadata.namespace")
    else:
        found.required("metadata.namespace", "")


def _check_annotations(found: Problems, old: JsonObject, new: JsonObject) -> None:
    before = old.get("annotations") or {}
    after = found.read_strings(new.get("annotations"), "metadata.annotations")
    for key in after:
        if not is_label_key(key.lower()):
            found.invalid("metadata.annotations", key, "not a qualified name")
    if sum(len(key.encode()) + len(text.encode()) for key, text in after.items()) > _MOST_ANNOTATION_BYTES:
        found.add(ErrorType.TOO_LONG, "metadata.annotations", f"may not be more than {_MOST_ANNOTATION_BYTES} bytes")
    for key in before.keys() | after.keys():
        what = "mirror pod annotation" if key == MIRROR_ANNOTATION else "AppArmor annotations"
        if before.get(key) != after.get(key) and (key == MIRROR_ANNOTATION or key.startswith(_APPARMOR_PREFIX)):
            found.forbidden(
                f"metadata.annotations[{key}]", f"may not {'remove or update' if key in before else 'add'} {what}"
            )
    if not _is_int32(after.get(_DELETION_COST, "0")):
        found.invalid(f"metadata.annotations[{_DELETION_COST}]", after[_DELETION_COST], "must be a 32bit integer")


def _is_int32(text: str) -> bool:
    """As Kubernetes reads a deletion cost: no plus sign, no leading zeros."""
    digits = text.removeprefix("-")
    is_plain = (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= len(str(_INT32))
        and (digits == "0" or digits[0] != "0")
    )
    return is_plain and -_INT32 <= int(text) < _INT32


def _check_finalizers(found: Problems, old: JsonObject, new: JsonObject) -> None:
    names = found.read_texts(new.get("finalizers"), "metadata.finalizers")
    added = set(names) - set(old.get("finalizers") or ())
    if old.get("deletionTimestamp") and added:
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
        found.forbidden("metadata.finalizers", text)
    for number, name in enumerate(names):
        if not is_label_key(name):
            found.invalid("metadata.finalizers", name, "not a qualified name")
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            found.invalid(f"metadata.finalizers[{number}]", name, text)
    if {"orphan", "foregroundDeletion"} <= set(names):
        found.invalid("metadata.finalizers", names, "orphan and foregroundDeletion cannot be both set")


def check_owners(found: Problems, value: Any, path: str) -> None:
    """The owner references. Errors are about the list without a number, as in the API."""
    controllers = 0
    for owner, _ in found.objects(value, path):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not found.read_text(owner.get(name), f"{path}.{name}"):
                found.invalid(f"{path}.{name}", "", "must not be empty")
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            found.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        controllers += owner.get("controller") is True
    if controllers > 1:
        found.invalid(path, value, "Only one reference can have Controller set to true")


_AFFINITY: Final = "spec.affinity"
_SPREAD: Final = "spec.topologySpreadConstraints"
_NODE_TERMS: Final = f"{_AFFINITY}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_POD_AFFINITIES: Final = (f"{_AFFINITY}.podAffinity.", f"{_AFFINITY}.podAntiAffinity.")
_LABEL_VALUE: Final = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
_MOST_INT32: Final = 2**31 - 1


def check_pod(found: Problems, old: JsonObject, new: JsonObject) -> None:
    """Every error of the new spec; ``old`` says what is tolerated."""
    for name in ("containers", "initContainers"):
        for container, at in found.objects(new.get(name), f"spec.{name}"):
            check_image(found, found.read_text(container.get("image"), f"{at}.image"), f"{at}.image")
    found.read_number(new.get("activeDeadlineSeconds"), "spec.activeDeadlineSeconds", 1, _MOST_INT32)
    _check_integer(found, new, "terminationGracePeriodSeconds")
    node_name = found.read_text(new.get("nodeName"), "spec.nodeName")
    if node_name:
        check_subdomain(found, node_name, "spec.nodeName")
    check_labels(found, new.get("nodeSelector"), "spec.nodeSelector")
    check_pod_tolerations(found, new.get("tolerations"))
    _check_gate_names(found, new.get("schedulingGates"))
    found.errors += _affinity_errors(old, new)
    found.errors += _spread_errors(old, new)
    check_immutable_fields(found, old, new)


def check_image(found: Problems, image: str, path: str) -> None:
    """The image of a container in a pod; that of a template may be absent."""
    if not image:
        found.required(path, "")
    if image.strip() != image:
        found.invalid(path, image, "must not have leading or trailing whitespace")


def check_pod_tolerations(found: Problems, value: Any) -> None:
    """The tolerations of a pod."""
    check_tolerations(found, value, "spec.tolerations")


def _check_integer(found: Problems, spec: JsonObject, name: str) -> None:
    value = spec.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        found.add(ErrorType.TYPE_INVALID, f"spec.{name}", "must be an integer", value)


def _check_gate_names(found: Problems, value: Any) -> None:
    seen: set[str] = set()
    for gate, at in found.objects(value, "spec.schedulingGates"):
        name = found.read_text(gate.get("name"), f"{at}.name")
        check_label_key(found, name, at)
        if name in seen:
            found.add(ErrorType.DUPLICATE, at, "", name)
        seen.add(name)


def _affinity_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """Wrong label values in selectors of (anti-)affinity are tolerated if the old pod has one, and those of nodes alike."""
    found, before = Problems(), Problems()
    check_affinity(found, new.get("affinity"), _AFFINITY)
    check_affinity(before, old.get("affinity"), _AFFINITY)
    errors = found.errors
    if any(map(_is_selector_value, before.errors)):
        errors = [error for error in errors if not _is_selector_value(error)]
    if not any(error.type is ErrorType.TYPE_INVALID for error in errors) and not _node_value_errors(old):
        errors += _node_value_errors(new)
    return errors


def _is_selector_value(error: FieldError) -> bool:
    return error.field.startswith(_POD_AFFINITIES) and ".values[" in error.field


def _node_value_errors(spec: JsonObject) -> list[FieldError]:
    found = Problems()
    for number, term in enumerate(value_at(spec, f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms") or ()):
        for clause, expression in enumerate(term.get("matchExpressions") or ()):
            for at, text in enumerate(expression.get("values") or ()):
                if not is_label_value(text):
                    found.invalid(
                        f"{_NODE_TERMS}[{number}].matchExpressions[{clause}].values[{at}]", text, _LABEL_VALUE
                    )
    return found.errors


def _spread_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """A selector that is wrong is tolerated if the old pod has one. Unlike in a policy, minDomains needs DoNotSchedule."""
    found, before = Problems(), Problems()
    check_spread_constraints(found, new.get("topologySpreadConstraints"), _SPREAD)
    check_spread_constraints(before, old.get("topologySpreadConstraints"), _SPREAD)
    if any(".labelSelector." in error.field for error in before.errors):
        found.errors = [error for error in found.errors if ".labelSelector." not in error.field]
    for item, at in Problems().objects(new.get("topologySpreadConstraints"), _SPREAD):
        if item.get("minDomains") is not None and item.get("whenUnsatisfiable") != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
            found.invalid(f"{at}.minDomains", item["minDomains"], text)
    return found.errors


LINUX: Final = "linux"
WINDOWS: Final = "windows"
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_NOT_ON_WINDOWS: Final = "cannot be set for a windows pod"
_POD_FIELDS: Final = {
    "hostUsers": True,
    "hostPID": False,
    "hostIPC": False,
    "shareProcessNamespace": True,
}  # is it a pointer
_POD_SECURITY: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser", "runAsGroup",
    "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_CONTAINER_SECURITY: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def check_immutable_fields(found: Problems, old: JsonObject, new: JsonObject) -> None:
    """Adds the errors of the new spec; a resize policy that the old pod has as well is tolerated."""
    _check_operating_system(found, new)
    if not _restarting_init_containers(old):
        for path in _restarting_init_containers(new):
            text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            found.invalid(path, "RestartContainer", text)
    if isinstance(new.get("resources"), dict):
        _check_resources(found, new, new["resources"])


def _objects(value: Any) -> Iterator[tuple[int, JsonObject]]:
    return (
        (number, each) for number, each in enumerate(value if isinstance(value, list) else ()) if isinstance(each, dict)
    )


def _check_operating_system(found: Problems, spec: JsonObject) -> None:
    name = found.read_object(spec.get("os"), "spec.os").get("name")
    if spec.get("os") is None:
        return
    if name == LINUX:
        _check_linux(found, spec)
    elif name == WINDOWS:
        _check_windows(found, spec)
    elif name:
        found.not_supported("spec.os", name, (LINUX, WINDOWS))
    else:
        found.required("spec.os.name", "")


def _check_linux(found: Problems, spec: JsonObject) -> None:
    for path, context, _ in _security_contexts(spec):
        if context.get("windowsOptions") is not None:
            found.forbidden(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")


def _check_windows(found: Problems, spec: JsonObject) -> None:
    for path, context, fields in _security_contexts(spec):
        for name in fields:
            if context.get(name) not in (None, []):
                found.forbidden(f"{path}.{name}", _NOT_ON_WINDOWS)
    for name, is_pointer in _POD_FIELDS.items():
        if spec.get(name) or (is_pointer and spec.get(name) is not None):
            found.forbidden(f"spec.{name}", _NOT_ON_WINDOWS)


def _security_contexts(spec: JsonObject) -> Iterator[tuple[str, JsonObject, tuple[str, ...]]]:
    """The security contexts with their paths, and which of their fields Windows excludes."""
    if isinstance(spec.get("securityContext"), dict):
        yield "spec.securityContext", spec["securityContext"], _POD_SECURITY
    for name in _CONTAINERS:
        for number, container in _objects(spec.get(name)):
            if isinstance(container.get("securityContext"), dict):
                yield f"spec.{name}[{number}].securityContext", container["securityContext"], _CONTAINER_SECURITY


def _restarting_init_containers(spec: JsonObject) -> list[str]:
    """The paths of resize policies that restart an init container which is no sidecar."""
    return [
        f"spec.initContainers[{number}].resizePolicy[{at}].restartPolicy"
        for number, container in _objects(spec.get("initContainers"))
        if container.get("restartPolicy") != "Always"
        for at, policy in _objects(container.get("resizePolicy"))
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def _check_resources(found: Problems, spec: JsonObject, resources: JsonObject) -> None:
    path = "spec.resources"
    if Problems().read_object(spec.get("os"), "").get("name") == WINDOWS:
        found.forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        found.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    limits, requests = _amounts(found, resources, "limits", path), _amounts(found, resources, "requests", path)
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            text = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            found.invalid(f"{path}.requests", resources["requests"][name], text)
    _check_sums(found, spec, resources, limits, requests)
    for number, container in _objects(spec.get("containers")):
        each = Problems().read_object(container.get("resources"), "")
        for name, amount in _amounts(Problems(), each, "limits", "").items():
            if amount > limits.get(name, amount):
                text = f"must be less than or equal to pod limits of {resources['limits'][name]}"
                found.invalid(f"{path}.containers[{number}][{name}].limits", each["limits"][name], text)


def _check_sums(
    found: Problems, spec: JsonObject, resources: JsonObject, limits: Resources, requests: Resources
) -> None:
    """The pod has at least what its containers have together."""
    path, needed, limited = "spec.resources", aggregated(spec, "requests"), aggregated(spec, "limits")
    for name in sorted(requests.keys() & needed.keys()):
        if needed[name] > requests[name]:
            text = "must be greater than or equal to aggregate container requests"
            found.invalid(f"{path}.requests[{name}]", resources["requests"][name], text)
    for name in sorted(limits.keys() & limited.keys()):
        if limited[name] > limits[name] and name.startswith(HUGE_PAGES):
            text = "must be greater than or equal to aggregate container limits"
            found.invalid(f"{path}.limits[{name}]", resources["limits"][name], text)


def _amounts(found: Problems, resources: JsonObject, name: str, path: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for key, text in found.read_object(resources.get(name), f"{path}.{name}").items():
        try:
            amounts[key] = parse_quantity(str(text), milli=key == CPU)
        except QuantityError:
            found.invalid(f"{path}.{name}[{key}]", text, "must be a quantity")
    return amounts
