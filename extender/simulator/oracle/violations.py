"""Finds the placements of a run that violate a hard constraint, by brute force in the order of the decisions.

1. A placement is valid if it was valid in a state that the API server had during the request or at most `lag` before it. The
   extender cannot know later changes.
2. The extender learns of a failed binding by the condition that the scheduler writes. If that write fails too, it learns by the
   next request for the pod, or doubts the binding after a time.
3. Stalls of the event loop do not count as time.
4. All earlier decisions of the scheduling loop count: the extender must know them before their bindings.

With several loops:

1. Room on nodes is judged too, and no pod may wait at the end while a node would take it.
2. Answers to two loops may arrive in another order than they were decided in. So a decision that was recorded later and overlaps
   in time may have counted. This never excuses a node that is too full.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Final, NamedTuple

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, ServedKind
from extender.simulator.apiserver.store import DELETED, ServedChange, Stored
from extender.simulator.json_objects import (
    TOPOLOGY_LABELS,
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    labels_of,
    node_of,
    uid_of,
)
from extender.simulator.oracle.brute_force import (
    AFFINITY,
    ANTI_AFFINITY,
    SUCCESS,
    ClusterState,
    Filters,
    PluginStatus,
    matches_node_affinity,
    required_pod_terms,
    tolerates_taints,
)
from extender.simulator.oracle.directed_spread import Outages, directives_of
from extender.simulator.oracle.journal import Entry, FailedBinding, Journal, JournalDecision, Refusal, StoreChange
from extender.simulator.oracle.policies import PolicyOracle
from extender.simulator.oracle.room import room_on

# `check_beside` tries every subset: at most 127.
_MOST_OVERLAPPING: Final = 7
PROGRESS_EVERY: Final = 2000  # decisions; some seconds


class Violation(NamedTuple):
    """A placement and the constraint that it violates, or a refusal without a ground."""

    decision: JournalDecision | Refusal
    status: PluginStatus

    def __str__(self) -> str:
        """One line for a report."""
        if isinstance(self.decision, Refusal):
            return f"refusal: {self.decision.name}: {self.status.reason}"
        return f"decision {self.decision.number}: {self.decision.name} on {self.decision.node}: {self.status.reason}"


def violations(
    journal: Journal,
    *,
    lag: float = 0.25,
    doubt: float = 5.0,
    missed: Collection[str] = (),
    several: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Violation]:
    """Every violation of a run, in the order of the decisions. O(nodes × different labels of pods) per decision.

    ``progress``: called with the number of judged decisions, after each `PROGRESS_EVERY`.
    ``doubt``: seconds until the extender doubts an unconfirmed binding (`assumedPods.doubt`).
    ``missed``: `namespace/name` of the pods for which the admission webhook was not reached.
    ``several``: several loops have placed the pods.
    """
    replay = JournalReplay(journal, missed, several=several)
    violated: list[Violation] = []
    recent: list[StoreChange] = []
    # By UID, until the next decision for the pod: when the extender could know of the failure, and the decision.
    failed: dict[str, tuple[float, JournalDecision]] = {}
    for entry in _counted(journal.judged(), progress):
        if isinstance(entry, Refusal) or (
            isinstance(entry, StoreChange) and entry.kind in {RESOURCE_QUOTAS, GROUP_PLACEMENTS}
        ):
            continue  # judged in `quotas.py` and `gangs.py`
        if isinstance(entry, StoreChange):
            # Each change in this list multiplies the states that `check` may have to try.
            if replay.is_relevant(entry):
                recent.append(entry)
            replay.advance(entry, journal.stalls.without_stalls(entry.change.at))
            if failed and entry.kind is PODS:
                shown = entry.change.stored.read()
                condition = condition_of(shown, "PodScheduled") or {}
                if condition.get("status") == "False" and (uid := uid_of(shown)) in failed:
                    # The condition has reached the API server, so from now on the extender can know of the failure.
                    failed[uid] = min(failed[uid][0], entry.change.at), failed[uid][1]
        elif isinstance(entry, FailedBinding):
            lost = replay.undo_decision(entry.uid)
            failed |= {entry.uid: (entry.at + doubt, lost)} if lost is not None else {}
        else:
            felt = journal.stalls.without_stalls
            since = felt(entry.requested_at) - lag
            # Changes older than the request and the lag had to be known; only newer ones may be missing.
            recent = [item for item in recent if felt(item.change.at) >= since]
            # The request itself tells the extender that the earlier binding of this pod has failed.
            failed = {uid: failure for uid, failure in failed.items() if felt(failure[0]) >= since and uid != entry.uid}
            unbound = [binding for _, binding in failed.values()]
            replay.outages.ask(since, felt(entry.decided_at), entry.decided_at)
            status = replay.check(entry, recent, unbound)
            if status != SUCCESS and several:
                status = replay.check_beside(entry, recent, unbound, _overlapping(entry, journal))
            if status != SUCCESS:
                violated.append(Violation(entry, status))
            replay.decide(entry)
    return [*violated, *replay.waiting_in_vain()] if several else violated


def _counted(entries: Iterable[Entry], progress: Callable[[int], None]) -> Iterator[Entry]:
    """The entries; reports the number of decisions from time to time."""
    decisions = 0
    for entry in entries:
        yield entry
        if isinstance(entry, JournalDecision):
            decisions += 1
            if decisions % PROGRESS_EVERY == 0:
                progress(decisions)


def _overlapping(decision: JournalDecision, journal: Journal) -> list[JournalDecision]:
    """Decisions that were recorded later and whose requests had begun before this one was decided. O(decisions)."""
    taken = (
        entry for entry in journal.entries if isinstance(entry, JournalDecision) and entry.number > decision.number
    )
    return [later for later in taken if later.requested_at <= decision.decided_at][:_MOST_OVERLAPPING]


class JournalReplay:
    """Replays a journal: the state of the cluster at each entry."""

    def __init__(self, journal: Journal, missed: Collection[str] = (), *, several: bool = False) -> None:
        """``several``: room is judged too, as several loops have placed the pods."""
        self.state = ClusterState()
        self._filters: Filters | None = None
        self._judges_room = several
        self._judges_waiting = several and not (journal.policies or journal.start.get(RESOURCE_QUOTAS))
        # By UID, the last decision whose binding failed. If its report was lost, it counts until the next request for the pod.
        self._failed: dict[str, JournalDecision] = {}
        self._deleted: set[str] = set()
        self._policies = PolicyOracle(journal.policies, missed)
        self.outages = Outages(journal.policies)
        self._decided: dict[str, JournalDecision] = {}
        self._pending: dict[str, JsonObject] = {}
        for kind, rows in journal.start.items():
            for stored in rows if kind is not RESOURCE_QUOTAS else ():
                self._show(kind, stored, None)
        # A domain that is lost at the start has been lost for ever: it is excluded without waiting for `after`.
        self.outages.recount(self.state, float("-inf"), float("-inf"))

    def is_relevant(self, entry: StoreChange) -> bool:
        """Whether a change can affect a decision, unlike a pending pod, a status or the binding of a decision."""
        before, after = _before(entry.change), _after(entry.change)
        return self._relevant_fields(entry.kind, before) != self._relevant_fields(entry.kind, after)

    def advance(self, entry: StoreChange, at: float) -> None:
        """Applies the next change of the journal, and notes which domains it makes unavailable from then on."""
        self.apply(entry)
        if entry.kind is NODES:
            self.outages.recount(self.state, at, entry.change.at)

    def apply(self, entry: StoreChange) -> None:
        """Applies a change."""
        if _is_pod_deleted(entry):
            self._deleted.add(uid_of(entry.change.stored.read()))
        self._show(entry.kind, _after(entry.change), _before(entry.change))

    def revert(self, entry: StoreChange) -> None:
        """Restores the state before a change. A pod that is decided counts before its creation too."""
        if _is_pod_deleted(entry):
            self._deleted.discard(uid_of(entry.change.stored.read()))
        self._show(entry.kind, _before(entry.change), _after(entry.change))

    def shown(self, uid: str) -> JsonObject | None:
        """A pod without a node as the state has it; None where it has none."""
        return self._pending.get(uid)

    def is_deleted(self, uid: str) -> bool:
        """Whether the deletion of a pod is applied."""
        return uid in self._deleted

    def decide(self, decision: JournalDecision) -> None:
        """Counts a pod on the node of the decision. A pod that was deleted meanwhile is never bound and does not count."""
        if decision.uid in self._deleted:
            return
        self._decided[decision.uid] = decision
        self._failed.pop(decision.uid, None)
        self.state.place(decision.uid, decision.pod, decision.node)

    def undo_decision(self, uid: str) -> JournalDecision | None:
        """Stops counting a pod whose binding failed."""
        decision = self._decided.pop(uid, None)
        if decision is not None:
            self._failed[uid] = decision
            self.state.remove(uid)
        return decision

    def filters(self, pod: JsonObject) -> Filters:
        """What the plugins compute for a pod, kept until the state changes, or for another pod."""
        kept = self._filters
        if kept is None or kept.pod is not pod or kept.at != self.state.changes:
            directed = directives_of(self._policies.judging(pod, self.state.namespaces))
            spreads = self.outages.spreads(pod, self.state, directed) if directed else None
            kept = self._filters = Filters(pod, self.state, spreads)
        return kept

    def check(
        self, decision: JournalDecision, recent: list[StoreChange], failed: list[JournalDecision]
    ) -> PluginStatus:
        """The violation of a placement; Success if it was valid in a state that the extender could have at that time."""
        # 1. Valid in the present state.
        # 2. Otherwise: valid in an older state that the extender may still have had. Each kind has a watch of its own, so each
        #    combination of cuts through the recent changes of namespaces, nodes and pods is tried, and with each the sets of
        #    pods whose failed binding the extender may not know.
        status = self._check(decision)
        if status == SUCCESS:
            return status
        windows = [[entry for entry in recent if entry.kind is kind] for kind in (NAMESPACES, NODES, PODS)]
        for assumed in self._assumable(decision, failed):
            with self._placed(assumed):
                if self._was_valid(decision, windows):
                    return SUCCESS
        return status

    def check_beside(
        self,
        decision: JournalDecision,
        recent: list[StoreChange],
        failed: list[JournalDecision],
        others: list[JournalDecision],
    ) -> PluginStatus:
        """As `check`, if some of ``others`` may have been decided earlier."""
        for count in range(1, len(others) + 1):
            for chosen in combinations(others, count):
                with self._placed([decided for decided in chosen if decided.uid not in self._decided]):
                    if self.check(decision, recent, failed) == SUCCESS:
                        return SUCCESS
        return self.check(decision, recent, failed)

    def waiting_in_vain(self) -> Iterator[Violation]:
        """The pending pods that a node would take as the cluster is now. O(pending pods × nodes × pods).

        A pod whose binding failed may still be assumed. So a node has to take the pending pod whether the failed one counts or
        not. Nothing is judged if there are policies or quotas, because a pod may wait for these.
        """
        for uid, pod in self._pending.items() if self._judges_waiting else ():
            if pod["spec"].get("schedulingGates"):
                continue
            failed = [
                binding for binding in self._failed.values() if binding.uid != uid and binding.uid in self._pending
            ]
            for name, node in self.state.nodes.items():
                if not (matches_node_affinity(pod, node) and tolerates_taints(pod, node)):
                    continue
                if self.takes(JournalDecision(0, 0.0, 0.0, uid, pod, name), failed):
                    yield Violation(
                        Refusal(0.0, 0.0, uid, pod), PluginStatus("Success", f"waits although {name} takes it")
                    )
                    break

    def takes(self, placement: JournalDecision, failed: list[JournalDecision]) -> bool:
        """Whether a placement is valid, whichever of the failed bindings still count."""
        for assumed in self._assumable(placement, failed):
            with self._placed(assumed):
                if self._check(placement) != SUCCESS:
                    return False
        return True

    def _assumable(self, decision: JournalDecision, failed: list[JournalDecision]) -> Iterator[list[JournalDecision]]:
        """Sets of pods that the extender may still assume although their bindings have just failed.

        The extender learns of a failure by the pod's condition or by the next request for the pod, so every subset is possible.
        It is enough to try: none, all, the pods of the same domain, the pods of all other domains.
        """
        yield []
        if not failed:
            return
        yield failed
        for key in _keys(decision.pod):
            here = self._domain(decision.node, key)
            yield [binding for binding in failed if self._domain(binding.node, key) == here]
            yield [binding for binding in failed if self._domain(binding.node, key) != here]

    def _domain(self, node: str, key: str) -> str | None:
        return self.state.domain(node, key) if node in self.state.nodes else None

    @contextmanager
    def _placed(self, assumed: list[JournalDecision]) -> Iterator[None]:
        for decision in assumed:
            self.state.place(decision.uid, decision.pod, decision.node)
        try:
            yield
        finally:
            for decision in assumed:
                self.state.remove(decision.uid)

    def _was_valid(self, decision: JournalDecision, windows: list[list[StoreChange]]) -> bool:
        """Whether the placement is valid without some of the newest changes of each kind, as each kind has its own watch."""
        if not windows:
            return self._check(decision) == SUCCESS
        # Recursive over the kinds: for each cut of the first kind all cuts of the others. Reverts the newest change first and
        # applies the oldest first, so that the state afterwards is the state before.
        first, *rest = windows
        reverted: list[StoreChange] = []
        is_valid = self._was_valid(decision, rest)
        for entry in reversed(first):
            if is_valid:
                break
            self.revert(entry)
            reverted.append(entry)
            is_valid = self._was_valid(decision, rest)
        for entry in reversed(reverted):
            self.apply(entry)
        return is_valid

    def _relevant_fields(self, kind: ServedKind, stored: Stored | None) -> object:
        """The fields that the oracle reads, without the topology labels that a binding adds to a pod."""
        if stored is None:
            return None
        obj = stored.read()
        labels = labels_of(obj)
        if kind is NAMESPACES:
            return labels
        if kind is NODES:
            return labels, (obj.get("spec") or {}).get("taints")
        node = self._node_of(obj)
        own = {key: value for key, value in labels.items() if key not in TOPOLOGY_LABELS}
        return (node, own, is_terminating(obj)) if node else None

    def _node_of(self, pod: JsonObject) -> str:
        """The node on which a pod counts, by its binding or its decision; empty if it has finished."""
        if is_finished(pod):
            return ""
        decision = self._decided.get(uid_of(pod))
        return node_of(pod) or (decision.node if decision is not None else "")

    def _check(self, decision: JournalDecision) -> PluginStatus:
        # A node that was deleted meanwhile is no violation: its pods will be deleted.
        if decision.node not in self.state.nodes:
            return SUCCESS
        status = self.filters(decision.pod).check(decision.node)
        if status == SUCCESS and self._judges_room:
            status = room_on(decision.pod, decision.node, self.state)
        return self._policies.check(decision.pod, decision.node, self.state) if status == SUCCESS else status

    def _show(self, kind: ServedKind, stored: Stored | None, other: Stored | None) -> None:
        if kind is PODS:
            self._show_pod(stored, other)
        elif kind is NODES:
            self._show_node(stored, other)
        elif kind is not NAMESPACES:
            return
        elif stored is not None:
            self.state.set_namespace(stored.key, labels_of(stored.read()))
        elif other is not None:
            self.state.set_namespace(other.key, None)

    def _show_node(self, stored: Stored | None, other: Stored | None) -> None:
        if stored is not None:
            self.state.set_node(stored.read())
        elif other is not None:
            self.state.remove_node(other.key)

    def _show_pod(self, stored: Stored | None, other: Stored | None) -> None:
        if stored is None:
            if other is not None:
                self._hide_pod(uid_of(other.read()))
            return
        pod = stored.read()
        uid, node = uid_of(pod), self._node_of(pod)
        if node_of(pod) or is_finished(pod) or is_terminating(pod):
            self._pending.pop(uid, None)
        else:
            self._pending[uid] = pod
        if node:
            self.state.place(uid, pod, node)
        else:
            self.state.remove(uid)

    def _hide_pod(self, uid: str) -> None:
        """The pod is deleted, or its creation is reverted."""
        self._pending.pop(uid, None)
        decision = self._decided.get(uid)
        if decision is None or uid in self._deleted:
            self.state.remove(uid)
        else:
            self.state.place(uid, decision.pod, decision.node)


def _keys(pod: JsonObject) -> set[str]:
    """The topology keys of the pod's hard constraints."""
    keys = {constraint["topologyKey"] for constraint in pod["spec"].get("topologySpreadConstraints") or []}
    for side in (AFFINITY, ANTI_AFFINITY):
        keys |= {term["topologyKey"] for term in required_pod_terms(pod, side)}
    return keys


def _is_pod_deleted(entry: StoreChange) -> bool:
    return entry.kind is PODS and entry.change.type == DELETED


def _after(change: ServedChange) -> Stored | None:
    return None if change.type == DELETED else change.stored


def _before(change: ServedChange) -> Stored | None:
    return change.previous
