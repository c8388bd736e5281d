"""Whether the placements on a real cluster are right.

Judged by brute force in the order of the scheduler's decisions, and by the audit of an index of our own that follows
the same cluster. The order is read from the scheduler's log, where each scheduling cycle begins with a line. Binds overtake each other, so
the order in which pods appear on nodes would accuse a correct run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from extender.compose.service import Service, service_of_cluster
from extender.index.audit import audit
from extender.kube.credentials import Access
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.settings.configuration import Settings
from extender.simulator.json_objects import JsonObject, name_of, node_of
from extender.simulator.oracle.brute_force import SUCCESS, ClusterState, check, feasible
from tests.e2e.board import key_of
from tests.e2e.client import NAMESPACES, NODES, PODS, Api
from tests.e2e.serving import Extender

_CYCLE = re.compile(r'"Attempting to schedule pod" pod="([^"]+)"')


def cycles_in(scheduler_log: str) -> list[str]:
    """The pods that the scheduler took up, in order, each as often as it did."""
    return _CYCLE.findall(scheduler_log)


def decision_order(scheduler_log: str) -> list[str]:
    """The pods by the beginning of their last scheduling cycle: the one that placed those which have a node."""
    last = {name: place for place, name in enumerate(cycles_in(scheduler_log))}
    return sorted(last, key=last.__getitem__)


async def violations(api: Api, scheduler_log: str) -> list[str]:
    """Every pod whose node broke a hard constraint when it was decided, judged on the nodes and namespaces of now.

    Pods that the scheduler did not place count from the beginning. Good for runs in which nothing else changes.
    """
    (pods, _), (nodes, _), (namespaces, _) = [await api.list(path) for path in (PODS, NODES, NAMESPACES)]
    placed = {key_of(pod): pod for pod in pods if node_of(pod)}
    return judge_in_order(placed, decision_order(scheduler_log), ClusterState(nodes, namespaces))


def judge_in_order(
    placed: dict[str, JsonObject], order: Sequence[str], state: ClusterState, every: int = 1
) -> list[str]:
    """A line for each violation. O(pods) for each decision that is judged: one of so many.

    A pod on a node that does not exist was placed by another hand, also where the scheduler had taken it up before.
    """
    decided = [name for name in order if name in placed and node_of(placed[name]) in state.nodes]
    for name in placed.keys() - set(decided):
        state.place(name, placed[name], node_of(placed[name]))
    found = []
    for number, name in enumerate(decided):
        pod, node = placed[name], node_of(placed[name])
        if number % every == 0 and (status := check(pod, node, state)) != SUCCESS:
            found.append(f"decision {number}: {name} on {node}: {status.reason}")
        state.place(name, pod, node)
    return found


async def disagreements(api: Api, extender: Extender, probes: Sequence[JsonObject]) -> list[str]:
    """Where the extender's answers differ from brute force over what the apiserver holds, once it could hear of it.

    Meant for an extender that names all passing nodes and assumes nothing, in a cluster that is at rest.
    """
    (pods, _), (nodes, _), (namespaces, _) = [await api.list(path) for path in (PODS, NODES, NAMESPACES)]
    names = [name_of(node) for node in nodes]
    true = [
        {name for name, said in feasible(probe, nodes, namespaces, pods).items() if said == SUCCESS} for probe in probes
    ]
    given: list[set[str]] = []
    try:
        async with asyncio.timeout(20):
            while given != true:
                given = [await extender.passing(probe, names) for probe in probes]
    except TimeoutError:
        pairs = zip(probes, true, given, strict=False)
        return [f"{name_of(probe)}: answered {sorted(has)}, should be {sorted(should)}" for probe, should, has in pairs]
    return []


class Shadow:
    """An index of our own that follows the cluster through the same feeds as the service, in this process."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def differences(self, api: Api) -> list[str]:
        """What the index holds otherwise than the apiserver does, once it has had time to hear of it, and the audit.

        It is first asked about every pod, so that there are counts to be audited.
        """
        pods, _ = await api.list(PODS)
        true = {(pod["metadata"]["uid"], node_of(pod)) for pod in pods}
        index = self.service.index
        try:
            async with asyncio.timeout(10):
                while {(pod.uid, pod.node) for pod in index.pods.values()} != true:  # noqa: ASYNC110 (a view of another process)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return [f"the index holds {len(index.pods)} pods, the apiserver {len(true)}, and they differ"]
        for pod in index.pods.values():
            index.view.compiled(pod.signature)
        return audit(index)


@asynccontextmanager
async def shadowing(kubeconfig: Path, settings: Settings) -> AsyncIterator[Shadow]:
    """A shadow that has read everything once; it follows until the block is left."""
    clock, rng = SystemClock(), Random(0)
    async with open_session(Access(kubeconfig=str(kubeconfig)), clock) as session:
        service = service_of_cluster(settings, session, clock, rng)
        jobs = [asyncio.ensure_future(run()) for name, run in service.jobs if name.startswith("reflector ")]
        try:
            async with asyncio.timeout(30):
                while not service.readiness.is_ready:  # noqa: ASYNC110 -- readiness is a state without an event
                    await asyncio.sleep(0.01)
            yield Shadow(service)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
