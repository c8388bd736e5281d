"""Decodes a snapshot of a cluster: the output of `kubectl get nodes,namespaces,pods -A -o json`.

Called by the command line to serve from a file. A snapshot can have every kind of `watched_kinds`, such as Services and
PodDisruptionBudgets. Objects of other kinds are counted and skipped.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from extender.model.objects import Object
from extender.settings.limits import Limits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.kinds import Kind, decode_identity
from extender.wire.objects.limits import DEFAULT_LIMITS
from extender.wire.objects.simplify import decode_twice, simplified
from extender.wire.objects.watched_kinds import WATCHED_KINDS


class Snapshot(NamedTuple):
    """The decoded objects, and the number of skipped objects by kind.

    ``unreadable`` has a line for each object that cannot be decoded: its index, its name and the problem.
    """

    objects: list[Object]
    skipped: dict[str, int]
    unreadable: list[str]


class _ListJson(Struct):
    kind: str
    items: list[Raw] | None = None


class _ItemJson(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""


_LIST = msgspec.json.Decoder(_ListJson)
_ITEM = msgspec.json.Decoder(_ItemJson)


def decode_snapshot(body: bytes, limits: Limits = DEFAULT_LIMITS) -> Snapshot:
    """Decodes a List, or a list of one kind such as PodList. Raises ``WireError`` if the body is not a list."""
    kinds = _kinds_within(limits)
    try:
        listed = decode_twice(_LIST, body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    if not listed.kind.endswith("List"):
        raise WireError("kind", f'expected List, as `kubectl get -o json` prints, got "{listed.kind}"')
    snapshot = Snapshot([], {}, [])
    for place, item in enumerate(listed.items or ()):
        _read_item(item, f"items[{place}]", listed.kind.removesuffix("List"), kinds, snapshot)
    return snapshot


def _kinds_within(limits: Limits) -> dict[tuple[str, str], Kind[Any]]:
    """By kind and group; without a group the first of a kind."""
    found: dict[tuple[str, str], Kind[Any]] = {}
    for each in WATCHED_KINDS:
        kind = found[each.api_kind, each.kind.group] = each.within(limits)
        found.setdefault((each.api_kind, ""), kind)
    return found


def _read_item(
    item: Raw, place: str, default: str, kinds: Mapping[tuple[str, str], Kind[Any]], snapshot: Snapshot
) -> None:
    """Adds one object. The items of a typed list need not have a kind."""
    try:
        head = decode_twice(_ITEM, bytes(item))
        name = head.kind or default
        kind = kinds.get((name, head.api_version.rpartition("/")[0]))
        if kind is None:
            snapshot.skipped[name] = snapshot.skipped.get(name, 0) + 1
        else:
            snapshot.objects.append(_decode(kind, bytes(item)))
    except UNREADABLE as error:
        snapshot.unreadable.append(str(from_msgspec(error, place)))
    except WireError as error:
        field = f"{place}.{error.path}" if error.path else place
        snapshot.unreadable.append(f"{field}{_named(bytes(item))}: {error.problem}")


def _decode(kind: Kind[Any], item: bytes) -> Object:
    # Simplifying costs more than decoding, and almost every object is decoded by the first attempt.
    try:
        found: Object = kind.decode_object(item)
    except WireError:
        found = kind.decode_object(simplified(item))
    return found


def _named(item: bytes) -> str:
    """The name of an object in parentheses, empty if it cannot be decoded."""
    try:
        found = decode_identity(item)
    except WireError:
        return ""
    return f" ({found.namespace}/{found.name})".replace("(/", "(")
