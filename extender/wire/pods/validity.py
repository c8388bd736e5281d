"""Whether a pod is valid: its owners, and the fields of its spec that scheduling reads or an update may change.

For a new pod, ``old`` is empty: then nothing is tolerated. Otherwise what the old pod was accepted with stays legal,
because label values of selectors were not always checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from extender.model.constraints.labels import is_label_value
from extender.model.policies import JsonObject
from extender.model.resources import CPU, HUGE_PAGES, QuantityError, Resources, parse_quantity
from extender.wire.pods.completion import aggregated
from extender.wire.policies.field_errors import (
    INT32,
    REQUIRED,
    ErrorType,
    FieldError,
    Problems,
    check_affinity,
    check_label_key,
    check_labels,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)
from extender.wire.policies.node_terms import value_at


def check_owners(problems: Problems, value: Any, path: str) -> None:
    """The owner references. As in the API, an error names the list without a number."""
    controllers = 0
    for owner, _ in problems.objects(value, path):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not problems.read_text(owner.get(name), f"{path}.{name}"):
                problems.invalid(f"{path}.{name}", "", "must not be empty")
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            problems.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        controllers += owner.get("controller") is True
    if controllers > 1:
        problems.invalid(path, value, "Only one reference can have Controller set to true")


_AFFINITY: Final = "spec.affinity"
_SPREAD: Final = "spec.topologySpreadConstraints"
_NODE_TERMS: Final = f"{_AFFINITY}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_POD_AFFINITIES: Final = (f"{_AFFINITY}.podAffinity.", f"{_AFFINITY}.podAntiAffinity.")
_LABEL_VALUE: Final = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"


def check_pod(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    """Adds every error of the new spec. ``old``: what is tolerated."""
    for name in ("containers", "initContainers"):
        for container, at in problems.objects(new.get(name), f"spec.{name}"):
            check_image(problems, problems.read_text(container.get("image"), f"{at}.image"), f"{at}.image")
    problems.read_number(new.get("activeDeadlineSeconds"), "spec.activeDeadlineSeconds", 1, INT32)
    _check_integer(problems, new, "terminationGracePeriodSeconds")
    node_name = problems.read_text(new.get("nodeName"), "spec.nodeName")
    if node_name:
        check_subdomain(problems, node_name, "spec.nodeName")
    check_labels(problems, new.get("nodeSelector"), "spec.nodeSelector")
    check_pod_tolerations(problems, new.get("tolerations"))
    _check_gate_names(problems, new.get("schedulingGates"))
    problems.errors += _affinity_errors(old, new)
    problems.errors += _spread_errors(old, new)
    check_immutable_fields(problems, old, new)


def check_image(problems: Problems, image: str, path: str) -> None:
    """The image of a container in a pod. In a template it may be missing."""
    if not image:
        problems.required(path, "")
    if image.strip() != image:
        problems.invalid(path, image, "must not have leading or trailing whitespace")


def check_pod_tolerations(problems: Problems, value: Any) -> None:
    """The tolerations of a pod."""
    check_tolerations(problems, value, "spec.tolerations")


def _check_integer(problems: Problems, spec: JsonObject, name: str) -> None:
    value = spec.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        problems.add(ErrorType.TYPE_INVALID, f"spec.{name}", "must be an integer", value)


def _check_gate_names(problems: Problems, value: Any) -> None:
    seen: set[str] = set()
    for gate, at in problems.objects(value, "spec.schedulingGates"):
        name = problems.read_text(gate.get("name"), f"{at}.name")
        check_label_key(problems, name, at)
        if name in seen:
            problems.add(ErrorType.DUPLICATE, at, "", name)
        seen.add(name)


def _affinity_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """Wrong label values in selectors of terms are tolerated if the old pod has one; for node affinity alike."""
    problems, before = Problems(), Problems()
    check_affinity(problems, new.get("affinity"), _AFFINITY)
    check_affinity(before, old.get("affinity"), _AFFINITY)
    errors = problems.errors
    if any(map(_is_selector_value, before.errors)):
        errors = [error for error in errors if not _is_selector_value(error)]
    # Values are checked last, because the API server does so only for an affinity that it can decode.
    if not any(error.type is ErrorType.TYPE_INVALID for error in errors) and not _node_value_errors(old):
        errors += _node_value_errors(new)
    return errors


def _is_selector_value(error: FieldError) -> bool:
    return error.field.startswith(_POD_AFFINITIES) and ".values[" in error.field


def _node_value_errors(spec: JsonObject) -> list[FieldError]:
    problems = Problems()
    for number, term in enumerate(value_at(spec, f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms") or ()):
        for clause, expression in enumerate(term.get("matchExpressions") or ()):
            for at, text in enumerate(expression.get("values") or ()):
                if not is_label_value(text):
                    problems.invalid(
                        f"{_NODE_TERMS}[{number}].matchExpressions[{clause}].values[{at}]", text, _LABEL_VALUE
                    )
    return problems.errors


def _spread_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """A wrong selector is tolerated if the old pod has one.

    In a pod, unlike a policy, minDomains needs DoNotSchedule.
    """
    problems, before = Problems(), Problems()
    check_spread_constraints(problems, new.get("topologySpreadConstraints"), _SPREAD)
    check_spread_constraints(before, old.get("topologySpreadConstraints"), _SPREAD)
    # As in the API server: one wrong selector in the old pod excuses any in the new pod.
    if any(".labelSelector." in error.field for error in before.errors):
        problems.errors = [error for error in problems.errors if ".labelSelector." not in error.field]
    for item, at in Problems().objects(new.get("topologySpreadConstraints"), _SPREAD):
        if item.get("minDomains") is not None and item.get("whenUnsatisfiable") != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
            problems.invalid(f"{at}.minDomains", item["minDomains"], text)
    return problems.errors


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


def check_immutable_fields(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    """Adds the errors of the new spec. A resize policy that the old pod has is tolerated."""
    _check_operating_system(problems, new)
    if not _restarting_init_containers(old):
        for path in _restarting_init_containers(new):
            text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            problems.invalid(path, "RestartContainer", text)
    if isinstance(new.get("resources"), dict):
        _check_resources(problems, new, new["resources"])


def _objects(value: Any) -> Iterator[tuple[int, JsonObject]]:
    return (
        (number, item) for number, item in enumerate(value if isinstance(value, list) else ()) if isinstance(item, dict)
    )


def _check_operating_system(problems: Problems, spec: JsonObject) -> None:
    name = problems.read_object(spec.get("os"), "spec.os").get("name")
    if spec.get("os") is None:
        return
    if name == LINUX:
        _check_linux(problems, spec)
    elif name == WINDOWS:
        _check_windows(problems, spec)
    elif name:
        problems.not_supported("spec.os", name, (LINUX, WINDOWS))
    else:
        problems.required("spec.os.name", "")


def _check_linux(problems: Problems, spec: JsonObject) -> None:
    for path, context, _ in _security_contexts(spec):
        if context.get("windowsOptions") is not None:
            problems.forbidden(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")


def _check_windows(problems: Problems, spec: JsonObject) -> None:
    for path, context, fields in _security_contexts(spec):
        for name in fields:
            if context.get(name) not in (None, []):
                problems.forbidden(f"{path}.{name}", _NOT_ON_WINDOWS)
    for name, is_pointer in _POD_FIELDS.items():
        # A pointer to false is set for Go; a plain false is the zero value and thus unset.
        if spec.get(name) or (is_pointer and spec.get(name) is not None):
            problems.forbidden(f"spec.{name}", _NOT_ON_WINDOWS)


def _security_contexts(spec: JsonObject) -> Iterator[tuple[str, JsonObject, tuple[str, ...]]]:
    """The security contexts with their paths, and the fields that Windows excludes."""
    if isinstance(spec.get("securityContext"), dict):
        yield "spec.securityContext", spec["securityContext"], _POD_SECURITY
    for name in _CONTAINERS:
        for number, container in _objects(spec.get(name)):
            if isinstance(container.get("securityContext"), dict):
                yield f"spec.{name}[{number}].securityContext", container["securityContext"], _CONTAINER_SECURITY


def _restarting_init_containers(spec: JsonObject) -> list[str]:
    """The paths of resize policies that restart an init container that is no sidecar."""
    return [
        f"spec.initContainers[{number}].resizePolicy[{at}].restartPolicy"
        for number, container in _objects(spec.get("initContainers"))
        if container.get("restartPolicy") != "Always"
        for at, policy in _objects(container.get("resizePolicy"))
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def _check_resources(problems: Problems, spec: JsonObject, resources: JsonObject) -> None:
    path = "spec.resources"
    if Problems().read_object(spec.get("os"), "").get("name") == WINDOWS:
        problems.forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        problems.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    limits, requests = _amounts(problems, resources, "limits", path), _amounts(problems, resources, "requests", path)
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            text = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            problems.invalid(f"{path}.requests", resources["requests"][name], text)
    _check_sums(problems, spec, resources, limits, requests)
    # A container may not exceed the pod. Errors of its amounts are reported elsewhere.
    for number, container in _objects(spec.get("containers")):
        container_resources = Problems().read_object(container.get("resources"), "")
        for name, amount in _amounts(Problems(), container_resources, "limits", "").items():
            if amount > limits.get(name, amount):
                text = f"must be less than or equal to pod limits of {resources['limits'][name]}"
                problems.invalid(
                    f"{path}.containers[{number}][{name}].limits", container_resources["limits"][name], text
                )


def _check_sums(
    problems: Problems, spec: JsonObject, resources: JsonObject, limits: Resources, requests: Resources
) -> None:
    """The pod must have at least the sum of its containers."""
    path, needed, limited = "spec.resources", aggregated(spec, "requests"), aggregated(spec, "limits")
    for name in sorted(requests.keys() & needed.keys()):
        if needed[name] > requests[name]:
            text = "must be greater than or equal to aggregate container requests"
            problems.invalid(f"{path}.requests[{name}]", resources["requests"][name], text)
    for name in sorted(limits.keys() & limited.keys()):
        # Limits of CPU and memory may add up to more than the pod's limit, because containers rarely reach theirs at
        # the same time. Huge pages are reserved.
        if limited[name] > limits[name] and name.startswith(HUGE_PAGES):
            text = "must be greater than or equal to aggregate container limits"
            problems.invalid(f"{path}.limits[{name}]", resources["limits"][name], text)


def _amounts(problems: Problems, resources: JsonObject, name: str, path: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for key, text in problems.read_object(resources.get(name), f"{path}.{name}").items():
        try:
            amounts[key] = parse_quantity(str(text), milli=key == CPU)
        except QuantityError:
            problems.invalid(f"{path}.{name}[{key}]", text, "must be a quantity")
    return amounts
