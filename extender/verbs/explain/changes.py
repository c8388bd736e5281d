"""The changes that would let a pod pass, each tried before it is offered. At most one or two of each kind.

The kinds: more room on a node; a node without its cordon or taints, or with other labels; deleting pods of lower priority; one more
node; moving one pod; other labels on a namespace; another field of a spread constraint.

Each search tries a limited number of candidates. So an empty result means that none of these candidates helps; another one may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from extender.index.nodes.columns import NodeNumber
from extender.model.answers.explanations import ConstraintState, TriedChange
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.model.resources import CPU
from extender.model.units import counted, listed
from extender.verbs.dry_run import DryRun, DryRunBudget, NodeVictims
from extender.verbs.explain.constraint_changes import change_a_constraint
from extender.verbs.explain.namespace_labels import label_a_namespace
from extender.verbs.explain.node_changes import change_a_node, one_more_node
from extender.verbs.explain.trials import Incoming, is_helped_by_moving, missing_room

# Bounds of the searches, each some milliseconds in all.
_MOVABLE: Final = 6
_TARGETS: Final = 40
_PLACES: Final = 3
_DRY_RUNS: Final = 30
_DRY_RUN_WORK: Final = 10_000  # as `MOST_WORK` of `verbs/dry_run.py`: about 1.5 ms for each node
_A_STEP: Final = 120
_RESOURCES_A_STEP: Final = 2000
_MOST_RESOURCES: Final = 1000  # resources of a pod for which more room is searched; nodes offer about ten


def find_changes(incoming: Incoming, constraints: Sequence[ConstraintState]) -> Steps[list[TriedChange]]:
    """The changes found. O(nodes + signatures), and the bounded numbers of trials."""
    changes: list[TriedChange] = []
    for search in (_more_room, change_a_node, _deletions, one_more_node):
        changes += yield from search(incoming)
    changes += yield from _moves(incoming, constraints)
    changes += yield from label_a_namespace(incoming)
    changes += yield from change_a_constraint(incoming)
    return changes


def _more_room(incoming: Incoming) -> Steps[list[TriedChange]]:
    """More room on the node that lacks the least, among nodes where the pod passes the rules."""
    best: tuple[tuple[int, float], NodeNumber, dict[str, int]] | None = None
    resources = len(incoming.pod.requests)
    if resources > _MOST_RESOURCES:
        return []
    in_step = max(_RESOURCES_A_STEP // (1 + resources), 1)
    for at, number in enumerate(incoming.passing, start=1):
        if not at % min(_A_STEP, in_step):
            yield
        if not incoming.may_fit(number) or (best is not None and _least_rank(incoming, number) >= best[0]):
            continue
        missing = missing_room(incoming.pod, number, incoming.view)
        rank = _rank(missing, incoming.pod)
        if missing and (best is None or rank < best[0]):
            best = rank, number, missing
    node = None if best is None else incoming.view.node(best[1])
    if best is None or node is None:
        return []
    name, missing = node.name, best[2]
    text = f"more room on {name}: {', '.join(f'{resource} {_amount(resource, much)}' for resource, much in missing.items())}"
    return [TriedChange(kind="addRoom", text=text, node=name, room=missing)]


def _rank(missing: Mapping[str, int], pod: Pod) -> tuple[int, float]:
    """How many resources are missing, and the sum of their missing shares of the request. Less is better."""
    return len(missing), sum(amount / max(pod.requests.get(name, 1), 1) for name, amount in missing.items())


def _least_rank(incoming: Incoming, number: NodeNumber) -> tuple[int, float]:
    """A lower bound of the node's rank: the rank of the one resource that node fit found missing."""
    rejection = incoming.rejections.get(number)
    if rejection is None or rejection.limit is None or not rejection.blamed:
        return 0, 0.0
    return _rank({rejection.blamed[0]: rejection.count - rejection.limit}, incoming.pod)


def _amount(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == CPU else str(amount)


def _deletions(incoming: Incoming) -> Steps[list[TriedChange]]:
    """Deleting pods of lower priority on one node: without violating a disruption budget if possible, then as few as possible."""
    view, pod = incoming.view, incoming.pod
    if not view.has_below(pod.priority):
        return []
    best: NodeVictims | None = None
    candidates = (number for number in list(incoming.rejections) if incoming.may_fit(number))
    for number in islice(candidates, _DRY_RUNS):
        yield
        run = DryRun(pod, view, budget=DryRunBudget(_DRY_RUN_WORK))
        if run.fits_nowhere:
            return []
        removal = run.on(number, checks_fit=True)
        if removal is not None and removal.victims and (best is None or _cost(removal) < _cost(best)):
            best = removal
        if best is not None and _cost(best) == (0, 1):
            break
    if best is None:
        return []
    names = tuple(victim.full_name for victim in best.victims)
    text = f"deleting {counted(len(names), 'pod')} ({listed(names, most=3)}) of lower priority on {best.node}"
    return [TriedChange(kind="deletePods", text=text, node=best.node, pods=names, pdb_violations=best.pdb_violations)]


def _cost(removal: NodeVictims) -> tuple[int, int]:
    return removal.pdb_violations, len(removal.victims)


def _moves(incoming: Incoming, constraints: Sequence[ConstraintState]) -> Steps[list[TriedChange]]:
    """Moving one pod away from a domain that rejects the incoming pod because of a single pod."""
    view, tried = incoming.view, 0
    for state in constraints:
        if state.limit is None:
            continue
        key = view.key(state.topology_key)
        for domain in state.domains:
            if domain.passes or domain.count - state.limit != 1 or not domain.pods:
                continue  # moving one pod does not help
            there = list(key.nodes_in.get(key.number_of.get(domain.domain, 0), ()))
            movable = yield from _pods_named(set(domain.pods), there, incoming)
            places = list(islice((number for number in there if incoming.may_fit(number)), _PLACES))
            targets = yield from _targets(there, incoming)
            for pod in movable:
                home = view.known.get(pod.node)
                # The moved pod's own node comes first, because the move frees room there.
                for place in dict.fromkeys([number for number in there if number == home] + places):
                    yield
                    if view.pod(pod.uid) is not pod or not incoming.may_fit(place):
                        continue
                    target = is_helped_by_moving(incoming, pod, place, targets)
                    if target:
                        return [_move(pod, target, view.node_names[place])]
                tried += 1
                if tried >= _MOVABLE:
                    return []
    return []


def _move(pod: Pod, target: str, place: str) -> TriedChange:
    text = f"moving {pod.full_name} from {pod.node} to {target}"
    return TriedChange(kind="movePod", text=text, node=place, pods=(pod.full_name,), from_node=pod.node, to=target)


def _pods_named(names: set[str], nodes: Sequence[NodeNumber], incoming: Incoming) -> Steps[list[Pod]]:
    """The pods of these names on the nodes, without terminating and assumed pods. O(pods), until all are found."""
    view, pods = incoming.view, list[Pod]()
    for at, number in enumerate(nodes):
        if at % _A_STEP == _A_STEP - 1:
            yield
        here = view.pods_on(number).values()
        pods += [pod for pod in here if pod.full_name in names and not pod.terminating and pod.uid in view.pods]
        if len(pods) >= len(names):
            break
    return pods


def _targets(avoided: Sequence[NodeNumber], incoming: Incoming) -> Steps[list[NodeNumber]]:
    """Nodes to move a pod to: first nodes outside of the domain, from different parts of the cluster, then nodes inside of it."""
    inside = set(avoided)
    outside = [number for number in incoming.rejections if number not in inside]
    yield
    every = outside[:: max(len(outside) // _TARGETS, 1)][:_TARGETS]
    return [*every, *avoided[:_TARGETS]]
