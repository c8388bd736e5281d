"""A small scheduling loop: schedules one pod at a time and calls the extender as kube-scheduler does.

It reads the store's changes, after a delay if configured. It assumes a pod at once and binds it in the background through
the API server, so that bindings lag behind decisions as in a real cluster. Called by the scenario player and by tests.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import aiohttp
import orjson

from extender.simulator.apiserver.kinds import NODES, PODS, ServedKind
from extender.simulator.apiserver.patching import STRATEGIC
from extender.simulator.apiserver.store import DELETED, ServedChange, Store
from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    name_of,
    namespace_of,
    node_of,
    timestamp,
    uid_of,
)
from extender.simulator.oracle.journal import Journal
from extender.simulator.scheduler.cache import (
    UNSCHEDULABLE,
    CachedNode,
    Fit,
    NodeRejection,
    SchedulerCache,
    claim_of,
    nodes_to_find,
    summary,
)
from extender.simulator.scheduler.extender_client import ExtenderClient, ExtenderEntry, ExtenderError
from extender.simulator.scheduler.queue import EXTENDER, FIRST_BACKOFF, LONGEST_BACKOFF, QueuedPod, SchedulingQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The settings of the loop. Times are seconds; a delay is drawn from its range with the seed.

    ``queueing_hints``: as kube-scheduler from 1.32. Without them a nomination by another component requeues no pod.
    """

    percentage_of_nodes_to_score: int = 0
    bind_delay: tuple[float, float] = (0.0, 0.0)
    cache_delay: float = 0.0
    backoff: tuple[float, float] = (FIRST_BACKOFF, LONGEST_BACKOFF)
    scheduler_name: str = "default-scheduler"
    queueing_hints: bool = True
    seed: int = 0


class AfterFilter(Protocol):
    """The PostFilter step: what to do with a pod that no node fits."""

    async def __call__(self, pod: JsonObject, rejections: dict[str, NodeRejection]) -> str | None:
        """The node to nominate; empty to clear the nomination, None to leave it as it is."""


async def no_preemption(pod: JsonObject, rejections: dict[str, NodeRejection]) -> str | None:
    """Without preemption: keeps a nomination while the rejection of its node is resolvable, else clears it."""
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    if not nominated:
        return None
    rejection = rejections.get(nominated)
    return None if rejection is not None and rejection.code == UNSCHEDULABLE else ""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of a run. Several loops on one cluster share it.

    ``messages``: the message of the last rejection of each pending pod, by UID.
    ``reasons``: rejections by reason; each attempt of a pod counts a reason once.
    ``bound``: the node of each bound pod, by UID.
    """

    journal: Journal
    messages: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    answers: list["FilterCall"] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)


class FitError(Exception):
    """Raised when no node passes: the rejections by node, and the plugins that rejected nodes, with or without a reason."""

    def __init__(self, rejections: dict[str, NodeRejection], plugins: set[str]) -> None:
        super().__init__("no node fits the pod")
        self.rejections = rejections
        self.plugins = plugins


class FilterCall(NamedTuple):
    """One filter call.

    ``seconds``: its duration.
    ``queued``: when the pod became active in the queue, by the monotonic clock.
    ``processor``: the processor time of this thread meanwhile. It excludes the simulated API server, the bindings and reports
    of this scheduler and the steps of the scenario, because a real cluster does this work in other processes.
    """

    namespace: str
    uid: str
    queued: float
    requested: float
    seconds: float
    processor: float


class SchedulingLoop:
    """The loop. Call `start()`, then `settle()` to wait until it is idle, then `stop()`."""

    def __init__(
        self,
        store: Store,
        api_url: str,
        entry: ExtenderEntry | None = None,
        settings: LoopSettings | None = None,
        *,
        after_filter: AfterFilter = no_preemption,
        record: RunRecord | None = None,
    ) -> None:
        """``record``: the record of another loop, which starts and ends it; None for a new one."""
        self.settings = settings or LoopSettings()
        self.cache = SchedulerCache()
        self.queue = SchedulingQueue(*self.settings.backoff, queueing_hints=self.settings.queueing_hints)
        self.record = record or RunRecord(Journal(store))
        self._owns_record = record is None
        self.journal, self.messages, self.bound = self.record.journal, self.record.messages, self.record.bound
        self.reasons, self.answers = self.record.reasons, self.record.answers
        self._store = store
        self._api_url = api_url
        self._entry = entry
        self._after_filter = after_filter
        self._rng = random.Random(self.settings.seed)
        self._wake = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._failed_bindings: set[str] = set()  # UIDs: the API server may carry out a binding whose call failed
        self._tables = [(kind, store.table(kind)) for kind in (NODES, PODS)]
        self._positions = dict.fromkeys((NODES, PODS), 0)
        self._first_node = 0
        self._last_activity = time.monotonic()
        self._is_scheduling = False
        self.is_running = False

    async def start(self) -> None:
        """Reads the present objects and starts to schedule."""
        for kind, table in self._tables:
            for stored in table.latest():
                self._take(kind, ServedChange("ADDED", stored, None, b"", 0.0))
            self._positions[kind] = table.end
        # No await since the objects were read, so no change is missed.
        self._stops = [table.listen(self._wake.set) for _, table in self._tables]
        connector = aiohttp.TCPConnector(limit=0)  # one connection for each binding under way
        self._session = aiohttp.ClientSession(connector=connector)
        self._writer = PodWriter(self._session, self._api_url)
        self._extender = ExtenderClient(self._entry, self._session) if self._entry else None
        self._main = asyncio.create_task(self._run(), name="scheduling loop")
        if self._owns_record:
            self.journal.stalls.start()
        self.is_running = True

    async def stop(self) -> None:
        """Stops the loop and its background tasks. Raises the error that ended it earlier, if there is one."""
        self.is_running = False
        for stop in self._stops:
            stop()
        if self._owns_record:
            self.journal.close()
        for task in (self._main, *self._background):
            task.cancel()
        results = await asyncio.gather(self._main, *self._background, return_exceptions=True)
        await self._session.close()
        # The failures first: because of them the loop itself was only cancelled.
        for result in (*self._failures, *results):
            if isinstance(result, Exception):
                raise result

    @property
    def extender_calls(self) -> int:
        """How many requests were sent to the extender."""
        return self._extender.calls if self._extender else 0

    @property
    def is_busy(self) -> bool:
        """Whether a pod is active, being scheduled or being bound, or a change has not been applied."""
        behind = any(table.end != self._positions[kind] for kind, table in self._tables)
        return self._is_scheduling or not self.queue.is_idle or bool(self._background) or behind

    async def settle(self, *, within: float = 60.0, calm: float = 0.3) -> bool:
        """Waits until the loop has been idle for `calm` seconds. Returns False after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                while self.is_busy or time.monotonic() - self._last_activity < calm:
                    # Raises the error that ended the loop, in place of waiting for the calm of a loop that does
                    # nothing.
                    if self._main.done():
                        await self._main
                    await asyncio.sleep(min(calm / 4, 0.05))
        except TimeoutError:
            return False
        return True

    # -- the loop

    async def _run(self) -> None:
        # One pod at a time, as in kube-scheduler: the decision about a pod is assumed before the next pod is taken. Changes of
        # the store are applied only between two pods, so that a decision sees one state.
        while True:
            # Cleared before the changes are read, so that a change that comes afterwards ends the next sleep at once.
            self._wake.clear()
            due = self._catch_up()
            queued = self.queue.pop(time.monotonic())
            if queued is None:
                await self._sleep_until(due)
                continue
            self._is_scheduling = True
            await self._schedule(queued)
            self._is_scheduling = False
            self._last_activity = time.monotonic()

    async def _sleep_until(self, due: float | None) -> None:
        times = [moment for moment in (due, self.queue.next_due()) if moment is not None]
        delay = max(0.0, min(times) - time.monotonic()) if times else None
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _catch_up(self) -> float | None:
        """Applies all changes that are older than the delay. Returns when the next one will be."""
        horizon = time.monotonic() - self.settings.cache_delay
        next_due: float | None = None
        for kind, table in self._tables:
            changes = table.since(self._positions[kind])
            if changes is None:
                raise RuntimeError(f"{kind.plural}: the history is too short for this loop; raise apiServer.history")
            for change in changes:
                # Each kind has a watch of its own: a young change delays the later ones of its kind, not other kinds.
                if change.at > horizon:
                    due = change.at + self.settings.cache_delay
                    next_due = due if next_due is None else min(next_due, due)
                    break
                self._positions[kind] += 1
                self._take(kind, change)
        return next_due

    def _take(self, kind: ServedKind, change: ServedChange) -> None:
        now = self._last_activity = time.monotonic()
        obj = change.stored.read()
        if kind is NODES:
            events = self.cache.apply_node(change, obj)
        else:
            events = self.cache.apply_pod(change, obj)
            self._queue_pod(change, obj, now)
        for event in events:
            self.queue.requeue_on(event, now)

    def _queue_pod(self, change: ServedChange, pod: JsonObject, now: float) -> None:
        # 1. Deleted, bound, finished or terminating: the pod leaves the queue. If the call of its binding had failed and the
        #    pod is on a node now, the API server carried out the binding all the same.
        # 2. Pending, of this scheduler and not assumed: queued. An assumed pod must not come back before its binding ends.
        uid = uid_of(pod)
        is_ours = pod["spec"].get("schedulerName", self.settings.scheduler_name) == self.settings.scheduler_name
        if change.type == DELETED or node_of(pod) or is_finished(pod) or is_terminating(pod):
            self.queue.remove(uid)
            self.messages.pop(uid, None)
            if uid in self._failed_bindings:
                self._failed_bindings.discard(uid)
                if node_of(pod):
                    self.bound[uid] = node_of(pod)
        elif is_ours and uid not in self.cache.assumed:
            self.queue.put(pod, now)

    # -- one pod

    async def _schedule(self, queued: QueuedPod) -> None:
        requested_at = time.monotonic()
        pod = queued.pod
        # 1. No node passes: the pod waits for an event, and the PostFilter step may preempt. Queued before that step, because
        #    an event may come while the step awaits the extender.
        # 2. The extender failed: the pod waits for its back-off, and its nomination stays.
        # 3. A node was chosen: assumed and bound.
        try:
            node = await self._choose(pod, queued.active_since)
        except FitError as outcome:
            self.queue.reject(queued, outcome.plugins, time.monotonic())
            reasons = {rejection.reason for rejection in outcome.rejections.values()}
            self.reasons.update(reasons)
            self.journal.rejected(requested_at, time.monotonic(), queued.uid, pod, reasons)
            message = summary(len(self.cache.nodes), outcome.rejections)
            nomination = await self._after_filter(pod, outcome.rejections)
            self._report(queued, "Unschedulable", message, nomination)
        except ExtenderError as error:
            self.queue.fail(queued, time.monotonic())
            self._report(queued, "SchedulerError", str(error), None)
        else:
            self._decide(queued, node, requested_at)

    async def _choose(self, pod: JsonObject, since: float) -> str:
        fit = Fit(pod, self.cache)
        nominated = self.cache.nodes.get((pod.get("status") or {}).get("nominatedNodeName") or "")
        # kube-scheduler evaluates the nominated node first, and samples other nodes only if it does not pass.
        if nominated is not None and fit.rejection(nominated) is None:
            passed = await self._ask(pod, since, [nominated], {})
            if passed:
                return passed[0].name
        rejections: dict[str, NodeRejection] = {}
        sample = self._sample(fit, rejections)
        passed = await self._ask(pod, since, sample, rejections)
        if not passed:
            # An extender may drop a node without a reason, so it counts as a rejecting plugin if it was called at all.
            plugins = {rejection.plugin for rejection in rejections.values()}
            raise FitError(rejections, plugins | ({EXTENDER} if sample else set()))
        return await self._best(pod, fit, passed)

    def _sample(self, fit: Fit, rejections: dict[str, NodeRejection]) -> list[CachedNode]:
        """The first passing nodes, until there are enough. The search starts where the search for the last pod ended."""
        order = self.cache.ordered()
        wanted = nodes_to_find(self.settings.percentage_of_nodes_to_score, len(order))
        passed: list[CachedNode] = []
        seen = 0
        for number in range(len(order)):
            if len(passed) >= wanted:
                break
            seen += 1
            state = order[(self._first_node + number) % len(order)]
            rejection = fit.rejection(state)
            if rejection is None:
                passed.append(state)
            else:
                rejections[state.name] = rejection
        self._first_node = (self._first_node + seen) % max(1, len(order))
        return passed

    async def _ask(
        self, pod: JsonObject, since: float, nodes: list[CachedNode], rejections: dict[str, NodeRejection]
    ) -> list[CachedNode]:
        if not nodes or self._extender is None:
            return nodes
        # The API server runs in this thread as well; its share is subtracted at both ends.
        begun, worked = time.monotonic(), time.thread_time() - self._store.other_work.seconds
        try:
            answer = await self._extender.filter(pod, nodes)
        except ExtenderError:
            if self._extender.entry.ignorable:
                return nodes
            raise
        finally:
            seconds, processor = time.monotonic() - begun, time.thread_time() - self._store.other_work.seconds - worked
            self.answers.append(FilterCall(namespace_of(pod), uid_of(pod), since, begun, seconds, processor))
        rejections.update(answer.rejections)
        return answer.passed

    async def _best(self, pod: JsonObject, fit: Fit, passed: list[CachedNode]) -> str:
        if len(passed) == 1:
            return passed[0].name
        points = await self._extender.prioritize(pod, passed) if self._extender else {}
        preferred = fit.preferences(passed)
        scores = {
            state.name: fit.score(state) + preferred.get(state.name, 0) + points.get(state.name, 0) for state in passed
        }
        # A random one of the best nodes, as in selectHost; the seed makes it reproducible.
        highest = max(scores.values())
        return self._rng.choice([name for name, score in scores.items() if score == highest])

    # -- bind and report

    def _decide(self, queued: QueuedPod, node: str, requested_at: float) -> None:
        pod = queued.pod
        if queued.uid not in self.queue.pods:  # deleted meanwhile
            return
        # Assumed before the binding starts, so that the next decision counts the pod.
        self.cache.assume(pod, node)
        self.journal.decided(requested_at, time.monotonic(), queued.uid, pod, node)
        self._spawn(self._bind(queued, node, self._rng.uniform(*self.settings.bind_delay)))

    async def _bind(self, queued: QueuedPod, node: str, delay: float) -> None:
        if self._extender and self._extender.entry.bind_verb:
            problem = await self._extender.bind(queued.pod, node)  # the delay is in the API server
        else:
            if delay:
                await asyncio.sleep(delay)
            problem = await self._writer.bind(queued.pod, node)
        # A call that failed may have been carried out: then the pod stays assumed, and the watch will show it bound.
        if not problem or self._stands(queued.uid, queued.pod, node):
            self.bound[queued.uid] = node
            self._failed_bindings.discard(queued.uid)
            self.messages.pop(queued.uid, None)
            return
        # 1. The call failed and the pod is on no node: the pod counts nowhere and waits for its back-off. The loop is
        # woken at the end, because no change of the store may follow.
        # 2. If the API server carries out the binding later, the watch shows it, see `_queue_pod`.
        self._failed_bindings.add(queued.uid)
        self.journal.undone(queued.uid, time.monotonic())
        if queued.uid in self.cache.assumed:
            self.cache.forget(queued.uid)
        self.queue.fail(queued, time.monotonic())
        self._report(queued, "SchedulerError", problem, None)
        self._wake.set()

    def _stands(self, uid: str, pod: JsonObject, node: str) -> bool:
        """Whether the pod is bound although the call failed, because its answer was lost. kube-scheduler learns it by its watch."""
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        stored = self._store.table(PODS).objects.get(key)
        return stored is not None and stored.node == node and uid_of(stored.read()) == uid

    def _report(self, queued: QueuedPod, reason: str, message: str, nomination: str | None) -> None:
        if queued.uid not in self.queue.pods:
            return
        self.messages[queued.uid] = message
        if nomination is not None:
            # At once and not by the watch: the next decision must already keep the node free for this pod.
            self.cache.nominate(queued.uid, nomination, claim_of(queued.pod))
        patch = self._writer.rejection_patch(queued.pod, reason, message, nomination)
        if patch is not None:
            self._spawn(self._writer.patch_status(queued.pod, patch))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._store.other_work.of(work))
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        self._last_activity = time.monotonic()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug in a background task must fail the run, not only this pod.
            self._failures.append(error)
            self._main.cancel()


TARGET, REASON = "DisruptionTarget", "PreemptionByScheduler"
_CREATED = 201


class PodWriter:
    """Binds pods and writes their conditions and nominations."""

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api_url = api_url

    async def bind(self, pod: JsonObject, node: str) -> str:
        """Posts a binding with the pod's UID. Returns the error, empty on success."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "target": {"kind": "Node", "name": node},
        }
        try:
            url = f"{self._url(pod)}/binding"
            headers = {"Content-Type": "application/json"}
            async with self._session.post(url, data=orjson.dumps(binding), headers=headers) as response:
                answer = await response.read()
                return "" if response.status == _CREATED else f"binding rejected: {answer.decode(errors='replace')}"
        except aiohttp.ClientError as error:
            return f"binding rejected: {error}"

    async def patch_status(self, pod: JsonObject, patch: JsonObject) -> None:
        """Patches the pod's status. Ignores failures, as the next attempt writes it again."""
        url, headers = f"{self._url(pod)}/status", {"Content-Type": STRATEGIC}
        try:
            async with self._session.patch(url, data=orjson.dumps(patch), headers=headers) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    @staticmethod
    def rejection_patch(pod: JsonObject, reason: str, message: str, nomination: str | None) -> JsonObject | None:
        """The patch with condition and nomination of a rejected pod; None if the pod has them already."""
        old = condition_of(pod, "PodScheduled") or {}
        status: JsonObject = {}
        said = (old.get("status"), old.get("reason"), old.get("message"))
        if said != ("False", reason, message):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "observedGeneration": pod["metadata"].get("generation", 1),
                "lastProbeTime": None,
                # It changes with the status, not with the reason.
                "lastTransitionTime": old.get("lastTransitionTime") if said[0] == "False" else timestamp(),
                "reason": reason,
                "message": message,
            }
            status["conditions"] = [condition]
        current = (pod.get("status") or {}).get("nominatedNodeName") or ""
        if nomination is not None and nomination != current:
            # null removes the field.
            status["nominatedNodeName"] = nomination or None
        if not status:
            return None
        # The UID is a precondition: a new pod of this name must not get the condition.
        return {"metadata": {"uid": uid_of(pod)}, "status": status}

    def _url(self, pod: JsonObject) -> str:
        return f"{self._api_url}/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"


class VictimWriter:
    """Deletes victims, and clears nominations of pods with lower priority."""

    def __init__(self, session: aiohttp.ClientSession, api_url: str) -> None:
        self._session = session
        self._api_url = api_url

    async def clear_nomination(self, pod: JsonObject) -> None:
        """Clears the nomination of a pod with lower priority."""
        await self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": {"nominatedNodeName": None}})

    async def remove(self, pod: JsonObject) -> None:
        """Sets the condition DisruptionTarget, then deletes the pod."""
        condition = {"type": TARGET, "status": "True", "reason": REASON, "lastTransitionTime": timestamp()}
        await self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [condition]}})
        body = orjson.dumps({"preconditions": {"uid": uid_of(pod)}})
        try:
            async with self._session.delete(
                self._url(pod), data=body, headers={"Content-Type": "application/json"}
            ) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    async def _patch(self, pod: JsonObject, patch: JsonObject) -> None:
        try:
            async with self._session.patch(
                f"{self._url(pod)}/status", data=orjson.dumps(patch), headers={"Content-Type": STRATEGIC}
            ) as response:
                await response.read()
        except aiohttp.ClientError:
            return

    def _url(self, pod: JsonObject) -> str:
        return f"{self._api_url}/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
