"""The filter verb with preemption around it: nominated pods counted, plans begun, and running plans not disturbed.

Wrapped around the plain filter by ``compose``. Three things are added to its answer:

1. A node to which pods of equal or higher priority are nominated passes only if the pod passes there with them and
   without them, as in kube-scheduler (RunFilterPluginsWithNominatedPods). Lower ones do not count.
2. A pod refused on every node only because of pods of lower priority gets a plan. kube-scheduler cannot help it: it
   never asks for preemption on nodes that only an extender refuses.
3. While a plan runs, the awaited node alone is told as one on which preemption may help, all others as unresolvable.
   Anything else makes the scheduler wipe the nomination, or try preemption over and over (measured).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.index.view import ClusterView, NodeNumber
from extender.model.objects import Pod
from extender.model.plans import PreemptionPlan
from extender.model.rejections import Reason
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings import Settings
from extender.verbs.candidates import (
    MOST_VISITED,
    NodeSearch,
    found_beside_nominated,
    may_plan,
    node_of_running_plan,
    plan_of,
)
from extender.verbs.nominate_elsewhere import find_node_elsewhere
from extender.verbs.unhelpful_nodes import UnhelpfulNodeCache
from extender.verbs.victims import DryRun, Removal, conflicting_nominated_pods
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

Answer = Callable[[ExtenderArgs], FilterResult]


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """The answer, and the plan that is to be carried out because of it, if any."""

    result: FilterResult
    plan: PreemptionPlan | None = None


def decide_filter(
    args: ExtenderArgs,
    view: ClusterView,
    settings: Settings,
    unhelpful: UnhelpfulNodeCache,
    answer: Answer,
    *,
    seed: int,
) -> FilterDecision:
    """``answer`` is the plain filter. Costs nothing more where it passes a node and nobody is nominated anywhere."""
    if args.nodes is not None or settings.preemption.mode == "off":
        return FilterDecision(answer(args))
    conflicting_nodes = _conflicting_nodes(args, view)
    result = answer(_less(args, conflicting_nodes) if conflicting_nodes else args)
    if result.passed or result.error or not args.node_names:
        return FilterDecision(result)
    awaited = node_of_running_plan(args.pod, view)
    plan = None if awaited else _plan(args, view, settings, unhelpful, seed)
    node = plan.node if plan is not None else awaited
    if not conflicting_nodes and node not in args.node_names:
        return FilterDecision(result, plan)
    return FilterDecision(_rejection(args, view, result, conflicting_nodes, node), plan)


def _conflicting_nodes(args: ExtenderArgs, view: ClusterView) -> set[str]:
    """The asked nodes that pods to come do not leave to this one. O(nominated nodes × dry run)."""
    if not view.nominated:
        return set()
    run = DryRun(args.pod, view)
    asked = set(args.node_names or ())
    return {
        node
        for node, to_come in view.nominated.items()
        if node in asked and (run.has_constraints or _repels(to_come)) and not _leaves_room(node, run)
    }


def _repels(to_come: Mapping[str, Pod]) -> bool:
    """Whether any of the pods to come could keep out a pod that asks for nothing itself."""
    return any(each.signature.affinity.required_anti for each in to_come.values())


def _leaves_room(node: str, run: DryRun) -> bool:
    conflicting = conflicting_nominated_pods(run.pod, node, run.view)
    if not conflicting:
        return True
    with run.view.what_if() as tried:
        return run.passes_beside(conflicting, run.view.known[node], tried)


def _less(args: ExtenderArgs, names: set[str]) -> ExtenderArgs:
    """The question about the other nodes. Its names are not those that came, so nothing is remembered under them."""
    return replace(args, node_names=[name for name in args.node_names or () if name not in names], raw_names=b"")


def _plan(
    args: ExtenderArgs, view: ClusterView, settings: Settings, unhelpful: UnhelpfulNodeCache, seed: int
) -> PreemptionPlan | None:
    """A plan for a pod that was refused on every asked node, None where preempting cannot or may not help."""
    pod, names = args.pod, args.node_names or []
    if not may_plan(pod, view, settings):
        return None
    run = DryRun(pod, view, across=settings.preemption.cross_node)
    if run.is_hopeless or not run.has_constraints:
        return None
    removal = _search(run, names, unhelpful, seed)
    if removal is None:
        return None
    if len(names) < len(view.known) and find_node_elsewhere(pod, view, settings, seed)[0]:
        return None  # a node outside of the scheduler's sample passes as things are: nobody has to die for that
    return plan_of(pod, removal, view)


def _search(run: DryRun, names: Sequence[str], unhelpful: UnhelpfulNodeCache, seed: int) -> Removal | None:
    """The best removal on one of the nodes. O(names + nodes not tried in vain × dry run)."""
    pod, view = run.pod, run.view
    filters = catalog.prepare_filters(view.compiled(pod.signature), IndexFrame())
    if filters.rejects_all is not None and not filters.rejects_all.resolvable:
        return None
    numbers = [number for number in map(view.known.get, names) if number is not None]
    left = unhelpful.without(pod, numbers, view)
    if not left:
        return None
    turn = seed % len(left)
    tried = (left[turn:] + left[:turn])[: min(MOST_VISITED, run.most_nodes)]
    curable = [each for each in tried if _is_curable(filters.rejection(each))]

    def search(beside: DryRun, excluded: Collection[str]) -> Removal | None:
        return NodeSearch(beside, seed).among([each for each in curable if view.node_names[each] not in excluded])

    removal = found_beside_nominated(run, search)
    if removal is None:
        abandoned = set(curable) - run.done if run.is_spent() else set[NodeNumber]()
        unhelpful.add(pod, (each for each in tried if each not in abandoned), view)
    return removal


def _is_curable(rejection: Reason | None) -> bool:
    return rejection is None or rejection.resolvable


def _rejection(
    args: ExtenderArgs, view: ClusterView, result: FilterResult, conflicting_nodes: set[str], awaited: str
) -> FilterResult:
    """A refusal told anew, with the texts for crowded nodes and the awaited one."""
    texts = dict(result.unresolvable)
    if not texts:
        filters = catalog.prepare_filters(view.compiled(args.pod.signature), IndexFrame())
        for name in args.node_names or ():
            number = view.known.get(name)
            reason = Reason.UNKNOWN_NODE if number is None else filters.rejection(number)
            texts[name] = reason.text if reason else ""
    texts |= dict.fromkeys(conflicting_nodes, Reason.NOMINATED.text)
    failed = {awaited: Reason.PREEMPTING.text} if awaited and texts.pop(awaited, None) is not None else {}
    return FilterResult((), failed, texts)
