"""Errors of fields that no update may change, where the API server reports them beside the refusal of the change.

The operating system of the pod with what it excludes, the resize policy of containers, and resources of the whole pod
(KEP-2837). A change of any other field is refused as a whole, whether its new value is valid or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from extender.model.policies import JsonObject
from extender.model.resources import CPU, QuantityError, parse_quantity, total
from extender.wire.policies.field_errors import Problems

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
    return ((number, each) for number, each in enumerate(value or ()) if isinstance(each, dict))


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
    if (spec.get("os") or {}).get("name") == WINDOWS:
        found.forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        found.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    limits, requests = _amounts(found, resources, "limits", path), _amounts(found, resources, "requests", path)
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            text = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            found.invalid(f"{path}.requests", resources["requests"][name], text)
    own = [(number, container.get("resources") or {}) for number, container in _objects(spec.get("containers"))]
    needed = total(_amounts(Problems(), each, "requests", "") for _, each in own)
    for name in sorted(requests.keys() & needed.keys()):
        if needed[name] > requests[name]:
            text = "must be greater than or equal to aggregate container requests"
            found.invalid(f"{path}.requests[{name}]", resources["requests"][name], text)
    for number, each in own:
        for name, amount in _amounts(Problems(), each, "limits", "").items():
            if amount > limits.get(name, amount):
                text = f"must be less than or equal to pod limits of {resources['limits'][name]}"
                found.invalid(f"{path}.containers[{number}][{name}].limits", each["limits"][name], text)


def _amounts(found: Problems, resources: JsonObject, name: str, path: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for key, text in found.read_object(resources.get(name), f"{path}.{name}").items():
        try:
            amounts[key] = parse_quantity(str(text), milli=key == CPU)
        except QuantityError:
            found.invalid(f"{path}.{name}[{key}]", text, "must be a quantity")
    return amounts
