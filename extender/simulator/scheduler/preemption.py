"""The preemption of the scheduling loop: a small version of kube-scheduler's DefaultPreemption, for resources only.

1. It finds candidate nodes by dry run.
2. It sends them to the extender (preempt verb). As in kube-scheduler the attempt fails if the answer names a victim that is
   not on that node, or a candidate without victims.
3. It selects a candidate and deletes the victims, within the scheduling cycle or asynchronously (SchedulerAsyncPreemption).

A node that only the extender rejects is a candidate without victims. It fails the attempt too. With ``sends_empty_candidates``
(kubernetes#135486) it is sent to the extender, which may find victims; without victims it is dropped. Created by
`scenario/simulated_cluster.py`.
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

import asyncio
import random
from collections.abc import Coroutine, Iterable
from datetime import datetime
from typing import Any

import aiohttp

from extender.model.preemption import Candidate, Victim, best_candidates
from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.operations import disruptions_allowed, matching_budgets
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, condition_of, is_terminating, name_of, uid_of
from extender.simulator.scheduler.cache import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    CachedNode,
    Fit,
    NodeRejection,
    SchedulerCache,
)
from extender.simulator.scheduler.extender_client import ExtenderClient, ExtenderEntry, ExtenderError
from extender.simulator.scheduler.loop import REASON, TARGET, VictimWriter

_LEAST_PERCENT, _LEAST_NODES = 10, 100


class PostFilter:
    """The PostFilter step with preemption. Call `attach` with the loop's cache, and `close` with the loop."""

    def __init__(
        self,
        store: Store,
        api_url: str,
        entry: ExtenderEntry | None,
        *,
        is_async: bool = True,
        sends_empty_candidates: bool = False,
        seed: int = 0,
    ) -> None:
        self.attempts = 0
        self.failures: list[str] = []  # errors of attempts, which kube-scheduler would log
        self._store = store
        self._api_url = api_url
        self._entry = entry
        self._is_async = is_async
        self._offers_bare = sends_empty_candidates
        self._rng = random.Random(seed)
        self._preempting: set[str] = set()
        self._allowed: dict[str, int] = {}  # disruptions by budget, counted once per attempt
        self._background: set[asyncio.Task[None]] = set()
        self._cache = SchedulerCache()
        self._session: aiohttp.ClientSession | None = None

    def attach(self, cache: SchedulerCache) -> None:
        """Uses the loop's cache."""
        self._cache = cache

    async def close(self) -> None:
        """Cancels the background tasks."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def __call__(self, pod: JsonObject, rejections: dict[str, NodeRejection]) -> str | None:
        """The node to nominate; empty to clear the nomination, None to leave it as it is."""
        nodes = self._pods_by_node()
        self._allowed.clear()
        if not self._is_eligible(pod, rejections, nodes):
            return None
        # Removing pods does not help on a node with an unresolvable rejection.
        potential = [name for name, rejection in rejections.items() if rejection.code == UNSCHEDULABLE]
        candidates = self._candidates(
            pod, [self._cache.nodes[name] for name in potential if name in self._cache.nodes], nodes
        )
        if not candidates:
            return ""
        self.attempts += 1
        try:
            allowed = await self._reviewed(pod, candidates, nodes)
        except ExtenderError as error:
            self.failures.append(str(error))
            return None
        best = best_candidates(allowed)
        return await self._act(pod, self._rng.choice(best), nodes) if best else None

    # -- choosing

    def _pods_by_node(self) -> dict[str, list[JsonObject]]:
        """By node: the pods that both the store and the cache have there, parsed lazily (`_NodePods`)."""
        pods: dict[str, list[Any]] = {}
        for stored in self._store.table(PODS).latest():
            if stored.node:
                pods.setdefault(stored.node, []).append(stored)
        return _NodePods(pods, self._cache)

    def _is_eligible(
        self, pod: JsonObject, rejections: dict[str, NodeRejection], nodes: dict[str, list[JsonObject]]
    ) -> bool:
        if pod["spec"].get("preemptionPolicy") == "Never" or uid_of(pod) in self._preempting:
            return False
        node = (pod.get("status") or {}).get("nominatedNodeName")
        rejection = rejections.get(node or "")
        if not node or rejection is None or rejection.code == UNRESOLVABLE:
            return True
        # While victims of this pod's earlier preemption terminate, another preemption would delete more than needed.
        return not any(_is_victim(other) and _priority(other) < _priority(pod) for other in nodes.get(node, []))

    def _candidates(
        self, pod: JsonObject, states: list[CachedNode], nodes: dict[str, list[JsonObject]]
    ) -> list[tuple[Candidate, list[JsonObject]]]:
        # As calculateNumCandidates of kube-scheduler, with a random start so that not the same nodes are always tried.
        wanted = max(len(states) * _LEAST_PERCENT // 100, _LEAST_NODES)
        turn = self._rng.randrange(len(states)) if states else 0
        fit = Fit(pod, self._cache)
        candidates: list[tuple[Candidate, list[JsonObject]]] = []
        for state in states[turn:] + states[:turn]:
            lower = [other for other in nodes.get(state.name, []) if _priority(other) < _priority(pod)]
            dry = self._dry_run(fit, state, lower) if lower else None
            if dry is not None:
                candidates.append(dry)
            if len(candidates) >= wanted:
                break
        return candidates

    def _dry_run(
        self, fit: Fit, state: CachedNode, lower: list[JsonObject]
    ) -> tuple[Candidate, list[JsonObject]] | None:
        """The victims on one node, most important first; None if the pod does not fit even without all of them."""
        # The dry run changes the cache itself, and restores it before it returns. No await lies between, so no
        # decision sees it.
        claims = {uid_of(victim): state.claims[uid_of(victim)] for victim in lower}
        for uid in claims:
            state.release(uid)
        victims: list[JsonObject] = []
        fits = fit.rejection(state) is None
        lower.sort(key=_importance)
        violating = self._violating(lower) if fits else set()
        # Pods whose budget would be violated are reprieved first, and within each group the most important ones.
        for victim in sorted(lower, key=lambda victim: uid_of(victim) not in violating):
            state.claim(uid_of(victim), claims[uid_of(victim)])
            if fits and fit.rejection(state) is not None:
                state.release(uid_of(victim))
                victims.append(victim)
        for victim in victims:
            state.claim(uid_of(victim), claims[uid_of(victim)])
        if not fits:
            return None
        victims.sort(key=_importance)
        broken = sum(uid_of(victim) in violating for victim in victims)
        return Candidate(state.name, tuple(map(_victim, victims)), broken), victims

    def _violating(self, pods: Iterable[JsonObject]) -> set[str]:
        # Counted down anew for each node, because only one of the dry runs will come true.
        left: dict[str, int] = {}
        violating: set[str] = set()
        for pod in pods:
            for budget in matching_budgets(self._store, pod):
                key = uid_of(budget)
                if key not in self._allowed:
                    self._allowed[key] = disruptions_allowed(self._store, budget)
                left[key] = left.get(key, self._allowed[key]) - 1
                if left[key] < 0:
                    violating.add(uid_of(pod))
        return violating

    async def _reviewed(
        self, pod: JsonObject, candidates: list[tuple[Candidate, list[JsonObject]]], nodes: dict[str, list[JsonObject]]
    ) -> list[Candidate]:
        """The candidates that remain after the extender's preempt verb. Raises ExtenderError."""
        bare = {candidate.node for candidate, _ in candidates if not candidate.victims}
        given = [candidate for candidate, _ in candidates if candidate.victims or self._offers_bare]
        if bare and not given:
            raise ExtenderError(f"expected at least one victim pod on node {min(bare)}")
        if self._entry is None or not self._entry.preempt_verb:
            return given
        offered = {candidate.node for candidate in given}
        answer = await ExtenderClient(self._entry, self._http()).preempt(pod, given)
        reviewed = []
        for node, (uids, violations) in answer.items():
            known = {uid_of(victim): victim for victim in nodes.get(node, ())} if node in offered else {}
            if not set(uids) <= set(known) or not (uids or node in bare):
                raise ExtenderError(f"the extender answered victims on node {node} that are not there: {uids}")
            if uids:
                reviewed.append(Candidate(node, tuple(_victim(known[uid]) for uid in uids), violations))
        return reviewed

    # -- acting

    async def _act(self, pod: JsonObject, chosen: Candidate, nodes: dict[str, list[JsonObject]]) -> str | None:
        uids = {victim.uid for victim in chosen.victims}
        victims = [victim for victim in nodes[chosen.node] if uid_of(victim) in uids]
        work = self._remove(pod, chosen.node, victims)
        if self._is_async:
            self._spawn(work)
        else:
            await work
        return chosen.node

    async def _remove(self, pod: JsonObject, node: str, victims: list[JsonObject]) -> None:
        writer = VictimWriter(self._http(), self._api_url)
        # Until the deletions are sent the pod may be tried again, and must not choose more victims.
        self._preempting.add(uid_of(pod))
        try:
            lower = [
                uid for uid, claim in self._cache.nominated.get(node, {}).items() if claim.priority < _priority(pod)
            ]
            pending = [stored.read() for stored in self._store.table(PODS).latest() if not stored.node]
            await asyncio.gather(*(writer.clear_nomination(other) for other in pending if uid_of(other) in lower))
            await asyncio.gather(*(writer.remove(victim) for victim in victims if not is_terminating(victim)))
        finally:
            self._preempting.discard(uid_of(pod))

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _NodePods(dict[str, list[JsonObject]]):
    """The pods by node, parsed at the first access, as a dry run needs few of the nodes."""

    def __init__(self, stored: dict[str, list[Any]], cache: SchedulerCache) -> None:
        super().__init__()
        self._stored = stored
        self._cache = cache

    def get(self, node: str, default: Any = None) -> Any:
        """Like `dict.get`; parses the pods of the node."""
        return self[node] if node in self._stored else default

    def __missing__(self, node: str) -> list[JsonObject]:
        state = self._cache.nodes.get(node)
        claims = state.claims if state is not None else {}
        pods = [stored.read() for stored in self._stored.get(node, [])]
        counted = self[node] = [pod for pod in pods if uid_of(pod) in claims]
        return counted


def _priority(pod: JsonObject) -> int:
    return int(pod["spec"].get("priority") or 0)


def _start(pod: JsonObject) -> str:
    # A pod that has not started counts as the youngest.
    return str((pod.get("status") or {}).get("startTime") or "9999")


def _importance(pod: JsonObject) -> tuple[int, str, str]:
    """A sort key that puts the most important pod first: by priority, then by start time."""
    return (-_priority(pod), _start(pod), name_of(pod))


def _victim(pod: JsonObject) -> Victim:
    started = (pod.get("status") or {}).get("startTime")
    return Victim(uid_of(pod), _priority(pod), datetime.fromisoformat(started) if started else None)


def _is_victim(pod: JsonObject) -> bool:
    condition = condition_of(pod, TARGET)
    return is_terminating(pod) and condition is not None and condition.get("reason") == REASON
