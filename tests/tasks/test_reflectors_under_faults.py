"""The whole way in, from the apiserver to the counts, while connections break: afterwards the index is the cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import open_session
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.tasks.reflectors import Reflectors
from extender.wire.objects import kinds as wire
from tests.fakes import FakeClock, until
from tests.simulator import plain

OPTIONS = WatchOptions(page_limit=7, max_silence=5.0, initial_silence=5.0)


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
        """Send them, or something like them."""
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
        """One step of any kind."""
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


@pytest.mark.parametrize("watch_list", [True, False], ids=["streaming lists", "pages"])
@pytest.mark.parametrize("seed", range(5))
async def test_after_any_faults_the_index_is_the_cluster_and_its_counts_are_true(
    seed: int,
    watch_list: bool,  # noqa: FBT001 (a case)
) -> None:
    options = WatchOptions(watch_list=watch_list, page_limit=7, max_silence=5.0, initial_silence=5.0)
    async with plane(seed, options) as found:
        number = 0
        while (
            number < 400 or len(found.fault_injector.injected) < 3
        ):  # how many requests meet a fault depends on the machine
            found.change(number)
            if number % 100 == 99:
                found.server.store.compact()
            if number % 7 == 0:
                await asyncio.sleep(0.001)
            number += 1
        found.fault_injector.is_fair = True
        await until(lambda: found.held() == found.real())
        assert audit(found.index) == []
        # The last watch that met a fault may only be about to begin again.
        await until(lambda: found.reflectors is not None and found.reflectors.freshness.is_ready)


async def test_a_restarted_server_with_a_new_history_is_taken_over_as_it_is(unused_tcp_port: int) -> None:
    """Versions begin anew and every object is another one."""
    clock, index = FakeClock(), ClusterIndex(Rules(), counts_of_rules())
    first, second = (
        ApiServer(ApiServerSettings(bookmark_every=0.01)),
        ApiServer(ApiServerSettings(bookmark_every=0.01, seed=9)),
    )
    for number in range(50):
        first.operations.create(NAMESPACES, plain.namespace(f"old-{number}"))
    second.operations.create(NAMESPACES, plain.namespace("new"))
    await first.start(unused_tcp_port)
    async with open_session(Access(host=first.url), clock) as session, asyncio.TaskGroup() as group:
        reflector = Reflector(session.reads, wire.NAMESPACES, OPTIONS, clock, Random(1))
        task = group.create_task(keep(Reflectors(index, [reflector], clock).jobs()[0][1]))
        await until(lambda: len(index.namespaces.objects) == 50)
        await first.stop()
        await until(lambda: reflector.status.restarts.get("unreachable"))
        await second.start(unused_tcp_port)
        await until(lambda: list(index.namespaces.objects) == ["new"])
        await second.stop()
        task.cancel()


@pytest.mark.parametrize("watch_list", [True, False], ids=["streaming lists", "pages"])
async def test_a_cluster_that_may_be_listed_and_not_watched_is_never_ready(*, watch_list: bool) -> None:
    """Namespaces are in, and their labels decide where pods may stand: none of it is known a moment later."""
    options, clock = replace(OPTIONS, watch_list=watch_list), FakeClock()
    async with ApiServer(ApiServerSettings(bookmark_every=0.01)) as server, asyncio.TaskGroup() as group:
        server.operations.create(NAMESPACES, plain.namespace("default"))
        server.faults = role = NoWatches(wire.NAMESPACES.path)
        async with open_session(Access(host=server.url), clock) as session:
            kinds: list[wire.Kind[Any]] = [wire.NAMESPACES, wire.NODES]
            of_kinds = [Reflector(session.reads, kind, options, clock, Random(1)) for kind in kinds]
            reflectors = Reflectors(ClusterIndex(Rules(), counts_of_rules()), of_kinds, clock)
            tasks = [group.create_task(keep(run)) for _, run in reflectors.jobs()]
            seen = set[bool]()

            def is_refused_thrice() -> bool:
                seen.add(reflectors.freshness.is_ready)
                return of_kinds[0].status.synced and of_kinds[0].status.restarts.get("rejected", 0) >= 6

            await until(is_refused_thrice)
            assert seen == {False}
            assert reflectors.freshness.checks()["namespaces"] == (
                'watch of namespaces rejected: 403 namespaces is forbidden: User "us" cannot watch resource "namespaces"'
            )
            role.is_granted = True
            await until(lambda: reflectors.freshness.is_ready)
            for task in tasks:
                task.cancel()
