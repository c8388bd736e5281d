"""No eviction is in vain, and evictions end: the leader's job with the real filter, a controller that replaces pods, and restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from hashlib import sha256
from math import inf
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.features.execution.broken import Place
from extender.features.execution.plan import plan_moves
from extender.features.execution.schema import Movable
from extender.model.bounded import at_once
from extender.simulator.oracle.brute_force import matches_node_affinity
from tests.builders import Json, extender_args, read_pod
from tests.deciding import filter_nodes
from tests.features.execution.test_mover import EVICT, OLD, Scene, on_index
from tests.features.execution.watching import SETTINGS, watch
from tests.laws.test_moves import Bodies, broken_in, clusters, index_with

_ROUNDS: Final = 30
_SECONDS: Final = 70.0  # longer than plans are kept
_MOST_LATE: Final = 2  # rounds, less than claimTimeout


class Killed(Exception):  # noqa: N818 -- not an error
    """The process ends."""


class Play:
    """A cluster in which evicted pods are replaced, and replacements are placed as filter says.

    Each template has a controller, so several pods are moved at a time. ``lates``: whether the pods of a round are replaced a
    round later, ``choices``: which of several nodes gets a pod, ``kills``: before which write of a round the process is killed.
    """

    def __init__(
        self, nodes: list[Json], pods: Bodies, lates: Sequence[bool], choices: Sequence[int], kills: Sequence[int]
    ) -> None:
        self.nodes = nodes
        self.bodies = {name: with_own_controller(body) for name, body in pods.items()}
        self.here: Scene = on_index(index_with(nodes, self.bodies, watch(**EVICT)), SETTINGS)
        for pod in list(self.here.index.pods.values()):
            self.here.index.upsert(replace(pod, start_time=OLD))
        self.evictions: list[str] = []
        self._gone: list[Json] = []
        self._broken: set[tuple[str, Place]] = set()
        self._lates, self._choices, self._kills = list(lates), list(choices), list(kills)
        self._late = 0
        self._writes = inf  # until the process is killed
        writes = self.here.writes
        writes.evict, writes.write_moves = self._counted(writes.evict), self._counted(writes.write_moves)  # type: ignore[method-assign]

    def _counted(self, write: Callable[..., Awaitable[None]]) -> Callable[..., Coroutine[None, None, None]]:
        async def counted(*arguments: Any) -> None:
            self._writes -= 1
            if self._writes < 0:
                raise Killed
            await write(*arguments)

        return counted

    async def round(self) -> None:
        """A round of the mover, then what controllers and the scheduler do."""
        index = self.here.index
        if not self._gone:
            self._broken.clear()
        # While pods are away, what their return breaks may hold.
        self._broken |= broken_in(index)[1]
        self._writes = self._kills.pop() if self._kills else inf
        try:
            await self.here.rounds(1, seconds=_SECONDS)
        except Killed:
            self.restart()
        evicted = [pod for pod in index.pods.values() if pod.terminating]
        waiting = [pod.signature.controller for pod in (*evicted, *map(read_pod, self._gone))]
        assert len(set(waiting)) == len(waiting), "two pods of a controller"
        for pod in evicted:
            assert any(name == pod.name for name, _ in self._broken), "nothing of it was broken"
            self.evictions.append(pod.name)
            index.delete(pod)
            self._gone.append(self.bodies.pop(pod.name))
        self._late = self._late + 1 if self._lates and self._lates.pop() else 0
        if 0 < self._late <= _MOST_LATE:
            return
        self._replace_all()
        new = broken_in(index)[1] - self._broken
        assert not new, "a constraint that held is broken"

    def _replace_all(self) -> None:
        for body in self._gone:
            self._replace(body)
        self._gone.clear()

    def _replace(self, old: Json) -> None:
        name = f"{old['metadata']['name']}+"
        spec = {key: value for key, value in old["spec"].items() if key != "nodeName"}
        body = {**old, "metadata": {**old["metadata"], "name": name, "uid": f"uid-{name}"}, "spec": spec}
        self.here.index.upsert(read_pod(body))
        # kube-scheduler itself compares node affinity, and sends the nodes that match.
        sent = [node["metadata"]["name"] for node in self.nodes if matches_node_affinity(body, node)]
        passed = filter_nodes(extender_args(body, *sent), self.here.index.view, SETTINGS, 0).passed
        assert passed, "no node takes the replacement"
        node = passed[(self._choices.pop() if self._choices else 0) % len(passed)]
        self.bodies[name] = {**body, "spec": {**spec, "nodeName": node}}
        self.here.index.upsert(replace(read_pod(self.bodies[name]), start_time=self.here.now()))

    def restart(self) -> None:
        """Another process leads, perhaps while pods are away."""
        self.here.restart()


def with_own_controller(body: Json) -> Json:
    """The pod with a controller of its template, if it has one."""
    metadata = body["metadata"]
    template = {key: value for key, value in body["spec"].items() if key != "nodeName"}
    name = sha256(json.dumps([metadata["labels"], template], sort_keys=True).encode()).hexdigest()[:8]
    owners = [{**owner, "name": name, "uid": name} for owner in metadata.get("ownerReferences") or ()]
    return {**body, "metadata": {**metadata, "ownerReferences": owners}}


_FLAGS: Final = st.lists(st.booleans(), max_size=_ROUNDS // 2)


_NUMBERS: Final = st.lists(st.integers(0, 3), max_size=8)


@given(clusters(), _FLAGS, _FLAGS, _NUMBERS, _NUMBERS)
def test_no_eviction_is_in_vain_and_evictions_end(
    cluster: tuple[list[Json], Bodies], restarts: list[bool], lates: list[bool], choices: list[int], kills: list[int]
) -> None:
    nodes, pods = cluster
    play = Play(nodes, pods, lates, choices, kills)
    measure = broken_in(play.here.index)[0]

    async def run() -> None:
        for number in range(_ROUNDS):
            await play.round()
            if number < len(restarts) and restarts[number]:
                play.restart()

    asyncio.run(run())
    assert not [outcome for outcome in play.here.outcomes if outcome[1] != "completed"]
    assert len(play.evictions) <= measure
    # What is left no move mends, also by a plan of a cluster that is read anew.
    assert {row.state for row in play.here.mover.rows()} <= {"stuck"}
    assert at_once(plan_moves(index_with(nodes, play.bodies, watch()), SETTINGS, Movable())).moves == ()
