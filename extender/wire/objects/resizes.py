"""Which amounts of a pod count while the kubelet resizes it in place: amounts of its spec or of its status (KEP-1287).

For each container and sidecar, and for the pod itself, kube-scheduler counts by resource the largest of three amounts:
what the spec wants, what the kubelet has allocated, and what the container has now. If the kubelet can never grant the
resize (condition PodResizePending with reason Infeasible), what the spec wants does not count. For a pod without a node
only the spec counts.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from extender.wire.objects.constraints import decode
from extender.wire.objects.objects_json import (
    ConditionJson,
    ContainerStatusJson,
    PodSpecJson,
    PodStatusJson,
    ResourcesJson,
)


class Resized(NamedTuple):
    """Raw JSON: the amounts of a container or a pod by its spec, and the amounts of its status that differ."""

    spec: bytes
    allocated: bytes
    actual: bytes
    is_infeasible: bool


Amounts: TypeAlias = bytes | Resized
Parts: TypeAlias = tuple[tuple[Amounts, ...], tuple[tuple[bool, Amounts], ...], bytes, Amounts]
"""Amounts of containers; of init containers, with whether each is a sidecar; of overhead; of the pod."""

_PlainParts: TypeAlias = tuple[tuple[bytes, ...], tuple[tuple[bool, bytes], ...], bytes, bytes]

_ABSENT: Final = (b"", b"null", b"{}")
_NOTHING: Final = ResourcesJson()
_STATUSES: Final = msgspec.json.Decoder(list[ContainerStatusJson] | None)
_CONDITIONS: Final = msgspec.json.Decoder(list[ConditionJson] | None)


class Shown(NamedTuple):
    """What the status of a pod on a node says about resources: by container, and for the pod itself."""

    containers: Mapping[str | None, ContainerStatusJson]
    allocated: bytes
    actual: ResourcesJson | None
    is_infeasible: bool


def shown_resources(spec: PodSpecJson, status: PodStatusJson) -> Shown | None:
    """The resources in a pod's status. None for most pods: the pod has no node, or each container has what it requests.

    O(containers): 0.1 µs without a status of a container, 2.2 µs with resources there, which each running pod has.
    """
    if not spec.node_name:
        return None
    # A pod that has just been bound: the kubelet has reported nothing yet.
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    shown: dict[str | None, ContainerStatusJson] = {}
    both = ("containerStatuses", status.container_statuses), ("initContainerStatuses", status.init_container_statuses)
    for name, value in both:
        raw = bytes(value)
        if b'"resources"' not in raw:  # searching the bytes costs less than parsing them
            continue
        for container_status in decode(_STATUSES, raw, f"status.{name}") or ():
            if container_status.resources is None:  # of two statuses with one name the last one counts
                shown.pop(container_status.name, None)
            else:
                shown[container_status.name] = container_status
    # Nothing is being resized: the spec alone counts, and the pod shares its amounts with its siblings.
    if status.resources is None and _is_as_wanted(spec, shown):
        return None
    return Shown(shown, bytes(status.allocated_resources), status.resources, _is_infeasible(status))


def _is_as_wanted(spec: PodSpecJson, shown: Mapping[str | None, ContainerStatusJson]) -> bool:
    """Whether each container has its requests and limits, and nothing else is allocated."""
    if not shown:
        return True
    # Sidecars may be resized too. Pods with init containers are few, so they take the longer way.
    if spec.init_containers:
        return False
    for container in spec.containers or ():
        container_status = shown.get(container.name)
        if container_status is None:
            continue
        wanted, has = container.resources or _NOTHING, container_status.resources or _NOTHING
        requests = bytes(wanted.requests)
        if (
            bytes(has.requests) != requests
            or bytes(container_status.allocated_resources) != requests
            or bytes(has.limits) != bytes(wanted.limits)
        ):
            return False
    return True


def request_parts(spec: PodSpecJson, shown: Shown | None) -> Parts:
    """What a pod requests. O(containers)."""
    plain = (
        tuple(
            [bytes(container.resources.requests) if container.resources else b"" for container in spec.containers or ()]
        ),
        tuple(
            [
                (container.restart_policy == "Always", _requests(container.resources))
                for container in spec.init_containers
            ]
        )
        if spec.init_containers
        else (),
        bytes(spec.overhead),
        _requests(spec.resources) if spec.resources else b"",
    )
    if shown is None:
        return plain
    running = {
        name: (bytes(status.allocated_resources), _requests(status.resources))
        for name, status in shown.containers.items()
    }
    # Of resources of the pod itself the status counts only if the spec sets any.
    pod_level: Amounts = plain[3]
    if plain[3] and shown.actual is not None:
        pod_level = _amounts(plain[3], shown.allocated, _requests(shown.actual), shown.is_infeasible)
    return (*_with_status(spec, plain, running, shown.is_infeasible), plain[2], pod_level)


def limit_parts(spec: PodSpecJson, shown: Shown | None) -> Parts:
    """The limits of a pod as quotas count them, which read limits of the pod itself from its spec. O(containers)."""
    plain = (
        tuple([_limits(container.resources) for container in spec.containers or ()]),
        tuple(
            [
                (container.restart_policy == "Always", _limits(container.resources))
                for container in spec.init_containers or ()
            ]
        ),
        bytes(spec.overhead),
        _limits(spec.resources),
    )
    if shown is None:
        return plain
    # The kubelet reports allocated resources as requests only, so limits have no second amount.
    running = {name: (b"", _limits(status.resources)) for name, status in shown.containers.items()}
    return (*_with_status(spec, plain, running, shown.is_infeasible), *plain[2:])


def _requests(resources: ResourcesJson | None) -> bytes:
    return bytes(resources.requests) if resources else b""


def _limits(resources: ResourcesJson | None) -> bytes:
    return bytes(resources.limits) if resources else b""


def amounts_shown(spec: PodSpecJson, status: PodStatusJson) -> Iterator[bytes]:
    """The amounts in a status that may be parsed beside the amounts in the spec."""
    shown = shown_resources(spec, status)
    if shown is None:
        return
    yield from (_requests(shown.actual), shown.allocated)
    for container_status in shown.containers.values():
        yield from (
            _requests(container_status.resources),
            _limits(container_status.resources),
            bytes(container_status.allocated_resources),
        )


def _is_infeasible(status: PodStatusJson) -> bool:
    """Whether the first condition PodResizePending, with any status, has the reason Infeasible."""
    conditions = bytes(status.conditions)
    if b'"PodResizePending"' not in conditions:
        return False
    parsed = decode(_CONDITIONS, conditions, "status.conditions") or ()
    return next(
        (condition.reason == "Infeasible" for condition in parsed if condition.type == "PodResizePending"), False
    )


def _with_status(
    spec: PodSpecJson,
    plain: _PlainParts,
    running: Mapping[str | None, tuple[bytes, bytes]],
    is_infeasible: bool,  # noqa: FBT001
) -> tuple[tuple[Amounts, ...], tuple[tuple[bool, Amounts], ...]]:
    """The amounts of containers and sidecars, with their statuses' amounts. Other init containers are never resized."""
    return (
        tuple([
            _amounts(raw, *running[container.name], is_infeasible) if container.name in running else raw
            for container, raw in zip(spec.containers or (), plain[0], strict=True)
        ]),
        tuple([
            (is_sidecar, _amounts(raw, *running[container.name], is_infeasible))
            if is_sidecar and container.name in running
            else (is_sidecar, raw)
            for container, (is_sidecar, raw) in zip(spec.init_containers or (), plain[1], strict=True)
        ]),
    )  # fmt: skip


def _amounts(spec: bytes, allocated: bytes, actual: bytes, is_infeasible: bool) -> Amounts:  # noqa: FBT001
    """The bytes of the spec alone if the status has no other amounts, as for a pod that is not being resized."""
    others = {amounts for amounts in (allocated, actual) if amounts not in _ABSENT}
    if others == {spec} or not (others or is_infeasible):
        return spec
    return Resized(spec, allocated, actual, is_infeasible)
