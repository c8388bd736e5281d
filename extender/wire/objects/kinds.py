"""Decodes pages of a LIST and lines of a WATCH to model objects; one ``Kind`` per resource. Called by ``kube``.

Formats: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from extender.model.group_placements import PLACEMENTS, GroupPlacement
from extender.model.objects import DisruptionBudget, Namespace, Node, Object, Pod, PodQuota, Workload
from extender.model.policies import GROUP, VERSION, PolicyObject
from extender.settings.limits import Limits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.limits import DEFAULT_LIMITS
from extender.wire.objects.objects_json import (
    BudgetJson,
    MetaJson,
    NamespaceJson,
    NodeJson,
    PodJson,
    PolicyJson,
    QuotaJson,
    WorkloadJson,
)
from extender.wire.objects.quotas import trim_quota
from extender.wire.objects.trim import trim_budget, trim_namespace, trim_node, trim_pod, trim_workload
from extender.wire.policies.group_placements import GroupPlacementJson, trim_placement
from extender.wire.policies.policies_v1 import trim_policy

T = TypeVar("T", bound=Object)

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Status:
    """A failure as the API server reports it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after_seconds: int = 0
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a LIST with undecoded items; ``continue_token`` is empty on the last page."""

    items: list[bytes | Raw]
    resource_version: str
    continue_token: str


class Identity(msgspec.Struct, rename="camel"):
    """The name, the UID and the version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a WATCH. ``object`` is None for BOOKMARK and ERROR, ``status`` is set for ERROR only."""

    type: str
    object: T | None
    resource_version: str
    initial_events_end: bool = False
    status: Status | None = None


class _CauseJson(msgspec.Struct):
    reason: str | None = None


class _StatusDetailsJson(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: list[_CauseJson] | None = None


class _StatusJson(msgspec.Struct):
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _StatusDetailsJson | None = None


class _ListMetaJson(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_token": "continue"}):
    resource_version: str | None = None
    continue_token: str | None = None


class _MarkJson(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class _BookmarkJson(msgspec.Struct):
    metadata: _MarkJson = msgspec.field(default_factory=_MarkJson)


class _EnvelopeJson(msgspec.Struct):
    type: str
    object: Raw = Raw(b"")


class _PageJson(msgspec.Struct):
    metadata: _ListMetaJson
    items: list[Raw] | None = None


class _NamedJson(msgspec.Struct):
    metadata: Identity


class _NamedLineJson(msgspec.Struct):
    type: str
    object: _NamedJson


_STATUS = msgspec.json.Decoder(_StatusJson)
_BOOKMARK = msgspec.json.Decoder(_BookmarkJson)
_ENVELOPE = msgspec.json.Decoder(_EnvelopeJson)
_PAGES = msgspec.json.Decoder(_PageJson)
_NAMED = msgspec.json.Decoder(_NamedJson)
_NAMED_LINES = msgspec.json.Decoder(_NamedLineJson)


def decode_status(body: bytes) -> Status:
    """Decodes a Status. Missing fields stay empty, and any other body gives an empty Status."""
    try:
        parsed = _STATUS.decode(body)
    except UNREADABLE:
        # A proxy may answer with HTML; the HTTP status alone then decides what to do.
        return Status()
    details = parsed.details or _StatusDetailsJson()
    causes = tuple([each.reason or "" for each in details.causes or ()])
    return Status(parsed.code, parsed.reason or "", parsed.message or "", details.retry_after_seconds, causes)


def decode_page(body: bytes) -> Page:
    """Decodes one page of a LIST of any kind. About 1 ms per megabyte. Raises ``WireError``."""
    try:
        page = _PAGES.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return Page(
        [*page.items] if page.items else [], page.metadata.resource_version or "", page.metadata.continue_token or ""
    )


def decode_identity(body: bytes) -> Identity:
    """Decodes the identity of an object, also if its other fields are invalid. Raises ``WireError``."""
    try:
        return _NAMED.decode(body).metadata
    except UNREADABLE as error:
        raise from_msgspec(error) from None


def decode_line_identity(line: bytes) -> tuple[str, Identity]:
    """Decodes the type of an event and the identity of its object, also if other fields are invalid. Raises ``WireError``."""
    try:
        found = _NAMED_LINES.decode(line)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return found.type, found.object.metadata


class Kind(Generic[T]):
    """A resource that can be listed and watched, and the conversion of its objects to model objects.

    ``is_custom``: it is served only where its CRD is installed.
    """

    def __init__(
        self, name: str, path: str, json: type[Any], trim: Callable[[Any], T], *, is_custom: bool = False
    ) -> None:
        self.name = name
        self.path = path
        self.is_custom = is_custom
        self._trim = trim
        # One decoder for envelope and object reads the bytes of the object once.
        event = msgspec.defstruct("EventJson", [("type", str), ("object", json)])
        self._events = msgspec.json.Decoder(event)
        self._objects = msgspec.json.Decoder(json)

    def __repr__(self) -> str:
        return f"Kind({self.name})"

    @property
    def resource(self) -> str:
        """The plural as in RBAC. The name also tells apart resources of two groups."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The API group as in RBAC, empty for the core group."""
        parts = self.path.split("/")
        return parts[2] if parts[1] == "apis" else ""

    def decode_event(self, line: bytes) -> Event[T]:
        """Decodes one line of a WATCH. Raises ``WireError``. Fast if ``type`` is first, as the API server writes it."""
        # They have no object of this kind, so the decoder below would parse the line in vain.
        if line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            return self._decode_mark(line)
        try:
            event: Any = self._events.decode(line)
        except UNREADABLE as error:
            return self._decode_mark(line, error)
        if event.type in ("BOOKMARK", "ERROR"):
            return self._decode_mark(line)
        meta: MetaJson | None = event.object.metadata
        return Event(event.type, self._trim(event.object), (meta.resource_version or "") if meta else "")

    def decode_object(self, body: bytes) -> T:
        """Decodes a single object, such as the answer to a GET. Raises ``WireError``."""
        try:
            return self._trim(self._objects.decode(body))
        except UNREADABLE as error:
            raise from_msgspec(error) from None

    def named(self, identity: Identity) -> T:
        """An object with nothing but an identity, to look up or to delete one that cannot be decoded."""
        names = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid or None}
        return self.decode_object(msgspec.json.encode({"metadata": names}))

    def _decode_mark(self, line: bytes, cause: Exception | None = None) -> Event[T]:
        """Decodes a BOOKMARK or ERROR line, which has no object of this kind. Raises ``cause`` for other lines."""
        try:
            envelope = _ENVELOPE.decode(line)
            if envelope.type == "ERROR":
                status = decode_status(bytes(envelope.object))
                return Event("ERROR", None, "", status=status)
            if envelope.type == "BOOKMARK":
                mark = _BOOKMARK.decode(envelope.object).metadata
                end = (mark.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                return Event("BOOKMARK", None, mark.resource_version or "", initial_events_end=end)
        except UNREADABLE as error:
            raise from_msgspec(cause or error) from None
        raise WireError("", "event has an unknown form") if cause is None else from_msgspec(cause)


def _workloads(name: str, path: str, kind: str) -> Kind[Workload]:
    return Kind(name, path, WorkloadJson, lambda raw: trim_workload(raw, kind))


def pods_within(limits: Limits) -> Kind[Pod]:
    """The kind of pods; pods above these limits are marked."""
    return Kind("pods", "/api/v1/pods", PodJson, lambda raw: trim_pod(raw, limits))


class _TypeJson(msgspec.Struct):
    kind: str = "Pod"


_TYPE = msgspec.json.Decoder(_TypeJson)
_POD = msgspec.json.Decoder(PodJson)
_NO_NAMESPACE = "default"
_MOST_VALUES = 10_000  # of a pod: to trim one takes up to 2 µs; large pods have a tenth of them


def decode_manifest(body: bytes, limits: Limits = DEFAULT_LIMITS) -> Pod:
    """The pod of a manifest, without the node that it may name, and in the namespace "default" unless it names another.

    Raises ``WireError``. Nothing is defaulted that an admission plugin would set, such as the priority of a class.
    """
    if body.count(b":") + body.count(b"{") > _MOST_VALUES:
        raise WireError("", f"holds more than {_MOST_VALUES} values")
    try:
        kind, raw = _TYPE.decode(body).kind, _POD.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    if kind != "Pod":
        raise WireError("kind", f'expected "Pod", got "{kind[:64]}"')
    if raw.metadata is None or not raw.metadata.name:
        raise WireError("metadata.name", "is missing")
    if raw.spec is None:
        raise WireError("spec", "is missing")
    raw.metadata.namespace = raw.metadata.namespace or _NO_NAMESPACE
    raw.metadata.uid = None
    return msgspec.structs.replace(trim_pod(raw, limits), node="", nominated_node="", terminating=False)


def policies_within(limits: Limits, api_kind: str, group: str) -> Kind[PolicyObject]:
    """A kind of policies; one that exceeds the limits, or is invalid otherwise, is kept as invalid."""
    resource = f"{api_kind.lower()[:-1]}ies"
    name = resource if group == GROUP else f"{resource}.{group}"
    path = f"/apis/{group}/{VERSION}/{resource}"
    return Kind(name, path, PolicyJson, lambda raw: trim_policy(raw, limits, api_kind, group), is_custom=True)


PODS = pods_within(DEFAULT_LIMITS)
NODES: Kind[Node] = Kind("nodes", "/api/v1/nodes", NodeJson, trim_node)
NAMESPACES: Kind[Namespace] = Kind("namespaces", "/api/v1/namespaces", NamespaceJson, trim_namespace)
SERVICES = _workloads("services", "/api/v1/services", "Service")
REPLICATION_CONTROLLERS = _workloads(
    "replicationcontrollers", "/api/v1/replicationcontrollers", "ReplicationController"
)
REPLICA_SETS = _workloads("replicasets", "/apis/apps/v1/replicasets", "ReplicaSet")
STATEFUL_SETS = _workloads("statefulsets", "/apis/apps/v1/statefulsets", "StatefulSet")
DISRUPTION_BUDGETS: Kind[DisruptionBudget] = Kind(
    "poddisruptionbudgets",
    "/apis/policy/v1/poddisruptionbudgets",
    BudgetJson,
    trim_budget,
)
GROUP_PLACEMENTS: Kind[GroupPlacement] = Kind(
    PLACEMENTS, f"/apis/{GROUP}/{VERSION}/{PLACEMENTS}", GroupPlacementJson, trim_placement, is_custom=True
)
RESOURCE_QUOTAS: Kind[PodQuota] = Kind("resourcequotas", "/api/v1/resourcequotas", QuotaJson, trim_quota)
