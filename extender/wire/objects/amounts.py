"""What pods request, what nodes offer and what quotas allow: JSON to amounts.

Equal raw bytes of resources are equal amounts, so the replicas of a workload share them. The caches are bounded in bytes. An object
of a megabyte takes 0.1 s, so `REQUESTS`, `OFFERED` and `QUOTA_AMOUNTS` read it in steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from extender.model.bounded import SHARED_NAMES, Prepared, Steps, at_once, cached, shared
from extender.model.objects import NO_RESOURCES
from extender.model.quotas import is_charged
from extender.model.resources import (
    CPU,
    MEMORY,
    QuantityError,
    Resources,
    add,
    largest,
    parse_quantity,
    parse_resources,
)
from extender.wire.errors import WireError
from extender.wire.objects.constraints import decode, held_by
from extender.wire.objects.objects_json import PodSpecJson, Quantity, ResourcesJson

Quantities: TypeAlias = Mapping[str, Quantity]
Parts: TypeAlias = tuple[tuple[bytes, ...], tuple[tuple[bool, bytes], ...], bytes, bytes]
"""Raw JSON: the amounts of containers, those of init containers with whether each is a sidecar, overhead, those of the pod."""

_AMOUNTS_BYTES: Final = 2**20
_AMOUNT_BYTES: Final = 300
_MANY: Final = 1000  # amounts, of one node
_SMALL: Final = 2**14  # bytes of resources that are read at once
_A_STEP: Final = 2000  # amounts or containers, at 0.3 to 3 µs

_PATH: Final = "spec.containers.resources.requests"
_AMOUNTS_JSON = msgspec.json.Decoder(dict[str, Quantity] | None)
_CPU: Final = re.compile(r"(requests\.|limits\.)?cpu")


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
    return sum(held_by(len(each)) for each in (*containers, *(raw for _, raw in init), overhead, pod_level))


@cached(_AMOUNTS_BYTES, _summed_bytes)
def summed(
    containers: tuple[bytes, ...], init: tuple[tuple[bool, bytes], ...], overhead: bytes, pod_level: bytes
) -> Resources:
    """What a pod requests, of these `Parts`. Raises ``WireError``."""
    return REQUESTS.read((containers, init, overhead, pod_level))


def _summing(parts: Parts) -> Steps[Resources]:
    """What a pod needs: the sum of containers and sidecars, or the largest init container (KEP-753)."""
    containers, init, overhead, pod_level = parts
    needed: dict[str, int] = {}
    for at, raw in enumerate(containers, start=1):
        add(needed, (_parsed(raw) if len(raw) <= _SMALL else (yield from _parsed_in_steps(raw))))
        if not at % _A_STEP:
            yield
    if init:
        # An init container runs together with the sidecars that were started before it. What these take only grows, and counts
        # in the sum, so its own resources are all that it can raise.
        peaks: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        for at, (is_sidecar, raw) in enumerate(init, start=1):
            amounts = _parsed(raw) if len(raw) <= _SMALL else (yield from _parsed_in_steps(raw))
            if is_sidecar:
                add(sidecars, amounts)
            else:
                for name, amount in amounts.items():
                    if amount:
                        peaks[name] = max(peaks.get(name, 0), amount + sidecars.get(name, 0))
            if not at % _A_STEP:
                yield
        add(needed, sidecars)
        needed = largest((needed, peaks))
    needed.update((yield from _parsed_in_steps(pod_level)))  # KEP-2837: pod-level requests replace the sum
    add(needed, (yield from _parsed_in_steps(overhead)))
    if len(needed) > SHARED_NAMES:
        return needed
    return {shared(name): amount for name, amount in needed.items()} if needed else NO_RESOURCES


REQUESTS: Final = Prepared(_summing)


@cached(_AMOUNTS_BYTES, _summed_bytes)
def _summed_limits(
    containers: tuple[bytes, ...], init: tuple[tuple[bool, bytes], ...], overhead: bytes, pod_level: bytes
) -> Resources:
    found, added = summed(containers, init, b"", pod_level), _parsed(overhead)
    return {name: found[name] + added.get(name, 0) for name in (CPU, MEMORY) if found.get(name)} or NO_RESOURCES


def _parsed(raw: bytes) -> dict[str, int]:
    amounts = decode(_AMOUNTS_JSON, raw, _PATH) or {}
    try:
        return parse_resources(amounts)
    except QuantityError as error:
        raise WireError(_PATH, str(error)) from None


def _parsed_in_steps(raw: bytes) -> Steps[dict[str, int]]:
    return (yield from _read(decode(_AMOUNTS_JSON, raw, _PATH) or {}, _PATH))


def _read(amounts: Quantities, path: str) -> Steps[dict[str, int]]:
    """The amounts by name. Raises ``WireError``."""
    try:
        if len(amounts) <= _A_STEP:
            return parse_resources(amounts)
        left, found = iter(amounts.items()), dict[str, int]()
        while part := dict(islice(left, _A_STEP)):
            found |= parse_resources(part)
            yield
    except QuantityError as error:
        raise WireError(path, str(error)) from None
    return found


def node_resources(amounts: Quantities) -> Resources:
    """What a node offers. Raises ``WireError``."""
    return OFFERED.read(amounts) if len(amounts) > _MANY else _node_resources(tuple(amounts.items()))


def _amounts_bytes(amounts: tuple[tuple[str, Quantity], ...]) -> int:
    return _AMOUNT_BYTES + sum(_AMOUNT_BYTES + len(name) + len(str(amount)) for name, amount in amounts)


@cached(_AMOUNTS_BYTES, _amounts_bytes)
def _node_resources(amounts: tuple[tuple[str, Quantity], ...]) -> Resources:
    return at_once(_offered(dict(amounts)))


def _offered(amounts: Quantities) -> Steps[Resources]:
    return (yield from _read(amounts, "status.allocatable"))


OFFERED: Final = Prepared(_offered)


def _charged(hard: Quantities) -> Steps[tuple[Resources, tuple[str, ...]]]:
    """What pods use up by name, and the names of the others. Raises ``WireError`` naming the field."""
    found: dict[str, int] = {}
    others: list[str] = []
    for at, (name, amount) in enumerate(hard.items(), start=1):
        if not is_charged(name):
            others.append(name)
            continue
        try:
            found[name] = parse_quantity(str(amount), milli=_CPU.fullmatch(name) is not None)
        except QuantityError as error:
            raise WireError(f"spec.hard.{name}", str(error)) from None
        if not at % _A_STEP:
            yield
    return found, tuple(sorted(others))


QUOTA_AMOUNTS: Final = Prepared(_charged)
