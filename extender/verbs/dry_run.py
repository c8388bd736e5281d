"""The dry run of a preemption on one node: which pods have to leave it so that the preemptor passes every rule there.

As in kube-scheduler (SelectVictimsOnNode):

1. Remove every pod of lower priority. If the preemptor does not fit then, the node does not help.
2. Put the pods back one by one: first pods that a disruption budget protects, then the others, each from the most important down.
3. A pod with which the preemptor does not fit stays removed: it is a victim.

The dry run works on the live counts inside a trial, so the rules that filter also decide here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from extender.index.nodes.columns import NodeNumber
from extender.index.trial import Trial
from extender.index.view import ClusterView
from extender.model.objects import Node, Pod, PodSignature
from extender.model.preemption import Candidate, PreemptionPlan, Victim, best_candidates
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.rules.free_resources import NodeTrial, conflicting_nominated_pods
from extender.rules.meter import POST_FILTER, RuleMeter
from extender.settings.configuration import Settings

_NOT_STARTED = datetime.max.replace(tzinfo=UTC)

MOST_WORK = 250_000
"""What the dry runs for one preemptor may cost together: about 40 ms. The unit is one count group read.

A pod may have thousands of terms, and its dry run tries many nodes with many pods. Where nothing is found within the budget the
pod does not preempt this time. Measured: reading a group takes 0.15 us, changing its count 0.75 us, checking a node 6 us more,
removing a pod 1.5 us, making the trial of a node's room 5 us. The rules say what they read beside one count for each group.
"""
_CHECK, _CHANGE, _CHANGE_OF_GROUP, _READ, _TRIAL = 40, 10, 5, 6, 30


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """The pods to remove for one node, most important first, and how many of these removals violate a disruption budget."""

    node: str
    victims: tuple[Pod, ...]
    pdb_violations: int = 0

    def candidate(self) -> Candidate:
        """The same removal in the form that `best_candidates` compares."""
        victims = tuple(Victim(victim.uid, victim.priority, victim.start_time) for victim in self.victims)
        return Candidate(self.node, victims, self.pdb_violations)


def is_bound(pod: Pod, view: ClusterView) -> bool:
    """Whether the watch shows the pod on a node. A pod that is only assumed there may still wait at Permit or run its PreBind."""
    shown = view.pod(pod.uid)
    return shown is not None and bool(shown.node)


def importance(pod: Pod) -> tuple[int, datetime]:
    """Sorts the most important first: higher priority, then the longer it runs."""
    return (-pod.priority, pod.start_time or _NOT_STARTED)


@dataclass(slots=True)
class DryRunBudget:
    """What is left of `MOST_WORK`, for all dry runs of one preemptor."""

    left: int

    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0


def violating_budgets(pods: Iterable[Pod], view: ClusterView, work: DryRunBudget | None = None) -> list[Pod]:
    """The pods whose removal in this order would violate a disruption budget, as kube-scheduler counts.

    As in filterPodsWithPDBViolation: a terminating pod uses up a disruption too, an empty selector selects no pod, and a pod
    without labels is selected by no budget. In a namespace with more budgets than can be read every removal counts as a violation.
    ``work`` is charged. O(pods × `MOST_BUDGETS`), and O(`MOST_READ`) for each new signature.
    """
    allowed: dict[str, int] = {}
    violating: list[Pod] = []
    for pod in pods:
        if not pod.signature.labels:
            continue
        budgets, read = view.budgets_protecting(pod)
        if work is not None:
            work.left -= _READ * read
        is_violating = budgets is None
        for budget in budgets or ():
            if not budget.selector.is_empty:
                allowed[budget.key] = allowed.get(budget.key, budget.allowed) - 1
                is_violating |= allowed[budget.key] < 0
        if is_violating:
            violating.append(pod)
    return violating


def is_forbidden(victims: Iterable[Pod], view: ClusterView) -> bool:
    """Whether the Eviction API would refuse to evict one of the pods: its budget is used up, or it has several budgets.

    As in that API: a terminating pod needs no budget, and an empty selector selects every pod. O(pods × `MOST_BUDGETS`).
    """
    allowed: dict[str, int] = {}
    for pod in victims:
        budgets, _ = ((), 0) if pod.terminating else view.budgets_protecting(pod)
        if budgets is None or len(budgets) > 1:
            return True
        for budget in budgets:
            allowed[budget.key] = allowed.get(budget.key, budget.allowed) - 1
            if allowed[budget.key] < 0:
                return True
    return False


class DryRun:
    """The dry runs for one preemptor. Valid until the index changes.

    All nodes take their cost from one budget. Once it is spent no node helps.

    - ``done``: the nodes that were checked to the end.
    - ``groups``: the count groups that a rule reads. Its trials change no others.
    - ``fits_nowhere``: a rule rejects the pod on every node, whichever pods leave.
    - ``has_constraints``: a rule may reject the pod on some node.
    - ``counts_pods``: a rule that counts pods by domain may reject it.
    """

    def __init__(
        self,
        pod: Pod,
        view: ClusterView,
        *,
        across: bool = False,
        has_nominated: bool = False,
        has_rules: bool = True,
        beside: Sequence[Pod] = (),
        budget: DryRunBudget | None = None,
        meter: tuple[RuleMeter, str] | None = None,
    ) -> None:
        """Prepares the rules once for all nodes.

        - ``across``: victims may be on other nodes, where a rule says that this helps.
        - ``has_nominated``: the nominated pods count on their nodes already; see `beside_nominated`.
        - ``has_rules``: False checks node fit alone, to find out whether node fit needs the victims of the scheduler.
        - ``beside``: pods that take room on every node that is tried, and that the counts contain already.
        - ``meter``: counts and times the rules, in the verb of this name.
        """
        self.pod = pod
        self.view = view
        self.done: set[NodeNumber] = set()
        self.budget = DryRunBudget(MOST_WORK) if budget is None else budget
        self._across = across
        self._beside = beside
        self._has_nominated = has_nominated
        self._has_rules = has_rules
        self._compiled = compiled = view.compiled(pod.signature)
        self.groups = frozenset(compiled.filter_groups() if has_rules else ())
        self._counted: dict[tuple[PodSignature, bool], bool] = {}
        active = catalog.active(compiled, view) if has_rules else ()
        self._meter = meter
        self.watch = None if meter is None else meter[0].watch
        if meter is not None and not has_nominated:
            meter[0].count(meter[1], POST_FILTER, [rule for rule, _ in active])
        if self.watch is not None:
            self.watch.point = POST_FILTER
        self.fits_nowhere = catalog.prepare(active, pod, view, IndexFrame(), self.watch).failed is not None
        self.has_constraints = bool(active) and not self.fits_nowhere
        # Preparing a filter costs more than a check. So filters that read the live counts are prepared once. Only filters that compute
        # something from the counts when they are prepared are prepared again after each change (`catalog.Recounts`).
        self._lasting = catalog.prepare(catalog.lasting_parts(compiled, view), pod, view, IndexFrame(), self.watch)
        self._recounted = catalog.recounted_parts(compiled, view)
        self._recounts_made: catalog.Recounts | None = None
        self.counts_pods = bool(self._lasting.filters or self._recounted) and not self.fits_nowhere

    @property
    def most_nodes(self) -> int:
        """How many nodes the rest of the budget is enough for, at most."""
        return self.budget.left // (_CHECK + len(self.groups))

    def charge_change(self) -> None:
        """Charges the removal or return of one pod. Every group may count the pod, so each of them is charged."""
        self.budget.left -= _CHANGE + _CHANGE_OF_GROUP * len(self.groups)

    def _charge_check(self) -> None:
        self.budget.left -= _CHECK + len(self.groups)

    def node_trials(self, number: NodeNumber, others: Sequence[Pod], *, checks_fit: bool) -> Sequence[NodeTrial]:
        """As `catalog.node_trials`, charged."""
        trials = catalog.node_trials(
            self.pod, self.view, number, others, checks_fit=checks_fit, has_rules=self._has_rules
        )
        self.budget.left -= _TRIAL * len(trials)
        return trials

    def _recounts(self) -> catalog.Recounts:
        """The recounted parts. To be called before the first change of the counts."""
        recounts = self._recounts_made
        if recounts is None:
            recounts = self._recounts_made = catalog.Recounts(self._recounted, self.pod, self.view, self.watch)
        return recounts

    def _passes_recounted(self, number: NodeNumber, trial: Trial) -> bool:
        """Whether the recounted parts pass. The counts that they read are charged."""
        recounts = self._recounts()
        filters = recounts.filters(trial.changed)
        self.budget.left -= recounts.taken_reads()
        return filters.reason(number) is None

    @contextmanager
    def beside_nominated(self) -> Iterator[DryRun]:
        """Yields a dry run for the same pod in which all nominated pods count on their nodes, until the block ends.

        kube-scheduler counts nominated pods on the candidate node alone (RunFilterPluginsWithNominatedPods). Then several
        preemptors that must be spread are sent to one zone, and all but one of them preempt again elsewhere.

        Yields this dry run itself where no nominated pod can change the outcome. O(nominated pods × groups), from the same budget.
        """
        nominated = list(self._nominated())
        if not nominated:
            yield self
            return
        with self.view.trial() as trial:
            for nominee, number in nominated:
                self.charge_change()
                trial.place(nominee, number)
            beside = DryRun(
                self.pod, self.view, across=self._across, has_nominated=True, budget=self.budget, meter=self._meter
            )
            beside.done = self.done
            yield beside

    @property
    def depends_on_nominated(self) -> bool:
        """Whether any nominated pod could change the outcome. O(nominated pods) at worst."""
        return next(self._nominated(), None) is not None

    def _nominated(self) -> Iterator[tuple[Pod, NodeNumber]]:
        """The nominated pods of equal or higher priority that a rule could count."""
        for node in self.view.nominated:
            for nominee in conflicting_nominated_pods(self.pod, node, self.view):
                if self.groups or nominee.signature.affinity.required_anti:
                    yield nominee, self.view.known[node]

    def on(
        self,
        number: NodeNumber,
        taken: Sequence[Pod] = (),
        *,
        checks_fit: bool = False,
        first: Container[str] = (),
    ) -> NodeVictims | None:
        """The pods to remove for the node. None where no removal helps, or where the budget ends.

        - ``taken``: pods that leave in any case. They are part of the result.
        - ``checks_fit``: check node fit too, where the scheduler has not checked it. Beside nominated pods it is always checked,
          because the scheduler may not know their nominations yet.
        - ``first``: UIDs of pods that leave first among equally important pods.

        O(pods of lower priority on the node × (groups that count them + clauses)).
        """
        node = self.view.node(number)
        if node is None or self.budget.is_spent():
            return None
        # 1. What no removal can change: a rule about the pods of the node that cannot pass even on the empty node.
        conflicting = conflicting_nominated_pods(self.pod, node.name, self.view)
        checks_fit = checks_fit or bool(conflicting)
        others = (*conflicting, *self._beside)
        rooms = self.node_trials(number, others, checks_fit=checks_fit)
        if not all(room.can_pass for room in rooms):
            return None
        # 2. The pods that may leave. Without such rules (room, ports) only pods that a count group counts can make a difference.
        possible = self._possible(number, {victim.uid for victim in taken}, any_pod=bool(rooms))
        # Two orders of equally important pods, so that pods in `first` leave first:
        # 1. `order`: they use up the disruption budgets before the others, so the budgets protect the others.
        # 2. `possible`: they are put back after the others, so the others get the room.
        order = sorted((*taken, *possible), key=lambda victim: (importance(victim), victim.uid not in first))
        violating = {victim.uid for victim in violating_budgets(order, self.view, self.budget)}
        possible.sort(key=lambda victim: (importance(victim), victim.uid in first))
        possible.sort(
            key=lambda victim: victim.uid not in violating
        )  # stable: the order of importance stays in each part
        # 3. All leave; if the preemptor fits then, as many as possible return.
        self._recounts()
        with self.view.trial(self.groups) as trial:
            attempt = _Attempt(self, node, number, trial, rooms, () if self._has_nominated else conflicting)
            for victim in (*taken, *possible):
                attempt.take(victim)
            victims = attempt.reprieve(possible) if attempt.fits() else None
        # 4. A result from a spent budget is not used: pods were not tried, so there may be too many victims.
        if self.budget.is_spent():
            return None
        self.done.add(number)
        if victims is None:
            return None
        chosen = tuple(sorted((*taken, *victims), key=importance))
        return NodeVictims(node.name, chosen, sum(victim.uid in violating for victim in victims))

    def passes(self, number: NodeNumber, trial: Trial) -> bool:
        """Whether the pod passes our rules on the node with the counts of a trial."""
        self._charge_check()
        if not self.has_constraints:
            return True
        return self._lasting.reason(number) is None and self._passes_recounted(number, trial)

    def passes_without(self, leaving: Iterable[Pod], number: NodeNumber) -> bool:
        """As `passes`, after these pods have left their nodes. O(pods × groups)."""
        self._recounts()
        with self.view.trial(self.groups) as trial:
            trial.take_bound(leaving)
            return self.passes(number, trial)

    def passes_beside(self, conflicting: Sequence[Pod], number: NodeNumber, trial: Trial) -> bool:
        """As `passes`, with conflicting nominated pods placed on the node.

        A nominated pod may bring terms that no existing pod has, so the lasting parts are compiled again. The recounted parts read
        the pod's own constraints alone.
        """
        if not self._has_rules:
            return True
        if not self.counts_pods and not any(nominee.signature.affinity.required_anti for nominee in conflicting):
            return True
        self._charge_check()
        self._recounts()
        for nominee in conflicting:
            self.charge_change()
            trial.place(nominee, number)
        compiled = self.view.compiled(self.pod.signature)
        parts = catalog.lasting_parts(compiled, self.view)
        filters = catalog.prepare(parts, self.pod, self.view, IndexFrame(), self.watch)
        passes = filters.reason(number) is None and self._passes_recounted(number, trial)
        for _ in conflicting:
            trial.remove_last()
        return passes

    def _possible(self, number: NodeNumber, taken: set[str], *, any_pod: bool) -> list[Pod]:
        """The pods that may be removed and whose removal may help, most important first.

        ``any_pod``: the removal of any pod on the node may help (it frees room), not only of pods that a count group counts.
        """
        here = self.view.pods_on(number).values()
        victims = [
            victim for victim in here if self._may_leave(victim, taken) and (any_pod or self._is_counted(victim))
        ]
        if self._across:
            victims += [victim for victim in self._elsewhere(number) if self._may_leave(victim, taken)]
        return sorted({victim.uid: victim for victim in victims}.values(), key=importance)

    def _may_leave(self, pod: Pod, taken: set[str]) -> bool:
        """Whether the pod may be a victim. Not a pod that is only assumed: the scheduler cancels it and does not delete it."""
        return pod.priority < self.pod.priority and pod.uid not in taken and is_bound(pod, self.view)

    def _is_counted(self, pod: Pod) -> bool:
        key = (pod.signature, pod.terminating)
        known = self._counted.get(key)
        if known is None:
            known = self._counted[key] = self.view.is_counted(pod, self.groups)
        return known

    def _elsewhere(self, number: NodeNumber) -> Iterable[Pod]:
        """Counted pods on other nodes, where these pods may be the reason why the node is rejected."""
        for other in catalog.other_nodes(self._compiled, number):
            yield from filter(self._is_counted, self.view.pods_on(other).values())


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One node in a trial. A pod leaves, or returns, in the counts and in the room of the node at the same time."""

    run: DryRun
    node: Node
    number: NodeNumber
    trial: Trial
    rooms: Sequence[NodeTrial]
    conflicting: Sequence[Pod]

    def take(self, pod: Pod) -> None:
        """Removes the pod. Does nothing once the budget is spent, because the node is given up then."""
        if self.run.budget.is_spent():
            return
        self.run.charge_change()
        self.trial.take(pod)
        for room in self.rooms:
            if pod.node == self.node.name:
                room.count(pod, -1)

    def put_back(self, pod: Pod) -> None:
        """Returns a removed pod."""
        self.run.charge_change()
        self.trial.put_back(pod)
        for room in self.rooms:
            if pod.node == self.node.name:
                room.count(pod, 1)

    def fits(self) -> bool:
        """Whether the preemptor would pass now: beside the conflicting nominated pods, and without them."""
        for room in self.rooms:  # no generators here: this runs for every pod that is tried
            if not room.passes():
                return False
        if not self.run.passes(self.number, self.trial):
            return False
        return not self.conflicting or self.run.passes_beside(self.conflicting, self.number, self.trial)

    def reprieve(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Puts each pod back with which the preemptor still fits. Returns the others: the victims.

        Repeated until no further pod can be put back. Example: a pod that returns to zone-b raises the minimum of a spread
        constraint, so another pod can return to zone-a. The result has no meaning once the budget is spent.
        """
        while not self.run.budget.is_spent():
            victims = [pod for pod in pods if not self._can_stay(pod)]
            if len(victims) == len(pods) or not victims:
                return victims
            pods = victims
        return pods

    def _can_stay(self, pod: Pod) -> bool:
        if self.run.budget.is_spent():
            return False
        self.put_back(pod)
        if self.fits():
            return True
        self.take(pod)
        return False


# -- the choice among nodes -------------------------------------------------------------------------------------------

# The choice among nodes for a preemption, and the plan for the chosen node. Two callers: the preempt verb, and filter where it
# rejects every node.

# As in kube-scheduler: the search ends once so many candidates are found (minCandidateNodesPercentage and -Absolute).
_LEAST_PERCENT = 10
_LEAST_NODES = 100
# The most nodes tried for that. It limits the time by a count, because verbs have no clock.
MOST_VISITED = 1000

_MOST_EXCLUDED = 3

Search = Callable[[DryRun, Collection[str]], NodeVictims | None]
"""A search: the best removal by a dry run on any node except nodes with these names."""


def may_plan(pod: Pod, view: ClusterView, settings: Settings) -> bool:
    """Whether pods may be preempted for a pod that is rejected on every node. O(distinct priorities)."""
    return settings.preemption.mode == "execute" and not pod.never_preempts and view.has_below(pod.priority)


def best_among(
    nodes: Sequence[NodeNumber],
    run: DryRun,
    seed: int,
    *,
    checks_fit: bool = False,
    evicts: bool = False,
) -> NodeVictims | None:
    """The best removal on one of many nodes; None where no tried node helps. O(nodes tried × dry run).

    Nodes are tried until there are enough removals to choose from, or the budget is spent.

    - ``seed``: chooses the node to begin with, and one of equally good removals.
    - ``evicts``: pods are evicted. A removal that disruption budgets forbid is chosen only where they forbid all of them.
    """
    removals: list[NodeVictims] = []
    wanted = max(len(nodes) * _LEAST_PERCENT // 100, _LEAST_NODES)
    for at in range(min(len(nodes), MOST_VISITED)):
        if run.budget.is_spent():
            break
        removal = run.on(nodes[(seed + at) % len(nodes)], checks_fit=checks_fit)
        if removal is not None and removal.victims:
            removals.append(removal)
            if len(removals) >= wanted and any(not removal.pdb_violations for removal in removals):
                break
    allowed = [removal for removal in removals if not is_forbidden(removal.victims, run.view)] if evicts else []
    by_node = {removal.node: removal for removal in allowed or removals}
    best = best_candidates(removal.candidate() for removal in by_node.values())
    return by_node[best[seed % len(best)].node] if best else None


def found_beside_nominated(run: DryRun, search: Search) -> NodeVictims | None:
    """The removal that a search finds and that helps in two cases: beside all nominated pods, and without them. Else None.

    It has to help without them too, because a nominated pod may never be bound. Where a removal fails that check, the search is
    repeated without its node.
    """
    excluded: set[str] = set()
    while len(excluded) < _MOST_EXCLUDED:
        with run.beside_nominated() as beside:
            removal = search(beside, excluded)
        if removal is None or beside is run:  # without nominated pods that matter there is no second case
            return removal
        # Its victims leave; more may be needed without the nominated pods, which may help the preemptor (affinity).
        repeated = run.on(run.view.known[removal.node], removal.victims)
        if repeated is not None:
            return replace(repeated, pdb_violations=repeated.pdb_violations + removal.pdb_violations)
        excluded.add(removal.node)
    return None


def plan_of(pod: Pod, removal: NodeVictims, view: ClusterView) -> PreemptionPlan:
    """The plan that carries out a removal."""
    nominated = view.nominated.get(removal.node, {})
    displaced = tuple(nominee for nominee in nominated.values() if nominee.priority < pod.priority)
    return PreemptionPlan(pod, removal.node, removal.victims, displaced, removal.pdb_violations)


def node_of_running_plan(pod: Pod, view: ClusterView) -> str:
    """The node of a preemption that still runs for the pod, else empty. While one runs no other pod is preempted for the pod.

    A preemption runs:

    1. while victims of its plan exist;
    2. without a plan of ours: while a preempted pod is terminating on the nominated node, as for kube-scheduler;
    3. after a plan of ours: while the node would take the pod after all victims of plans have left. The scheduler's cache may be
       older than our index, or another nominated pod of the same priority is bound first.
    """
    clearing = node_being_cleared(pod, view)
    if clearing:
        return clearing
    node = view.plan_node(pod.uid)
    number = view.known.get(node)
    return node if number is not None and _takes(number, pod, view, view.leaving(node)) else ""


def keeps_room(pod: Pod, node: str, view: ClusterView) -> bool:
    """Whether the node will take the preemptor after its victims and all terminating pods of lower priority have left.

    False where the node was deleted, cordoned or made smaller, or where other pods have the room.
    O(pods of the node + victims × groups).
    """
    number = view.known.get(node)
    if number is None:
        return False
    terminating = [other for other in view.pods_on(number).values() if other.terminating]
    leaving = {other.uid: other for other in (*view.leaving(node), *terminating)}
    return _takes(number, pod, view, leaving.values())


def node_being_cleared(pod: Pod, view: ClusterView) -> str:
    """The node where victims of this pod still exist, else empty."""
    uncleared = view.uncleared_node(pod.uid)
    if uncleared:
        return uncleared
    shown = view.pod(pod.uid)
    node = (shown.nominated_node if shown is not None else "") or pod.nominated_node
    number = view.known.get(node)
    if number is None:
        return ""
    here = view.pods_on(number).values()
    return (
        node if any(other.terminating and other.preempted and other.priority < pod.priority for other in here) else ""
    )


def _takes(number: NodeNumber, pod: Pod, view: ClusterView, leaving: Iterable[Pod]) -> bool:
    """Whether the pod fits and passes our rules on the node after the leaving pods of lower priority have left."""
    node = view.node_names[number]
    leaving = [other for other in leaving if other.priority < pod.priority]
    trials = catalog.node_trials(pod, view, number, conflicting_nominated_pods(pod, node, view), checks_fit=True)
    for trial in trials:
        for other in leaving:
            if other.node == node:
                trial.count(other, -1)
    if not all(trial.passes() for trial in trials):
        return False
    return DryRun(pod, view).passes_without(leaving, number)
