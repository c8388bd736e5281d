"""Writes to the cluster, one method each: typed, with a time limit, raising only ``KubeError``.

Each call is one request by its row of ``wire.api_calls``. Order, retries and rate belong to the tasks, which use this
class as ``tasks.ports.ClusterWriter``. It has connections of its own, so a burst of evictions does not delay a watch.

Each write to a pod carries its UID: the API server answers 409 when the name belongs to another pod by now. As always
over a network, ``Unreachable`` leaves open whether the write has happened.
"""

from __future__ import annotations

from datetime import UTC

from extender.kube.calls import Calls, Observe, events_path, segment, unobserved
from extender.kube.effects import (
    Lease,
    PodCondition,
    PodEvent,
    PodRef,
    decode_lease,
    decode_place,
    event_body,
    lease_body,
)
from extender.kube.errors import NotFound, Unreachable
from extender.kube.session import MERGE_PATCH, STRATEGIC_PATCH, Connection
from extender.kube.watch.decoding import decode_identity_leniently
from extender.wire import api_calls
from extender.wire.errors import WireError


class Writer:
    """Writes under one account. ``limit``: seconds for each call in total. ``observe`` is called after each."""

    def __init__(
        self,
        connection: Connection,
        component: str,
        instance: str,
        limit: float = 10.0,
        observe: Observe = unobserved,
    ) -> None:
        self._connection = connection
        self._component = component
        self._instance = instance
        self._limit = limit
        self._calls = Calls(connection, limit, observe)

    # -- pods ---------------------------------------------------------------------------------------------------

    async def nominate(self, pod: PodRef, node: str) -> None:
        """Sets ``status.nominatedNodeName``; an empty ``node`` clears it (KEP-5278)."""
        status = {"nominatedNodeName": node or None}
        body = {"metadata": {"uid": pod.uid}, "status": status}
        await self._calls.make(api_calls.NOMINATE, f"{pod_path(pod)}/status", body, MERGE_PATCH)

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        """Adds or replaces one condition, such as DisruptionTarget (KEP-3329), and keeps the others."""
        entry = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [entry]}}
        await self._calls.make(api_calls.SET_CONDITION, f"{pod_path(pod)}/status", body, STRATEGIC_PATCH)

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Sets one annotation of a pod; None removes it."""
        body = {"metadata": {"uid": pod.uid, "annotations": {key: value}}}
        await self._calls.make(api_calls.ANNOTATE, pod_path(pod), body, MERGE_PATCH)

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes exactly this pod; None leaves the grace period to the pod. ``NotFound`` if it no longer exists."""
        await self._calls.make(api_calls.DELETE, pod_path(pod), _delete_options(pod, grace_seconds))

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Deletes the pod if its disruption budget allows, and marks it as DisruptionTarget; ``OverBudget`` while it does not."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _delete_options(pod, grace_seconds),
        }
        await self._calls.make(api_calls.EVICT, f"{pod_path(pod)}/eviction", body)

    async def bind(self, pod: PodRef, node: str) -> None:
        """Binds the pod to ``node``; ``Conflict`` if it is bound already or the name belongs to another pod."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._calls.make(api_calls.BIND, f"{pod_path(pod)}/binding", body)

    async def uid_of(self, pod: PodRef) -> str:
        """The UID of the pod that has this namespace and name now, empty where there is none.

        For a write that met a conflict: the watch may not show the other pod yet.
        """
        path = pod_path(pod)
        try:
            body = await self._connection.call("GET", path, limit=self._limit)
            return (await decode_identity_leniently(body)).uid
        except NotFound:
            return ""
        except WireError as error:
            raise Unreachable(f"GET {path}: {error}") from error

    async def node_of(self, pod: PodRef) -> str:
        """The node of this pod, empty where it is not bound. ``NotFound`` if it no longer exists."""
        body = await self._calls.make(api_calls.NODE_OF, pod_path(pod))
        try:
            uid, node = decode_place(body)
        except ValueError as error:
            raise Unreachable(str(error)) from error
        if uid != pod.uid:
            raise NotFound(f"{pod.namespace}/{pod.name} is another pod by now")
        return node

    # -- events -------------------------------------------------------------------------------------------------

    async def create_event(self, event: PodEvent) -> None:
        """Creates an event in the namespace of the pod."""
        pod = event.pod
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        body = event_body(event, regarding, pod.namespace, self._component, self._instance)
        await self._calls.make(api_calls.CREATE_EVENT, events_path(pod.namespace), body)

    # -- leases -------------------------------------------------------------------------------------------------

    async def get_lease(self, namespace: str, name: str) -> Lease:
        """The Lease as it is now; ``NotFound`` when it does not exist."""
        return _read_lease(await self._calls.make(api_calls.GET_LEASE, lease_path(namespace, name), None))

    async def create_lease(self, lease: Lease) -> Lease:
        """Creates it; ``Conflict`` if it exists already."""
        return _read_lease(
            await self._calls.make(api_calls.CREATE_LEASE, leases_path(lease.namespace), lease_body(lease))
        )

    async def update_lease(self, lease: Lease) -> Lease:
        """Replaces it; ``Conflict`` if it is no longer at ``lease.resource_version``."""
        path = lease_path(lease.namespace, lease.name)
        return _read_lease(await self._calls.make(api_calls.UPDATE_LEASE, path, lease_body(lease)))


def _delete_options(pod: PodRef, grace_seconds: int | None) -> dict[str, object]:
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def _read_lease(body: bytes) -> Lease:
    try:
        return decode_lease(body)
    except ValueError as error:
        raise Unreachable(f"lease: {error}") from error


def pod_path(pod: PodRef) -> str:
    """The path of a pod. Raises ``Rejected`` where its namespace or name cannot be that of an object."""
    return f"{pods_path(pod.namespace)}/{segment('pod', pod.name)}"


def pods_path(namespace: str) -> str:
    """The pods of a namespace. Raises ``Rejected``."""
    return f"/api/v1/namespaces/{segment('namespace', namespace)}/pods"


def leases_path(namespace: str) -> str:
    """The Leases of a namespace. Raises ``Rejected``."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{segment('namespace', namespace)}/leases"


def lease_path(namespace: str, name: str) -> str:
    """The path of a Lease. Raises ``Rejected``."""
    return f"{leases_path(namespace)}/{segment('Lease', name)}"
