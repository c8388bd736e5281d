"""Counts overtaking: turns that pods had although they came later.

A pod waits in three lines: its group waits for a decision, the pod waits at its gate for its release, and in the scheduler's queue
for its answer. How long it waits for earlier pods depends on the machine. How many later pods are served before it does not, where
only the time in the line counts:

- a group waits for its decision once it is whole. The rest of it may come late on a busy machine.
- a gated pod is in the line for its release once its group is decided. Decisions are written at the same time, and the API server
  may answer a later one first. Meanwhile eight pods of that group can be released at once, so only one turn counts for the group.
- a rejected pod is in the queue once it is active again. A busy machine has more or fewer attempts of others in a backoff.
- gates are served by namespace. So a turn of another namespace counts only beyond one for each turn of the pod's own namespace.

Reviews of the webhook are no line of pods: one is taken in an iteration of the event loop, and how many iterations an answer takes
depends on the machine. Called by `scenario/report.py`.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, PODS
from extender.simulator.apiserver.store import ADDED
from extender.simulator.json_objects import labels_of, uid_of
from extender.simulator.oracle.journal import Journal, StoreChange


class Turn(NamedTuple):
    """When a pod came into a line and when it was served, by one clock."""

    namespace: str
    uid: str
    came: float
    served: float


@dataclass(slots=True)
class _Group:
    """Gated pods that are decided together.

    - ``decided``: when the API server first showed the decision; None without one.
    - ``whole``: when the last pod was created that the decision can count.
    - ``created``, ``released``: by UID, when the pod was created, and when its gate went.
    """

    namespace: str
    whole: float = 0.0
    decided: float | None = None
    created: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)


def overtakings_at_gates(journal: Journal, group_labels: Collection[str], others: Collection[str]) -> Counter[str]:
    """By released pod: how many groups of ``others`` were decided before its group, and how many pods released before the pod.

    Counted are groups and pods that came later. Pods with the same value of a label of ``group_labels`` are a group.
    """
    groups = list(_groups_of(journal, group_labels))
    decisions = [
        Turn(group.namespace, str(number), group.whole, group.decided)
        for number, group in enumerate(groups)
        if group.decided is not None
    ]
    releases = [
        # A pod may join a group that is decided, or be released before the rest of its group comes.
        Turn(group.namespace, uid, min(max(group.decided or group.whole, group.created[uid]), at), at)
        for group in groups
        for uid, at in group.released.items()
    ]
    decided_before = overtakings(decisions, others, by_namespace=True)
    counts = overtakings(releases, others, by_namespace=True)
    for number, group in enumerate(groups):
        for uid in group.released if group.namespace not in others else ():
            counts[uid] += decided_before[str(number)] if group.created[uid] <= group.whole else 0
    return counts


def _groups_of(journal: Journal, group_labels: Collection[str]) -> Iterable[_Group]:
    group_of: dict[str, _Group] = {}
    groups: dict[tuple[str, str], _Group] = {}  # by namespace and value of the label, or UID
    for entry in journal.entries:
        if not isinstance(entry, StoreChange) or entry.kind not in (PODS, GROUP_PLACEMENTS):
            continue
        obj, at, namespace = entry.change.stored.read(), entry.change.at, entry.change.stored.key.partition("/")[0]
        if entry.kind is GROUP_PLACEMENTS:
            group = groups.get((namespace, obj["spec"]["group"]))
            if group is not None and group.decided is None and obj["spec"].get("decided"):
                group.decided = at
            continue
        uid, is_gated = uid_of(obj), bool(obj["spec"].get("schedulingGates"))
        if entry.change.type == ADDED and is_gated:
            labels = labels_of(obj)
            value = next((labels[label] for label in group_labels if label in labels), uid)
            group = group_of[uid] = groups.setdefault((namespace, value), _Group(namespace))
            group.created[uid] = at
            group.whole = at if group.decided is None else group.whole
        elif uid in group_of and not is_gated:
            group_of[uid].released.setdefault(uid, at)
    return groups.values()


def overtakings(turns: Iterable[Turn], others: Collection[str], *, by_namespace: bool = False) -> Counter[str]:
    """By pod: how many turns of ``others`` came later and were served earlier. O(n log n).

    ``by_namespace``: the line serves namespaces in turns. So as many turns of others are due as the pod's own namespace had
    meanwhile.
    """
    turns = sorted(turns, key=lambda turn: turn.came)
    theirs = [turn for turn in turns if turn.namespace in others]
    own: defaultdict[str, list[float]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.served):
        own[turn.namespace].append(turn.served)
    served: list[float] = []  # of the turns that came after the wait
    counts: Counter[str] = Counter()
    for wait in reversed(turns):
        while theirs and theirs[-1].came > wait.came:
            insort(served, theirs.pop().served)
        if wait.namespace in others:
            continue
        count = bisect_left(served, wait.served)
        if by_namespace:
            times = own[wait.namespace]
            count -= bisect_right(times, wait.served) - bisect_right(times, wait.came)
        counts[wait.uid] += max(count, 0)
    return counts
