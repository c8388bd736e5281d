"""Judges each decision by brute force, in the state of the cluster that the service has handled by then.

The state is that of the oracle's replay, moved on to where the reader of the service's streams says that it is. An answer may
also use newer events, of which a part is handled. It is about the pod as the watch shows it: a request whose pod has other labels
waits for the watch, and is then decided by what that shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, ServedKind
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.oracle.brute_force import SUCCESS
from extender.simulator.oracle.journal import Journal, JournalDecision, StoreChange
from extender.simulator.oracle.violations import JournalReplay, Violation

_KINDS: Final = (NAMESPACES, NODES, PODS)


class Judge:
    """The judge of one service, from a moment on at which the service knows everything."""

    def __init__(self, store: Store, handled: Mapping[ServedKind, int]) -> None:
        """``handled``: by kind, the position in its table up to which the service has handled events."""
        journal = Journal(store)
        journal.close()
        self.replay = JournalReplay(journal)
        self.applied = 0  # changes
        self._store = store
        self._handled = handled
        self._at = {kind: store.table(kind).end for kind in _KINDS}
        self._failed: dict[str, JournalDecision] = {}
        self._number = 0

    def catch_up(self) -> None:
        """Moves on to what the service has handled by now. O(changes)."""
        for kind in _KINDS:
            for entry in self._after(kind, self._handled.get(kind, 0)):
                self.replay.apply(entry)
                self.applied += 1
                if kind is PODS:
                    self._note_failed(entry.change.stored.key)
            self._at[kind] = max(self._at[kind], self._handled.get(kind, 0))

    def _note_failed(self, key: str) -> None:
        """A pod whose binding failed may count as the watch shows it, until it is bound or deleted."""
        decision = self._failed.pop(key, None)
        shown = None if decision is None else self.replay.shown(decision.uid)
        if decision is not None and shown is not None:
            self._failed[key] = decision._replace(pod=shown)

    def decided(self, pod: JsonObject, node: str) -> Violation | None:
        """Counts a pod on its node, and returns what is wrong with that. Call `catch_up` before."""
        self._number += 1
        decision = self._decision(pod, node)
        self._failed.pop(decision.name, None)
        status = self.replay.check(decision, [], list(self._failed.values()))
        if status != SUCCESS:
            newer = []
            for entry in (each for kind in _KINDS for each in self._after(kind, self._store.table(kind).end)):
                is_the_pod = entry.kind is PODS and entry.change.stored.key == decision.name
                if is_the_pod or self.replay.is_relevant(entry):
                    self.replay.apply(entry)
                    newer.append(entry)
            for each in (decision, self._decision(pod, node)):
                if status != SUCCESS:
                    status = self.replay.check(each, newer, list(self._failed.values()))
            for entry in reversed(newer):
                self.replay.revert(entry)
        self.replay.decide(decision)
        return None if status == SUCCESS else Violation(decision, status)

    def _decision(self, pod: JsonObject, node: str) -> JournalDecision:
        """About the pod as the state has it, or as it was sent where the state has none."""
        uid = uid_of(pod)
        return JournalDecision(self._number, 0.0, 0.0, uid, self.replay.shown(uid) or pod, node)

    def undone(self, uid: str) -> None:
        """The binding of a decision failed. Until it is asked about again, the service may count the pod or not."""
        decision = self.replay.undo_decision(uid)
        if decision is not None and not self.replay.is_deleted(uid):
            self._failed[decision.name] = decision._replace(pod=self.replay.shown(uid) or decision.pod)

    def rejected(self, name: str) -> None:
        """The service has rejected a pod, `namespace/name`, and counts it no more."""
        self._failed.pop(name, None)

    def placed(self) -> dict[str, str]:
        """The node of each pod that counts, by UID. O(pods)."""
        return {uid_of(each.pod): each.node for each in self.replay.state.pods()}

    @property
    def is_current(self) -> bool:
        """Whether all events are handled."""
        return all(self._at[kind] == self._store.table(kind).end for kind in _KINDS)

    def feasible(self, pod: JsonObject, names: Sequence[str]) -> list[str]:
        """The nodes that affinity and spread let the pod go to. O(pods + nodes)."""
        nodes, filters = self.replay.state.nodes, self.replay.filters(pod)
        return [name for name in names if name in nodes and filters.check(name) == SUCCESS]

    def would_take(self, pod: JsonObject, names: Sequence[str]) -> str:
        """The first of these nodes that takes the pod, whichever of the failed bindings count; empty if none does."""
        failed = list(self._failed.values())
        for name in self.feasible(pod, names):
            if self.replay.takes(JournalDecision(0, 0.0, 0.0, pod["metadata"]["uid"], pod, name), failed):
                return name
        return ""

    def _after(self, kind: ServedKind, end: int) -> list[StoreChange]:
        """The changes from where the replay is up to a position."""
        changes = self._store.table(kind).since(self._at[kind])
        if changes is None:
            raise RuntimeError(f"{kind.plural}: the service is further behind than the history")
        return [StoreChange(kind, change) for change in changes[: max(0, end - self._at[kind])]]
