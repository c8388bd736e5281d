"""The choice among nodes for a preemption, and the plan for the chosen node.

Shared by the two ways into a preemption: the preempt verb, and the filter that rejects every node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan, best_candidates
from extender.model.resources import PODS
from extender.rules import catalog
from extender.rules.frames import IndexFrame, WorstCaseFrame
from extender.rules.free_resources import conflicting_nominated_pods
from extender.settings.configuration import Settings
from extender.verbs.dry_run.victims import DryRun, Removal, is_forbidden

# As kube-scheduler: a dry run ends when so many candidates are found (minCandidateNodesPercentage and -Absolute).
_LEAST_PERCENT = 10
_LEAST_NODES = 100
# The most nodes tried for that: a limit of time by count, as there is no clock here.
MOST_VISITED = 1000

_MOST_EXCLUDED = 3

Search = Callable[[DryRun, Collection[str]], Removal | None]
"""The best removal by a dry run, on none of the nodes with these names."""


def may_plan(pod: Pod, view: ClusterView, settings: Settings) -> bool:
    """Whether pods may be preempted for this pod at all, if it is rejected on every node. O(distinct priorities)."""
    return settings.preemption.mode == "execute" and not pod.never_preempts and view.has_below(pod.priority)


@dataclass(frozen=True, slots=True)
class NodeSearch:
    """Dry runs over many nodes, from a random node on, until enough are found to choose from or the budget is spent."""

    run: DryRun
    seed: int
    checks_fit: bool = False
    most_visited: int = MOST_VISITED
    evicts: bool = False

    def among(self, nodes: Sequence[NodeNumber]) -> Removal | None:
        """The best removal found, None where none of the nodes tried helps. O(nodes tried × dry run).

        ``evicts``: one that disruption budgets forbid only where they forbid all.
        """
        found = self._found(nodes)
        if self.evicts:
            found = [each for each in found if not is_forbidden(each.victims, self.run.view)] or found
        return best_removal(found, self.seed)

    def _found(self, nodes: Sequence[NodeNumber]) -> list[Removal]:
        found: list[Removal] = []
        if not nodes:
            return found
        wanted = max(len(nodes) * _LEAST_PERCENT // 100, _LEAST_NODES)
        start = self.seed % len(nodes)
        for at in range(min(len(nodes), self.most_visited)):
            if self.run.is_spent():
                break
            removal = self.run.on(nodes[(start + at) % len(nodes)], checks_fit=self.checks_fit)
            if removal is not None and removal.victims:
                found.append(removal)
                if len(found) >= wanted and any(not each.pdb_violations for each in found):
                    break
        return found


def found_beside_nominated(run: DryRun, search: Search) -> Removal | None:
    """The removal that a search finds and that helps beside all nominated pods and without them; None where none does.

    Without them too, as a nominated pod may never be bound. The search is repeated without a node on which that fails.
    """
    excluded: set[str] = set()
    while len(excluded) < _MOST_EXCLUDED:
        with run.beside_nominated() as beside:
            removal = search(beside, excluded)
        if removal is None or beside is run:
            return removal
        found = run.on(run.view.known[removal.node], removal.victims)
        if found is not None:
            return replace(found, pdb_violations=found.pdb_violations + removal.pdb_violations)
        excluded.add(removal.node)
    return None


def best_removal(removals: Iterable[Removal], seed: int) -> Removal | None:
    """The removal on the node that the scheduler would prefer; ``seed`` chooses among equals."""
    by_node = {each.node: each for each in removals}
    best = best_candidates(each.candidate() for each in by_node.values())
    return by_node[best[seed % len(best)].node] if best else None


def plan_of(pod: Pod, removal: Removal, view: ClusterView) -> PreemptionPlan:
    """The plan that carries out a removal."""
    nominated = view.nominated.get(removal.node, {})
    displaced = tuple(each for each in nominated.values() if each.priority < pod.priority)
    return PreemptionPlan(pod, removal.node, removal.victims, displaced, removal.pdb_violations)


def fits_somewhere(pod: Pod, view: ClusterView, settings: Settings) -> bool:
    """Whether a node takes the pod as it is, as far as the index tells: then no pod has to be preempted for it.

    Needs that the index does not hold (volumes, devices) are taken as met. Pods of undetermined node count wherever that is
    worst. O(nodes × resources of the pod), 0.5 us for each of the nodes without room, which are almost all where a pod preempts.
    """
    compiled = view.compiled(pod.signature)
    frame = WorstCaseFrame(IndexFrame(), view) if view.is_undetermined(compiled) else IndexFrame()
    filters = catalog.prepare_filters(pod, compiled, view, frame)
    if filters.rejects_every_node:
        return False
    fit, kept = catalog.NODE_FIT.prepare_filter(pod, compiled, view, IndexFrame()), KeptNodes(pod, view, settings)
    passing = filters.passing(_with_room(pod, view))
    return any(fit.reason(number) is None and view.node_names[number] not in kept for number in passing)


def _with_room(pod: Pod, view: ClusterView) -> list[NodeNumber]:
    """The nodes with enough free of each resource that the pod requests, beside the pods on them. Cheaper than node fit."""
    wanted = [(name, amount) for name, amount in pod.requests.items() if amount > 0 and name != PODS]
    found: list[NodeNumber] = []
    for number in view.known.values():
        node = view.node(number)
        if node is None:
            continue
        offered, used = node.allocatable, view.requested(number)
        for name, amount in wanted:
            if amount > offered.get(name, 0) - used.get(name, 0):
                break
        else:
            if len(view.pods_on(number)) < offered.get(PODS, 0):
                found.append(number)
    return found


def node_of_running_plan(pod: Pod, view: ClusterView) -> str:
    """The node of a preemption that still runs for the pod, else empty. Meanwhile no other pod is preempted for it.

    A preemption runs while victims of its plan exist. Without a plan of ours it runs, as for kube-scheduler, while a
    preempted pod is still terminating on the nominated node. After a plan of ours it runs on while the node would take
    the pod once all victims of plans have left it: the scheduler's cache may be behind ours, or another nominated pod
    of the same priority is bound first.
    """
    clearing = node_being_cleared(pod, view)
    if clearing:
        return clearing
    node = view.plan_node(pod.uid)
    number = view.known.get(node)
    return node if number is not None and _takes(number, pod, view) else ""


def node_being_cleared(pod: Pod, view: ClusterView) -> str:
    """The node where victims of this pod still exist, empty where none do."""
    uncleared = view.uncleared_node(pod.uid)
    if uncleared:
        return uncleared
    node = _nominated_node(pod, view)
    number = view.known.get(node)
    if number is None:
        return ""
    here = view.pods_on(number).values()
    return node if any(each.terminating and each.preempted and each.priority < pod.priority for each in here) else ""


def _nominated_node(pod: Pod, view: ClusterView) -> str:
    shown = view.pod(pod.uid)
    return (shown.nominated_node if shown is not None else "") or pod.nominated_node


def _takes(number: NodeNumber, pod: Pod, view: ClusterView) -> bool:
    """Whether the node takes the pod and our rules let it pass, without the pods that leave the node by plan."""
    node = view.node_names[number]
    leaving = [each for each in view.leaving(node) if each.priority < pod.priority]
    trials = catalog.node_trials(pod, view, number, conflicting_nominated_pods(pod, node, view), checks_fit=True)
    for trial in trials:
        for each in leaving:
            if each.node == node:
                trial.count(each, -1)
    if not all(trial.passes() for trial in trials):
        return False
    run = DryRun(pod, view)
    with view.without(leaving):
        return run.passes(number)


class KeptNodes(Container[str]):
    """The nodes on which a pod conflicts with nominated pods. A node is checked when it is looked up. O(dry run).

    A node to which pods of equal or higher priority are nominated passes only if the pod passes there with them and
    without them, as in kube-scheduler (RunFilterPluginsWithNominatedPods). Nominated pods of lower priority do not count.
    No node is kept where the settings switch preemption off.
    """

    def __init__(self, pod: Pod, view: ClusterView, settings: Settings) -> None:
        self._pod = pod
        self._view = view
        self._nominated = view.nominated if settings.preemption.mode != "off" else {}
        self._run: DryRun | None = None  # takes as long to prepare as a decision, and is mostly not needed

    def among(self, requested: Container[str]) -> set[str]:
        """Those of the requested nodes that are kept. O(nominated nodes × dry run)."""
        return {node for node in self._nominated if node in requested and node in self}

    def __contains__(self, node: object) -> bool:
        """Whether the node is kept."""
        pods = self._nominated.get(node) if isinstance(node, str) else None
        if not pods or not isinstance(node, str):
            return False
        run = self._run = self._run or DryRun(self._pod, self._view)
        return (run.counts_pods or _have_anti_affinity(pods)) and not _leaves_room(node, run)


def _have_anti_affinity(nominated: Mapping[str, Pod]) -> bool:
    """Whether any nominated pod could reject a pod that has no constraints itself."""
    return any(each.signature.affinity.required_anti for each in nominated.values())


def _leaves_room(node: str, run: DryRun) -> bool:
    conflicting = conflicting_nominated_pods(run.pod, node, run.view)
    if not conflicting:
        return True
    with run.view.what_if() as tried:
        return run.passes_beside(conflicting, run.view.known[node], tried)
