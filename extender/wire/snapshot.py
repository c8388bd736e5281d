"""A snapshot of a cluster: what `kubectl get nodes,namespaces,pods -A -o json` prints, as model objects.

Read by the command line when it answers from a file. Kinds that no decision reads are counted and left out.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from extender.model.objects import Object
from extender.settings import Limits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.kinds import (
    NAMESPACES,
    NODES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
    pods_within,
)
from extender.wire.limits import USUAL_LIMITS

_KINDS: Final[dict[str, Kind[Any]]] = {
    "Node": NODES,
    "Namespace": NAMESPACES,
    "Service": SERVICES,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
}


class Snapshot(NamedTuple):
    """The objects that decisions read, and how many there were of each kind that they do not."""

    objects: list[Object]
    skipped: dict[str, int]


class _ListJson(Struct):
    kind: str
    items: list[Raw] | None = None


class _ItemJson(Struct):
    kind: str = ""


_LIST = msgspec.json.Decoder(_ListJson)
_ITEM = msgspec.json.Decoder(_ItemJson)


def decode_snapshot(body: bytes, limits: Limits = USUAL_LIMITS) -> Snapshot:
    """The objects of a List, or of a list of one kind such as PodList. Raises WireError with the item's place."""
    kinds = _KINDS | {"Pod": pods_within(limits)}
    try:
        listed = _LIST.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    if not listed.kind.endswith("List"):
        raise WireError("kind", f'expected List, as `kubectl get -o json` prints, got "{listed.kind}"')
    snapshot = Snapshot([], {})
    for place, item in enumerate(listed.items or ()):
        _read_item(item, f"items[{place}]", listed.kind.removesuffix("List"), kinds, snapshot)
    return snapshot


def _read_item(item: Raw, place: str, default: str, kinds: Mapping[str, Kind[Any]], snapshot: Snapshot) -> None:
    """Add one object; the items of a typed list need not repeat their kind."""
    try:
        name = _ITEM.decode(item).kind or default
        kind = kinds.get(name)
        if kind is None:
            snapshot.skipped[name] = snapshot.skipped.get(name, 0) + 1
        else:
            snapshot.objects.append(kind.decode_object(bytes(item)))
    except UNREADABLE as error:
        raise from_msgspec(error, place) from None
    except WireError as error:
        raise WireError(f"{place}.{error.path}" if error.path else place, error.problem) from None
