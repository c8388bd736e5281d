"""How fast room is made for important pods on a full cluster, and at what price for others: three ways to preempt.

`execute` is ours; `async` and `sync` are kube-scheduler's own, with its API calls beside the scheduling cycle and
inside it (feature gate SchedulerAsyncPreemption, KEP-4832). All are measured on one cluster, one after the other. The
scheduler is held (SIGSTOP) while the important pods are created. From the moment it goes on, other pods of the same
priority arrive at a steady pace, which fit on nodes of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from extender.simulator.json_objects import JsonObject, name_of, namespace_of, node_of
from tests.e2e.board import Board, following, key_of
from tests.e2e.client import Api, connect, pod_path
from tests.e2e.cluster import eventually_ready, permit
from tests.e2e.control_plane import ControlPlane, scheduler_document
from tests.e2e.judging import cycles_in
from tests.e2e.serving import Extender
from tests.e2e.slow_writes import slow_writes
from tests.simulator.plain import namespace, node, pod

_GATE: Final = "--feature-gates=SchedulerAsyncPreemption="
WAYS: Final[Mapping[str, tuple[str, ...]]] = {"execute": (), "async": (f"{_GATE}true",), "sync": (f"{_GATE}false",)}
VICTIMS_EACH: Final = 4  # of the eight on a node, for each preemptor
_ON_A_NODE: Final = 8
_MAIN, _OTHERS = "default", "others"
_WARMING: Final = 5
_LONGEST: Final = 300.0  # seconds for all preemptors
_CALM: Final = 1.0
SLOWER: Final = 0.2  # seconds that a slowed write takes longer
BOTH_CLIENTS: Final = "scheduler and extender"
_CLIENTS: Final = {"kube-scheduler": "scheduler", "placement-extender": "extender"}


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many full nodes with eight lesser pods each, so many preemptors, and so many other pods a second meanwhile.

    Without others each way handles the same pods, so their processor times can be compared.
    """

    nodes: int
    preemptors: int
    others: float = 20.0

    @property
    def needed(self) -> int:
        """How many victims there must be."""
        return self.preemptors * VICTIMS_EACH


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    ``cycles``: how often the scheduler took up a preemptor. ``calls``: writes for preemptors and victims, by
    client. ``wait``: median seconds of the others.
    """

    way: str
    bound: int
    seconds: float
    others: float
    wait: float
    victims: int
    stuck: int
    cycles: int
    calls: dict[str, int]
    cpu: dict[str, float]
    load: float


@dataclass(slots=True)
class Trail:
    """When pods of a namespace were first seen on a node. A listener of the board; cheaper than asking it each time."""

    bound: dict[str, float] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    expected: int = 0

    def look(self, pod: JsonObject) -> None:
        if node_of(pod) and not name_of(pod).startswith("low-") and key_of(pod) not in self.bound:
            self.bound[key_of(pod)] = time.monotonic()
            self.expected -= namespace_of(pod) == _MAIN
            if self.expected <= 0:
                self.done.set()


def priority_class(name: str, value: int) -> JsonObject:
    """The apiserver puts its value into the pods that name it."""
    return {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}, "value": value}


class Ground:
    """A cluster full of lesser pods; each measurement puts back what the last one has removed."""

    def __init__(self, plane: ControlPlane, api: Api, board: Board, crowd: Crowd, folder: Path) -> None:
        self._plane = plane
        self._api = api
        self._board = board
        self._crowd = crowd
        self._folder = folder

    async def prepare(self) -> None:
        """Everything but pods."""
        await permit(self._api)
        await self._api.create(namespace(_OTHERS))
        for name, value in (("low", -10), ("high", 1000)):
            await self._api.request(
                "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value), allow=[409]
            )
        full = (node(f"full-{number}", labels={"pool": "full"}, cpu="4") for number in range(self._crowd.nodes))
        free = max(4, self._crowd.nodes // 10)
        spare = (node(f"free-{number}", labels={"pool": "free"}, cpu="64") for number in range(free))
        await self._api.create(*full, *spare)

    async def measure(self, way: str, slowed: str = "") -> Outcome:
        """Fill the cluster, let the preemptors in, and clear up. ``slowed``: whose writes are."""
        await self._fill()
        for_scheduler = self._access("scheduler", slowed)
        for_extender = self._access("extender", slowed)
        mode = "execute" if way == "execute" else "off"
        with Extender(self._folder, for_extender, {"preemption": {"mode": mode}}) as extender:
            await eventually_ready(extender)
            document = scheduler_document("offload", extender.url)
            document["clientConnection"] = {"kubeconfig": str(for_scheduler)}
            if way != "execute":
                del document["extenders"][0]["preemptVerb"]
                for profile in document["profiles"]:
                    del profile["pluginConfig"]  # its own number of candidates
            try:
                await asyncio.to_thread(self._plane.start_scheduler, document, *WAYS[way])
                return await self._run(way, extender)
            finally:
                await asyncio.to_thread(self._plane.scheduler.stop)
                await self._clear()

    def _access(self, client: str, slowed: str) -> Path:
        return self._folder / f"{client}.{'slow' if client in slowed else 'plain'}"

    async def _run(self, way: str, extender: Extender) -> Outcome:
        warming = [_other(f"warm-{number}") for number in range(_WARMING)]
        await self._api.create(*warming)
        await self._board.bound(*warming)
        trail = Trail(expected=self._crowd.preemptors)
        self._board.listeners.append(trail.look)
        self._plane.scheduler.send(signal.SIGSTOP)
        await self._api.create(*(_preemptor(number) for number in range(self._crowd.preemptors)))
        await asyncio.sleep(_CALM)
        known, before, load = self._plane.audit_log.stat().st_size, self._cpu(extender), os.getloadavg()[0]
        began = time.monotonic()
        self._plane.scheduler.send(signal.SIGCONT)
        created: dict[str, float] = {}
        stream = asyncio.create_task(self._arrive(created))
        with suppress(TimeoutError):  # told by the count
            async with asyncio.timeout(_LONGEST):
                await trail.done.wait()
        stream.cancel()
        ended = time.monotonic()
        await self._quiet(known)  # for victims too many, if there are any, and for what is told afterwards
        cpu = {name: round(used - before[name], 2) for name, used in self._cpu(extender).items()}
        bound = [at for name, at in trail.bound.items() if name.startswith(f"{_MAIN}/")]
        others = [name for name in created if name in trail.bound]
        self._board.listeners.remove(trail.look)
        seconds = max(bound, default=ended) - began
        return Outcome(
            way=way,
            bound=len(bound),
            seconds=round(seconds, 2),
            others=round(sum(trail.bound[name] <= ended for name in others) / (ended - began), 2),
            wait=round(median([trail.bound[name] - created[name] for name in others]), 3) if others else 0.0,
            victims=_ON_A_NODE * self._crowd.nodes - self._standing(),
            stuck=int(await extender.metric("extender_preemptions", phase="stuck")),
            cycles=sum(name.startswith(f"{_MAIN}/") for name in cycles_in(self._plane.scheduler.log())),
            calls=dict(writes(self._plane.audit_log, known)),
            cpu=cpu,
            load=round(load, 2),
        )

    async def _arrive(self, created: dict[str, float]) -> None:
        """Other pods at a steady pace, for as long as it is let; ``created`` gets the time of each."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while self._crowd.others:
                number = len(created)
                await asyncio.sleep(max(0.0, begun + number / self._crowd.others - time.monotonic()))
                pod = _other(f"other-{number}")
                created[key_of(pod)] = time.monotonic()
                group.create_task(self._api.create(pod))

    async def _quiet(self, since: int) -> None:
        """Return once nothing has been written for preemptors and victims for a second."""
        count = -1
        while (now := writes(self._plane.audit_log, since).total()) != count:
            count = now
            await asyncio.sleep(_CALM)

    def _standing(self) -> int:
        return sum(name_of(pod).startswith("low-") for pod in self._board.pods.values())

    async def _fill(self) -> None:
        missing = [pod for pod in _lesser(self._crowd.nodes) if key_of(pod) not in self._board.pods]
        await self._api.create(*missing)
        total = _ON_A_NODE * self._crowd.nodes
        await self._board.until(lambda: len(self._board.pods) >= total)

    async def _clear(self) -> None:
        waiting = iter([pod for pod in self._board.pods.values() if not name_of(pod).startswith("low-")])

        async def remove() -> None:
            for each in waiting:
                await self._api.delete(pod_path(each), grace=0)

        await asyncio.gather(*(remove() for _ in range(16)))
        await self._board.until(lambda: len(self._board.pods) == self._standing())

    def _cpu(self, extender: Extender) -> dict[str, float]:
        programs = [self._plane.apiserver, self._plane.scheduler, extender.program, self._plane.etcd]
        return {program.name: program.cpu_seconds() for program in programs}


def _lesser(nodes: int) -> Iterator[JsonObject]:
    for number in range(nodes):
        for place in range(_ON_A_NODE):
            yield pod(f"low-{number}-{place}", _MAIN, on=f"full-{number}", cpu="500m", priorityClassName="low")


def _preemptor(number: int) -> JsonObject:
    return pod(f"high-{number}", _MAIN, cpu="2", priorityClassName="high", nodeSelector={"pool": "full"})


def _other(name: str) -> JsonObject:
    return pod(name, _OTHERS, priorityClassName="high", nodeSelector={"pool": "free"})


def writes(audit_log: Path, start: int) -> Counter[str]:
    """The writes that scheduler and extender made for preemptors and victims, from a place in the file on."""
    found: Counter[str] = Counter()
    with audit_log.open("rb") as file:
        file.seek(start)
        for line in file:
            entry: dict[str, Any] = orjson.loads(line)
            agent = entry.get("userAgent", "")
            client = next((name for prefix, name in _CLIENTS.items() if agent.startswith(prefix)), "")
            target = entry.get("objectRef", {})
            if client and target.get("namespace") == _MAIN:
                what = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
                found[f"{client} {entry['verb']} {what}"] += 1
    return found


@asynccontextmanager
async def ground(assets: Path, folder: Path, crowd: Crowd) -> AsyncIterator[Ground]:
    """A control plane of its own with a full cluster."""
    with ControlPlane(assets, audited=True) as plane:
        async with connect(plane.url, plane.token, plane.authority) as api, following(api) as board:
            opened = Ground(plane, api, board, crowd, folder)
            await opened.prepare()
            async with slow_writes(plane, SLOWER) as url:
                plane.write_access(plane.url, folder / "scheduler.plain", folder / "extender.plain")
                plane.write_access(url, folder / "scheduler.slow", folder / "extender.slow")
                yield opened
