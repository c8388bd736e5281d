"""Whether a released pod may leave its slot for a better node: only if the rest of its pod group still fits then.

1. A slot is reserved room. So a pod may go to any node that holds it beside the slots of others (`rules/reserved_room.py`).
2. Where pods of the group have required constraints, room is not enough. Example: a pod in another rack may leave its siblings
   without a place. Then the siblings are placed again on a trial, in the group's slots, with the pod on the other node.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.index.view import ClusterView
from extender.model.bounded import at_once
from extender.model.objects import Pod, PodSignature
from extender.verbs.slots.placing import (
    Capacity,
    RuleChecks,
    SlotSearch,
    VisitBudget,
    is_unconstrained,
    kinds_of,
)

_MOST_PLACED: Final = 128  # siblings placed in all trials of one request: 80 µs each
_MOST_VISITS: Final = 500  # nodes that are looked at again in one trial
_ITSELF: Final = "the pod itself"  # the pod is a kind of its own, because it has one node only


@dataclass(slots=True)
class GroupTrial:
    """Trials of other nodes for one pod.

    ``siblings``: pods of its group that have a slot and are on no node yet. ``left``: how many may still be placed in trials.
    """

    view: ClusterView
    pod: Pod
    own: str
    siblings: Sequence[Pod]
    left: int

    @property
    def has_time(self) -> bool:
        """Whether one more node can be tried."""
        return self.left >= len(self.siblings)

    def allows(self, name: str) -> bool:
        """Whether the siblings fit in the group's slots with the pod on this node. False where no time is left.

        O(siblings × (clauses + slots)).
        """
        view, pod, siblings = self.view, self.pod, self.siblings
        if name == self.own:
            return True
        if not self.has_time:
            return False
        self.left -= max(len(siblings), 1)
        kinds: dict[str, Hashable] = {**at_once(kinds_of(siblings, view)), pod.uid: _ITSELF}
        capacity = Capacity(view, {pod.uid, *(sibling.uid for sibling in siblings)})
        places = sorted({view.reserved.node_of(sibling.uid) for sibling in siblings} | {self.own})
        examples = {kinds[sibling.uid]: (sibling, places) for sibling in siblings} | {_ITSELF: (pod, [name])}
        rooms = {kind: [capacity.on(place, example) for place in there] for kind, (example, there) in examples.items()}
        open_ = {kind: [room for room in kind_rooms if room.holds] for kind, kind_rooms in rooms.items()}
        checks = RuleChecks(view, self._narrowed())
        search = SlotSearch([pod, *siblings], kinds, open_, capacity, checks, VisitBudget(_MOST_VISITS))
        return bool(at_once(search.run()).slots)

    def _narrowed(self) -> Mapping[PodSignature, PodSignature]:
        """By signature of a sibling that is still gated: its signature after a release into the pod's domain."""
        reserved, nodes = self.view.reserved, self.pod.signature.node_affinity
        alike = [sibling.signature for sibling in self.siblings if reserved.are_alike(self.pod.uid, sibling.uid)]
        return {signature: replace(signature, node_affinity=nodes) for signature in alike}


def trial_of(pod: Pod, view: ClusterView) -> GroupTrial | None:
    """The trial of a pod that has a slot. None without a slot, or where no pod of the group has constraints. O(siblings)."""
    own = view.reserved.node_of(pod.uid)
    if not own:
        return None
    siblings = [view.pods[uid] for uid in sorted(view.reserved.siblings_of(pod.uid)) if uid != pod.uid]
    examples = {member.signature: member for member in (*siblings, pod)}
    if all(is_unconstrained(example, view) for example in examples.values()):
        return None
    free = [sibling for sibling in siblings if not _is_placed(sibling, view)]
    return GroupTrial(view, pod, own, free, _MOST_PLACED)


def _is_placed(pod: Pod, view: ClusterView) -> bool:
    """Whether a pod with a slot is assumed on its node, where it counts already."""
    number = view.known.get(view.reserved.node_of(pod.uid))
    return number is not None and pod.uid in view.pods_on(number)
