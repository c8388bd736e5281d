"""Reflectors over an apiserver whose lists and watches fail as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import open_session
from extender.model.objects import Namespace, Node, Pod, PodSignature
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.tasks.reflectors import Reflectors, ReflectorsOptions
from extender.wire.objects import kinds as wire
from tests.fakes import PATIENCE, FakeClock, FakeIndex, FakeReflector, until
from tests.simulator import plain

SPACE, NODE = Namespace("team-a"), Node("node-a")
SHAPE = PodSignature("team-a")


def pod(number: int, on: str = "node-a") -> Pod:
    return Pod(f"uid-{number}", f"pod-{number}", SHAPE, on)


@dataclass
class Scene:
    """The reflectors of the service at work over fakes that tests speak for."""

    clock: FakeClock = field(default_factory=FakeClock)
    index: FakeIndex = field(default_factory=FakeIndex)
    synced_calls: list[list[str]] = field(default_factory=list)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    listed: list[tuple[str, float, list[str]]] = field(default_factory=list)

    def start(self, *kinds: str) -> None:
        self.fakes = {kind: FakeReflector(kind) for kind in kinds}
        self.reflectors = Reflectors(
            self.index,
            list(self.fakes.values()),
            self.clock,
            ReflectorsOptions(slice_seconds=5.0, stale_after=60.0),
            lambda: self.synced_calls.append(list(self.index.calls)),
            lambda kind, begun: self.listed.append((kind, begun, list(self.index.calls))),
        )
        for name, run in self.reflectors.jobs():
            self.tasks[name] = asyncio.ensure_future(run())

    async def handled(self, kind: str, count: int = 1) -> None:
        """Wait until the handler has handled so many calls of the reflector of that kind."""
        await until(lambda: self.fakes[kind].handled >= count)

    async def all_in(self) -> None:
        """Namespaces, nodes and one pod are in."""
        self.start("namespaces", "nodes", "pods")
        self.fakes["namespaces"].notify_list(SPACE)
        self.fakes["nodes"].notify_list(NODE)
        self.fakes["pods"].notify_list(pod(1))
        async with asyncio.timeout(PATIENCE):
            await self.reflectors.wait_until_synced()
        for fake in self.fakes.values():
            fake.status.last_heard = self.clock.time


class FaultInjector(Faults):
    """Every so often: an error instead of an answer, a line cut in the middle, lines twice, a bookmark kept back."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.is_fair = False
        self.injected: set[str] = set()

    async def before_answer(self, call: Call) -> None:
        """Refuse one request in five."""
        if self.is_fair or self.rng.random() > 0.2:
            return
        code = self.rng.choice([410, 429, 500, 503, 504])
        self.injected.add(str(code))
        if code == 410 and not call.is_watch and "continue" not in call.query:
            code = 500  # a list without a token cannot be too old
        raise ApiError(code, "Expired" if code == 410 else "Unlucky", "injected")

    async def watch_lines(self, call: Call, lines: Sequence[bytes]) -> Sequence[bytes]:
        del call
        fate = self.rng.random()
        if self.is_fair or fate > 0.3:
            return lines
        if fate < 0.1:
            self.injected.add("cut")
            whole = b"".join(lines)
            raise ConnectionCut(whole[: self.rng.randrange(len(whole) + 1)])
        if fate < 0.2:
            self.injected.add("twice")
            return [*lines, *lines]
        self.injected.add("no bookmark")
        return [line for line in lines if b'"BOOKMARK"' not in line or b"initial-events-end" in line]

    def watch_error(self, call: Call) -> bytes | None:
        """Open one watch in ten with an ERROR."""
        del call
        if self.is_fair or self.rng.random() > 0.1:
            return None
        self.injected.add("error event")
        status = {"kind": "Status", "code": self.rng.choice([410, 500]), "message": "injected"}
        return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


class NoWatches(Faults):
    """A role that has lost the verb watch for one kind; list is still allowed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_granted = False

    async def before_answer(self, call: Call) -> None:
        """Refuse as RBAC does."""
        if call.is_watch and call.path == self.path and not self.is_granted:
            raise ApiError(403, "Forbidden", 'namespaces is forbidden: User "us" cannot watch resource "namespaces"')


class Plane:
    """An embedded control plane, an index that follows it, and a client that changes it all the time."""

    def __init__(self, server: ApiServer, injector: FaultInjector, seed: int) -> None:
        self.server = server
        self.fault_injector = injector
        self.rng = Random(seed)
        self.index = ClusterIndex(Rules(), counts_of_rules())
        self.reflectors: Reflectors | None = None

    def change(self, number: int) -> None:
        operations, store, rng = self.server.operations, self.server.store, self.rng
        pods = store.table(PODS).latest()
        what = rng.random()
        if what < 0.5 or not pods:
            on = f"node-{rng.randrange(4)}"
            operations.create(PODS, plain.pod(f"p{number}", on=on, labels={"app": rng.choice("abc")}))
        elif what < 0.7:
            store.remove(PODS, rng.choice(pods).key)
        elif what < 0.8:
            operations.change(PODS, rng.choice(pods).key, lambda pod: pod["metadata"]["labels"].update(app="z"))
        elif what < 0.9:
            zone = f"z{rng.randrange(3)}"
            key = f"node-{rng.randrange(4)}"
            operations.change(NODES, key, lambda node: node["metadata"]["labels"].update({plain.ZONE: zone}))
        else:
            team = rng.choice("xy")
            operations.change(NAMESPACES, "default", lambda space: space["metadata"]["labels"].update(team=team))

    def held(self) -> list[str]:
        """What the index holds, as text: parsed selectors are compared by identity."""
        nodes = [node for node in self.index.topology.nodes if node is not None]
        return sorted(map(repr, [*self.index.pods.values(), *nodes, *self.index.namespaces.objects.values()]))

    def real(self) -> list[str]:
        """What the control plane holds, through the same decoding."""
        tables = self.server.store.table
        return sorted(
            [
                *(repr(wire.PODS.decode_object(stored.body)) for stored in tables(PODS).latest()),
                *(repr(wire.NODES.decode_object(stored.body)) for stored in tables(NODES).latest()),
                *(repr(wire.NAMESPACES.decode_object(stored.body)) for stored in tables(NAMESPACES).latest()),
            ]
        )


async def keep(run: Callable[[], Awaitable[None]]) -> None:
    """A job of the reflectors as a task."""
    await run()


@asynccontextmanager
async def plane(seed: int, options: WatchOptions) -> AsyncIterator[Plane]:
    """A plane whose reflectors run; one that dies fails the test."""
    injector = FaultInjector(seed)
    async with ApiServer(ApiServerSettings(bookmark_every=0.01, history=200, seed=seed)) as server:
        server.faults = injector
        server.operations.create(NAMESPACES, plain.namespace("default"))
        for number in range(4):
            server.operations.create(NODES, plain.node(f"node-{number}", f"z{number % 2}"))
        found, clock = Plane(server, injector, seed), FakeClock()
        async with open_session(Access(host=server.url), clock) as session, asyncio.TaskGroup() as group:
            kinds: list[wire.Kind[Any]] = [wire.NAMESPACES, wire.NODES, wire.PODS]
            of_kinds: list[Reflector[Any]] = [
                Reflector(session.reads, kind, options, clock, Random(seed)) for kind in kinds
            ]
            found.reflectors = Reflectors(found.index, of_kinds, clock)
            tasks = [group.create_task(keep(run)) for _, run in found.reflectors.jobs()]
            yield found
            for task in tasks:
                task.cancel()
