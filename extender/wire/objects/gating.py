"""What the release of groups reads of a pod: its scheduling gates, its controller, and a few of its annotations.

Read by `trim` for gated pods, and for those that carry the annotation of a release.
"""

from __future__ import annotations

import re
from datetime import datetime
from sys import intern
from typing import Final

import msgspec

from extender.model.bounded import cached
from extender.model.release import MOST_GATES, MOST_NUMBERS, RELEASED_ANNOTATION, Gating
from extender.wire.objects.constraints import decode, parse_owner_uid, parse_strings
from extender.wire.objects.objects_json import MetaJson, PodSpecJson

_ABSENT: Final = (b"", b"null", b"[]", b"{}")
RELEASED: Final = RELEASED_ANNOTATION.encode()
_NUMBER: Final = re.compile(r"[0-9]{1,6}")
_CACHE_BYTES: Final = 2**18
_ENTRY_BYTES: Final = 500
_PARSED_FACTOR: Final = 7


class _GateJson(msgspec.Struct):
    name: str = ""


_GATES: Final = msgspec.json.Decoder(list[_GateJson] | None)


def parse_gating(meta: MetaJson, spec: PodSpecJson) -> Gating:
    """The gating of a pod that is gated or was released by us. Raises ``WireError``."""
    gates = bytes(spec.scheduling_gates)
    released, numbers = _annotations(bytes(meta.annotations))
    return Gating(
        _gates(gates),
        intern(parse_owner_uid(bytes(meta.owner_references))),
        numbers,
        released if gates in _ABSENT else "",
        _time(meta.creation_timestamp),
    )


def _parsed_bytes(raw: bytes) -> int:
    return _ENTRY_BYTES + _PARSED_FACTOR * len(raw)


@cached(_CACHE_BYTES, _parsed_bytes)
def _gates(raw: bytes) -> tuple[str, ...]:
    gates = decode(_GATES, raw, "spec.schedulingGates") or ()
    return tuple(intern(gate.name) for gate in gates[:MOST_GATES])


@cached(_CACHE_BYTES, _parsed_bytes)
def _annotations(raw: bytes) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The group of the release, and the first annotations by key whose values are numbers."""
    found = parse_strings(raw, "metadata.annotations")
    numbers = sorted((key, value) for key, value in found.items() if _NUMBER.fullmatch(value))[:MOST_NUMBERS]
    released, _, _ = found.get(RELEASED_ANNOTATION, "").rpartition("@")
    return intern(released), tuple((intern(key), int(value)) for key, value in numbers)


def _time(text: str | None) -> datetime | None:
    """A time as the API server writes it; None where it cannot be read."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
