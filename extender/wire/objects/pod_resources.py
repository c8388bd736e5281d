"""The effective requests and limits of a pod. Equal raw bytes of resources are the same amounts, so replicas share one object.

The cache is bounded in bytes. Requests are read of every pod, limits of those that quotas count.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from extender.model.bounded import cached
from extender.model.objects import NO_RESOURCES
from extender.model.resources import CPU, MEMORY, QuantityError, Resources, add, largest, parse_resources, total
from extender.wire.errors import WireError
from extender.wire.objects.constraints import decode
from extender.wire.objects.objects_json import PodSpecJson, Quantity, ResourcesJson

_REQUESTS = msgspec.json.Decoder(dict[str, Quantity] | None)

_AMOUNTS_BYTES: Final = 2**20
# The size of parsed objects as a multiple of their JSON, and the fixed size of an entry (measured).
_PARSED_FACTOR: Final = 7
_ENTRY_BYTES: Final = 500
_SHARED_NAMES: Final = 200  # as in `trim`: the names of more are not interned


def _held_by(size: int) -> int:
    """An estimate of the memory of objects that were parsed from so many bytes of JSON."""
    return _ENTRY_BYTES + _PARSED_FACTOR * size


def limits_of(spec: PodSpecJson) -> Resources:
    """The effective limits of CPU and memory, without those that are not set. Overhead adds to those that are."""
    return _summed_limits(
        tuple([_limits(each.resources) for each in spec.containers or ()]),
        tuple([(each.restart_policy == "Always", _limits(each.resources)) for each in spec.init_containers or ()]),
        bytes(spec.overhead),
        _limits(spec.resources),
    )


def _limits(resources: ResourcesJson | None) -> bytes:
    return bytes(resources.limits) if resources else b""


def _summed_bytes(
    containers: tuple[bytes, ...], init: tuple[tuple[bool, bytes], ...], overhead: bytes, pod_level: bytes
) -> int:
    return sum(_held_by(len(each)) for each in (*containers, *(raw for _, raw in init), overhead, pod_level))


@cached(_AMOUNTS_BYTES, _summed_bytes)
def summed(
    containers: tuple[bytes, ...], init: tuple[tuple[bool, bytes], ...], overhead: bytes, pod_level: bytes
) -> Resources:
    """What a pod needs of resources as raw JSON: of its containers, its init containers (and whether each is a sidecar), and itself.

    The sum of containers and sidecars, or the largest init container (KEP-753).
    """
    # An init container runs together with the sidecars that were started before it, so each is a peak of its own.
    running = total(map(_parsed, containers))
    peaks: list[Resources] = []
    sidecars: dict[str, int] = {}
    for is_sidecar, amounts in init:
        if is_sidecar:
            add(sidecars, _parsed(amounts))
            peaks.append(dict(sidecars))
        else:
            peaks.append(total((sidecars, _parsed(amounts))))
    add(running, sidecars)
    needed = largest((running, *peaks))
    needed.update(_parsed(pod_level))  # KEP-2837: pod-level requests replace the sum
    add(needed, _parsed(overhead))
    if len(needed) > _SHARED_NAMES:
        return needed
    return {sys.intern(name): amount for name, amount in needed.items()} if needed else NO_RESOURCES


@cached(_AMOUNTS_BYTES, _summed_bytes)
def _summed_limits(
    containers: tuple[bytes, ...], init: tuple[tuple[bool, bytes], ...], overhead: bytes, pod_level: bytes
) -> Resources:
    found, added = summed(containers, init, b"", pod_level), _parsed(overhead)
    return {name: found[name] + added.get(name, 0) for name in (CPU, MEMORY) if found.get(name)} or NO_RESOURCES


def _parsed(raw: bytes) -> dict[str, int]:
    path = "spec.containers.resources.requests"
    amounts = decode(_REQUESTS, raw, path) or {}
    try:
        return parse_resources({name: str(amount) for name, amount in amounts.items()})
    except QuantityError as error:
        raise WireError(path, str(error)) from None
