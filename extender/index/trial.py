"""Trials: what rules say if pods leave their nodes or come to other nodes. Every change is undone when the block ends.

    with view.trial() as trial:
        trial.take(victim)
        trial.place(preemptor, node)
        ...

1. A trial is synchronous, so no other code sees its counts. Work in steps suspends its trial for each pause
   (`TrialSteps`).
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

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Self, TypeAlias, TypeVar

from extender.index.counts.counts import Counts
from extender.index.counts.groups import CountGroup, GroupView
from extender.index.nodes.topology import Topology
from extender.model.objects import Pod

T = TypeVar("T")

TrialSteps: TypeAlias = Generator[bool, bool | None, T]
"""Work in steps that may hold a trial. Each step yields whether the counts are free of it.

Protocol: after a step that yields False other work must not run. To let it run, the caller sends True: the trial is suspended,
and the next step yields True."""


class Trial:
    """The changes of one trial. They are undone when its block ends. Until then the index must not change.

    A trial may begin inside the block of another one, and ends before it.

    ``changed``: the nodes on which a read group counts more or fewer pods now, each with the number of these changes.
    """

    __slots__ = ("_away", "_placed", "_pods", "_read", "_signatures", "_taken", "_topology", "_versions", "changed")

    def __init__(
        self,
        pods: Mapping[str, Pod],
        topology: Topology,
        counts: Counts,
        away: set[str],
        read: AbstractSet[GroupView] | None = None,
    ) -> None:
        """The trial of an index.

        - ``pods``: the pods that the watch shows, by UID.
        - ``away``: the UIDs of pods that this and all outer trials have taken.
        - ``read``: only these groups no longer count a pod that is taken; None: all. The dry run of a preemption takes
          many pods, and a tenant may have a thousand groups that count the pods of all others.
        """
        self._pods = pods
        self._topology = topology
        self._signatures = counts.signatures
        self._away = away
        self._read = read
        # For each pod that was taken: its node, and the groups that no longer count it, with how often they did.
        self._taken: dict[str, tuple[int, Sequence[tuple[CountGroup, int]]]] = {}
        self._placed: list[tuple[Pod, int]] = []
        self._versions: dict[CountGroup, int] = {}
        self.changed: dict[int, int] = {}

    def __enter__(self) -> Self:
        """Begins the trial."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restores every count and version."""
        self._undo()

    def _undo(self) -> None:
        while self._placed:
            self.remove_last()
        for node, groups in self._taken.values():
            for group, times in groups:
                group.add(node, times)
        self._away.difference_update(self._taken)
        for group, version in self._versions.items():
            group.version = version

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside the block the index is as without the trial, and may change. Afterwards the placed pods count again.

        For a trial that has only placed pods, because pods that it has taken might be gone. O(placed pods).
        """
        placed = self._placed.copy()
        self._undo()
        self._versions.clear()
        yield
        for pod, node in placed:
            self.place(pod, node)

    def take(self, pod: Pod) -> None:
        """The pod, which is on a node, no longer counts. Compile constraints before: a group that is made later counts it.

        O(groups that count it), or O(read groups) if they are fewer. To take it from the table of signatures too, as
        a deletion does, would cost all groups.
        """
        counts_of_signature = self._signatures.find(pod.signature, terminating=pod.terminating)
        if pod.uid in self._away or counts_of_signature is None:
            return
        node, groups = self._topology.number(pod.node), counts_of_signature.groups
        read = groups if self._read is None else groups.keys() & self._read
        # Kept, because a group that is made inside counts the pod already, and must not count it once more afterwards.
        taken = [(group, groups[group]) for group in read]
        self._away.add(pod.uid)
        self._taken[pod.uid] = node, taken
        versions = self._versions
        for group, times in taken:
            # Only the first version counts: it is the version before the trial.
            versions.setdefault(group, group.version)
            group.add(node, -times)
        if taken:
            self._record(node, 1)

    def take_bound(self, pods: Iterable[Pod]) -> None:
        """Takes the pods that the watch shows on a node."""
        for pod in pods:
            shown = self._pods.get(pod.uid)
            if shown is not None and shown.node:
                self.take(shown)

    def put_back(self, pod: Pod) -> None:
        """A pod that this trial has taken counts again."""
        if pod.uid not in self._taken:
            return
        self._away.remove(pod.uid)
        node, groups = self._taken.pop(pod.uid)
        for group, times in groups:
            group.add(node, times)
        if groups:
            self._record(node, -1)

    def place(self, pod: Pod, node: int) -> None:
        """A pod without a node counts on this one.

        Compile constraints afterwards, because the pod's terms may be new.
        """
        # A new signature joins its groups first, so that their versions are restored too.
        for group in self._signatures.find_or_add(pod.signature, terminating=pod.terminating).groups:
            self._versions.setdefault(group, group.version)
        self._signatures.put(pod.signature, pod.terminating, node, 1)
        self._placed.append((pod, node))
        self._record(node, 1)

    def remove_last(self) -> None:
        """Takes out the pod that `place` placed last."""
        pod, node = self._placed.pop()
        self._signatures.put(pod.signature, pod.terminating, node, -1)
        self._record(node, -1)

    def _record(self, node: int, changes: int) -> None:
        total = self.changed.get(node, 0) + changes
        if total:
            self.changed[node] = total
        else:
            del self.changed[node]
