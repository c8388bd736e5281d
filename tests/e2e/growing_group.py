"""A StatefulSet of gated pods that is scaled, and what the operator reads about its group."""

from __future__ import annotations

import asyncio

from extender.simulator.json_objects import JsonObject, labels_of, node_of, uid_of
from tests.e2e.board import Board
from tests.e2e.client import Api, ApiFailure, pod_path
from tests.e2e.pod_groups import LABEL, PLACEMENTS, zones
from tests.e2e.policing import Policed
from tests.fakes import PATIENCE


class Started:
    """Says of each pod with a node that it runs and is ready, as its kubelet would."""

    def __init__(self, api: Api, board: Board) -> None:
        self._api = api
        self._tasks: dict[str, asyncio.Task[None]] = {}
        board.listeners.append(self._look)

    def _look(self, found: JsonObject) -> None:
        if node_of(found) and uid_of(found) not in self._tasks:
            self._tasks[uid_of(found)] = asyncio.create_task(self._report(found))

    async def _report(self, found: JsonObject) -> None:
        conditions = [{"type": name, "status": "True"} for name in ("Ready", "ContainersReady")]
        change = {"status": {"phase": "Running", "conditions": conditions}}
        content = "application/strategic-merge-patch+json"
        try:
            await self._api.request("PATCH", f"{pod_path(found)}/status", change, content_type=content, allow=[404])
        except ApiFailure:
            return  # it is another one by now


def placed(board: Board) -> dict[str, JsonObject]:
    """The pods of the StatefulSet that have a node, by UID."""
    return {uid_of(each): each for each in board.pods.values() if labels_of(each).get(LABEL) == "web" and node_of(each)}


async def zone_of(found: Policed) -> str:
    """The only zone of all its pods."""
    at = await zones(found.api)
    (zone,) = {at[node_of(each)] for each in placed(found.cluster.board).values()}
    return zone


async def reported(found: Policed, phase: str, message: str) -> None:
    """Return once the object of the group says so."""
    said: JsonObject = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while (said.get("phase"), said.get("message")) != (phase, message):
                await asyncio.sleep(0.1)
                (placement,) = (await found.api.list(PLACEMENTS))[0]
                said = placement.get("status", {})
    except TimeoutError:
        raise AssertionError(f"it says {said}") from None
