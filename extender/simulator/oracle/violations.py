"""Which placements of a run broke a hard constraint: by brute force, in the order of the decisions.

A placement is right if it was right in some state that the API server had during the request or shortly before (`lag`):
the extender cannot know a change that is still on its way, nor a binding that has just failed. Stalls of the event loop
do not count as time. The scheduling loop's own decisions always count, at once and exactly: that is what an extender
has to get right under load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from extender.simulator.apiserver.defaulting import TOPOLOGY_LABELS
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, Kind
from extender.simulator.apiserver.store import DELETED, Change, Stored
from extender.simulator.json_objects import (
    JsonObject,
    is_finished,
    is_terminating,
    labels_of,
    node_of,
    uid_of,
)
from extender.simulator.oracle.brute_force import SUCCESS, Status, check
from extender.simulator.oracle.cluster_state import ClusterState
from extender.simulator.oracle.journal import Decision, Happened, Journal, Undone
from extender.simulator.oracle.terms import AFFINITY, ANTI_AFFINITY, required_pod_terms


class Violation(NamedTuple):
    """A placement that broke a constraint, and which."""

    decision: Decision
    status: Status

    def __str__(self) -> str:
        """One line for a report."""
        return f"decision {self.decision.number}: {self.decision.name} on {self.decision.node}: {self.status.reason}"


def violations(journal: Journal, *, lag: float = 0.25) -> list[Violation]:
    """Every violation of a run, in the order of the decisions. O(pods) for each decision, at worst."""
    replay = Replay(journal)
    found: list[Violation] = []
    recent: list[Happened] = []
    failed: dict[str, tuple[float, Decision]] = {}  # by uid, and when; until the pod is decided on again
    for entry in journal.entries:
        if isinstance(entry, Happened):
            if replay.is_news(entry):
                recent.append(entry)
            replay.apply(entry)
        elif isinstance(entry, Undone):
            undone = replay.undo_decision(entry.uid)
            failed |= {entry.uid: (entry.at, undone)} if undone is not None else {}
        else:
            felt = journal.hold_ups.felt
            since = felt(entry.asked_at) - lag
            recent = [item for item in recent if felt(item.change.at) >= since]
            failed = {uid: each for uid, each in failed.items() if felt(each[0]) >= since and uid != entry.uid}
            status = replay.check(entry, recent, [each for _, each in failed.values()])
            if status != SUCCESS:
                found.append(Violation(entry, status))
            replay.decide(entry)
    return found


class Replay:
    """The state as it was at each point of a journal."""

    def __init__(self, journal: Journal) -> None:
        self.state = ClusterState()
        self._decided: dict[str, Decision] = {}
        for kind, rows in journal.start.items():
            for stored in rows:
                self._show(kind, stored, None)

    def is_news(self, entry: Happened) -> bool:
        """Whether a change can matter to a decision; a pending pod, a status or the binding of a decision cannot."""
        before, after = _before(entry.change), _after(entry.change)
        return self._substance(entry.kind, before) != self._substance(entry.kind, after)

    def apply(self, entry: Happened) -> None:
        """Take a change in."""
        self._show(entry.kind, _after(entry.change), _before(entry.change))

    def take_back(self, entry: Happened) -> None:
        """Show the state as it was before a change."""
        self._show(entry.kind, _before(entry.change), _after(entry.change))

    def decide(self, decision: Decision) -> None:
        """Count a pod where the loop has put it."""
        self._decided[decision.uid] = decision
        self.state.place(decision.uid, decision.pod, decision.node)

    def undo_decision(self, uid: str) -> Decision | None:
        """Stop counting a pod whose binding failed."""
        decision = self._decided.pop(uid, None)
        if decision is not None:
            self.state.remove(uid)
        return decision

    def check(self, decision: Decision, recent: list[Happened], failed: list[Decision]) -> Status:
        """What is wrong with a placement now; nothing if it was right by a state that could still be believed in."""
        status = self._check(decision)
        if status == SUCCESS:
            return status
        windows = [[entry for entry in recent if entry.kind is kind] for kind in (NAMESPACES, NODES, PODS)]
        for believed in self._believable(decision, failed):
            with self._standing(believed):
                if self._was_right(decision, windows):
                    return SUCCESS
        return status

    def _believable(self, decision: Decision, failed: list[Decision]) -> Iterator[list[Decision]]:
        """Sets of pods that failed just now and may be thought to stand where they were put.

        The extender learns of a failure by the pod's condition or by the next request for the pod, so any set is
        possible. Right by one of them is right by none, by all, or by those in the same or in other domains.
        """
        yield []
        if not failed:
            return
        yield failed
        for key in _keys(decision.pod):
            here = self._domain(decision.node, key)
            yield [each for each in failed if self._domain(each.node, key) == here]
            yield [each for each in failed if self._domain(each.node, key) != here]

    def _domain(self, node: str, key: str) -> str | None:
        return self.state.domain(node, key) if node in self.state.nodes else None

    @contextmanager
    def _standing(self, believed: list[Decision]) -> Iterator[None]:
        for each in believed:
            self.state.place(each.uid, each.pod, each.node)
        try:
            yield
        finally:
            for each in believed:
                self.state.remove(each.uid)

    def _was_right(self, decision: Decision, windows: list[list[Happened]]) -> bool:
        """Whether the placement is right without the newest changes of each kind; kinds arrive independently."""
        if not windows:
            return self._check(decision) == SUCCESS
        first, *rest = windows
        taken_back: list[Happened] = []
        is_right = self._was_right(decision, rest)
        for entry in reversed(first):
            if is_right:
                break
            self.take_back(entry)
            taken_back.append(entry)
            is_right = self._was_right(decision, rest)
        for entry in reversed(taken_back):
            self.apply(entry)
        return is_right

    def _substance(self, kind: Kind, stored: Stored | None) -> object:
        """What the oracle reads of an object; the topology labels that a binding adds to a pod are left out."""
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
        """Where a pod counts: where it is bound, or where the loop has put it; nowhere when it has finished."""
        if is_finished(pod):
            return ""
        decision = self._decided.get(uid_of(pod))
        return node_of(pod) or (decision.node if decision is not None else "")

    def _check(self, decision: Decision) -> Status:
        # A node that went away under the decision breaks no constraint; the pod will be gone with it.
        if decision.node not in self.state.nodes:
            return SUCCESS
        return check(decision.pod, decision.node, self.state)

    def _show(self, kind: Kind, stored: Stored | None, other: Stored | None) -> None:
        if kind is PODS:
            self._show_pod(stored, other)
        elif kind is NODES:
            self._show_node(stored, other)
        elif stored is not None:
            self.state.namespaces[stored.key] = labels_of(stored.read())
        elif other is not None:
            self.state.namespaces.pop(other.key, None)

    def _show_node(self, stored: Stored | None, other: Stored | None) -> None:
        if stored is not None:
            self.state.set_node(stored.read())
        elif other is not None:
            self.state.remove_node(other.key)

    def _show_pod(self, stored: Stored | None, other: Stored | None) -> None:
        if stored is None:
            if other is not None:
                self.state.remove(uid_of(other.read()))
            return
        pod = stored.read()
        node = self._node_of(pod)
        if node:
            self.state.place(uid_of(pod), pod, node)
        else:
            self.state.remove(uid_of(pod))


def _keys(pod: JsonObject) -> set[str]:
    """The topology keys of the constraints that are checked."""
    found = {each["topologyKey"] for each in pod["spec"].get("topologySpreadConstraints") or []}
    for side in (AFFINITY, ANTI_AFFINITY):
        found |= {term["topologyKey"] for term in required_pod_terms(pod, side)}
    return found


def _after(change: Change) -> Stored | None:
    return None if change.type == DELETED else change.stored


def _before(change: Change) -> Stored | None:
    return change.previous
