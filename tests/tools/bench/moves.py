"""What moves cost on a large cluster after a zone returns, and how long they take: `python -m tests.tools.bench.moves`.

5,000 nodes in three zones have 150,000 pods, none of them in the third zone, which has just returned. 500 workloads of 30
pods have a spread constraint over zones, and a policy evicts. The mover is the real one. A stand-in for the API server
replaces an evicted pod, and filter decides where the replacement goes. Time is virtual: it is the processor time, and
the pauses of the mover.

The longest step is the longest processor time between two pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import orjson
from msgspec import structs

from extender.features.execution.broken import BrokenConstraints
from extender.features.execution.mover import Mover
from extender.features.execution.plan import MovePlan, plan_moves
from extender.features.execution.schema import Movable
from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import NotFound
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.model.policies import JsonObject, PolicyKey, PolicyObject
from extender.settings.configuration import Settings
from extender.wire.objects.kinds import PODS
from tests.builders import (
    extender_args,
    index_of,
    namespace,
    namespace_json,
    node,
    node_json,
    pod,
    pod_json,
    settings,
    spread,
)
from tests.deciding import filter_nodes
from tests.fakes import FakeClock
from tests.policies import policy, policy_json
from tests.tools.bench.subject import apply

T = TypeVar("T")

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
OLD: Final = NOW - timedelta(days=1)
REPLICAS: Final = 30
NAMESPACES: Final = 50
OTHERS: Final = 1000  # workloads without constraints
_QUIET: Final = 180.0  # seconds without the end of a move
_EVENTS: Final = 2500  # in a turn: 500 a second between two rounds
_TURNS: Final = 150
ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}


class WorkClock(FakeClock):
    """Virtual time: the processor time, and the seconds that were slept. Keeps the longest time between two sleeps.

    ``others``: the processor time of what stands in for other programs.
    """

    def __init__(self) -> None:
        super().__init__(held=self._pauses)
        self.others = 0.0
        self.longest = 0.0
        self.begun = time.process_time()
        self.is_paused = False

    def now(self) -> float:
        """Seconds. The first reading after a pause begins a step."""
        if self.is_paused:
            self.begun, self.is_paused = time.process_time(), False
        return time.process_time() + self.time - self.others

    def step_ends(self) -> None:
        """A step has ended: other work may run."""
        self.longest = max(self.longest, time.process_time() - self.begun)

    def _pauses(self, _seconds: float) -> bool:
        self.step_ends()
        self.is_paused = True
        return False


@dataclass
class Controllers:
    """Stands in for the API server, controllers, scheduler and kubelet. A replacement is ready ``seconds`` after an eviction."""

    index: ClusterIndex
    chosen: Settings
    clock: WorkClock
    seconds: float
    evicted: int = 0
    elsewhere: int = 0
    due: list[tuple[float, str]] = field(default_factory=list)
    not_ready: dict[str, float] = field(default_factory=dict)

    async def read_pod(self, pod: PodRef) -> JsonObject:
        """The pod; ready once its time has come."""
        self.clock.step_ends()
        if pod.uid not in self.index.pods:
            raise NotFound("gone")
        is_ready = self.not_ready.get(pod.uid, 0.0) <= self.clock.now()
        self.clock.begun = time.process_time()
        return {
            "metadata": {"uid": pod.uid},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": str(is_ready)}]},
        }

    async def write_moves(self, policy: PolicyKey, moves: Sequence[JsonObject]) -> None:  # noqa: ARG002
        """Nothing reads them."""
        self.clock.step_ends()
        self.clock.begun = time.process_time()

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:  # noqa: ARG002 (as the writer)
        """The pod ends at once; its replacement is created, decided by filter, and bound."""
        self.clock.step_ends()
        begun = time.process_time()
        self.evicted += 1
        leaving = self.index.pods[pod.uid]
        claimed = self.index.reserved.held[pod.uid].node
        self.index.delete(leaving)
        uid = f"{pod.uid}+"
        new = structs.replace(leaving, uid=uid, name=f"{leaving.name}+", node="", start_time=None)
        self.index.upsert(new)
        labels = dict(leaving.signature.labels)
        asked = pod_json(
            new.name,
            uid=uid,
            namespace=new.namespace,
            labels=labels,
            owner=("ReplicaSet", labels["app"]),
            spreads=[spread("zone", app=labels["app"])],
            requests={"cpu": "100m"},
        )
        passed = filter_nodes(extender_args(asked, claimed, "c-0", "a-0"), self.index.view, self.chosen, 0).passed
        self.elsewhere += claimed not in passed
        target = claimed if claimed in passed else next(iter(passed))
        self.index.upsert(structs.replace(new, node=target, start_time=NOW))
        self.not_ready[uid] = self.clock.now() + self.seconds
        # What stands in for other programs is no time of the service.
        self.clock.others += time.process_time() - begun
        self.clock.begun = time.process_time()


def placed_pods(nodes: int, pods: int, workloads: int) -> Iterator[tuple[JsonObject, str]]:
    """The pods: what the pods of one workload have in common, by which they can be told, and the node of each."""
    there = [f"{zone}-{number}" for number in range(nodes // 3) for zone in "ab"]
    for workload in range(workloads):
        template = _template(f"web-{workload}", workload)
        template["spreads"] = [spread("zone", app=template["app"])]
        for replica in range(REPLICAS):
            yield template, there[(workload * 7 + replica) % len(there)]
    others = [_template(f"other-{number}", number) for number in range(OTHERS)]
    for number in range(pods - workloads * REPLICAS):
        yield others[number % OTHERS], there[number % len(there)]


def _template(app: str, number: int) -> JsonObject:
    owner, namespace = ("ReplicaSet", app), f"team-{number % NAMESPACES}"
    return {"app": app, "namespace": namespace, "owner": owner, "requests": {"cpu": "100m"}}


def names_of_nodes(nodes: int) -> Iterator[tuple[str, str]]:
    """Zone and name. The third zone has no pods."""
    for at, zone in enumerate("abc"):
        for number in range(nodes // 3 + (at < nodes % 3)):
            yield zone, f"{zone}-{number}"


def cluster(
    nodes: int, pods: int, workloads: int, execution: JsonObject | None = None
) -> tuple[ClusterIndex, Settings]:
    """The cluster, and the settings of a service that moves pods there as fast as the policy allows."""
    chosen = settings(policies={"enabled": True}, execution={"maxPerMinute": 6000}, answers={"shortlist": 0})
    index = index_of()
    if execution is not None:
        index.upsert(PolicyObject(policy("watch", when=["Execution"], execution=execution)))
    for number in range(NAMESPACES):
        index.upsert(namespace(f"team-{number}"))
    for zone, name in names_of_nodes(nodes):
        index.upsert(node(name, zone=zone, allocatable=ROOM))
    first: dict[str, Pod] = {}
    for number, (template, on) in enumerate(placed_pods(nodes, pods, workloads)):
        app, name = template["app"], f"{template['app']}-{number}"
        if app not in first:
            first[app] = pod(app, on=on, **template)
        index.upsert(structs.replace(first[app], name=name, uid=f"uid-{name}", node=on, start_time=OLD))
    gc.collect()
    gc.freeze()
    return index, chosen


def write_snapshot(path: Path, nodes: int, pods: int, workloads: int) -> None:
    """The cluster as `kubectl get -o json` prints it, with a policy that evicts."""
    objects = [{"kind": "Namespace", **namespace_json(f"team-{number}")} for number in range(NAMESPACES)]
    objects += [
        {"kind": "Node", **node_json(name, zone=zone, allocatable=ROOM)} for zone, name in names_of_nodes(nodes)
    ]
    objects.append(policy_json("watch", when=["Execution"], execution={"mode": "Evict", "minAge": "0s"}))
    for number, (template, on) in enumerate(placed_pods(nodes, pods, workloads)):
        objects.append({"kind": "Pod", **pod_json(f"{template['app']}-{number}", on=on, **template)})
    objects = [{"apiVersion": "v1", **obj} for obj in objects]
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


class Timed:
    """The longest step and the whole processor time of work in steps."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.total = 0.0
        self.steps = 0

    def run(self, steps: Steps[T]) -> T:
        """Runs the steps to their end."""
        return self._played(steps)

    def _played(self, steps: Generator[None, None, T]) -> T:
        while True:
            begun = time.process_time()
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                took = time.process_time() - begun
                self.longest, self.total, self.steps = max(self.longest, took), self.total + took, self.steps + 1

    def __str__(self) -> str:
        return f"{self.total:.2f} s in {self.steps} steps, the longest {1000 * self.longest:.1f} ms"


async def played(nodes: int, pods: int, workloads: int, per_minute: int, ready: float, minutes: float) -> None:
    """The mover until it is quiet, or for so many minutes."""
    execution = {"mode": "Evict", "after": "0s", "minAge": "0s", "maxPerMinute": per_minute, "maxConcurrent": 1000}
    index, chosen = cluster(nodes, pods, workloads, execution)
    clock = WorkClock()
    controllers = Controllers(index, chosen, clock, ready)
    mover = Mover(index, chosen, controllers, clock, lambda: NOW, lambda: True)
    begun, processor = clock.now(), time.process_time()
    clock.begun = time.process_time()
    running = asyncio.create_task(mover.run())
    first = planned = last = 0.0
    seen = 0
    while not running.done():
        await asyncio.sleep(0)
        now = clock.now()
        if controllers.evicted and not first:
            first = now - begun
        if not planned and len(mover.planned) + len(mover.under_way) >= workloads:
            planned = now - begun
        if mover.outcomes.total() != seen:
            seen, last = mover.outcomes.total(), now
        is_over = minutes and now - begun >= 60 * minutes
        if is_over or (now - max(last, begun) > _QUIET and not mover.under_way):
            break
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    outcomes = {name: count for name, count in mover.outcomes.items() if count}
    print(
        f"maxPerMinute {per_minute}, {workloads} workloads: first eviction after {first:.1f} s, all workloads planned after "
        f"{planned:.1f} s, {controllers.evicted} evictions, {controllers.elsewhere} replacements elsewhere, last move ended "
        f"after {last - begun:.0f} s, measure {mover.broken.measure}, longest step {1000 * clock.longest:.1f} ms, "
        f"{outcomes}, processor time {time.process_time() - processor - clock.others:.0f} s of {clock.now() - begun:.0f} s",
        flush=True,
    )


def plan_at_once(nodes: int, pods: int, workloads: int) -> None:
    """What is broken, and the whole plan."""
    index, chosen = cluster(nodes, pods, workloads, {"after": "0s", "minAge": "0s"})
    timed = Timed()
    broken = BrokenConstraints(index.view, chosen)
    timed.run(broken.round(0.0))
    print(f"what is broken: measure {broken.measure}, {timed}", flush=True)
    timed = Timed()
    plan: MovePlan = timed.run(plan_moves(index, chosen, Movable(now=NOW)))
    print(f"whole plan: {len(plan.moves)} moves, measure {plan.before} to {plan.after}, {timed}", flush=True)


def _bound_pods(turn: int) -> Iterator[JsonObject]:
    """Pods that come and go. They have no constraint, and are on nodes."""
    for number in range(_EVENTS // 2):
        app, team = f"other-{number % OTHERS}", f"team-{number % NAMESPACES}"
        owner, on = ("ReplicaSet", app), f"{'ab'[number % 2]}-{number}"
        yield pod_json(f"new-{turn}-{number}", namespace=team, on=on, app=app, owner=owner, requests={"cpu": "100m"})


def compare_events(nodes: int, pods: int) -> None:
    """An event of a pod that no policy selects, with and without a policy that watches running pods, in turns.

    A turn has the events of a pause between two rounds, and the round. The control has two clusters without a policy.
    """
    clusters = [cluster(nodes, pods, 0), cluster(nodes, pods, 0), cluster(nodes, pods, 0)]
    of_nothing = policy("watch", when=["Execution"], execution={}, podSelector={"matchLabels": {"app": "none"}})
    clusters[2][0].upsert(PolicyObject(of_nothing))
    parts = [(index, BrokenConstraints(index.view, chosen)) for index, chosen in clusters]
    least, longest = [float("inf")] * len(parts), 0.0
    gc.disable()  # a collection would fall into any turn
    for turn in range(_TURNS):
        for at, (index, broken) in enumerate(parts):
            lines = [
                orjson.dumps({"type": kind, "object": obj})
                for obj in _bound_pods(turn)
                for kind in ("ADDED", "DELETED")
            ]
            timed, begun = Timed(), time.process_time()
            for line in lines:
                apply(index, PODS.decode_event(line))
            timed.run(broken.round(float(turn)))
            least[at] = min(least[at], time.process_time() - begun)
            longest = max(longest, timed.longest) if at == len(parts) - 1 else longest
    gc.enable()
    bare, control, watched = (1e6 * seconds / _EVENTS for seconds in least)
    print(
        f"an event: {bare:.2f} us without a policy, {control:.2f} us in the control ({control / bare:.3f}), {watched:.2f} us with "
        f"a policy that selects no pod ({watched / bare:.3f}); longest step of a round {1000 * longest:.1f} ms",
        flush=True,
    )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--ready", type=float, default=20.0, help="seconds until a replacement is ready")
    parser.add_argument(
        "--per-minute", type=int, nargs="*", default=[600], help="plays the mover with this maxPerMinute"
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="ends a play after this time (default: when it is quiet)"
    )
    parser.add_argument("--plan", action="store_true", help="the whole plan, as `extender moves --plan` makes it")
    parser.add_argument("--events", action="store_true", help="what an event costs where a policy selects no pod")
    parser.add_argument(
        "--snapshot", type=Path, help="writes the cluster into a file for `extender moves --plan --snapshot`"
    )
    given = parser.parse_args()
    if given.snapshot:
        write_snapshot(given.snapshot, given.nodes, given.pods, given.workloads)
    if given.plan:
        plan_at_once(given.nodes, given.pods, given.workloads)
    if given.events:
        compare_events(given.nodes, given.pods)
    for per_minute in given.per_minute:
        asyncio.run(played(given.nodes, given.pods, given.workloads, per_minute, given.ready, given.minutes))


if __name__ == "__main__":
    main()
