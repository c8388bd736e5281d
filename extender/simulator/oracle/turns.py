"""Counts overtaking: turns that pods had although they came later.

A pod waits in two lines: at a gate for its release, and in the scheduler's queue for its answer. How long it waits for earlier pods
depends on the machine. How many later pods are served before it does not, where only the time in the line counts:

- a gated pod is in the line once its group is whole. The rest of its group may come late on a busy machine.
- a rejected pod is in the queue once it is active again. A busy machine has more or fewer attempts of others in a backoff.
- gates are served by namespace. So a turn of another namespace counts only beyond one for each turn of the pod's own namespace.

Reviews of the webhook are no line of pods: one is taken in an iteration of the event loop, and how many iterations an answer takes
depends on the machine. Called by `scenario/report.py`.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.store import ADDED
from extender.simulator.json_objects import labels_of, uid_of
from extender.simulator.oracle.journal import Journal, StoreChange


class Turn(NamedTuple):
    """When a pod came into a line and when it was served, by one clock."""

    namespace: str
    uid: str
    came: float
    served: float


def gate_turns(journal: Journal, group_labels: Collection[str] = ()) -> list[Turn]:
    """The turns of the pods that were created with a gate and lost it: from when their group was whole to their release.

    Pods with the same value of a label of ``group_labels`` are a group, which is whole once the last of them is created.
    """
    group_of: dict[str, tuple[str, ...]] = {}
    whole: dict[tuple[str, ...], float] = {}
    released: dict[str, float] = {}
    for entry in journal.entries:
        if not isinstance(entry, StoreChange) or entry.kind is not PODS:
            continue
        pod, at = entry.change.stored.read(), entry.change.at
        uid, is_gated = uid_of(pod), bool(pod["spec"].get("schedulingGates"))
        if entry.change.type == ADDED and is_gated:
            labels, namespace = labels_of(pod), entry.change.stored.key.partition("/")[0]
            label = next((label for label in group_labels if label in labels), "")
            group_of[uid] = (namespace, label, labels[label]) if label else (namespace, uid)
            whole[group_of[uid]] = at
        elif uid in group_of and not is_gated:
            released.setdefault(uid, at)
    turns = (Turn(group_of[uid][0], uid, whole[group_of[uid]], at) for uid, at in released.items())
    # A pod that is released before its group is whole has not waited for the rest of it.
    return [turn._replace(came=min(turn.came, turn.served)) for turn in turns]


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
