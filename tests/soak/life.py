"""One service under load: a scheduler that asks it, a cluster that changes, faults that come and go, and a judge.

The service is the one that `extender serve` runs, from `compose`, with a session and a clock of its own. The scheduler calls
what the handlers of the server call, in their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

import msgspec
import orjson

from extender.compose.service import service_of_cluster
from extender.index.audit import audit
from extender.kube.errors import KubeError
from extender.kube.session import STRATEGIC_PATCH
from extender.settings.configuration import parse_settings
from extender.simulator.apiserver.kinds import EVENTS, NODES, PODS
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.json_objects import JsonObject, is_terminating, name_of, namespace_of, uid_of
from extender.simulator.scenario.faults import FaultInjector
from extender.wire.extender_v1 import (
    BindingArgs,
    ExtenderArgs,
    FilterResult,
    decode_args,
    decode_preemption_args,
)
from tests.in_memory import InMemorySession, Link
from tests.simulator.scenario.faulted import held, real
from tests.soak.cluster import Changes, objects
from tests.soak.faults import Blow, FaultDeck, LateBindings
from tests.soak.judge import Judge
from tests.soak.virtual_time import LoopClock, VirtualLoop

PLACEMENTS: Final = ("decisive", "cooperative", "bind")  # the last: cooperative, and the extender binds
MODES: Final = ("offload", "augment")
LIVING: Final = 300  # pods
_WAITING: Final = 10
_MOST_ATTEMPTS: Final = 6
# A short history takes little memory: each of its changes is a kilobyte or more.
_API_SERVER: Final = ApiServerSettings(
    history=4_000, slow_after=3_000, bookmark_every=2.0, kubelet_delay=0.5, initial_version=10**14
)
HISTORY_AT_REST: Final = 500  # changes of a kind
UNDER_FAULTS: Final = 100  # decisions until other faults
_FAULTY_SECONDS: Final = 2.0  # the same in seconds, as little is decided under some
_REST_SECONDS, _LONG_REST_SECONDS = 10.0, 150.0  # the latter: longer than any assumption lasts


class Life:
    """The service of one mode and placement. Call `begin`, then `run` again and again; all in virtual time of its own."""

    def __init__(
        self, mode: str, placement: str, seed: int, under_faults: int = UNDER_FAULTS, **sections: JsonObject
    ) -> None:
        """``under_faults``: decisions until other faults. ``sections`` of the settings, in place of the usual ones."""
        self._under_faults = under_faults
        self._sections = sections
        self.name = f"{mode} {placement}"
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.judged = 0
        self._mode, self._binds = mode, placement == "bind"
        self._rng = Random(f"{self.name} {seed}")
        self._seed = seed
        self._loop = VirtualLoop()
        self._placement = "decisive" if placement == "decisive" else "cooperative"
        self._tasks: set[asyncio.Task[Any]] = set()
        self._bindings: set[asyncio.Task[None]] = set()
        self._queue: list[tuple[float, str, int]] = []  # a heap: when to try a pod, and how often it was tried
        self._deck = FaultDeck(self._rng, self._count)

    @property
    def decisions(self) -> int:
        """Pods placed on a node, or rejected on all that were asked about."""
        return self.counts["placed"] + self.counts["rejected"]

    def begin(self) -> None:
        """Starts the service and waits until it is ready."""
        self._loop.run_until_complete(self._begin())

    def run(self, decisions: int, *, is_long: bool = False) -> None:
        """So many decisions more under faults; then all comes to rest and is compared. ``is_long``: no assumption is left."""
        self._loop.run_until_complete(self._run(self.decisions + decisions, is_long=is_long))

    def close(self) -> None:
        """Ends the service."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    # -- the service --------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        api = ApiServer(replace(_API_SERVER, seed=self._seed))
        api.store.load(objects())
        always = LateBindings(self._deck) if self._binds else None
        self._faults = FaultInjector(Random(f"faults {self.name} {self._seed}"), always)
        api.faults = self._faults
        self.api, self._link = api, Link(api)
        self._session, self._clock = InMemorySession(self._link), LoopClock()
        self._changes = Changes(api, self._rng, self._count)
        self.service = service_of_cluster(self._settings(), self._session, self._clock, Random(self._seed))
        for name, job in self.service.jobs:
            if not name.startswith("webhook"):  # admission is asked by nobody here
                self._spawn(self._keep_running(name, job))
        while not self.service.readiness.is_ready:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.1)
        self._judge = Judge(api.store, self._link.handled)

    def _settings(self) -> Any:
        document: JsonObject = {
            "apiVersion": "placement.extender.dev/v1alpha1",
            "kind": "ExtenderConfiguration",
            "mode": self._mode,
            "placement": self._placement,
            "policies": {"enabled": True},
            "audit": {"pause": "500ms"},
            "whatIf": {"enabled": False},
            "kube": {"watch": {"inactivityTimeout": "5s", "backoff": {"initial": "50ms", "max": "500ms"}}},
        }
        binds: JsonObject = {"server": {"paths": {"bind": "/bind"}}} if self._binds else {}
        return parse_settings(document | binds | self._sections)

    async def _keep_running(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        """A job that ends is a bug."""
        try:
            await job()
            self.problems.append(f"{self.name}: the job {name} has ended")
        except Exception as error:  # noqa: BLE001 - reported
            self.problems.append(f"{self.name}: the job {name} failed: {error!r}")

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.api.pods.stop()

    # -- a part -------------------------------------------------------------------------------------------------

    async def _run(self, goal: int, *, is_long: bool) -> None:
        decisions, until = 0, 0.0
        while self.decisions < goal:
            if self.decisions >= decisions or self._loop.time() >= until:
                await self._change_faults()
                decisions, until = self.decisions + self._under_faults, self._loop.time() + _FAULTY_SECONDS
            await self._step()
        await self._rest(is_long=is_long)

    async def _step(self) -> None:
        """The next pod whose time has come, while others come and go."""
        rng, now = self._rng, self._loop.time()
        while len(self._queue) < _WAITING:
            heappush(self._queue, (now, self._changes.arrive(), 0))
        if self._changes.living > LIVING:
            self._changes.leave()
        if rng.random() < 1 / 25:
            self._changes.change()
        due, key, attempts = heappop(self._queue)
        await asyncio.sleep(max(due - now, rng.expovariate(100)))
        await self._schedule(key, attempts)

    async def _change_faults(self) -> None:
        """Other lasting faults, and now and then a blow."""
        self._faults.change(self._deck.conditions())
        match self._deck.blow():
            case Blow.STARVED:
                for _ in range(self._rng.randrange(2, 12)):  # the cluster goes on meanwhile
                    self._loop.jump(self._rng.uniform(0.05, 3.0))
                    self._changes.change()
                    if self._changes.living > LIVING // 2:
                        self._changes.leave()
            case Blow.SUSPENDED:
                self._loop.jump(600.0)
            case Blow.RESTARTED | Blow.RESTORED as blow:
                down = self._rng.choice((0.0, 0.3, 2.0))
                self._spawn(self._link.restart(down, new_history=blow is Blow.RESTORED))

    async def _rest(self, *, is_long: bool) -> None:
        """Without faults and load everything is forgotten that should be, and the service knows the truth."""
        self._faults.change([])
        while self._bindings:
            await asyncio.wait(self._bindings)
        await asyncio.sleep(_LONG_REST_SECONDS if is_long else _REST_SECONDS)
        index = self.service.index
        found = [f"drift: {line}" for line in audit(index)]
        if not self.service.readiness.is_ready:
            found.append(f"not ready: {self.service.readiness.checks()}")
        if differences := set(held(index)) ^ set(real(self.api.store)):
            found.append(f"the index differs from the cluster: {min(differences)} and {len(differences) - 1} more")
        kept = index.statistics()
        found += [
            f"{name} at rest: {kept[name]}" for name in ("assumed_pods", "reserved_slots") if kept[name] and is_long
        ]
        self.problems += [f"{self.name}: {problem}" for problem in found]
        for key in list(self.api.store.table(EVENTS).objects):  # which nothing else removes after their hour
            self.api.store.remove(EVENTS, key)
        for (
            table
        ) in self.api.store.tables.values():  # else nodes and events fill it only late in the run, as a leak would
            table.forget(max(0, len(table.changes) - HISTORY_AT_REST))
        self._judge = Judge(self.api.store, self._link.handled)

    # -- one pod ------------------------------------------------------------------------------------------------

    async def _schedule(self, key: str, attempts: int) -> None:
        stored = self.api.store.table(PODS).objects.get(key)
        if stored is None or stored.node:
            return
        pod = stored.read()
        if is_terminating(pod):
            return
        nominated = (pod.get("status") or {}).get("nominatedNodeName")
        names = self._changes.schedulable()
        placed = nominated in names and await self._request(pod, [nominated])
        if not placed:
            most = self._rng.choice((10, 40, 200 if self._mode == "offload" else 20))
            placed = await self._request(pod, self._rng.sample(names, min(len(names), most)))
        if not placed:
            self._retry(key, attempts + 1)

    def _retry(self, key: str, attempts: int) -> None:
        if attempts > _MOST_ATTEMPTS:  # its owner gives up
            self._changes.delete(key)
        else:
            heappush(self._queue, (self._loop.time() + self._rng.uniform(0.1, 3.0), key, attempts))

    async def _request(self, pod: JsonObject, names: list[str]) -> bool:
        """One scheduling cycle. Returns whether the pod is on its way to a node. In augment mode in-tree plugins come first."""
        seen = self._judge.applied
        names = names if self._mode == "offload" else self._judge.feasible(pod, names)
        args = self._decoded(pod, names) if names else None
        result = await self._filtered(args) if args is not None else FilterResult((), error="no node")
        self._judge.catch_up()
        if result.error:
            self._count("not decided")
            return False
        full_name = f"{namespace_of(pod)}/{name_of(pod)}"
        if not result.passed:
            self._count("rejected")
            self._judge.rejected(full_name)
            self._check_rejection(pod, names)
            await self._preempt(pod, result)
            self._spawn(self._report(pod, "Unschedulable"))
            return False
        assert args is not None
        passed = list(result.passed)
        if self._mode == "augment" and self._judge.applied != seen:  # as the plugins say now
            passed = self._judge.feasible(pod, passed)
        if not passed:
            return False
        node = self._chosen(args, passed)
        self._count("placed")
        violation = self._judge.decided(pod, node)
        if violation is not None:
            self._violated(str(violation))
        task = self._spawn(self._bind(pod, node))
        self._bindings.add(task)
        task.add_done_callback(self._bindings.discard)
        return True

    def _decoded(self, pod: JsonObject, names: list[str]) -> ExtenderArgs:
        """The request, by names, and now and then with whole nodes."""
        body: JsonObject = {"Pod": pod, "Nodes": None, "NodeNames": names}
        if self._rng.random() < 1 / 50:
            nodes = [self.api.store.find(NODES, name).read() for name in names]
            body |= {"Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
        return decode_args(orjson.dumps(body), self.service.settings.limits)

    async def _filtered(self, args: ExtenderArgs) -> FilterResult:
        """As `server/verbs.py` and the middleware: current, in time, or an error."""
        service = self.service
        try:
            async with asyncio.timeout(service.settings.server.request_timeout):
                assert service.verbs.catch_up is not None
                await service.verbs.catch_up()
                if not service.readiness.is_ready:
                    service.verbs.attempt_failed(args.pod)
                    return FilterResult((), error="not ready")
                return await service.verbs.filter(args)
        except TimeoutError:
            return FilterResult((), error="too late")

    def _chosen(self, args: ExtenderArgs, passed: list[str]) -> str:
        """One of the best nodes by prioritize."""
        if len(passed) == 1:
            return passed[0]
        scores = self.service.verbs.prioritize(msgspec.structs.replace(args, node_names=passed, nodes=None, body=b""))
        best = max(scores.values(), default=0)
        return self._rng.choice([name for name in passed if scores.get(name, 0) == best])

    def _check_rejection(self, pod: JsonObject, names: Sequence[str]) -> None:
        """A rejection must have a ground, where nothing but the objects decides."""
        index = self.service.index
        kept = index.statistics()
        is_unclear = (
            index.assumed.several or index.assumed.doubted or kept["nominations"] + kept["in_memory_nominations"]
        )
        if is_unclear or not self._judge.is_current:
            return
        self._count("rejections judged")
        if node := self._judge.would_take(pod, names):
            self._violated(f"{name_of(pod)} was rejected although {node} takes it")

    def _violated(self, what: str) -> None:
        self._count("violations")
        self.problems.append(f"{self.name}, seed {self._seed}: decision {self.decisions}: {what}{self._differences()}")

    def _differences(self) -> str:
        """Where the service and the judge count pods otherwise, as a run of the same seed takes another course."""
        index, judged = self.service.index, self._judge.placed()
        nodes: dict[str, Sequence[str]] = {pod.uid: (pod.node,) for pod in index.pods.values() if pod.node}
        nodes |= {uid: assumed.nodes for uid, assumed in index.assumed.held.items()}
        uids = [uid for uid in sorted({*nodes, *judged}) if tuple(nodes.get(uid, ())) != (judged.get(uid),)]
        found = [f"{uid} on {', '.join(nodes.get(uid, ('none',))[:3])} and not {judged.get(uid)}" for uid in uids]
        return f"; {len(found)} pods are counted otherwise: {'; '.join(found[:10])}" if found else ""

    async def _preempt(self, pod: JsonObject, result: FilterResult) -> None:
        """What kube-scheduler does next: victims on a node that was rejected, to be reviewed and deleted."""
        priority = int(pod["spec"].get("priority") or 0)
        nodes = [name for name in result.failed if self._lower(name, priority)]
        if not nodes:
            return
        self._count("preempt calls")
        node = self._rng.choice(nodes)
        uids = [{"UID": uid_of(each)} for each in self._lower(node, priority)]
        victims = {node: {"Pods": uids, "NumPDBViolations": 0}}
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        args = decode_preemption_args(orjson.dumps(body), self.service.settings.limits)
        for candidate in await self.service.verbs.preempt(args):
            self._count("victims deleted by the scheduler")
            wanted = {victim.uid for victim in candidate.victims}
            for each in self._lower(candidate.node, priority):
                if uid_of(each) in wanted:
                    self._changes.delete(f"{namespace_of(each)}/{name_of(each)}")

    def _lower(self, node: str, priority: int) -> list[JsonObject]:
        """The pods on a node that may be victims."""
        if not priority:
            return []
        placed = [each.pod for each in self._judge.replay.state.on_node(node)]
        return [pod for pod in placed if int(pod["spec"].get("priority") or 0) < priority][:3]

    # -- binding ------------------------------------------------------------------------------------------------

    async def _bind(self, pod: JsonObject, node: str) -> None:
        """Binds the pod, soon or late, and reports a failure."""
        problem = await (self._bound_by_extender(pod, node) if self._binds else self._bound(pod, node))
        key = f"{namespace_of(pod)}/{name_of(pod)}"
        stored = self.api.store.table(PODS).objects.get(key)
        if not problem or (stored is not None and stored.node == node and uid_of(stored.read()) == uid_of(pod)):
            return
        self._count("failed bindings")
        self._judge.undone(uid_of(pod))
        await self._report(pod, "SchedulerError")
        self._retry(key, 1)

    async def _bound(self, pod: JsonObject, node: str) -> str:
        await asyncio.sleep(self._deck.delay_of_binding())
        binding = {"metadata": {"uid": uid_of(pod)}, "target": {"kind": "Node", "name": node}}
        try:
            await self._session.writes.call("POST", f"{_path(pod)}/binding", body=binding, limit=10.0)
        except KubeError as error:
            return str(error)
        return ""

    async def _bound_by_extender(self, pod: JsonObject, node: str) -> str:
        try:
            async with asyncio.timeout(self.service.settings.server.request_timeout):
                return await self.service.verbs.bind(BindingArgs(namespace_of(pod), name_of(pod), uid_of(pod), node))
        except TimeoutError:
            return "too late"

    async def _report(self, pod: JsonObject, reason: str) -> None:
        """The condition of a pod that was not placed, once."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": str(self.decisions)}
        body = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [condition]}}
        with suppress(KubeError):
            await self._session.writes.call("PATCH", f"{_path(pod)}/status", body=body, content_type=STRATEGIC_PATCH)

    # -- figures ------------------------------------------------------------------------------------------------

    def happened(self) -> Mapping[str, int]:
        """How often each fault and each change has come."""
        return self.counts + self._faults.injected

    def drift(self) -> int:
        """How often the service's own audit found a wrong count, or the index had to be rebuilt."""
        lines = self.service.metrics.render().decode().splitlines()
        found = [line for line in lines if line.startswith("extender_audit_differences")]
        assert found
        return self.service.index.drifts + sum(int(float(line.split()[-1])) for line in found)


def _path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
