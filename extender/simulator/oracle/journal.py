"""What happened in a run, in true order: every change that the store saw, and every decision of the scheduling loop.

A decision stands where the loop took it, not where its binding arrived: parallel binds overtake each other. Written
during the run, read by `oracle/violations.py` afterwards.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, Kind
from extender.simulator.apiserver.store import ADDED, Change, Store, Stored
from extender.simulator.clocks import HoldUps
from extender.simulator.json_objects import JsonObject

WATCHED = (PODS, NODES, NAMESPACES)


class Decision(NamedTuple):
    """A pod that the loop has put on a node; times are the monotonic clock's."""

    number: int
    asked_at: float
    decided_at: float
    uid: str
    pod: JsonObject
    node: str

    @property
    def name(self) -> str:
        """`namespace/name` of the pod."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


class Undone(NamedTuple):
    """A decision whose binding failed: from here on the pod does not count; `at` is the monotonic clock's."""

    uid: str
    at: float


class Happened(NamedTuple):
    """A change in the store."""

    kind: Kind
    change: Change


Entry: TypeAlias = Decision | Undone | Happened


class Journal:
    """The cluster as it was at the start, and what happened since."""

    def __init__(self, store: Store) -> None:
        self.start: dict[Kind, list[Stored]] = {kind: store.table(kind).latest() for kind in WATCHED}
        self.entries: list[Entry] = []
        self.decisions = 0
        self.hold_ups = HoldUps()
        self._stops = [store.table(kind).listen(self._note(store, kind)) for kind in WATCHED]

    def decided(self, asked_at: float, decided_at: float, uid: str, pod: JsonObject, node: str) -> Decision:
        """Note a decision and give it its number."""
        self.decisions += 1
        decision = Decision(self.decisions, asked_at, decided_at, uid, pod, node)
        self.entries.append(decision)
        return decision

    def undone(self, uid: str, at: float) -> None:
        """Note that a decision came to nothing."""
        self.entries.append(Undone(uid, at))

    def rate(self) -> float:
        """Decisions per second between the first question and the last decision; 0 without a decision."""
        taken = [entry for entry in self.entries if isinstance(entry, Decision)]
        if not taken:
            return 0.0
        return len(taken) / max(taken[-1].decided_at - taken[0].asked_at, 1e-9)

    def bound_per_second(self) -> float:
        """Pods bound per second between the first arrival and the last binding; 0 where none was bound."""
        changes = [entry.change for entry in self.entries if isinstance(entry, Happened) and entry.kind is PODS]
        bound = [change.at for change in changes if change.stored.node and change.previous and not change.previous.node]
        arrived = next((change.at for change in changes if change.type == ADDED), 0.0)
        return len(bound) / max(bound[-1] - arrived, 1e-9) if bound else 0.0

    def close(self) -> None:
        """Listen no longer."""
        self.hold_ups.stop()
        for stop in self._stops:
            stop()
        self._stops.clear()

    def _note(self, store: Store, kind: Kind) -> Callable[[], None]:
        table = store.table(kind)
        return lambda: self.entries.append(Happened(kind, table.changes[-1]))
