"""What pods request and what nodes offer: JSON to amounts.

Equal raw bytes of resources are equal amounts, so the replicas of a workload share them. The caches are bounded in
bytes. An object of a megabyte takes 0.1 s, so `REQUESTS` and `OFFERED` read it in steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from extender.model.bounded import SHARED_NAMES, PreparedValue, Steps, at_once, cached, shared
from extender.model.objects import NO_RESOURCES
from extender.model.resources import (
    CPU,
    MEMORY,
    QuantityError,
    Resources,
    add,
    is_of_pod_level,
    largest,
    parse_resources,
)
from extender.wire.errors import WireError
from extender.wire.objects.constraints import decode, held_by
from extender.wire.objects.objects_json import Quantity
from extender.wire.objects.resizes import Amounts, Parts, Resized

Quantities: TypeAlias = Mapping[str, Quantity]

_AMOUNTS_BYTES: Final = 2**20
_AMOUNT_BYTES: Final = 300
_MANY: Final = 1000  # amounts of one node
_SMALL: Final = 2**14  # bytes of resources that are read in one step
_A_STEP: Final = 2000  # amounts or containers, at 0.3 to 3 µs

# Equal bytes are parsed once for all containers that have them, so an error cannot name the container.
_PATH: Final = "spec.containers.resources.requests"
_STATUS_PATH: Final = "status.containerStatuses.resources"
_AMOUNTS_JSON = msgspec.json.Decoder(dict[str, Quantity] | None)
_CPU: Final = re.compile(r"(requests\.|limits\.)?cpu")


class Requested(NamedTuple):
    """What a pod requests.

    ``anew``: what a copy of it would request; a resize in place may make it differ from ``now``.
    """

    now: Resources
    anew: Resources | None = None


def limits_of(parts: Parts) -> Resources:
    """The effective limits of CPU and memory of these `Parts`; unset limits are left out.

    Overhead is added to set limits.
    """
    return _summed_limits(*parts)


def _summed_bytes(
    containers: tuple[Amounts, ...], init: tuple[tuple[bool, Amounts], ...], overhead: bytes, pod_level: Amounts
) -> int:
    return held_by(len(overhead)) + sum(map(_held, (*containers, *(raw for _, raw in init), pod_level)))


def _held(amounts: Amounts) -> int:
    # The first three fields of a `Resized` are bytes, the others are not.
    return held_by(len(amounts) if isinstance(amounts, bytes) else sum(map(len, amounts[:3])))


@cached(_AMOUNTS_BYTES, _summed_bytes)
def summed(
    containers: tuple[Amounts, ...], init: tuple[tuple[bool, Amounts], ...], overhead: bytes, pod_level: Amounts
) -> Requested:
    """What a pod with these `Parts` requests. Raises ``WireError``."""
    return REQUESTS.read((containers, init, overhead, pod_level))


def _summing(parts: Parts) -> Steps[Requested]:
    containers, init, overhead, pod_level = parts
    now = yield from _sum(parts)
    if not any(isinstance(amounts, Resized) for amounts in (*containers, *(amounts for _, amounts in init), pod_level)):
        return Requested(now)
    by_spec = (
        tuple(map(_of_spec, containers)),
        tuple([(is_sidecar, _of_spec(amounts)) for is_sidecar, amounts in init]),
        overhead,
        _of_spec(pod_level),
    )
    # During a resize a copy of the pod would get the spec, not what is allocated now.
    anew = yield from _sum(by_spec)
    return Requested(now, None if anew == now else anew)


def _of_spec(amounts: Amounts) -> bytes:
    return amounts if isinstance(amounts, bytes) else amounts.spec


def _sum(parts: Parts) -> Steps[Resources]:
    """What a pod needs: the sum of containers and sidecars, or the largest init container (KEP-753)."""
    containers, init, overhead, pod_level = parts
    needed: dict[str, int] = {}
    for at, raw in enumerate(containers, start=1):
        add(needed, (yield from _effective(raw)))
        if not at % _A_STEP:
            yield
    # Init containers end before containers start, so the larger of both needs counts.
    if init:
        sidecars, peaks = yield from _initial(init)
        add(needed, sidecars)
        needed = largest((needed, peaks))
    if pod_level:
        # KEP-2837: requests of the pod replace the sum. During a resize the spec still says for which resources.
        # `named` from the spec, because the status may list resources for which the sum of the containers still
        # counts.
        amounts, named = (yield from _effective(pod_level)), (yield from _raw(_of_spec(pod_level)))
        needed.update((name, amounts.get(name, 0)) for name in named if is_of_pod_level(name))
    # Last: the overhead of the RuntimeClass comes on top of pod-level requests too.
    add(needed, (yield from _raw(overhead)))
    # Names of such a pod hardly occur in other pods: sharing them would only fill the table.
    if len(needed) > SHARED_NAMES:
        return needed
    return {shared(name): amount for name, amount in needed.items()} if needed else NO_RESOURCES


def _initial(init: tuple[tuple[bool, Amounts], ...]) -> Steps[tuple[dict[str, int], dict[str, int]]]:
    """The sum of the sidecars, and the largest need while an init container runs.

    An init container runs together with the sidecars started before it. Their sum only grows, and is part of the total.
    So the init container's own resources are all that can exceed it.
    """
    peaks: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for at, (is_sidecar, raw) in enumerate(init, start=1):
        amounts = yield from _effective(raw)
        if is_sidecar:
            add(sidecars, amounts)
        else:
            for name, amount in amounts.items():
                if amount:
                    peaks[name] = max(peaks.get(name, 0), amount + sidecars.get(name, 0))
        if not at % _A_STEP:
            yield
    return sidecars, peaks


def _effective(amounts: Amounts) -> Steps[dict[str, int]]:
    """The amounts that count; see `resizes`."""
    if isinstance(amounts, bytes):
        return (yield from _raw(amounts))
    allocated = yield from _raw(amounts.allocated, _STATUS_PATH)
    actual = yield from _raw(amounts.actual, _STATUS_PATH)
    # Example: the spec wants 2 CPUs, 1 is allocated. The pod counts as 2, or as 1 if the kubelet reports Infeasible.
    return largest(((yield from _raw(b"" if amounts.is_infeasible else amounts.spec)), allocated, actual))


def _raw(raw: bytes, path: str = _PATH) -> Steps[dict[str, int]]:
    if len(raw) <= _SMALL:
        return _parsed(raw, path)
    return (yield from _read(decode(_AMOUNTS_JSON, raw, path) or {}, path))


REQUESTS: Final = PreparedValue(_summing)


@cached(_AMOUNTS_BYTES, _summed_bytes)
def _summed_limits(
    containers: tuple[Amounts, ...], init: tuple[tuple[bool, Amounts], ...], overhead: bytes, pod_level: Amounts
) -> Resources:
    # Limits are summed as requests are. The overhead is left out of the sum, because it raises only a limit that is
    # set.
    total, added = summed(containers, init, b"", pod_level).now, _parsed(overhead)
    return {name: total[name] + added.get(name, 0) for name in (CPU, MEMORY) if total.get(name)} or NO_RESOURCES


def _parsed(raw: bytes, path: str = _PATH) -> dict[str, int]:
    amounts = decode(_AMOUNTS_JSON, raw, path) or {}
    try:
        return parse_resources(amounts)
    except QuantityError as error:
        raise WireError(path, str(error)) from None


def _read(amounts: Quantities, path: str) -> Steps[dict[str, int]]:
    """The amounts by name. Raises ``WireError``."""
    try:
        if len(amounts) <= _A_STEP:
            return parse_resources(amounts)
        remaining, read = iter(amounts.items()), dict[str, int]()
        while part := dict(islice(remaining, _A_STEP)):
            read |= parse_resources(part)
            yield
    except QuantityError as error:
        raise WireError(path, str(error)) from None
    return read


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


OFFERED: Final = PreparedValue(_offered)
