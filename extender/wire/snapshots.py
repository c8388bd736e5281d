"""Reads snapshots of a cluster in all their forms: a List, Lists within it, several documents, a dump with logs.

Objects are decoded as objects of a watch are, by the rows of `WATCHED_KINDS`. `cli/files.py` reads forms other than
JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import orjson
from msgspec import Raw, Struct

from extender.model.constraints.taints import CORDON
from extender.model.objects import Namespace, Node, Object, Pod
from extender.model.policies import JsonObject
from extender.model.units import agreeing, counted
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import WATCHED_KINDS, Kind, WatchedKind, decode_identity
from extender.wire.objects.objects_json import NOTHING, PodJson, ResourcesJson
from extender.wire.objects.simplify import decode_twice, simplified
from extender.wire.pods.completion import complete_amounts, complete_ports, is_created, merge_label_keys
from extender.wire.pods.new_pod import scheduling_errors

T = TypeVar("T")

Kinds: TypeAlias = Mapping[tuple[str, str], Kind[Any]]
"""By kind and group. Without a group: the first row of a kind."""

_DEEPEST: Final = 8  # Lists within Lists
_POD_KIND: Final = "Pod"
_ABSENT: Final = (b"", b"null", b"{}")


class Snapshot(NamedTuple):
    """The decoded objects, and the number of skipped objects by kind.

    ``unreadable``: a line for each object that cannot be decoded, with its index, its name and the problem. ``notes``:
    in what the objects differ from objects of a cluster.
    """

    objects: list[Object]
    skipped: dict[str, int]
    unreadable: list[str]
    notes: list[str]


class SnapshotItem(NamedTuple):
    """One object of a snapshot: its position, its kind and group, and its JSON."""

    place: str
    kind: str
    group: str
    body: bytes


class _HeadJson(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: Raw = NOTHING


class _ListJson(Struct):
    kind: str
    items: list[Raw] | None = None


_HEAD = msgspec.json.Decoder(_HeadJson)
_LIST = msgspec.json.Decoder(_ListJson)
_ITEMS = msgspec.json.Decoder(list[Raw] | None)
_POD = msgspec.json.Decoder(PodJson)
_NAMES = msgspec.json.Decoder(dict[str, Raw] | None)


def decode_snapshot(body: bytes, limits: ConstraintLimits = DEFAULT_LIMITS) -> Snapshot:
    """Decodes a List, an array of objects, or several JSON documents. Raises ``WireError`` for any other body.

    O(bytes).
    """
    kinds, snapshot, refused = kinds_by_name(WATCHED_KINDS, limits), Snapshot([], {}, [], []), list[str]()
    for item in items_of(body, snapshot.unreadable):
        kind = kinds.get((item.kind, item.group))
        if kind is None:
            snapshot.skipped[item.kind] = snapshot.skipped.get(item.kind, 0) + 1
            continue
        try:
            snapshot.objects.append(_tainted(_decode(kind, _completed(item, refused))))
        # One unreadable object does not spoil the snapshot.
        except WireError as error:
            field = f"{item.place}.{error.path}" if error.path else item.place
            snapshot.unreadable.append(f"{field}{_named(item.body)}: {error.problem}")
    snapshot.objects[:] = _with_own_uids(snapshot.objects, snapshot.notes)
    snapshot.notes.extend(_missing_namespaces(snapshot.objects))
    if refused:
        are = agreeing(len(refused), "is such as", "are such as")
        pods = counted(len(refused), "pending pod")
        snapshot.notes.append(f"{pods} {are} the API server refuses, for example {refused[0]}")
    return snapshot


def kinds_by_name(watched: Iterable[WatchedKind], limits: ConstraintLimits) -> Kinds:
    """The kinds within these limits."""
    kinds: dict[tuple[str, str], Kind[Any]] = {}
    for watched_kind in watched:
        kind = kinds[watched_kind.api_kind, watched_kind.kind.group] = watched_kind.within(limits)
        # A document without a group means the first row: a policy of the extender's group, not of kupid's.
        kinds.setdefault((watched_kind.api_kind, ""), kind)
    return kinds


# -- objects of the documents


def items_of(body: bytes, unreadable: list[str]) -> Iterator[SnapshotItem]:
    """The objects of all documents. Adds unreadable ones to ``unreadable``.

    Raises ``WireError`` if the body is no snapshot.
    """
    if body.lstrip()[:1] == b"[":
        yield from _items_in(_read(_ITEMS, body), "", "", unreadable)
        return
    try:
        listed = _read(_LIST, body)
    # Not one document: perhaps several, one after the other.
    except WireError as error:
        for number, document in enumerate(_several(body, error)):
            yield from _items(document, f"documents[{number}]", "", unreadable)
        return
    if listed.kind.endswith("List"):
        yield from _items_in(listed.items, "", listed.kind.removesuffix("List"), unreadable)
    # A single object. Without metadata it is no object of Kubernetes.
    elif listed.items is None and b'"metadata"' in body:
        yield from _items(body, "document", "", unreadable)
    else:
        raise WireError("kind", f'expected List, as `kubectl get -o json` prints, got "{listed.kind}"')


def objects_of(body: bytes) -> Iterator[JsonObject]:
    """The objects as plain JSON, each with its kind.

    JSON that only the decoder reads, such as very deep JSON, is left out.
    """
    for item in items_of(body, []):
        try:
            obj = orjson.loads(item.body)
        except ValueError:
            continue
        yield {"apiVersion": "v1", **obj, "kind": item.kind}


def _items(body: bytes, place: str, default: str, unreadable: list[str], depth: int = 0) -> Iterator[SnapshotItem]:
    """An object, or the objects of a list. Items of a typed list need no kind."""
    try:
        head = decode_twice(_HEAD, body)
        name = head.kind or default
        if name.endswith("List") and bytes(head.items):
            listed = decode_twice(_ITEMS, bytes(head.items)) if depth < _DEEPEST else None
            if depth == _DEEPEST:
                unreadable.append(f"{place}: is a List within {_DEEPEST} others")
            yield from _items_in(listed, f"{place}.", name.removesuffix("List"), unreadable, depth + 1)
        else:
            yield SnapshotItem(place, name, head.api_version.rpartition("/")[0], body)
    except UNREADABLE as error:
        unreadable.append(str(from_msgspec(error, place)))


def _items_in(
    listed: list[Raw] | None, place: str, default: str, unreadable: list[str], depth: int = 0
) -> Iterator[SnapshotItem]:
    for number, item in enumerate(listed or ()):
        yield from _items(bytes(item), f"{place}items[{number}]", default, unreadable, depth)


_LOGS_BEGIN: Final = "==== START logs for container "
_LOGS_END: Final = "\n==== END logs for container "
_BLANKS: Final = re.compile(r"\s*")


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decode_twice(decoder, body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None


def _several(body: bytes, error: WireError) -> list[bytes]:
    """The documents of a body with several. Raises ``WireError``; the given ``error`` if there are not two."""
    documents: list[bytes] = []
    try:
        documents.extend(_documents(body))
    except WireError as later:
        # If the first document is bad already, the error of the whole body says more.
        raise (later if documents else error) from None
    if len(documents) < 2:  # noqa: PLR2004 (one document that is no list)
        raise error
    return documents


# Decodes no object, because only the end of a document is needed.
_ENDS: Final = json.JSONDecoder(object_pairs_hook=lambda _: None)


def _documents(body: bytes) -> Iterator[bytes]:
    """The JSON documents, one after the other. Raises ``WireError`` if there is none."""
    text = body.decode(errors="replace")
    at = 0
    while (at := _after_logs(text, at)) < len(text):
        try:
            _, end = _ENDS.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, at) + 1
            problem = getattr(error, "msg", "is nested too deeply")
            raise WireError("", f"no document of JSON begins in line {line}: {problem}") from None
        yield text[at:end].encode()
        at = end


def _after_logs(text: str, at: int) -> int:
    """The beginning of the next document, after blanks, YAML separators, and logs of `kubectl cluster-info dump`."""
    while True:
        blanks = _BLANKS.match(text, at)
        at = at if blanks is None else blanks.end()
        if text.startswith(_LOGS_BEGIN, at):
            last = text.find(_LOGS_END, at)
            at = _line_end(text, last + 1) if last >= 0 else len(text)
        elif text.startswith("---", at):
            at = _line_end(text, at)
        else:
            return at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _decode(kind: Kind[Any], item: bytes) -> Object:
    # Simplifying costs more than decoding, and almost every object is decoded at the first attempt.
    try:
        obj: Object = kind.decode_object(item)
    except WireError:
        obj = kind.decode_object(simplified(item))
    return obj


def _tainted(obj: Object) -> Object:
    """For a cordoned node that was written by hand: adds the taint of the node lifecycle controller."""
    if isinstance(obj, Node) and obj.unschedulable and not any(map(CORDON.is_like, obj.taints)):
        return msgspec.structs.replace(obj, taints=(*obj.taints, CORDON))
    return obj


def _named(item: bytes) -> str:
    """The name of an object in parentheses; empty if it cannot be decoded."""
    try:
        identity = decode_identity(item)
    except WireError:
        return ""
    return f" ({identity.namespace}/{identity.name})".replace("(/", "(")


# -- pods as they are in a cluster


def _completed(item: SnapshotItem, refused: list[str]) -> bytes:
    """The object. A pod that was written by hand gets the API server's defaults. 4 µs for a pod of a cluster.

    A pod without a node that the API server refuses is added to ``refused``, because its requirements may have no
    effect.
    """
    if item.kind != _POD_KIND or item.group:
        return item.body
    # A search in the bytes costs less than parsing. If a label or an annotation has this text, only the note is
    # missing.
    is_pending = b'"nodeName"' not in item.body
    if not is_pending and not _lacks_defaults(item.body):
        return item.body
    try:
        pod: JsonObject = orjson.loads(item.body)
    except ValueError:
        return item.body
    if not isinstance(pod.get("spec"), dict):
        return item.body
    if is_pending and (errors := scheduling_errors(pod)):
        refused.append(f"{item.place}{_named(item.body)}: {errors[0]}")
    complete_amounts(pod["spec"])
    complete_ports(pod["spec"])
    merge_label_keys(pod, is_merged=is_created(pod))
    return orjson.dumps(pod)


def _lacks_defaults(body: bytes) -> bool:
    try:
        spec = _POD.decode(body).spec
    except UNREADABLE:
        return False
    if spec is None:
        return False
    # For matchLabelKeys and mismatchLabelKeys. The spread constraints of a bound pod affect no other pod, so their
    # keys do not matter.
    if b"abelKeys" in bytes(spec.affinity) or b'"hostNetwork"' in body:
        return True
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return any(_lacks_requests(container.resources) for container in containers) or _lacks_requests(spec.resources)


def _lacks_requests(resources: ResourcesJson | None) -> bool:
    if resources is None or bytes(resources.limits) in _ABSENT or bytes(resources.limits) == bytes(resources.requests):
        return False
    try:
        limits, requests = (
            _NAMES.decode(bytes(amounts) or b"{}") for amounts in (resources.limits, resources.requests)
        )
    except UNREADABLE:
        return False
    return not (limits or {}).keys() <= (requests or {}).keys()


def _with_own_uids(objects: list[Object], notes: list[str]) -> Iterator[Object]:
    """The objects. A pod with another pod's UID gets a new UID, because otherwise it would replace the first pod.

    Of two pods with one name, as in two snapshots in one file, the later one stays, as in a cluster.
    """
    names: dict[str, str] = {}
    sharing: list[str] = []
    # Later pods replace earlier pods of the same name.
    last = {obj.full_name: obj for obj in objects if isinstance(obj, Pod)}
    replaced = sum(isinstance(obj, Pod) for obj in objects) - len(last)
    if replaced:
        pods = counted(replaced, "pod")
        notes.append(f"{pods} {agreeing(replaced, 'is', 'are')} listed again under the same name: the last one counts")
    for obj in objects:
        # An earlier pod of the same name.
        if isinstance(obj, Pod) and last[obj.full_name] is not obj:
            continue
        if isinstance(obj, Pod) and names.setdefault(obj.uid, obj.full_name) != obj.full_name:
            sharing.append(f"{obj.full_name} with {names[obj.uid]}")
            yield msgspec.structs.replace(obj, uid=obj.full_name)
        else:
            yield obj
    if sharing:
        pods = counted(len(sharing), "pod")
        shares = agreeing(len(sharing), "shares its", "share their")
        notes.append(f"{pods} {shares} UID with another one, such as {sharing[0]}: each is taken as a pod of its own")


def _missing_namespaces(objects: Iterable[Object]) -> Iterator[str]:
    namespaces: dict[str, None] = {}
    known: set[str] = set()
    for obj in objects:
        if isinstance(obj, Pod):
            namespaces[obj.signature.namespace] = None
        elif isinstance(obj, Namespace):
            known.add(obj.name)
    missing = [name for name in namespaces if name not in known]
    if missing:
        are = agreeing(len(missing), "is", "are")
        yield (
            f"{counted(len(missing), 'namespace')} of pods {are} not among the objects, such as {missing[0]}: no namespace selector "
            "selects them; add `namespaces` to the kinds of kubectl get"
        )
