"""Counts overtaking: turns that pods had although they came later.

A pod waits in three lines: at a gate for its release, in the scheduler's queue for its answer, and in the extender while the
answer is computed. How long it waits for earlier pods depends on the machine. How many later pods are served before it does not.
Called by `scenario/report.py`.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.store import ADDED
from extender.simulator.json_objects import uid_of
from extender.simulator.oracle.journal import Journal, StoreChange


class Turn(NamedTuple):
    """When a pod came into a line and when it was served, by one clock. ``uid`` is empty where the pod has none yet."""

    namespace: str
    uid: str
    came: float
    served: float


def gate_turns(journal: Journal) -> Iterator[Turn]:
    """The turns of the pods that were created with a gate and lost it: from their creation to their release."""
    came: dict[str, float] = {}
    for entry in journal.entries:
        if not isinstance(entry, StoreChange) or entry.kind is not PODS:
            continue
        pod = entry.change.stored.read()
        uid, is_gated = uid_of(pod), bool(pod["spec"].get("schedulingGates"))
        if entry.change.type == ADDED and is_gated:
            came[uid] = entry.change.at
        elif uid in came and not is_gated:
            yield Turn(entry.change.stored.key.partition("/")[0], uid, came.pop(uid), entry.change.at)


def whole_waits(turns: Iterable[Turn]) -> list[Turn]:
    """One turn for each pod: from when it came first to when it was served last. A pod that was rejected waits on."""
    waits: dict[str, Turn] = {}
    for turn in turns:
        known = waits.get(turn.uid, turn)
        waits[turn.uid] = turn._replace(came=min(known.came, turn.came), served=max(known.served, turn.served))
    return list(waits.values())


def overtakings(waits: Iterable[Turn], turns: Iterable[Turn], others: Collection[str]) -> Counter[str]:
    """By pod of ``waits``: how many turns of ``others`` came later and were served earlier. O(n log n)."""
    theirs = sorted((turn for turn in turns if turn.namespace in others), key=lambda turn: turn.came)
    served: list[float] = []  # of the turns that came after the wait
    counts: Counter[str] = Counter()
    for wait in sorted(waits, key=lambda wait: wait.came, reverse=True):
        while theirs and theirs[-1].came > wait.came:
            insort(served, theirs.pop().served)
        if wait.namespace not in others:
            counts[wait.uid] += bisect_left(served, wait.served)
    return counts
