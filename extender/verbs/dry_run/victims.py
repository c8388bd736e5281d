"""Which pods have to leave a node so that a pod passes every rule there: the dry run of a preemption, for one node.

As kube-scheduler does it: take every pod of lower priority away; where the preemptor fits then, put them back from the
most important down, those that a disruption budget protects first, and keep away only those with which it fits no
more. Works on the live counts inside a what-if, so the rules that judge are the ones that filter. Called by the
modules that choose among nodes; decides nothing about more than one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from extender.index.view import ClusterView, GroupView, NodeNumber, WhatIfView
from extender.model.objects import Node, Pod, PodSignature
from extender.model.victims import Candidate, Victim
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.rules.node_fit import conflicting_nominated_pods
from extender.rules.rule import NodeTrial

_NOT_STARTED = datetime.max.replace(tzinfo=UTC)

MOST_WORK = 600_000
"""What the dry runs for one preemptor may cost together, in groups looked at: about 100 ms.

A pod may bring thousands of terms, and its dry run visits many nodes with many pods. What is not found by then is not
found: the pod does not preempt this time. Measured: a look at a group takes 0.15 us, a change of its count five times
that; judging a node takes 6 us besides, and taking a pod away 1.5 us.
"""
_JUDGING, _CHANGING, _CHANGE = 40, 10, 5


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


class DryRun:
    """The dry run for one preemptor. ``across``: for anti-affinity victims may stand elsewhere in the node's domain.

    To be made while every pod counts, and used before anything changes. ``done`` are the nodes that were judged to the
    end. What a node costs is taken from one budget (`MOST_WORK`); once it is spent no node helps. ``fits_nowhere``: the
    pod fits nowhere, whichever pods leave. ``has_constraints``: a rule may reject the pod on some node.
    """

    def __init__(self, pod: Pod, view: ClusterView, *, across: bool = False, has_nominated: bool = False) -> None:
        """``has_nominated``: the nominated pods stand on their nodes already; see `beside_nominated`."""
        self.pod = pod
        self.view = view
        self.done: set[NodeNumber] = set()
        self._across = across
        self._has_nominated = has_nominated
        self._work = 0
        self._compiled = compiled = view.compiled(pod.signature)
        self._groups = frozenset(compiled.filter_groups())
        self._counted: dict[tuple[PodSignature, bool], bool] = {}
        active = catalog.active(compiled, view)
        self.fits_nowhere = catalog.prepare(active, pod, view, IndexFrame()).failed is not None
        self.has_constraints = bool(active) and not self.fits_nowhere
        # What can be judged by the counts of each moment is prepared once, the rest again after each change.
        self._lasting = catalog.prepare(catalog.lasting_parts(compiled, view), pod, view, IndexFrame())
        self._recounted = catalog.recounted_parts(compiled, view)

    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self._work >= MOST_WORK

    @property
    def most_nodes(self) -> int:
        """On how many nodes the pod can be judged within the budget at most."""
        return MOST_WORK // (_JUDGING + len(self._groups))

    def charge_change(self) -> None:
        """Charges a pod that is taken away or put back: it may be counted in every group."""
        self._work += _CHANGING + _CHANGE * len(self._groups)

    def _charge_judging(self) -> None:
        self._work += _JUDGING + len(self._groups)

    @contextmanager
    def beside_nominated(self) -> Iterator[DryRun]:
        """Inside the block a dry run for the same pod, with the pods that are nominated anywhere standing on their nodes.

        kube-scheduler counts them on the candidate node alone (RunFilterPluginsWithNominatedPods). So several preemptors
        that must be spread are sent to one zone, and all but one of them preempt again elsewhere. Yields this very dry
        run where no nominated pod could change its outcome. O(nominated pods × groups); from the same budget.
        """
        nominated = list(self._nominated())
        if not nominated:
            yield self
            return
        with self.view.what_if() as tried:
            for each, number in nominated:
                self.charge_change()
                tried.stand(each, number)
            beside = DryRun(self.pod, self.view, across=self._across, has_nominated=True)
            beside.done, beside._work = self.done, self._work
            yield beside
        self._work = beside._work

    @property
    def has_contenders(self) -> bool:
        """Whether any nominated pod could change the outcome. O(nominated pods) at worst."""
        return next(self._nominated(), None) is not None

    def _nominated(self) -> Iterator[tuple[Pod, NodeNumber]]:
        """The nominated pods of equal or higher priority that our rules could have something to say about."""
        for node in self.view.nominated:
            for each in conflicting_nominated_pods(self.pod, node, self.view):
                if self._groups or each.signature.affinity.required_anti:
                    yield each, self.view.known[node]

    def on(self, number: NodeNumber, taken: Sequence[Pod] = (), *, checks_fit: bool = False) -> Removal | None:
        """What has to leave the node beside ``taken``, which leaves anyway; None where nothing helps or it is abandoned.

        ``taken`` is part of the answer. ``checks_fit``: node fit is checked too, as the scheduler has not done so. Beside
        nominated pods it always is, as the scheduler may not know of their nominations yet.
        O(pods of lower priority on the node × (groups that count them + clauses)).
        """
        node = self.view.node(number)
        if node is None or self.is_spent():
            return None
        conflicting = conflicting_nominated_pods(self.pod, node.name, self.view)
        checks_fit = checks_fit or bool(conflicting)
        trials = catalog.node_trials(self.pod, self.view, number, conflicting, checks_fit=checks_fit)
        if not all(trial.can_pass for trial in trials):
            return None
        possible = self._possible(number, {each.uid for each in taken}, any_pod=bool(trials))
        violating = {each.uid for each in violating_budgets(sorted((*taken, *possible), key=importance), self.view)}
        possible.sort(key=lambda each: each.uid not in violating)  # stable: the order of importance stays in each part
        with self.view.what_if() as tried:
            attempt = _Attempt(self, node, number, tried, trials, () if self._has_nominated else conflicting)
            for each in (*taken, *possible):
                attempt.take(each)
            victims = attempt.spare(possible) if attempt.fits() else None
        if self.is_spent():
            return None
        self.done.add(number)
        if victims is None:
            return None
        chosen = tuple(sorted((*taken, *victims), key=importance))
        return Removal(node.name, chosen, sum(each.uid in violating for each in victims))

    def passes(self, number: NodeNumber) -> bool:
        """Whether our rules let the pod pass on the node as the counts are now."""
        self._charge_judging()
        if not self.has_constraints:
            return True
        if self._lasting.reason(number) is not None:
            return False
        return catalog.prepare(self._recounted, self.pod, self.view, IndexFrame()).reason(number) is None

    def passes_beside(self, conflicting: Sequence[Pod], number: NodeNumber, tried: WhatIfView) -> bool:
        """The same beside conflicting nominated pods. They may bring new terms, so the constraints are compiled again."""
        if not self.has_constraints and not any(each.signature.affinity.required_anti for each in conflicting):
            return True
        self._charge_judging()
        for each in conflicting:
            tried.stand(each, number)
        compiled = self.view.compiled(self.pod.signature)
        passes = catalog.prepare_filters(self.pod, compiled, self.view, IndexFrame()).reason(number) is None
        tried.leave()
        return passes

    def _possible(self, number: NodeNumber, taken: set[str], *, any_pod: bool) -> list[Pod]:
        """The pods that may be removed and could make a difference, most important first.

        ``any_pod``: every pod of the node could, not only those that a group counts.
        """
        here = self.view.pods_on(number).values()
        found = [each for each in here if self._may_go(each, taken) and (any_pod or self._is_counted(each))]
        if self._across:
            found += [each for each in self._elsewhere(number) if self._may_go(each, taken)]
        return sorted({each.uid: each for each in found}.values(), key=importance)

    def _may_go(self, pod: Pod, taken: set[str]) -> bool:
        return pod.priority < self.pod.priority and pod.uid not in taken

    def _is_counted(self, pod: Pod) -> bool:
        key = (pod.signature, pod.terminating)
        known = self._counted.get(key)
        if known is None:
            known = self._counted[key] = self.view.is_counted(pod, self._groups)
        return known

    def _elsewhere(self, number: NodeNumber) -> Iterable[Pod]:
        """Pods counted in the anti-affinity groups that refuse the node, on the other nodes of its domains."""
        keys = {group.key for group in (*self._compiled.anti, *self._compiled.inverse) if _refuses(group, number)}
        others = set[NodeNumber]().union(*(key.nodes_in.get(key.of_node[number], ()) for key in keys))
        for other in others - {number}:
            yield from filter(self._is_counted, self.view.pods_on(other).values())


def _refuses(group: GroupView, number: NodeNumber) -> bool:
    return group.key.of_node[number] in group.counts


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One node in a what-if: pods are taken and put back in the counts and in the trials on the node together."""

    run: DryRun
    node: Node
    number: NodeNumber
    tried: WhatIfView
    trials: Sequence[NodeTrial]
    conflicting: Sequence[Pod]

    def take(self, pod: Pod) -> None:
        """Takes the pod away; does nothing once the budget is spent, as the node is given up then."""
        if self.run.is_spent():
            return
        self.run.charge_change()
        self.tried.take(pod)
        self._count(pod, -1)

    def put_back(self, pod: Pod) -> None:
        """It may stay."""
        self.run.charge_change()
        self.tried.put_back(pod)
        self._count(pod, 1)

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.node == self.node.name:
            for trial in self.trials:
                trial.count(pod, sign)

    def fits(self) -> bool:
        """Whether the preemptor would pass now: beside the conflicting nominated pods, and without them."""
        if not all(trial.passes() for trial in self.trials) or not self.run.passes(self.number):
            return False
        return not self.conflicting or self.run.passes_beside(self.conflicting, self.number, self.tried)

    def spare(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Puts the pods back one by one where the preemptor still fits; returns those that have to go.

        Repeated until no further pod is spared: under spread constraints a pod put back can make room for another one.
        Meaningless once the budget is spent.
        """
        while not self.run.is_spent():
            victims = [each for each in pods if not self._can_stay(each)]
            if len(victims) == len(pods) or not victims:
                return victims
            pods = victims
        return pods

    def _can_stay(self, pod: Pod) -> bool:
        if self.run.is_spent():
            return False
        self.put_back(pod)
        if self.fits():
            return True
        self.take(pod)
        return False
