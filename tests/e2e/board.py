"""The pods of a real cluster as they are now, kept by list and watch, so that a test can wait for what should come.

The stand-in kubelet listens here: no other component would finish the deletion of a pod that has a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import aiohttp

from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    uid_of,
)
from tests.e2e.client import PODS, Api, ApiFailure, pod_path

Listener: TypeAlias = Callable[[JsonObject], None]

_AWAY = 0.2  # seconds; how long an API server is away is not ours to know
PATIENCE = 60.0  # seconds for what should take a fraction of one; the machine may be busy


class Board:
    """All pods by `namespace/name`, or those with a label; `bound_at`: when each was first seen on a node (monotonic).

    `ends_after`: how many seconds a deleted pod takes to end. `left_alone`: pods with a label of this value are ended by others.
    """

    def __init__(self, api: Api, label: str = "") -> None:
        self.pods: dict[str, JsonObject] = {}
        self.bound_at: dict[str, float] = {}
        self.listeners: list[Listener] = []
        self.ends_after: Callable[[], float] = float
        self.left_alone = ""
        self._api = api
        self._query = {"labelSelector": label} if label else {}
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Follow for ever; an apiserver that is away is waited for."""
        while True:
            try:
                found, version = await self._api.list(PODS, **self._query)
                await self._show_all(found)
                async for event in self._api.watch(PODS, version, **self._query):
                    if event["type"] == "ERROR":
                        break
                    await self._show(event["object"], deleted=event["type"] == "DELETED")
            except (aiohttp.ClientError, ApiFailure, TimeoutError):
                await asyncio.sleep(_AWAY)

    async def until(self, holds: Callable[[], object], within: float = PATIENCE) -> None:
        """Return when the condition holds. TimeoutError when it never does."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: bool(holds()))

    async def bound(self, *pods: JsonObject, within: float = PATIENCE) -> list[str]:
        """The nodes of pods, in order, once all have one."""
        names = [key_of(pod) for pod in pods]
        try:
            await self.until(lambda: all(self.node(name) for name in names), within)
        except TimeoutError:
            waiting = {name: self.message(name) for name in names if not self.node(name)}
            raise AssertionError(
                f"{len(waiting)} of {len(names)} pods have no node: {dict(list(waiting.items())[:5])}"
            ) from None
        return [self.node(name) for name in names]

    async def decided(self, *pods: JsonObject, within: float = PATIENCE) -> list[str]:
        """The nodes of pods, in order, once each has been placed or refused; empty for the refused."""
        names = [key_of(pod) for pod in pods]
        await self.until(lambda: all(self.node(name) or self.message(name) for name in names), within)
        return [self.node(name) for name in names]

    async def rejected(self, pod: JsonObject) -> str:
        """What the PodScheduled condition says, once the pod has been refused."""
        name = key_of(pod)
        await self.until(lambda: self.message(name))
        return self.message(name)

    def node(self, name: str) -> str:
        """A pod's node; empty while it has none."""
        return node_of(self.pods[name]) if name in self.pods else ""

    def message(self, name: str) -> str:
        """Why a pod was refused; empty when it was not."""
        condition = condition_of(self.pods.get(name, {}), "PodScheduled") or {}
        return str(condition.get("message") or "") if condition.get("status") == "False" else ""

    async def _show_all(self, found: list[JsonObject]) -> None:
        self.pods = {}
        for pod in found:
            await self._show(pod)

    async def _show(self, pod: JsonObject, *, deleted: bool = False) -> None:
        name = key_of(pod)
        if deleted:
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
            if node_of(pod):
                self.bound_at.setdefault(name, time.monotonic())
            for listener in self.listeners:
                listener(pod)
        async with self._changed:
            self._changed.notify_all()


class Kubelet:
    """Finishes deletions: a pod on a node goes away only when its kubelet says that it has ended."""

    def __init__(self, api: Api, board: Board) -> None:
        self._api = api
        self._board = board
        self._ending: dict[str, asyncio.Task[None]] = {}

    def look(self, pod: JsonObject) -> None:
        is_ours = not self._board.left_alone or self._board.left_alone not in labels_of(pod).values()
        if is_ours and is_terminating(pod) and node_of(pod) and uid_of(pod) not in self._ending:
            self._ending[uid_of(pod)] = asyncio.create_task(self._end(pod))

    async def _end(self, pod: JsonObject) -> None:
        await asyncio.sleep(self._board.ends_after())
        while True:
            try:
                return await self._api.delete(pod_path(pod), grace=0)
            except (aiohttp.ClientError, ApiFailure, TimeoutError):
                await asyncio.sleep(_AWAY)

    async def stop(self) -> None:
        """Wait for the deletions under way."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)


@asynccontextmanager
async def following(api: Api, label: str = "") -> AsyncIterator[Board]:
    """A board that is kept, and a kubelet for its pods, until the block is left."""
    board = Board(api, label)
    kubelet = Kubelet(api, board)
    board.listeners.append(kubelet.look)
    task = asyncio.create_task(board.run(), name="board")
    try:
        yield board
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kubelet.stop()


def key_of(pod: JsonObject) -> str:
    """`namespace/name`, as the scheduler's log has it."""
    return f"{namespace_of(pod)}/{name_of(pod)}"
