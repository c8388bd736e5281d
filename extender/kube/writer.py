"""Calls to the API server other than list and watch, one method each. They raise only ``KubeError``.

Each call has a time limit and is one request, declared by a row of ``wire.api_calls``. Order, retries and rate belong
to the tasks. Writes have connections of their own, so a burst of evictions does not delay a watch.

Each write to a pod has its UID, so the API server answers 409 if the name belongs to another pod by now. A replacement
has the resourceVersion that was read, so two writers never overwrite each other. After ``Unreachable`` the write may or
may not
have happened. https://kubernetes.io/docs/reference/using-api/api-concepts/

Every name is checked before it becomes part of a path. A name such as `..` survives percent-encoding and would be
resolved on the way: `DELETE .../pods/..` is a different request from the intended one. Names come from the watch, but
also from
requests to this service and from settings. https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import orjson

from extender.kube.decoding import decode_identity_leniently
from extender.kube.effects import (
    Lease,
    ObjectEvent,
    PodCondition,
    PodRef,
    decode_lease,
    decode_place,
    event_body,
    lease_body,
)
from extender.kube.errors import KubeError, NotFound, Rejected, Unreachable
from extender.kube.session import JSON, MERGE_PATCH, STRATEGIC_PATCH, Body, Connection
from extender.model.group_placements import PLACEMENTS, GroupPlacement, PlacementStatus
from extender.model.objects import DELETION_COST, DELETION_COST_MARK
from extender.model.policies import GROUP, VERSION, PolicyKey
from extender.model.units import rfc3339
from extender.wire import api_calls
from extender.wire.api_calls import ApiCall, KeptObject
from extender.wire.errors import WireError
from extender.wire.policies.group_placements import read_placement, status_body

_METHODS: Final = {"create": "POST", "get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SHOWN: Final = 80  # characters of a bad name in an error
_SECONDS: Final = 10.0

JsonObject = dict[str, Any]

# Called after each call with its name, its result ("ok", "forbidden", "cancelled" or the error's class in lower case)
# and its seconds.
Observe = Callable[[str, str, float], None]

# Called before each write. Raises ``KubeError`` if the write is not allowed now.
Check = Callable[[], None]


def unobserved(_call: str, _result: str, _seconds: float) -> None:
    """The default: calls are not counted."""


def unchecked() -> None:
    """The default: every write may be made."""


def path_of(call: ApiCall, namespace: str | None, name: str | None = None) -> str:
    """The path of a call. None for a part that its object does not have.

    Raises ``Rejected`` if no object can have the name.
    """
    path = f"/apis/{call.group}/{VERSION if call.group == GROUP else 'v1'}" if call.group else "/api/v1"
    if namespace is not None:
        path += f"/namespaces/{_segment('a namespace', namespace)}"
    path += f"/{call.resource}"
    if name is not None:
        path += f"/{_segment('an object', name)}"
    return f"{path}/{call.subresource}" if call.subresource else path


def _segment(resource: str, name: str) -> str:
    """The name, checked: none of its characters needs encoding."""
    if not _NAME.fullmatch(name):
        raise Rejected(f"{name[:_SHOWN]!r} is no name of {resource}", reason="Invalid")
    return name


class Calls:
    """Makes declared calls over one connection. ``limit``: seconds for each call in total.

    ``observe`` is called after each call, ``check`` before each write.
    """

    def __init__(
        self,
        connection: Connection,
        limit: float = _SECONDS,
        observe: Observe = unobserved,
        check: Check = unchecked,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._observe = observe
        self._check = check

    async def _make(
        self,
        call: ApiCall,
        namespace: str | None,
        name: str | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        if call.verb != "get":
            self._check()
        now, path = asyncio.get_running_loop().time, path_of(call, namespace, name)
        begun, result = now(), "cancelled"
        try:
            answer = await self._connection.call(
                _METHODS[call.verb], path, body=body, content_type=content_type, limit=self._limit
            )
            result = "ok"
        except KubeError as error:
            result = "forbidden" if error.status == HTTPStatus.FORBIDDEN else type(error).__name__.lower()
            raise
        finally:
            self._observe(call.name, result, now() - begun)
        return answer


class _Recording(Calls):
    """Calls of a component that records events."""

    def __init__(
        self,
        connection: Connection,
        component: str,
        instance: str,
        limit: float = _SECONDS,
        observe: Observe = unobserved,
        check: Check = unchecked,
    ) -> None:
        super().__init__(connection, limit, observe, check)
        self._component = component
        self._instance = instance

    async def create_event(self, event: ObjectEvent) -> None:
        """Creates an event in the namespace of its object.

        An event of a cluster-wide object goes to `default`, as in client-go.
        """
        body = event_body(event, self._component, self._instance)
        await self._make(api_calls.CREATE_EVENT, body["metadata"]["namespace"], None, body)


class Writer(_Recording):
    """Pods, their events, and Leases, under one account."""

    async def nominate(self, pod: PodRef, node: str) -> None:
        """Sets ``status.nominatedNodeName``; an empty ``node`` clears it (KEP-5278)."""
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
        await self._make(api_calls.NOMINATE, pod.namespace, pod.name, body, MERGE_PATCH)

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        """Adds or replaces one condition, such as DisruptionTarget (KEP-3329). Other conditions stay."""
        entry = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": rfc3339(condition.since),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [entry]}}
        await self._make(api_calls.SET_CONDITION, pod.namespace, pod.name, body, STRATEGIC_PATCH)

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Sets one annotation of a pod; None removes it."""
        body = {"metadata": {"uid": pod.uid, "annotations": {key: value}}}
        await self._make(api_calls.ANNOTATE, pod.namespace, pod.name, body, MERGE_PATCH)

    async def set_deletion_cost(self, pod: PodRef, cost: str | None) -> None:
        """Sets the annotation pod-deletion-cost of a pod, and the annotation that marks it as ours.

        None removes both.
        """
        body = {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: cost, DELETION_COST_MARK: cost}}}
        await self._make(api_calls.SET_DELETION_COST, pod.namespace, pod.name, body, MERGE_PATCH)

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes exactly this pod. None: the pod's own grace period. ``NotFound`` if it no longer exists."""
        await self._make(api_calls.DELETE, pod.namespace, pod.name, _delete_options(pod.uid, grace_seconds))

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes the pod and marks it as DisruptionTarget. ``OverBudget`` while its disruption budget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _delete_options(pod.uid, grace_seconds),
        }
        await self._make(api_calls.EVICT, pod.namespace, pod.name, body)

    async def read_pod(self, pod: PodRef) -> JsonObject:
        """The pod as it is now. Raises ``NotFound`` also if the name belongs to another pod."""
        found = _read_object(await self._make(api_calls.READ_POD, pod.namespace, pod.name))
        if found["metadata"].get("uid") != pod.uid:
            raise NotFound(f"{pod.namespace}/{pod.name} is another pod by now")
        return found

    async def bind(self, pod: PodRef, node: str) -> None:
        """Binds the pod to ``node``; ``Conflict`` if it is bound already or the name belongs to another pod."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._make(api_calls.BIND, pod.namespace, pod.name, body)

    async def uid_of(self, pod: PodRef) -> str:
        """The UID of the pod that has this namespace and name now; empty if there is none.

        For a write that met a conflict, because the watch may not show the other pod yet.
        """
        path = path_of(api_calls.UID_OF, pod.namespace, pod.name)
        try:
            body = await self._connection.call("GET", path, limit=self._limit)
            return (await decode_identity_leniently(body)).uid
        except NotFound:
            return ""
        except WireError as error:
            raise Unreachable(f"GET {path}: {error}") from error

    async def node_of(self, pod: PodRef) -> str:
        """The node of this pod; empty if it is not bound. ``NotFound`` if it no longer exists."""
        body = await self._make(api_calls.NODE_OF, pod.namespace, pod.name)
        try:
            uid, node = decode_place(body)
        except ValueError as error:
            raise Unreachable(str(error)) from error
        if uid != pod.uid:
            raise NotFound(f"{pod.namespace}/{pod.name} is another pod by now")
        return node

    async def get_lease(self, namespace: str, name: str) -> Lease:
        """The Lease as it is now; ``NotFound`` when it does not exist."""
        return _read_lease(await self._make(api_calls.LEASE.get, namespace, name))

    async def create_lease(self, lease: Lease) -> Lease:
        """Creates it; ``Conflict`` if it exists already."""
        return _read_lease(await self._make(api_calls.LEASE.create, lease.namespace, None, lease_body(lease)))

    async def update_lease(self, lease: Lease) -> Lease:
        """Replaces it; ``Conflict`` if it is no longer at ``lease.resource_version``."""
        return _read_lease(await self._make(api_calls.LEASE.update, lease.namespace, lease.name, lease_body(lease)))


class PolicyObjects(_Recording):
    """Policies as plain JSON, their status, and events about them.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#status-subresource
    """

    async def get_policy(self, key: PolicyKey) -> JsonObject:
        """The policy as it is now."""
        call = api_calls.GET_POLICY if key.namespace else api_calls.GET_CLUSTER_POLICY
        return _read_object(await self._make(call, key.namespace or None, key.name))

    async def patch_policy_status(self, key: PolicyKey, uid: str, status: JsonObject) -> None:
        """Merges into the status of a policy. Raises ``Conflict`` if the name belongs to another policy than ``uid``, if given."""
        call = api_calls.PATCH_POLICY_STATUS if key.namespace else api_calls.PATCH_CLUSTER_POLICY_STATUS
        body = ({"metadata": {"uid": uid}} if uid else {}) | {"status": status}
        await self._make(call, key.namespace or None, key.name, body, MERGE_PATCH)


class ReleaseObjects(Calls):
    """What the release of groups reads and writes: gated pods and GroupPlacements."""

    async def get_pod(self, pod: PodRef) -> JsonObject:
        """The pod that has this namespace and name now; it may be a different pod."""
        return _read_object(await self._make(api_calls.GET_POD, pod.namespace, pod.name))

    async def release_pod(self, pod: PodRef, patch: JsonObject) -> JsonObject:
        """Applies a strategic merge patch with UID and resourceVersion. Returns the pod."""
        return _read_object(await self._make(api_calls.RELEASE_POD, pod.namespace, pod.name, patch, STRATEGIC_PATCH))

    async def get_placement(self, namespace: str, name: str) -> tuple[GroupPlacement, str]:
        """The object as it is now, with its resourceVersion."""
        return _read_placement(await self._make(api_calls.PLACEMENT.get, namespace, name))

    async def create_placement(self, body: JsonObject) -> GroupPlacement:
        """Creates it. Raises ``Conflict`` if it exists."""
        namespace = body["metadata"]["namespace"]
        return _read_placement(await self._make(api_calls.PLACEMENT.create, namespace, None, body))[0]

    async def update_placement(self, body: JsonObject) -> GroupPlacement:
        """Replaces the spec. Raises ``Conflict`` if it has changed since the version in ``body``."""
        metadata, call = body["metadata"], api_calls.PLACEMENT.update
        return _read_placement(await self._make(call, metadata["namespace"], metadata["name"], body))[0]

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        """Merges into the status. Raises ``Conflict`` if the name belongs to another object by now."""
        body = {"metadata": {"uid": placement.uid}, "status": status_body(status, since)}
        namespace = placement.group.namespace
        await self._make(api_calls.PATCH_PLACEMENT_STATUS, namespace, placement.name, body, MERGE_PATCH)

    async def delete_placement(self, placement: GroupPlacement) -> None:
        """Deletes exactly this object."""
        options = _delete_options(placement.uid)
        await self._make(api_calls.DELETE_PLACEMENT, placement.group.namespace, placement.name, options)


class WebhookObjects(Calls):
    """The objects of the webhook: the Secret, the two configurations, and the EndpointSlice of each replica.

    As plain JSON, so that fields of a later version of Kubernetes survive an update.
    """

    async def get(self, kept: KeptObject, namespace: str | None, name: str) -> JsonObject:
        """The object as it is now. ``namespace``: None for a cluster-wide object."""
        return _read_object(await self._make(kept.get, namespace, name))

    async def create(self, kept: KeptObject, body: JsonObject) -> JsonObject:
        """Creates it. Raises ``Conflict`` if it exists by now."""
        return _read_object(await self._make(kept.create, body["metadata"].get("namespace"), None, body))

    async def update(self, kept: KeptObject, body: JsonObject) -> JsonObject:
        """Replaces it. Raises ``Conflict`` if it has changed."""
        metadata = body["metadata"]
        return _read_object(await self._make(kept.update, metadata.get("namespace"), metadata["name"], body))

    async def delete_endpoint(self, namespace: str, name: str) -> None:
        """Deletes an EndpointSlice."""
        await self._make(api_calls.DELETE_ENDPOINT, namespace, name)


def _delete_options(uid: str, grace_seconds: int | None = None) -> dict[str, object]:
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def _read_lease(body: bytes) -> Lease:
    try:
        return decode_lease(body)
    except ValueError as error:
        raise Unreachable(f"lease: {error}") from error


def _read_placement(body: bytes) -> tuple[GroupPlacement, str]:
    try:
        return read_placement(body)
    except WireError as error:
        raise Unreachable(f"no {PLACEMENTS}: {error}") from error


def _read_object(body: bytes) -> JsonObject:
    """An object with metadata. Raises ``Unreachable`` for any other answer, for example from a proxy."""
    try:
        body_object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"no object: {error}") from error
    if not isinstance(body_object, dict) or not isinstance(body_object.get("metadata"), dict):
        raise Unreachable("no object: metadata is missing")
    return body_object
