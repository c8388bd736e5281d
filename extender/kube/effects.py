"""What the service writes, as values: a reference to a pod, a condition, an event, and the Lease with its JSON form.

Used by ``writer`` and by the tasks that decide to write. No I/O. Times of a Lease are the API's MicroTime: UTC, six
digits. They only inform users and other clients. A Lease expires by the local monotonic clock, counted from the moment
at which a change was observed, as in client-go (coordination.k8s.io/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from extender.model.objects import Pod
from extender.model.policies import VERSION, PolicyKey
from extender.model.units import read_time
from extender.wire.errors import UNREADABLE, from_msgspec
from extender.wire.objects.simplify import decode_twice

_NAMESPACE_OF_CLUSTER_EVENTS: Final = "default"
_LONGEST_NOTE: Final = 1024  # events.k8s.io/v1 rejects more
_LONGEST_EVENT_NAME: Final = 236  # leaves room for the dot and 16 digits within 253


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod. With ``uid`` a write fails with ``Conflict`` if the name belongs to another pod by now."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Exactly this pod: the UID excludes a later pod of the same name."""
        return cls(pod.namespace, pod.name, pod.uid)

    def reference(self) -> dict[str, str]:
        """The object that an event regards."""
        return {"apiVersion": "v1", "kind": "Pod", "namespace": self.namespace, "name": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class PodCondition:
    """An entry of ``status.conditions``, merged by its type. ``status``: "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """One scheduling policy."""

    key: PolicyKey
    uid: str

    @property
    def namespace(self) -> str:
        """Empty for a cluster-wide policy."""
        return self.key.namespace

    def reference(self) -> dict[str, str]:
        """The object that an event regards."""
        key = self.key
        reference = {"apiVersion": f"{key.group}/{VERSION}", "kind": key.kind, "name": key.name, "uid": self.uid}
        return reference | {"namespace": key.namespace} if key.namespace else reference


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An event that ``kubectl describe`` shows at an object.

    ``type``: "Normal" or "Warning"; ``note`` is cut at 1 KiB.
    """

    about: PodRef | PolicyRef
    type: str
    reason: str
    action: str
    note: str
    at: datetime


def event_body(event: ObjectEvent, component: str, instance: str) -> dict[str, Any]:
    """The Event in JSON. Its name is the object's name and the time, as in client-go."""
    stamp, regarding = int(event.at.timestamp() * 1_000_000), event.about.reference()
    name = f"{regarding['name'][:_LONGEST_EVENT_NAME]}.{stamp:x}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.about.namespace or _NAMESPACE_OF_CLUSTER_EVENTS},
        "eventTime": micro_time(event.at),
        "reportingController": component,
        "reportingInstance": instance,
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": event.note.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
        "regarding": regarding,
    }


@dataclass(frozen=True, slots=True)
class Lease:
    """One Lease. ``resource_version`` makes an update fail with ``Conflict`` if another client has changed it."""

    namespace: str
    name: str
    # Empty when released.
    holder: str = ""
    duration_seconds: int = 15
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    # The number of changes of holder, which numbers the terms.
    transitions: int = 0
    resource_version: str = ""
    # Kept, because an update replaces the whole object.
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class _MetaJson(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _PodMetaJson(msgspec.Struct):
    uid: str = ""


class _PodSpecJson(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _PodJson(msgspec.Struct):
    metadata: _PodMetaJson
    spec: _PodSpecJson


_PODS = msgspec.json.Decoder(_PodJson)


def decode_place(body: bytes) -> tuple[str, str]:
    """UID and node of a pod from an answer. Raises ``ValueError`` if it is no pod."""
    try:
        pod = decode_twice(_PODS, body)
    except UNREADABLE as error:
        raise ValueError(f"no pod: {from_msgspec(error)}") from None
    return pod.metadata.uid, pod.spec.node_name or ""


class _SpecJson(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseJson(msgspec.Struct):
    metadata: _MetaJson = msgspec.field(default_factory=_MetaJson)
    spec: _SpecJson | None = None


_LEASES = msgspec.json.Decoder(_LeaseJson)


def decode_lease(body: bytes) -> Lease:
    """A Lease from an answer. Raises ``ValueError`` if it is no Lease."""
    try:
        raw = decode_twice(_LEASES, body)
    except UNREADABLE as error:
        raise ValueError(f"no Lease: {from_msgspec(error)}") from None
    meta, spec = raw.metadata, raw.spec or _SpecJson()
    return Lease(
        namespace=meta.namespace,
        name=meta.name,
        holder=spec.holder_identity or "",
        duration_seconds=spec.lease_duration_seconds or 0,
        acquire_time=read_time(spec.acquire_time),
        renew_time=read_time(spec.renew_time),
        transitions=spec.lease_transitions or 0,
        resource_version=meta.resource_version,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
    )


def lease_body(lease: Lease) -> dict[str, object]:
    """The object to create or to replace with; the API server rejects an update without a resourceVersion."""
    metadata: dict[str, object] = {"name": lease.name, "namespace": lease.namespace}
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    if lease.labels:
        metadata["labels"] = dict(lease.labels)
    if lease.annotations:
        metadata["annotations"] = dict(lease.annotations)
    spec: dict[str, object] = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.duration_seconds,
        "leaseTransitions": lease.transitions,
    }
    if lease.acquire_time:
        spec["acquireTime"] = micro_time(lease.acquire_time)
    if lease.renew_time:
        spec["renewTime"] = micro_time(lease.renew_time)
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def micro_time(moment: datetime) -> str:
    """A MicroTime: always UTC and six digits. ``moment`` must have a time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
