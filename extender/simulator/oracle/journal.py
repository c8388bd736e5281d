"""The record of a run in its order: the changes of the store and the decisions of the scheduling loop.

A decision is recorded when the loop makes it, because parallel bindings can arrive in another order. Written during the
run, read by `oracle/violations.py` afterwards.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from extender.simulator.apiserver.kinds import (
    GROUP_PLACEMENTS,
    NAMESPACES,
    NODES,
    OWN_POLICY_KINDS,
    PODS,
    RESOURCE_QUOTAS,
    ServedKind,
)
from extender.simulator.apiserver.store import ADDED, ServedChange, Store, Stored
from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.process_usage import LoopStalls

WATCHED = (PODS, NODES, NAMESPACES, RESOURCE_QUOTAS, GROUP_PLACEMENTS)
QUOTA_SCOPE = "CrossNamespacePodAffinity"


class JournalDecision(NamedTuple):
    """A pod that the loop has assumed on a node. Times are of the monotonic clock."""

    number: int
    requested_at: float
    decided_at: float
    uid: str
    pod: JsonObject
    node: str

    @property
    def name(self) -> str:
        """`namespace/name` of the pod."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


class FailedBinding(NamedTuple):
    """A binding whose call failed. The pod does not count from then on, unless the API server carried out the binding.

    `at` is a time of the monotonic clock.
    """

    uid: str
    at: float


class Refusal(NamedTuple):
    """A pod that the extender rejected on every node for a quota. Times are of the monotonic clock."""

    requested_at: float
    decided_at: float
    uid: str
    pod: JsonObject

    @property
    def name(self) -> str:
        """`namespace/name` of the pod."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


class StoreChange(NamedTuple):
    """A change of the store."""

    kind: ServedKind
    change: ServedChange


Entry: TypeAlias = JournalDecision | FailedBinding | Refusal | StoreChange


class Journal:
    """The objects at the start, and the entries since."""

    def __init__(self, store: Store) -> None:
        # A table makes a new list after a change and leaves this one as it is, so the start needs no copy.
        self.start: dict[ServedKind, Sequence[Stored]] = {kind: store.table(kind).latest() for kind in WATCHED}
        self.policies = [
            {**stored.read(), "kind": kind.kind} for kind in OWN_POLICY_KINDS for stored in store.table(kind).latest()
        ]
        self.entries: list[Entry] = []
        self.decisions = 0
        self.stalls = LoopStalls()
        self._stops = [store.table(kind).listen(self._note(store, kind)) for kind in WATCHED]

    def decided(self, requested_at: float, decided_at: float, uid: str, pod: JsonObject, node: str) -> JournalDecision:
        """Records a decision and numbers it."""
        self.decisions += 1
        decision = JournalDecision(self.decisions, requested_at, decided_at, uid, pod, node)
        self.entries.append(decision)
        return decision

    def rejected(
        self, requested_at: float, decided_at: float, uid: str, pod: JsonObject, reasons: Iterable[str]
    ) -> None:
        """Records that a pod was rejected, if the text of a reason names the scope of a quota."""
        if any(QUOTA_SCOPE in reason for reason in reasons):
            self.entries.append(Refusal(requested_at, decided_at, uid, pod))

    def undone(self, uid: str, at: float) -> None:
        """Records that the call that binds the pod of a decision failed."""
        self.entries.append(FailedBinding(uid, at))

    def rate(self) -> float:
        """Decisions per second from the first request to the last decision; 0 without a decision."""
        taken = [entry for entry in self.entries if isinstance(entry, JournalDecision)]
        if not taken:
            return 0.0
        return len(taken) / max(taken[-1].decided_at - taken[0].requested_at, 1e-9)

    def bound_per_second(self) -> float:
        """Pods bound per second from the first arrival to the last binding; 0 without a binding."""
        changes = [entry.change for entry in self.entries if isinstance(entry, StoreChange) and entry.kind is PODS]
        bound = [change.at for change in changes if change.stored.node and change.previous and not change.previous.node]
        arrived = next((change.at for change in changes if change.type == ADDED), 0.0)
        return len(bound) / max(bound[-1] - arrived, 1e-9) if bound else 0.0

    def waits(self) -> Iterator[tuple[str, float]]:
        """Of each pod that was bound, its namespace and the seconds from its creation to its binding."""
        arrived: dict[str, float] = {}
        for entry in self.entries:
            if isinstance(entry, StoreChange) and entry.kind is PODS:
                change, name = entry.change, entry.change.stored.key
                if change.type == ADDED:
                    arrived[name] = change.at
                elif change.stored.node and name in arrived:
                    # Removed, so that a later change of the bound pod does not count again.
                    yield name.partition("/")[0], change.at - arrived.pop(name)

    def to_place(self) -> set[str]:
        """The UIDs of all pods that had no node at first."""
        start = [stored for stored in self.start[PODS] if not stored.node]
        changes = [entry.change for entry in self.entries if isinstance(entry, StoreChange) and entry.kind is PODS]
        arrived = [change.stored for change in changes if change.type == ADDED and not change.stored.node]
        return {uid_of(stored.read()) for stored in (*start, *arrived)}

    def judged(self) -> list[Entry]:
        """The entries without false failures: bindings that the API server carried out although their calls failed. O(entries).

        A failure is false if the store shows the pod on the node of its decision before the next decision for the pod. Such a
        pod counts all the time.
        """
        made: set[int] = set()
        nodes: dict[str, str] = {}
        failed: dict[str, int] = {}  # by UID, the index of the last failure
        for number, entry in enumerate(self.entries):
            if isinstance(entry, JournalDecision):
                nodes[entry.uid] = entry.node
                # A new decision means that the loop had given up the earlier one: that failure was real.
                failed.pop(entry.uid, None)
            elif isinstance(entry, FailedBinding):
                failed[entry.uid] = number
            elif failed and isinstance(entry, StoreChange) and entry.kind is PODS and entry.change.stored.node:
                uid = uid_of(entry.change.stored.read())
                if uid in failed and entry.change.stored.node == nodes.get(uid):
                    made.add(failed.pop(uid))
        return [entry for number, entry in enumerate(self.entries) if number not in made]

    def close(self) -> None:
        """Stops recording."""
        self.stalls.stop()
        for stop in self._stops:
            stop()
        self._stops.clear()

    def _note(self, store: Store, kind: ServedKind) -> Callable[[], None]:
        table = store.table(kind)
        # Called once for each change, right after the table has appended it.
        return lambda: self.entries.append(StoreChange(kind, table.changes[-1]))
