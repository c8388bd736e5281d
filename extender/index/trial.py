"""Trials: what rules say if pods leave their nodes or come to other nodes. Every change is undone when the block ends.

    with view.trial() as trial:
        trial.take(victim)
        trial.place(preemptor, node)
        ...

1. A trial is synchronous, so no other code sees its counts. Work in steps undoes its trial before each pause
   (`Trials` in `verbs/slots/placing.py`).
2. It restores counts and versions, so results that were cached before stay valid. Nothing that is computed inside may be
   cached by a version, because a later change gives the same version to other counts.
3. It changes only the counts of placed pods. A caller passes other changes to the rules as values: the room of a node
   (`NodeTrial`), a new or a changed node (`RequestFrame`, `ChangedNodeFrame`), changed terms
   (`with_labelled_namespace`). Such a change in the tables would reach subscribers, and end every cached result.

Not a trial, because nothing is undone: a what-if changes the index of its child process (`tasks/what_if/service.py`),
and a replay has an index of its own. `AssumedPods.apart` is no trial either: decisions inside are answered, cached and
recorded, so its changes are real changes, and versions grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Self

from extender.index.counts.counts import Counts
from extender.index.counts.groups import CountGroup, GroupView
from extender.index.nodes.topology import Topology
from extender.model.objects import Pod


class Trial:
    """The changes of one trial. They are undone when its block ends, before any other change of the index.

    ``changed``: the nodes on which a read group counts more or fewer pods now, each with the number of these changes.
    """

    __slots__ = ("_placed", "_pods", "_read", "_signatures", "_taken", "_topology", "_versions", "changed")

    def __init__(
        self,
        pods: Mapping[str, Pod],
        topology: Topology,
        counts: Counts,
        read: AbstractSet[GroupView] | None = None,
    ) -> None:
        """``pods``: the pods that the watch shows, by UID. ``read``: only these groups count pods that leave; None: all.

        The dry run of a preemption gives the groups that its rules read. It takes many pods, and a tenant may have a
        thousand groups that count the pods of all others.
        """
        self._pods = pods
        self._topology = topology
        self._signatures = counts.signatures
        self._read = read
        # Each pod that was taken, and whether a read group counted it.
        self._taken: dict[str, tuple[Pod, bool]] = {}
        self._placed: list[tuple[Pod, int]] = []
        self._versions: dict[CountGroup, int] = {}
        self.changed: dict[int, int] = {}

    def __enter__(self) -> Self:
        """Begins the trial."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restores every count and version."""
        while self._placed:
            self.remove_last()
        # A copy, because `put_back` removes entries.
        for pod, _is_counted in list(self._taken.values()):
            self.put_back(pod)
        for group, version in self._versions.items():
            group.version = version

    def take(self, pod: Pod) -> None:
        """The pod, which is on a node, no longer counts. Compile constraints before: a group that is made later counts it.

        O(groups that count it), or O(read groups) if they are fewer.
        """
        if pod.uid not in self._taken:
            is_counted = self._count(pod, -1)
            self._taken[pod.uid] = pod, is_counted
            if is_counted:
                self._record(self._topology.number(pod.node), 1)

    def take_bound(self, pods: Iterable[Pod]) -> None:
        """Takes the pods that the watch shows on a node."""
        for pod in pods:
            shown = self._pods.get(pod.uid)
            if shown is not None and shown.node:
                self.take(shown)

    def put_back(self, pod: Pod) -> None:
        """A pod that was taken counts again."""
        taken = self._taken.pop(pod.uid, None)
        if taken is not None:
            self._count(pod, 1)
            if taken[1]:
                self._record(self._topology.number(pod.node), -1)

    def place(self, pod: Pod, node: int) -> None:
        """A pod without a node counts on this one.

        Compile constraints afterwards, because the pod's terms may be new.
        """
        counts_of_signature = self._signatures.find(pod.signature, terminating=pod.terminating)
        for group in counts_of_signature.groups if counts_of_signature is not None else ():
            self._versions.setdefault(group, group.version)
        self._signatures.put(pod.signature, pod.terminating, node, 1)
        self._placed.append((pod, node))
        self._record(node, 1)

    def remove_last(self) -> None:
        """Takes out the pod that `place` placed last."""
        pod, node = self._placed.pop()
        self._signatures.put(pod.signature, pod.terminating, node, -1)
        self._record(node, -1)

    def _count(self, pod: Pod, sign: int) -> bool:
        counts_of_signature = self._signatures.find(pod.signature, terminating=pod.terminating)
        if counts_of_signature is None:
            return False
        number, groups = self._topology.number(pod.node), counts_of_signature.groups
        changed = groups if self._read is None else groups.keys() & self._read
        for group in changed:
            times = groups[group]
            # Only the first version counts: it is the version before the trial.
            self._versions.setdefault(group, group.version)
            group.add(number, sign * times)
        return bool(changed)

    def _record(self, node: int, changes: int) -> None:
        total = self.changed.get(node, 0) + changes
        if total:
            self.changed[node] = total
        else:
            del self.changed[node]
