"""What the release of groups reads and writes: gated pods and GroupPlacements. Raises only ``KubeError``.

A pod is patched and a decision is replaced at the resourceVersion that was read, so no change in between is overwritten.
https://kubernetes.io/docs/reference/using-api/api-concepts/#concurrency-control
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from extender.kube.calls import Calls, Observe, segment, unobserved
from extender.kube.effects import PodRef
from extender.kube.errors import Unreachable
from extender.kube.session import MERGE_PATCH, STRATEGIC_PATCH, Connection
from extender.kube.webhook_objects import read_object
from extender.kube.writer import pod_path
from extender.model.group_placements import PLACEMENTS, GroupPlacement, PlacementStatus
from extender.model.policies import GROUP, VERSION
from extender.wire import api_calls
from extender.wire.errors import WireError
from extender.wire.objects.kinds import GROUP_PLACEMENTS
from extender.wire.policies.group_placements import status_body

JsonObject = dict[str, Any]


class ReleaseObjects:
    """``limit``: seconds for each call in total. ``observe`` is called after each."""

    def __init__(self, connection: Connection, limit: float = 10.0, observe: Observe = unobserved) -> None:
        self._calls = Calls(connection, limit, observe)

    async def get_pod(self, pod: PodRef) -> JsonObject:
        """The pod that has this namespace and name now, which may be another."""
        return read_object(await self._calls.make(api_calls.GET_POD, pod_path(pod)))

    async def release_pod(self, pod: PodRef, patch: JsonObject) -> JsonObject:
        """Applies a strategic merge patch, and returns the pod. ``patch`` carries the UID and the resourceVersion."""
        path = pod_path(pod)
        return read_object(await self._calls.make(api_calls.RELEASE_POD, path, patch, STRATEGIC_PATCH))

    async def get_placement(self, namespace: str, name: str) -> tuple[GroupPlacement, str]:
        """The object as it is now, with its resourceVersion."""
        return _read(await self._calls.make(api_calls.GET_PLACEMENT, _path(namespace, name)))

    async def create_placement(self, body: JsonObject) -> GroupPlacement:
        """Creates it. Raises ``Conflict`` if it exists."""
        path = _path(body["metadata"]["namespace"])
        return _read(await self._calls.make(api_calls.CREATE_PLACEMENT, path, body))[0]

    async def update_placement(self, body: JsonObject) -> GroupPlacement:
        """Replaces its spec. Raises ``Conflict`` if it has changed since the version in ``body`` was read."""
        path = _path(body["metadata"]["namespace"], body["metadata"]["name"])
        return _read(await self._calls.make(api_calls.UPDATE_PLACEMENT, path, body))[0]

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        """Merges into its status. Raises ``Conflict`` if the name belongs to another object by now."""
        path = f"{_path(placement.group.namespace, placement.name)}/status"
        body = {"metadata": {"uid": placement.uid}, "status": status_body(status, since)}
        await self._calls.make(api_calls.PATCH_PLACEMENT_STATUS, path, body, MERGE_PATCH)

    async def delete_placement(self, placement: GroupPlacement) -> None:
        """Deletes exactly this object."""
        path = _path(placement.group.namespace, placement.name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": placement.uid}}
        await self._calls.make(api_calls.DELETE_PLACEMENT, path, options)


def _read(body: bytes) -> tuple[GroupPlacement, str]:
    version = str(read_object(body)["metadata"].get("resourceVersion") or "")
    try:
        return GROUP_PLACEMENTS.decode_object(body), version
    except WireError as error:
        raise Unreachable(f"no {GROUP_PLACEMENTS.name}: {error}") from error


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{segment('namespace', namespace)}/{PLACEMENTS}"
    return f"{path}/{segment('GroupPlacement', name)}" if name else path
