"""An API server in a dictionary: pods by the rules of updates, and GroupPlacements; it can fail, and lose answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, Rejected
from extender.kube.writer import ReleaseObjects
from extender.model.group_placements import GroupPlacement, PlacementStatus
from extender.simulator.apiserver.pod_updates import allowed
from extender.wire.objects.kinds import GROUP_PLACEMENTS
from extender.wire.policies.group_placements import status_body

Json = dict[str, Any]


class FakeApi(ReleaseObjects):
    """Pods and GroupPlacements as an API server keeps them, by the rules of updates. ``calls`` are all requests, in order.

    ``fail`` is asked before each request and may raise; ``lose_answer`` raises after the write was made.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.placements: dict[str, Json] = {}
        self.calls: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.fail: Callable[[str, str], KubeError | None] = lambda _call, _name: None
        self.lose_answer: Callable[[str, str], KubeError | None] = lambda _call, _name: None
        self._version = 0

    def add(self, body: Json) -> Json:
        """Stores a pod or a GroupPlacement under a new version."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        (self.pods if body.get("kind") != "GroupPlacement" else self.placements)[_key(body)] = body
        return body

    async def get_pod(self, pod: PodRef) -> Json:
        self._begin("get_pod", pod.name)
        return _copied(_found(self.pods, f"{pod.namespace}/{pod.name}"))

    async def release_pod(self, pod: PodRef, patch: Json) -> Json:
        self._begin("release_pod", pod.name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        old = _found(self.pods, f"{pod.namespace}/{pod.name}")
        meta = patch["metadata"]
        if (meta["uid"], meta["resourceVersion"]) != (old["metadata"]["uid"], old["metadata"]["resourceVersion"]):
            raise Conflict("409 changed", status=409)
        new = _copied(old)
        new["metadata"]["annotations"] = {**(old["metadata"].get("annotations") or {}), **meta["annotations"]}
        removed = {each["name"] for each in patch["spec"]["schedulingGates"] if each.get("$patch") == "delete"}
        new["spec"]["schedulingGates"] = [
            each for each in old["spec"].get("schedulingGates") or () if each["name"] not in removed
        ]
        new["spec"]["nodeSelector"] = {
            **(old["spec"].get("nodeSelector") or {}),
            **patch["spec"].get("nodeSelector", {}),
        }
        if "tolerations" in patch["spec"]:
            new["spec"]["tolerations"] = patch["spec"]["tolerations"]
        verdict = allowed(old, new)
        if not verdict.is_allowed:
            self.refused.append(pod.name)
            raise Rejected(f"422 {verdict}", status=422, reason="Invalid")
        self.add(new)
        self._end("release_pod", pod.name)
        return new

    async def get_placement(self, namespace: str, name: str) -> tuple[GroupPlacement, str]:
        self._begin("get_placement", name)
        found = _found(self.placements, f"{namespace}/{name}")
        return placement_of(found), found["metadata"]["resourceVersion"]

    async def create_placement(self, body: Json) -> GroupPlacement:
        self._begin("create_placement", body["metadata"]["name"])
        if _key(body) in self.placements:
            raise Conflict("409 exists", status=409)
        body = _copied(body)
        body["metadata"]["uid"] = f"uid-{self._version}"
        self.add(body)
        self._end("create_placement", body["metadata"]["name"])
        return placement_of(body)

    async def update_placement(self, body: Json) -> GroupPlacement:
        self._begin("update_placement", body["metadata"]["name"])
        old = _found(self.placements, _key(body))
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Conflict("409 changed", status=409)
        self.add({**old, "metadata": dict(old["metadata"]), "spec": body["spec"]})
        self._end("update_placement", body["metadata"]["name"])
        return placement_of(self.placements[_key(body)])

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        self._begin("patch_placement_status", placement.name)
        old = _found(self.placements, placement.key)
        self.add({**old, "metadata": dict(old["metadata"]), "status": status_body(status, since)})
        self._end("patch_placement_status", placement.name)

    async def delete_placement(self, placement: GroupPlacement) -> None:
        self._begin("delete_placement", placement.name)
        _found(self.placements, placement.key)
        del self.placements[placement.key]

    def _begin(self, call: str, name: str) -> None:
        self.calls.append((call, name))
        error = self.fail(call, name)
        if error is not None:
            raise error

    def _end(self, call: str, name: str) -> None:
        error = self.lose_answer(call, name)
        if error is not None:
            raise error


def _found(table: dict[str, Json], key: str) -> Json:
    if key not in table:
        raise NotFound("404", status=404)
    return table[key]


def _copied(body: Json) -> Json:
    found: Json = orjson.loads(orjson.dumps(body))
    return found


def _key(body: Json) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def placement_of(body: Json) -> GroupPlacement:
    """The object as the watch shows it."""
    return GROUP_PLACEMENTS.decode_object(orjson.dumps(body))
