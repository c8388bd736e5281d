"""Which pods have to leave a node so that a pod passes every rule there: the dry run of a preemption, for one node.

As kube-scheduler does it: take every pod of lower priority away; where the preemptor fits then, put them back from the
most important down, those that a disruption budget protects first, and keep away only those with which it fits no
more. Works on the live counts inside a what-if, so the rules that judge are the ones that filter. Called by the
modules that choose among nodes; decides nothing about more than one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from extender.index.view import ClusterView, GroupView, NodeNumber, WhatIfView
from extender.model.objects import Node, Pod, PodShape
from extender.model.victims import Candidate, Victim
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.rules.node_fit import Room, room_on, standing_refusal

_NOT_STARTED = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Removal:
    """The pods to remove for one node, most important first, and how many of them a budget protects."""

    node: str
    victims: tuple[Pod, ...]
    pdb_violations: int = 0

    def candidate(self) -> Candidate:
        """The form in which nodes are compared."""
        victims = tuple(Victim(each.uid, each.priority, each.start_time) for each in self.victims)
        return Candidate(self.node, victims, self.pdb_violations)


def importance(pod: Pod) -> tuple[int, datetime]:
    """Sorts the most important first: higher priority, then the longer it runs."""
    return (-pod.priority, pod.start_time or _NOT_STARTED)


def violating_budgets(pods: Iterable[Pod], view: ClusterView) -> list[Pod]:
    """Those of the pods whose removal would violate a disruption budget, if they went in this order.

    A pod that is going already uses up nothing. O(pods × budgets of their namespaces).
    """
    left: dict[str, int] = {}
    violating: list[Pod] = []
    for pod in pods:
        used = () if pod.terminating else [each for each in view.budgets_in(pod.namespace) if each.protects(pod)]
        for budget in used:
            left[budget.key] = left.get(budget.key, budget.allowed) - 1
        if any(left[budget.key] < 0 for budget in used):
            violating.append(pod)
    return violating


def rivals_on(pod: Pod, node: str, view: ClusterView) -> list[Pod]:
    """The pods of equal or higher priority that are to come to the node and do not stand there yet."""
    to_come = view.nominated.get(node)
    number = view.known.get(node)
    if not to_come or number is None:
        return []
    here = view.pods_on(number)
    return [
        each for uid, each in to_come.items() if each.priority >= pod.priority and uid != pod.uid and uid not in here
    ]


class DryRun:
    """The dry run for one preemptor. ``across``: for anti-affinity victims may stand elsewhere in the node's domain."""

    def __init__(self, pod: Pod, view: ClusterView, *, across: bool = False) -> None:
        self.pod = pod
        self.view = view
        self._across = across
        self._question = view.question(pod.shape)
        self._groups = self._question.filter_groups()
        self._counted: dict[tuple[PodShape, bool], bool] = {}

    @property
    def is_hopeless(self) -> bool:
        """Whether the pod fits nowhere, whoever leaves: its constraints cannot be read."""
        return catalog.prepare_filters(self._question, IndexFrame()).failure is not None

    @property
    def has_constraints(self) -> bool:
        """Whether our rules could refuse the pod at all because of pods that stand somewhere."""
        return bool(self._groups)

    def on(self, number: NodeNumber, taken: Sequence[Pod] = (), *, checks_room: bool = False) -> Removal | None:
        """What has to leave the node beside ``taken``, which leaves anyway; None where nothing helps.

        ``taken`` is part of the answer. ``checks_room``: node fit is to be judged too, as nobody else has done so.
        O(pods of lower priority on the node × (groups that count them + clauses)).
        """
        node = self.view.node(number)
        if node is None or (checks_room and standing_refusal(self.pod, node) is not None):
            return None
        rivals = rivals_on(self.pod, node.name, self.view)
        room = room_on(self.view, number, rivals) if checks_room or rivals else None
        possible = self._possible(number, {each.uid for each in taken}, for_room=room is not None)
        violating = {each.uid for each in violating_budgets(sorted((*taken, *possible), key=importance), self.view)}
        possible.sort(key=lambda each: each.uid not in violating)  # stable: the order of importance stays in each part
        with self.view.what_if() as tried:
            attempt = _Attempt(self, node, number, tried, room, rivals)
            for each in (*taken, *possible):
                attempt.take(each)
            if not attempt.fits():
                return None
            victims = attempt.spare(possible)
        chosen = tuple(sorted((*taken, *victims), key=importance))
        return Removal(node.name, chosen, sum(each.uid in violating for each in victims))

    def passes(self, number: NodeNumber) -> bool:
        """Whether our rules let the pod pass on the node as the counts are now."""
        return not self._groups or catalog.prepare_filters(self._question, IndexFrame()).refusal(number) is None

    def passes_beside(self, rivals: Sequence[Pod], number: NodeNumber, tried: WhatIfView) -> bool:
        """The same with the rivals standing there. They may bring terms that nobody had, so the question is put anew."""
        if not self._groups and not any(each.shape.affinity.required_anti for each in rivals):
            return True
        for each in rivals:
            tried.stand(each, number)
        question = self.view.question(self.pod.shape)
        passes = catalog.prepare_filters(question, IndexFrame()).refusal(number) is None
        tried.leave()
        return passes

    def _possible(self, number: NodeNumber, taken: set[str], *, for_room: bool) -> list[Pod]:
        """The pods that may be removed and could make a difference, most important first."""
        here = self.view.pods_on(number).values()
        found = [each for each in here if self._may_go(each, taken) and (for_room or self._is_counted(each))]
        if self._across:
            found += [each for each in self._elsewhere(number) if self._may_go(each, taken)]
        return sorted({each.uid: each for each in found}.values(), key=importance)

    def _may_go(self, pod: Pod, taken: set[str]) -> bool:
        return pod.priority < self.pod.priority and pod.uid not in taken

    def _is_counted(self, pod: Pod) -> bool:
        key = (pod.shape, pod.terminating)
        known = self._counted.get(key)
        if known is None:
            known = self._counted[key] = self.view.is_counted(pod, self._question)
        return known

    def _elsewhere(self, number: NodeNumber) -> Iterable[Pod]:
        """Pods counted in the anti-affinity groups that refuse the node, on the other nodes of its domain."""
        for group in (*self._question.anti, *self._question.inverse):
            for other in _neighbours(group, number):
                yield from filter(self._is_counted, self.view.pods_on(other).values())


def _neighbours(group: GroupView, number: NodeNumber) -> Iterable[NodeNumber]:
    domain = group.key.of_node[number]
    if domain not in group.counts:
        return ()
    return (other for other in group.key.nodes_in.get(domain, ()) if other != number)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One node in a what-if: pods are taken and put back in the counts and in the node's room together."""

    run: DryRun
    node: Node
    number: NodeNumber
    tried: WhatIfView
    room: Room | None
    rivals: Sequence[Pod]

    def take(self, pod: Pod) -> None:
        """Away with it."""
        self.tried.take(pod)
        if self.room is not None and pod.node == self.node.name:
            self.room.count(pod, -1)

    def put_back(self, pod: Pod) -> None:
        """It may stay."""
        self.tried.put_back(pod)
        if self.room is not None and pod.node == self.node.name:
            self.room.count(pod, 1)

    def fits(self) -> bool:
        """Whether the preemptor would pass now: with its rivals beside it, and without them."""
        if self.room is not None and not self.room.takes(self.run.pod.requests):
            return False
        if not self.run.passes(self.number):
            return False
        return not self.rivals or self.run.passes_beside(self.rivals, self.number, self.tried)

    def spare(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Puts the pods back one by one where the preemptor still fits; returns those that have to go.

        Repeated until nobody more is spared: under spread constraints a pod put back can make room for another one.
        """
        while True:
            victims = [each for each in pods if not self._can_stay(each)]
            if len(victims) == len(pods) or not victims:
                return victims
            pods = victims

    def _can_stay(self, pod: Pod) -> bool:
        self.put_back(pod)
        if self.fits():
            return True
        self.take(pod)
        return False
