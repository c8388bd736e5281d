"""The simulated cluster of a scenario: an API server, controllers that replace deleted pods, and the scheduling loop.

`scenario/play.py` runs the steps on it. The caller starts the extender between `async with SimulatedCluster(...)` and
`begin`, because the extender reads this cluster and the scheduler calls the extender.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from types import TracebackType
from typing import Self

from extender.simulator.apiserver.fault_points import Faults, SlowBindings, SlowWrites
from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.operations import disruptions_allowed, make_ready, matching_budgets
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.apiserver.store import DELETED, Store, Stored
from extender.simulator.json_objects import (
    JsonObject,
    is_finished,
    is_terminating,
    name_of,
    namespace_of,
    node_of,
    uid_of,
)
from extender.simulator.oracle.moves import MovesOfNamespace, judge_moves
from extender.simulator.scenario.faults import FaultInjector
from extender.simulator.scenario.language import BIND_PATH, Play, SchedulerPart
from extender.simulator.scenario.synthetic import make_cluster, metadata_of_replacement
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop, no_preemption
from extender.simulator.scheduler.preemption import PostFilter

Create = Callable[[JsonObject], Awaitable[object]]
_AGAIN = "-again-"
_DEFAULT = "default-scheduler"  # of pods that run at the start; their replacements get a scheduler that exists


class Controllers:
    """Replaces deleted pods from `start` until `stop`."""

    def __init__(self, store: Store, create: Create) -> None:
        self._table = store.table(PODS)
        self._create = create
        self._position = 0
        self._tasks: set[asyncio.Future[object]] = set()
        self._replaced: set[str] = set()
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Replaces pods that are deleted from now on."""
        self._position = self._table.end
        self._stop_listening = self._table.listen(self._review)

    async def stop(self) -> None:
        """Replaces no further pods. Raises the error of a creation that failed, if there is one."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        await asyncio.gather(*self._tasks)

    def release(self, pod: JsonObject) -> None:
        """Lets a pod be deleted without a replacement, because its controller was scaled down."""
        self._replaced.add(uid_of(pod))

    def _review(self) -> None:
        changes = self._table.since(self._position) or ()
        self._position = self._table.end
        for change in changes:
            pod = change.stored.read()
            kind, uid = controller_of(pod), uid_of(pod)
            # A ReplicaSet replaces a pod as soon as it is terminating. A StatefulSet needs the name again, so it waits
            # for the deletion.
            is_due = change.type == DELETED or (kind == "ReplicaSet" and is_terminating(pod))
            if kind and is_due and uid not in self._replaced:
                # A pod has several changes after this one, up to its deletion.
                self._replaced.add(uid)
                self._tasks.add(asyncio.ensure_future(self._create(self._replacement(pod, kind))))

    def _replacement(self, pod: JsonObject, kind: str) -> JsonObject:
        name = name_of(pod)
        if kind == "ReplicaSet":
            # web-1-again-3 is replaced by web-1-again-7: names do not grow with each deletion.
            name = f"{name.partition(_AGAIN)[0]}{_AGAIN}{len(self._replaced)}"
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        metadata = metadata_of_replacement(pod, name) | {"ownerReferences": pod["metadata"]["ownerReferences"]}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def controller_of(pod: JsonObject) -> str:
    """The kind of the pod's controller; empty where it has none."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


_INITIAL_VERSION = 100_000  # versions that are reset stay below it for the whole run


class JumpingClock:
    """A monotonic clock that can jump ahead, as after the machine was suspended. Implements ``kube.timing.Clock``."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._jumped = asyncio.Event()

    def now(self) -> float:
        """Seconds of the monotonic clock plus all jumps."""
        return time.monotonic() + self._ahead

    def jump(self, seconds: float) -> None:
        """Advances the clock, and wakes every sleep that ends before the new time."""
        self._ahead += seconds
        # The old event wakes the present sleepers, who then wait for the new one if their time has not come.
        jumped, self._jumped = self._jumped, asyncio.Event()
        jumped.set()

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds of this clock; for 0, until the next iteration of the event loop."""
        until = self.now() + seconds
        await asyncio.sleep(0)
        while (left := until - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._jumped.wait()
            except TimeoutError:
                continue


async def _not_restartable(_down: float) -> None:
    """The default, replaced by the caller that runs the extender."""
    raise ValueError("this extender cannot be restarted")


class SimulatedCluster:
    """One cluster in memory. `api` is its API server, `loop` its scheduler after `begin`."""

    def __init__(self, play: Play, seed: int, files: Sequence[JsonObject] = (), *, without: str = "") -> None:
        """``without``: a pattern of namespaces in which no pods are created."""
        scenario = play.scenario
        self.without = without
        self.play = play
        self.seed = seed
        self.rng = Random(seed)
        self.clock = JumpingClock()  # of the extender; a step can advance it
        self.restart_extender: Callable[[float], Awaitable[None]] = _not_restartable
        self.numbers: dict[str, int] = {}  # the last number of a pod, by the prefix of the names
        server = scenario.api_server
        self.api = ApiServer(
            ApiServerSettings(
                history=server.history,
                slow_after=server.slow_after,
                bookmark_every=server.bookmark_every,
                kubelet_delay=server.kubelet_delay,
                max_kubelet_delay=server.max_kubelet_delay,
                ready_delay=server.ready_delay,
                seed=seed,
                initial_version=_INITIAL_VERSION,
            )
        )
        objects = make_cluster(scenario.cluster, play.templates, files, self.rng)
        if server.ready_delay is not None:
            for obj in objects:
                if obj["kind"] == "Pod" and node_of(obj):
                    make_ready(obj)
        self.api.store.load(objects)
        self.controllers = Controllers(self.api.store, self._create)
        self._loops: list[SchedulingLoop] = []
        self._preemptions: list[PostFilter] = []
        # A sequence of its own, so that a run with more schedulers has the same pods.
        self._chooser = Random(f"schedulers {seed}")
        always = Faults()
        if server.write_delay:
            always = SlowWrites(server.write_delay)
        elif scenario.scheduler.bind:
            always = SlowBindings(scenario.scheduler.bind_delay, Random(seed))
        # A sequence of its own: if faults shared `rng` with the templates, a fault would always meet the same template.
        self.fault_injector = FaultInjector(Random(f"faults {seed}"), always)
        self.fault_injector.change(play.faults)
        self.api.faults = self.fault_injector

    @property
    def loop(self) -> SchedulingLoop:
        """The first scheduling loop, with the record of all. Raises RuntimeError before `begin`."""
        if not self._loops:
            raise RuntimeError("the scheduling loop has not been started")
        return self._loops[0]

    @property
    def extender_calls(self) -> int:
        """How many requests all schedulers have sent to the extender."""
        return sum(loop.extender_calls for loop in self._loops)

    def give_to_scheduler(self, pod: JsonObject) -> None:
        """Names a random scheduler in a pod that names none, or the default; does nothing where there is one scheduler."""
        count = self.play.scenario.scheduler.count
        if count > 1 and pod["spec"].get("schedulerName", _DEFAULT) == _DEFAULT:
            pod["spec"]["schedulerName"] = _scheduler_name(self._chooser.randrange(count))

    async def _create(self, pod: JsonObject) -> None:
        self.give_to_scheduler(pod)
        await self.api.create(PODS, pod)

    async def settle(self, *, within: float, calm: float) -> bool:
        """Waits until all schedulers are idle together and no deleted pod is about to end. Returns False after `within` seconds."""
        until = time.monotonic() + within
        while all(
            await asyncio.gather(
                *(loop.settle(within=max(until - time.monotonic(), 0.0), calm=calm) for loop in self._loops)
            )
        ):
            # While one loop was awaited, a binding or a deletion may have woken another. So all are looked at once
            # more, without an await.
            if not self.api.pods.is_ending and not any(loop.is_busy for loop in self._loops):
                return True
        return False

    async def __aenter__(self) -> Self:
        await self.api.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_scheduling()
        finally:
            await self.api.stop()

    async def begin(self, extender_url: str) -> None:
        """Starts to schedule with the extender at this URL; without an extender if it is empty."""
        part = self.play.scenario.scheduler
        if any(template.controller for template in self.play.templates.values()):
            self.controllers.start()
        for number in range(part.count):
            loop = self._make_loop(part, extender_url, number)
            self._loops.append(loop)
            await loop.start()

    def _make_loop(self, part: SchedulerPart, extender_url: str, number: int) -> SchedulingLoop:
        entry = entry_of(part, extender_url) if extender_url else None
        settings = LoopSettings(
            percentage_of_nodes_to_score=part.percentage_of_nodes_to_score,
            bind_delay=(float(part.bind_delay[0]), float(part.bind_delay[1])),
            cache_delay=part.cache_delay,
            backoff=(part.pod_initial_backoff, part.pod_max_backoff),
            queueing_hints=part.queueing_hints,
            seed=self.seed + number,
            **({"scheduler_name": _scheduler_name(number)} if part.count > 1 else {}),
        )
        preemption: PostFilter | None = None
        if part.preemption != "none":
            preemption = PostFilter(
                self.api.store,
                self.api.url,
                entry,
                is_async=part.preemption == "async",
                sends_empty_candidates=part.sends_empty_candidates,
                seed=self.seed + number,
            )
        after_filter, record = preemption or no_preemption, self._loops[0].record if self._loops else None
        loop = SchedulingLoop(self.api.store, self.api.url, entry, settings, after_filter=after_filter, record=record)
        if preemption is not None:
            preemption.attach(loop.cache)
            self._preemptions.append(preemption)
        return loop

    async def stop_scheduling(self) -> None:
        """Stops the loops; their results can still be read. Raises the error that ended one earlier, if there is one."""
        await self.controllers.stop()
        for loop in self._loops:
            # Called once more when the block ends: a loop that is stopped has raised its error already.
            if loop.is_running:
                await loop.stop()
        for preemption in self._preemptions:
            await preemption.close()

    def pods(self) -> Sequence[Stored]:
        """All pods now, ordered by key."""
        return self.api.store.table(PODS).latest()

    def pending(self) -> list[JsonObject]:
        """The pods without a node."""
        unbound = [stored.read() for stored in self.pods() if not stored.node]
        return [pod for pod in unbound if not is_finished(pod) and not is_terminating(pod)]

    def waiting(self) -> list[tuple[str, str]]:
        """`namespace/name` of each pending pod, and why it is pending."""
        return [(f"{namespace_of(pod)}/{name_of(pod)}", self.message(pod)) for pod in self.pending()]

    def moves(self) -> dict[str, MovesOfNamespace]:
        """The moves so far, and what is broken, by namespace."""
        store = self.api.store

        def may_evict(pod: JsonObject) -> bool:
            return all(disruptions_allowed(store, budget) > 0 for budget in matching_budgets(store, pod))

        return judge_moves(self.loop.journal, may_evict, self.play.scenario.lag)

    def message(self, pod: JsonObject) -> str:
        """Why a pod is pending: the gates that hold it, or the scheduler's last message; empty before its first attempt."""
        gates = ", ".join(gate["name"] for gate in pod["spec"].get("schedulingGates") or ())
        return f"held at the gate {gates}" if gates else self.loop.messages.get(uid_of(pod), "")


def _scheduler_name(number: int) -> str:
    return f"scheduler-{number}"


def entry_of(part: SchedulerPart, extender_url: str) -> ExtenderEntry:
    """The `extenders` entry for the scheduler settings of a scenario."""
    return ExtenderEntry(
        url_prefix=extender_url,
        prioritize_verb="prioritize" if part.prioritize else "",
        bind_verb=BIND_PATH.strip("/") if part.bind else "",
        preempt_verb="preempt" if part.preemption != "none" else "",
        weight=part.weight,
        node_cache_capable=part.node_cache_capable,
        ignorable=part.ignorable,
        http_timeout=part.http_timeout,
    )
