"""The kinds that are watched: how their pages and lines are decoded to model objects, and which settings need them.

The rows of `WATCHED_KINDS` are used in four places: `compose` creates a reflector for each row that the settings need;
`doctor/facts.py` lists the permissions to list and watch them (`needed_permissions`); tests compare them with the role
of deploy/base; snapshots are decoded with them. To add a kind, add a row, a class in `model.objects` and a case in
`ClusterIndex`, or the table of a feature.

Formats: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from extender.features.quotas.schema import QuotaJson, prepare_quota, trim_quota
from extender.model.bounded import Steps
from extender.model.group_placements import PLACEMENT_KIND, PLACEMENTS, GroupPlacement
from extender.model.objects import (
    DOMAINS_KIND,
    DisruptionBudget,
    Namespace,
    Node,
    Object,
    Pod,
    PodQuota,
    TopologyDomains,
    Workload,
)
from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND, VERSION, PolicyObject
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.objects_json import (
    BudgetJson,
    MetaJson,
    NamespaceJson,
    NodeJson,
    PodJson,
    PolicyJson,
    TopologyDomainsJson,
    WorkloadJson,
)
from extender.wire.objects.trim import (
    prepare_budget,
    prepare_node,
    prepare_pod,
    trim_budget,
    trim_namespace,
    trim_node,
    trim_pod,
    trim_topology_domains,
    trim_workload,
)
from extender.wire.policies.group_placements import GroupPlacementJson, trim_placement
from extender.wire.policies.policies_v1 import trim_policy

T = TypeVar("T", bound=Object)

# A watch with sendInitialEvents (KEP-3157) begins with all objects. The bookmark with this annotation ends them.
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_CHANGES = (b'{"type":"ADDED"', b'{"type":"MODIFIED"', b'{"type":"DELETED"')


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


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a WATCH. ``object`` is None for BOOKMARK and ERROR. ``status`` is set only for ERROR."""

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


# A tuple of one: the decoder stops with an error at a second item.
class _SinglePageJson(msgspec.Struct):
    metadata: _ListMetaJson
    items: tuple[Raw]


class _NamedJson(msgspec.Struct):
    metadata: Identity


class _NamedLineJson(msgspec.Struct):
    type: str
    object: _NamedJson


_STATUS = msgspec.json.Decoder(_StatusJson)
_BOOKMARK = msgspec.json.Decoder(_BookmarkJson)
_ENVELOPE = msgspec.json.Decoder(_EnvelopeJson)
_PAGES = msgspec.json.Decoder(_PageJson)
_SINGLE_PAGES = msgspec.json.Decoder(_SinglePageJson)
_NAMED = msgspec.json.Decoder(_NamedJson)
_NAMED_LINES = msgspec.json.Decoder(_NamedLineJson)


def decode_status(body: bytes) -> Status:
    """Decodes a Status. Missing fields stay empty. Any other body gives an empty Status."""
    try:
        parsed = _STATUS.decode(body)
    except UNREADABLE:
        # A proxy may answer with HTML. Then the HTTP status alone decides.
        return Status()
    details = parsed.details or _StatusDetailsJson()
    causes = tuple([cause.reason or "" for cause in details.causes or ()])
    return Status(parsed.code, parsed.reason or "", parsed.message or "", details.retry_after_seconds, causes)


def decode_page(body: bytes, *, is_single: bool = False) -> Page:
    """Decodes one page of a LIST of any kind. About 1 ms per megabyte. Raises ``WireError``.

    ``is_single``: raises unless there is exactly one item, without reading further ones.
    """
    try:
        page = _SINGLE_PAGES.decode(body) if is_single else _PAGES.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return Page(
        [*page.items] if page.items else [], page.metadata.resource_version or "", page.metadata.continue_token or ""
    )


def decode_identity(body: bytes) -> Identity:
    """Decodes the identity of an object even if its other fields are invalid. Raises ``WireError``."""
    try:
        return _NAMED.decode(body).metadata
    except UNREADABLE as error:
        raise from_msgspec(error) from None


def decode_line_identity(line: bytes) -> tuple[str, Identity]:
    """Decodes the type of an event and the identity of its object even if other fields are invalid.

    Raises ``WireError``.
    """
    try:
        named_line = _NAMED_LINES.decode(line)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return named_line.type, named_line.object.metadata


class Kind(Generic[T]):
    """A resource that can be listed and watched, and the conversion of its objects to model objects.

    ``is_custom``: it is served only if its CRD is installed. ``prepare``: reads large parts of an object in steps.
    """

    def __init__(
        self,
        name: str,
        path: str,
        json: type[Any],
        trim: Callable[[Any], T],
        prepare: Callable[[Any], Steps[None]] | None = None,
        *,
        is_custom: bool = False,
    ) -> None:
        self.name = name
        self.path = path
        self.is_custom = is_custom
        self._trim = trim
        self._prepare = prepare
        # One decoder for envelope and object, so that the bytes of the object are read once.
        event = msgspec.defstruct("EventJson", [("type", str), ("object", json)])
        self._events = msgspec.json.Decoder(event)
        self._objects = msgspec.json.Decoder(json)

    def __repr__(self) -> str:
        return f"Kind({self.name})"

    @property
    def resource(self) -> str:
        """The plural as in RBAC. ``name`` also distinguishes resources of two groups."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The API group as in RBAC, empty for the core group."""
        parts = self.path.split("/")
        return parts[2] if parts[1] == "apis" else ""

    def decode_event(self, line: bytes) -> WatchEvent[T]:
        """Decodes one line of a WATCH. Raises ``WireError``.

        Fast if ``type`` comes first, as the API server writes it.
        """
        # These lines have no object of this kind: the decoder below would parse them in vain.
        if line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            return self._decode_mark(line)
        try:
            event: Any = self._events.decode(line)
        except UNREADABLE as error:
            if line.startswith(_CHANGES):  # no mark; a search for one would read a long line again
                raise from_msgspec(error) from None
            return self._decode_mark(line, error)
        # A mark whose type does not come first, after a decoder that happened to accept its object.
        if event.type in ("BOOKMARK", "ERROR"):
            return self._decode_mark(line)
        meta: MetaJson | None = event.object.metadata
        return WatchEvent(event.type, self._trim(event.object), (meta.resource_version or "") if meta else "")

    def decode_object(self, body: bytes) -> T:
        """Decodes a single object, such as the answer to a GET. Raises ``WireError``."""
        try:
            return self._trim(self._objects.decode(body))
        except UNREADABLE as error:
            raise from_msgspec(error) from None

    def prepare_event(self, line: bytes) -> Steps[None]:
        """Reads large parts of a line in steps, for a following `decode_event`. Raises nothing."""
        with suppress(*UNREADABLE, WireError, AttributeError):
            if self._prepare is not None:
                event: Any = self._events.decode(line)
                yield from self._prepare(event.object)

    def prepare_object(self, body: bytes) -> Steps[None]:
        """Reads large parts of an object in steps, for a following `decode_object`. Raises nothing."""
        with suppress(*UNREADABLE, WireError):
            if self._prepare is not None:
                yield from self._prepare(self._objects.decode(body))

    def named(self, identity: Identity) -> T:
        """An object with only an identity, to look up or delete an object that cannot be decoded."""
        names = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid or None}
        # Through the decoder and `trim`, so that the object has the same key as when it was added.
        return self.decode_object(msgspec.json.encode({"metadata": names}))

    def _decode_mark(self, line: bytes, cause: Exception | None = None) -> WatchEvent[T]:
        """Decodes a BOOKMARK or ERROR line, which has no object of this kind. Raises ``cause`` for other lines."""
        try:
            envelope = _ENVELOPE.decode(line)
            if envelope.type == "ERROR":
                status = decode_status(bytes(envelope.object))
                return WatchEvent("ERROR", None, "", status=status)
            if envelope.type == "BOOKMARK":
                mark = _BOOKMARK.decode(envelope.object).metadata
                end = (mark.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                return WatchEvent("BOOKMARK", None, mark.resource_version or "", initial_events_end=end)
        except UNREADABLE as error:
            raise from_msgspec(cause or error) from None
        # Neither a mark nor an object of this kind: the first error says more, if there is one.
        raise WireError("", "event has an unknown form") if cause is None else from_msgspec(cause)


def _workloads(name: str, path: str, kind: str) -> Kind[Workload]:
    return Kind(name, path, WorkloadJson, lambda raw: trim_workload(raw, kind))


def pods_within(limits: ConstraintLimits) -> Kind[Pod]:
    """The kind of pods. Pods above these limits are marked."""
    return Kind("pods", "/api/v1/pods", PodJson, lambda raw: trim_pod(raw, limits), prepare_pod)


def policies_within(limits: ConstraintLimits, api_kind: str, group: str) -> Kind[PolicyObject]:
    """A kind of policies. A policy that exceeds the limits, or is invalid otherwise, is kept as invalid."""
    # PodSchedulingPolicy is served as podschedulingpolicies.
    resource = f"{api_kind.lower()[:-1]}ies"
    # kupid serves a resource of the same name, and reflectors and metrics are told apart by the name.
    name = resource if group == GROUP else f"{resource}.{group}"
    path = f"/apis/{group}/{VERSION}/{resource}"
    return Kind(name, path, PolicyJson, lambda raw: trim_policy(raw, limits, api_kind, group), is_custom=True)


PODS = pods_within(DEFAULT_LIMITS)
NODES: Kind[Node] = Kind("nodes", "/api/v1/nodes", NodeJson, trim_node, prepare_node)
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
    prepare_budget,
)
GROUP_PLACEMENTS: Kind[GroupPlacement] = Kind(
    PLACEMENTS, f"/apis/{GROUP}/{VERSION}/{PLACEMENTS}", GroupPlacementJson, trim_placement, is_custom=True
)
TOPOLOGY_DOMAINS: Kind[TopologyDomains] = Kind(
    "topologydomains",
    f"/apis/{GROUP}/{VERSION}/topologydomains",
    TopologyDomainsJson,
    trim_topology_domains,
    is_custom=True,
)
RESOURCE_QUOTAS: Kind[PodQuota] = Kind("resourcequotas", "/api/v1/resourcequotas", QuotaJson, trim_quota, prepare_quota)


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """``api_kind``: the ``kind`` of one object. ``why``: for the administrator, what needs list and watch."""

    api_kind: str
    kind: Kind[Any]
    why: str
    is_needed: Callable[[Settings], bool]
    limited: Callable[[ConstraintLimits], Kind[Any]] | None = None

    def within(self, limits: ConstraintLimits) -> Kind[Any]:
        """The kind under the limits of the settings, which apply to pods and policies."""
        return self.kind if self.limited is None else self.limited(limits)


def _derives_selectors(settings: Settings) -> bool:
    """Only default constraints read workloads. Most ReplicaSets are old revisions, so leaving them out saves memory."""
    spread = settings.rules.topology_spread
    return (spread.enabled or settings.shadow) and (
        spread.defaulting_type == "System" or bool(spread.default_constraints)
    )


_POLICIES: Final = "policies are applied to pods"
_PLACED: Final = "the release of a group of gated pods continues from what was decided"
_DOMAINS: Final = "the directive `spread` of policies reads which topology domains are declared or excluded"
_INDEX: Final = "the index is built from it"
_SELECTORS: Final = "default constraints of topology spread derive their selectors from it"
_QUOTAS: Final = "quotas limit pods with affinity across namespaces"
_BUDGETS: Final = "preemption avoids victims that a budget protects, and a refused move waits for its budget"


def _policies(api_kind: str, group: str) -> WatchedKind:
    def limited(limits: ConstraintLimits) -> Kind[Any]:
        return policies_within(limits, api_kind, group)

    def is_needed(settings: Settings) -> bool:
        return settings.policies.enabled and (group == GROUP or settings.policies.kupid)

    return WatchedKind(api_kind, limited(DEFAULT_LIMITS), _POLICIES, is_needed, limited)


WATCHED_KINDS: Final = (
    WatchedKind("Namespace", NAMESPACES, _INDEX, lambda _: True),
    WatchedKind("Node", NODES, _INDEX, lambda _: True),
    WatchedKind("Pod", PODS, _INDEX, lambda _: True, pods_within),
    WatchedKind("Service", SERVICES, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicationController", REPLICATION_CONTROLLERS, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicaSet", REPLICA_SETS, _SELECTORS, _derives_selectors),
    WatchedKind("StatefulSet", STATEFUL_SETS, _SELECTORS, _derives_selectors),
    WatchedKind(
        "PodDisruptionBudget",
        DISRUPTION_BUDGETS,
        _BUDGETS,
        lambda settings: (
            settings.preemption.mode != "off" or (settings.policies.enabled and settings.execution.enabled)
        ),
    ),
    WatchedKind("ResourceQuota", RESOURCE_QUOTAS, _QUOTAS, lambda settings: settings.quota.enabled),
    *(_policies(kind, group) for group in (GROUP, KUPID_GROUP) for kind in (NAMESPACED_KIND, CLUSTER_KIND)),
    WatchedKind(DOMAINS_KIND, TOPOLOGY_DOMAINS, _DOMAINS, lambda settings: settings.policies.enabled),
    WatchedKind(
        PLACEMENT_KIND,
        GROUP_PLACEMENTS,
        _PLACED,
        lambda settings: settings.policies.enabled and settings.release.enabled,
    ),
)


def watched_kinds(settings: Settings) -> list[WatchedKind]:
    """The kinds that these settings need, in the order of the table."""
    return [watched for watched in WATCHED_KINDS if watched.is_needed(settings)]


def policy_kinds(settings: Settings) -> list[str]:
    """The names of the kinds of policies that these settings need."""
    return [watched.kind.name for watched in watched_kinds(settings) if is_policy_kind(watched)]


def is_policy_kind(watched: WatchedKind) -> bool:
    """Whether it is a kind of policies."""
    return watched.why == _POLICIES
