"""Several kube-schedulers on one cluster: their processes, a backlog for them, and what is wrong with its placement.

Pods only arrive, so the least count of a domain only grows: a skew over the limit at the end was one when it was made.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, name_of, node_of
from tests.e2e.client import NODES, PODS, Api
from tests.e2e.control_plane import ControlPlane, scheduler_document
from tests.e2e.programs import Program
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, pod, spread, term

NODES_A_ZONE, ZONES = 30, 4
ON_A_NODE = 8  # pods of 900m on a node of 8 CPUs
GROUPS = 10
NAMES = ("s0", "s1", "s2")


class Flaws(NamedTuple):
    """What is wrong with the placement of a backlog."""

    overcommitted_nodes: int = 0
    anti_affinity_violations: int = 0
    groups_over_skew: int = 0


def backlog(count: int, schedulers: int = len(NAMES)) -> Iterator[JsonObject]:
    """Pods of 900m for the schedulers in turn: a quarter kept apart, a quarter spread evenly, half without constraints."""
    for number in range(count):
        kind, group = number % 4, number // 4 % GROUPS
        name, scheduler = f"m-{number}", NAMES[(number * 7 + number // 4) % schedulers]
        if kind == 0:
            labels = {"g": f"apart-{group}"}
            more: dict[str, Any] = {"affinity": anti_affinity(term(HOSTNAME, g=labels["g"]))}
        elif kind == 1:
            labels = {"g": f"even-{group}"}
            more = {"topologySpreadConstraints": [spread(ZONE, labels=labels)]}
        else:
            labels, more = {"g": "plain"}, {}
        yield pod(name, cpu="900m", labels=labels, schedulerName=scheduler, **more)


async def flaws(api: Api) -> Flaws:
    """By brute force over what the API server holds."""
    (pods, _), (nodes, _) = await api.list(PODS), await api.list(NODES)
    zones = {name_of(node): labels_of(node)[ZONE] for node in nodes}
    placed = [(labels_of(each)["g"], node_of(each)) for each in pods if node_of(each)]
    on_nodes = Counter(node for _, node in placed)
    apart = Counter((group, node) for group, node in placed if group.startswith("apart"))
    even: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group, node in placed:
        if group.startswith("even"):
            even[group][zones[node]] += 1
    skews = [max(counts.values()) - min(counts[zone] for zone in zones.values()) for counts in even.values()]
    return Flaws(
        sum(pods_there > ON_A_NODE for pods_there in on_nodes.values()),
        sum(pods_there - 1 for pods_there in apart.values()),
        sum(skew > 1 for skew in skews),
    )


class Schedulers:
    """kube-schedulers that ask one extender, each for the pods of its own name."""

    def __init__(self, plane: ControlPlane, url: str, count: int) -> None:
        self._plane = plane
        self._url = url
        self.programs = {name: plane.another_scheduler(name) for name in NAMES[:count]}

    async def start(self, name: str) -> Program:
        """Start one, for the first time or again."""
        document = deepcopy(scheduler_document("offload", self._url))
        document["profiles"] = [document["profiles"][0] | {"schedulerName": name}]
        await asyncio.to_thread(self._plane.run_scheduler, self.programs[name], document)
        return self.programs[name]

    def send(self, number: signal.Signals) -> None:
        for program in self.programs.values():
            program.send(number)


@asynccontextmanager
async def scheduling(plane: ControlPlane, url: str, count: int = len(NAMES)) -> AsyncIterator[Schedulers]:
    """So many of them, started and ready, until the block is left."""
    schedulers = Schedulers(plane, url, count)
    try:
        for name in schedulers.programs:
            await schedulers.start(name)
        yield schedulers
    finally:
        for program in schedulers.programs.values():
            program.stop()
