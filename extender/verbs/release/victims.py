"""Preemption for a whole pod group: which pods of lower priority have to leave one domain so that all pods of the group fit there.

The pods are placed one after the other, as kube-scheduler preempts for a single pod: on a node without victims if there is one, else
on the node with the least important victims (`verbs/dry_run.py`). Placed pods and chosen victims count for the pods after them. A
victim has a lower priority than every pod of the group.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from extender.index.nodes.columns import NodeNumber
from extender.index.trial import TrialSteps
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import RemovalRank, removal_rank
from extender.model.release import Slot
from extender.settings.configuration import Settings
from extender.verbs.dry_run import DryRun, DryRunBudget, importance, is_forbidden, may_plan, violating_budgets
from extender.verbs.slots.placing import NodeRoom, RuleChecks

MOST_DOMAINS: Final = 8  # domains that are tried for one group
_MOST_NODES: Final = 128  # nodes that are tried in a domain for one kind of pods
_MOST_PODS: Final = 200
_NO_VICTIM: Final[RemovalRank] = (0, -(2**32), 0, 0, float("-inf"))  # before every other
_MOST_WORK: Final = 1_000_000  # 160 ms for a group, in steps of one node


@dataclass(frozen=True, slots=True)
class GroupRemoval:
    """Slots for all pods of a group, and the victims that have to leave before, the most important first."""

    slots: tuple[Slot, ...]
    victims: tuple[Pod, ...]
    rank: RemovalRank


def may_preempt(pods: Sequence[Pod], view: ClusterView, settings: Settings) -> bool:
    """Whether pods may be preempted for a group of these pods: every one of them must be allowed to preempt."""
    least = min(pods, key=lambda pod: pod.priority)
    return len(pods) <= _MOST_PODS and all(may_plan(pod, view, settings) for pod in (least, *pods))


@dataclass(slots=True)
class _Placed:
    """The choice so far: the slots, the victims, and by node the pods that are placed there."""

    slots: list[tuple[Pod, NodeRoom]] = field(default_factory=list)
    on: dict[NodeNumber, list[Pod]] = field(default_factory=dict)
    victims: dict[str, Pod] = field(default_factory=dict)


class GroupDryRun:
    """The dry run for one group. ``kinds``: by UID, what is equal for equal pods. ``checks``: None where no rule rejects the pods."""

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        pods: Sequence[Pod],
        kinds: Mapping[str, Hashable],
        checks: RuleChecks | None,
    ) -> None:
        self._view = view
        self._evicts = settings.preemption.eviction == "evict"
        self._priority = min(pod.priority for pod in pods)
        self._pods = pods
        self._kinds = kinds
        self._checks = checks
        self._budget = DryRunBudget(_MOST_WORK)

    def in_domain(self, rooms: Mapping[Hashable, Sequence[NodeRoom]]) -> TrialSteps[GroupRemoval | None]:
        """The removal in a domain. None where none helps, disruption budgets forbid it, or the work budget ends. O(pods × dry run)."""
        # For each pod the best node: without victims if possible, else with victims of the lowest rank. Victims that were chosen for an
        # earlier pod cost nothing. `known` saves dry runs for equal pods; after a choice it is valid only for other nodes, without rules.
        placed = _Placed()
        known: dict[tuple[Hashable, NodeNumber], tuple[Pod, ...] | None] = {}
        for pod in self._pods:
            kind, best = self._kinds[pod.uid], None
            for room in self._candidates(rooms.get(kind, ())):
                if (kind, room.number) not in known:
                    known[kind, room.number] = self._victims_on(pod, room, placed)
                    yield True
                victims = known[kind, room.number]
                if victims is not None:
                    more = [victim for victim in victims if victim.uid not in placed.victims]
                    rank = self._rank(more)
                    if best is None or rank < best[0]:
                        best = rank, room, more
                if best is not None and best[0] == _NO_VICTIM:
                    break
            if best is None or self._budget.is_spent():
                return None
            room = best[1]
            placed.slots.append((pod, room))
            placed.on.setdefault(room.number, []).append(pod)
            placed.victims |= {victim.uid: victim for victim in best[2]}
            known = {
                at: known_victims
                for at, known_victims in known.items()
                if self._checks is None and at[1] != room.number
            }
        victims = tuple(sorted(placed.victims.values(), key=importance))
        if not victims or (self._evicts and is_forbidden(victims, self._view)):
            return None
        slots = tuple(Slot(pod.uid, room.name) for pod, room in placed.slots)
        return GroupRemoval(slots, victims, self._rank(victims))

    def _rank(self, victims: Sequence[Pod]) -> RemovalRank:
        """The rank for comparing removals. Terminating pods leave anyway, so they cost nothing."""
        ordered = sorted([victim for victim in victims if not victim.terminating], key=importance)
        if not ordered:
            return _NO_VICTIM
        return removal_rank(ordered, len(violating_budgets(ordered, self._view, self._budget)))

    def _candidates(self, rooms: Sequence[NodeRoom]) -> Sequence[NodeRoom]:
        """The nodes to try: nodes with room, then nodes where removing pods may help. O(nodes)."""
        free = [room for room in rooms if room.holds]
        rest = [room for room in rooms if not room.holds and (room.reason is None or room.reason.resolvable)]
        return [*free, *rest][:_MOST_NODES]

    def _victims_on(self, pod: Pod, room: NodeRoom, placed: _Placed) -> tuple[Pod, ...] | None:
        """The pods that have to leave a node for one more pod, terminating pods included. None where no removal helps."""
        view, checks = self._view, self._checks
        here = view.pods_on(room.number).values()
        leaving = {other.uid: other for other in here if other.terminating and other.priority < self._priority}
        taken = tuple((leaving | placed.victims).values())
        with view.trial() as trial:
            for other, at in placed.slots:
                trial.place(other if checks is None else checks.as_released(other), at.number)
            wanted = pod if checks is None else checks.as_released(pod)
            beside = placed.on.get(room.number, ())
            run = DryRun(replace(wanted, priority=self._priority), view, beside=beside, budget=self._budget)
            removal = run.on(room.number, taken, checks_fit=True)
        if removal is None:
            return None
        return tuple(victim for victim in removal.victims if victim.node == room.name)
