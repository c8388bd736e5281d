"""The changes that would let a pod pass, each tried before it is offered. At most one or two of each kind.

More room on a node, one more node, moving one pod, labelling a namespace, deleting pods of lower priority. Each search
tries a bounded number of candidates, so an empty result means that none of those helps, not that nothing could.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from msgspec import structs

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import Change, ConstraintState
from extender.model.constraints.labels import HOSTNAME, Labels, Operator
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.model.resources import CPU, PODS
from extender.rules import catalog
from extender.rules.constraint_states import Steps
from extender.rules.frames import IndexFrame, RequestFrame
from extender.rules.free_resources import FreeResources, claims_on, free_resources_on
from extender.rules.interpod_affinity import own_terms
from extender.rules.node_fit import static_rejection
from extender.settings.configuration import Settings
from extender.verbs.dry_run import Budget, DryRun, KeptNodes, Removal
from extender.verbs.effective_pod import effective_pod
from extender.verbs.request import worst_case

_NEW_NODE: Final = "new-node"
_NEW_DOMAIN: Final = "new"

# Bounds of the searches, each some milliseconds in all.
_TEMPLATES: Final = 8
_MOVABLE: Final = 6
_TARGETS: Final = 40
_PLACES: Final = 3
_NAMESPACES: Final = 4
_DRY_RUNS: Final = 30
_DRY_RUN_WORK: Final = 10_000  # as `dry_run.victims.MOST_WORK`: about 1.5 ms for each node
_A_STEP: Final = 120
_RESOURCES_A_STEP: Final = 2000
_MOST_RESOURCES: Final = 1000  # of a pod that more room is looked for; nodes offer some ten


def find_changes(incoming: Incoming, constraints: Sequence[ConstraintState]) -> Steps[list[Change]]:
    """The changes found. O(nodes + signatures), and the bounded numbers of trials."""
    found: list[Change] = []
    for search in (_more_room, _deletions, _one_more_node):
        found += yield from search(incoming)
    found += yield from _moves(incoming, constraints)
    found += yield from _labels(incoming)
    return found


def _more_room(incoming: Incoming) -> Steps[list[Change]]:
    """The node that the rules let pass and that lacks least."""
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
    if best is None:
        return []
    name, missing = incoming.view.node_names[best[1]], best[2]
    text = f"more room on {name}: {', '.join(f'{each} {_amount(each, much)}' for each, much in missing.items())}"
    return [Change(kind="addRoom", text=text, node=name, room=missing)]


def _rank(missing: Mapping[str, int], pod: Pod) -> tuple[int, float]:
    """How many resources are missing, and how much in parts of what is requested; less is better."""
    return len(missing), sum(amount / max(pod.requests.get(name, 1), 1) for name, amount in missing.items())


def _least_rank(incoming: Incoming, number: NodeNumber) -> tuple[int, float]:
    """A rank that the node's cannot be below: that of the one resource which node fit has told already."""
    found = incoming.rejections.get(number)
    if found is None or found.limit is None or not found.blamed:
        return 0, 0.0
    return _rank({found.blamed[0]: found.count - found.limit}, incoming.pod)


def _amount(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == CPU else str(amount)


def _deletions(incoming: Incoming) -> Steps[list[Change]]:
    """The deletion of the fewest pods of lower priority on one node, without violating a disruption budget if possible."""
    view, pod = incoming.view, incoming.pod
    if not view.has_below(pod.priority):
        return []
    best: Removal | None = None
    candidates = (each for each in list(incoming.rejections) if incoming.may_fit(each))
    for number in islice(candidates, _DRY_RUNS):
        yield
        run = DryRun(pod, view, budget=Budget(_DRY_RUN_WORK))
        if run.fits_nowhere:
            return []
        removal = run.on(number, checks_fit=True)
        if removal is not None and removal.victims and (best is None or _cost(removal) < _cost(best)):
            best = removal
        if best is not None and _cost(best) == (0, 1):
            break
    if best is None:
        return []
    names = tuple(each.full_name for each in best.victims)
    text = f"deleting {_listed(names)} of lower priority on {best.node}"
    return [Change(kind="deletePods", text=text, node=best.node, pods=names, pdb_violations=best.pdb_violations)]


def _cost(removal: Removal) -> tuple[int, int]:
    return removal.pdb_violations, len(removal.victims)


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} pod{'s' * (len(names) != 1)} ({', '.join(names[:most])}{more})"


def _one_more_node(incoming: Incoming) -> Steps[list[Change]]:
    """A node like an existing one, first in the same domains, then in new ones."""
    pod, compiled, view = incoming.pod, incoming.compiled, incoming.view
    keys = sorted({group.key.key for group in compiled.filter_groups()} - {HOSTNAME})
    name = next(each for each in (_NEW_NODE, *(f"{_NEW_NODE}-{n}" for n in range(1000))) if each not in view.known)
    templates = yield from _templates(incoming, keys)
    for template in templates:
        same = {**template.labels, **({HOSTNAME: name} if HOSTNAME in template.labels else {})}
        for labels, where in _variants(same, keys):
            yield
            node = Node(name, labels, template.taints, allocatable=template.allocatable)
            if passes_on_new_node(pod, compiled, node, view):
                text = f"one more node like {template.name}{where}"
                return [Change(kind="addNode", text=text, node=name, like=template.name, labels=labels)]
    return []


def _variants(labels: Labels, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], str]]:
    """The labels of a new node, and words for the domains that are new."""
    yield dict(labels), ""
    for key in keys:
        yield {**labels, key: _NEW_DOMAIN}, f", in a new {key}"
    if len(keys) > 1:
        yield {**labels, **dict.fromkeys(keys, _NEW_DOMAIN)}, f", in a new {' and '.join(keys)}"


def _templates(incoming: Incoming, keys: Sequence[str]) -> Steps[list[Node]]:
    """Nodes that could take the pod were they empty, of different domains."""
    view, found = incoming.view, dict[tuple[str | None, ...], Node]()
    for at, number in enumerate(incoming.rejections):
        if at % _A_STEP == _A_STEP - 1:
            yield
        node = view.node(number)
        if node is None or not incoming.may_fit(number) or empty(node).shortage(incoming.pod.requests):
            continue
        found.setdefault(tuple(node.labels.get(key) for key in keys), node)
        if len(found) >= _TEMPLATES:
            break
    return list(found.values())


def _moves(incoming: Incoming, constraints: Sequence[ConstraintState]) -> Steps[list[Change]]:
    """Moving one pod away from a domain that rejects because of this one pod."""
    view, tried = incoming.view, 0
    for state in constraints:
        if state.limit is None:
            continue
        key = view.key(state.topology_key)
        for domain in state.domains:
            if domain.passes or domain.count - state.limit != 1 or not domain.pods:
                continue
            there = list(key.nodes_in.get(key.number_of.get(domain.domain, 0), ()))
            movable = yield from _pods_named(set(domain.pods), there, incoming)
            places = list(islice((each for each in there if incoming.may_fit(each)), _PLACES))
            targets = yield from _targets(there, incoming)
            for pod in movable:
                # The place that the pod frees itself comes first.
                for place in dict.fromkeys([each for each in there if view.node_names[each] == pod.node] + places):
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


def _move(pod: Pod, target: str, place: str) -> Change:
    text = f"moving {pod.full_name} from {pod.node} to {target}"
    return Change(kind="movePod", text=text, node=place, pods=(pod.full_name,), from_node=pod.node, to=target)


def _pods_named(names: set[str], nodes: Sequence[NodeNumber], incoming: Incoming) -> Steps[list[Pod]]:
    """The pods of these names that the watch shows on the nodes and that do not terminate. O(pods), until all are found."""
    view, found = incoming.view, list[Pod]()
    for at, number in enumerate(nodes):
        if at % _A_STEP == _A_STEP - 1:
            yield
        here = view.pods_on(number).values()
        found += [each for each in here if each.full_name in names and not each.terminating and each.uid in view.pods]
        if len(found) >= len(names):
            break
    return found


def _targets(avoided: Sequence[NodeNumber], incoming: Incoming) -> Steps[list[NodeNumber]]:
    """Nodes to move a pod to: outside of the domain first, from different parts of the cluster, then inside of it."""
    inside = set(avoided)
    outside = [each for each in incoming.rejections if each not in inside]
    yield
    every = outside[:: max(len(outside) // _TARGETS, 1)][:_TARGETS]
    return [*every, *avoided[:_TARGETS]]


def _labels(incoming: Incoming) -> Steps[list[Change]]:
    """Labelling a namespace whose pods a term of required affinity would then reach."""
    view, signature = incoming.view, incoming.pod.signature
    own = own_terms(incoming.compiled)
    if not own.affinity or own.matches_itself:
        return []
    terms = [each for each in signature.affinity.required if each.namespace_selector is not None]
    candidates = yield from _unreached(terms, incoming)
    for namespace, wanted in islice(candidates.items(), _NAMESPACES):
        yield
        old = view.namespace_labels(namespace)
        if old is None or namespace == signature.namespace:
            continue
        trial = with_labelled_namespace(signature, namespace, old, {**old, **wanted})
        if trial is None:
            continue
        pod = structs.replace(incoming.pod, signature=trial)
        try:
            node = _first_passing(pod, incoming)
        finally:
            view.release_compiled(trial)
        if node:
            text = f"label {','.join(f'{key}={value}' for key, value in wanted.items())} on namespace {namespace}"
            return [Change(kind="labelNamespace", text=text, node=node, namespace=namespace, labels=wanted)]
    return []


def _first_passing(pod: Pod, incoming: Incoming) -> str:
    """The first node with a counted pod's domain that the pod passes and fits on; "" without one. O(nodes) at worst."""
    view, compiled = incoming.view, incoming.view.compiled(pod.signature)
    for group in own_terms(compiled).affinity:
        for domain in list(group.counts)[:_PLACES]:
            for number in islice(group.key.nodes_in.get(domain, ()), _TARGETS):
                if not incoming.may_fit(number) or not fits_without(pod, number, (), view):
                    continue
                if passes(pod, compiled, number, view):
                    return view.node_names[number]
    return ""


def _unreached(terms: Sequence[AffinityTerm], incoming: Incoming) -> Steps[dict[str, dict[str, str]]]:
    """Namespaces with pods that a term selects by their labels and does not reach, with the labels that they lack."""
    found: dict[str, dict[str, str]] = {}
    if not terms:
        return found
    view, looked = incoming.view, set[tuple[int, str]]()
    for at, placed in enumerate(view.placed()):
        if at % _A_STEP == _A_STEP - 1:
            yield
        if placed is None:
            continue
        labels, namespace = placed.signature.labels, placed.signature.namespace
        for each in () if placed.terminating else terms:
            if (id(each), namespace) in looked or not each.selector.matches(labels):
                continue
            looked.add((id(each), namespace))
            known = view.namespace_labels(namespace)
            if known is None or each.covers(namespace, known) or each.namespace_selector is None:
                continue
            wanted = _lacked(each.namespace_selector, known)
            if wanted is not None:
                found[namespace] = {**found.get(namespace, {}), **wanted}
        if len(found) >= _NAMESPACES:
            break
    return found


def _lacked(selector: LabelSelector, labels: Labels) -> dict[str, str] | None:
    """The labels that a namespace lacks for a selector; None where it would have to lose one."""
    wanted: dict[str, str] = {}
    for clause in selector.requirements:
        if clause.matches(labels):
            continue
        if clause.operator is Operator.IN:
            wanted[clause.key] = clause.values[0]
        elif clause.operator is Operator.EXISTS:
            wanted[clause.key] = "true"
        else:
            return None
    return wanted if selector.matches({**labels, **wanted}) else None


# -- trials -----------------------------------------------------------------------------------------------------------

# Trials: whether the pod would pass on a node after a change. All that is changed on the counts is undone in the same step.
#
# A change is tried with the rules that filter, never guessed. What a trial cannot express exactly is not offered.


class Incoming:
    """A pod that is on no node: its effective form, its constraints, and what is known of each node.

    ``asked`` is the pod without what policies direct, as kube-scheduler checks it against nodes. ``kept`` are nodes kept for
    nominated pods, ``passing`` those that filter lets pass, ``rejections`` are those of node fit.
    """

    def __init__(self, asked: Pod, view: ClusterView, settings: Settings) -> None:
        self.asked, self.view = asked, view
        self.pod = effective_pod(asked, view, settings)
        self.compiled = view.compiled(self.pod.signature)
        self.frame = worst_case(IndexFrame(), self.compiled, view)
        self.numbers: Sequence[NodeNumber] = list(view.known.values())
        self.kept = {view.known[name] for name in KeptNodes(self.pod, view, settings).among(view.known)}
        self.passing: list[NodeNumber] = []
        self.rejections: dict[NodeNumber, Rejection | None] = {}

    def may_fit(self, number: NodeNumber) -> bool:
        """Whether nothing but room keeps the pod off the node, as far as node fit tells."""
        if number in self.kept or self.view.node(number) is None:
            return False
        found = self.rejections.get(number)
        return found is None or found.reason in (Reason.NO_ROOM, Reason.HOST_PORTS)


def passes(pod: Pod, compiled: CompiledConstraints, number: NodeNumber, view: ClusterView) -> bool:
    """Whether the rules let the pod pass on a node as the counts are now. O(clauses)."""
    return (
        catalog.prepare_beside_fit(pod, compiled, view, worst_case(IndexFrame(), compiled, view)).reason(number) is None
    )


def passes_on_new_node(pod: Pod, compiled: CompiledConstraints, node: Node, view: ClusterView) -> bool:
    """Whether the pod passes and fits on a node that does not exist yet. O(clauses)."""
    if static_rejection(pod, node) is not None or empty(node).shortage(pod.requests):
        return False
    frame = worst_case(RequestFrame([node]), compiled, view)
    return catalog.prepare_beside_fit(pod, compiled, view, frame).reason(0) is None


def empty(node: Node) -> FreeResources:
    """What a node without pods offers."""
    return FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0))


def fits_without(pod: Pod, number: NodeNumber, leaving: Iterable[Pod], view: ClusterView) -> bool:
    """Whether the node has room for the pod, and nothing else keeps it off, once these pods have left it. O(resources)."""
    node = view.node(number)
    if node is None or static_rejection(pod, node) is not None:
        return False
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    for each in leaving:
        if each.node == node.name:
            free.count(each, -1)
    return free.takes(pod)


def missing_room(pod: Pod, number: NodeNumber, view: ClusterView) -> dict[str, int]:
    """By resource how much more the node would have to offer for the pod. O(resources)."""
    node = view.node(number)
    if node is None:
        return {}
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    missing = {PODS: 1 - free.slots} if free.slots < 1 else {}
    for name, amount in pod.requests.items():
        if name != PODS and amount > max(free.free.get(name, 0), 0):
            missing[name] = amount - free.free.get(name, 0)
    for name, amount in missing.items():
        free.free[name] = free.free.get(name, 0) + amount
    free.slots += missing.get(PODS, 0)
    return missing if free.takes(pod) else {}


def is_helped_by_moving(incoming: Incoming, moved: Pod, number: NodeNumber, targets: Iterable[NodeNumber]) -> str:
    """The first of the target nodes to which ``moved`` may go so that the incoming pod passes and fits on a node; else "".

    The moved pod passes its own rules and fits there. O(targets × clauses).
    """
    view, pod = incoming.view, incoming.pod
    if not fits_without(pod, number, (moved,), view):
        return ""
    # Compiled before anything is taken: a group that is made in the trial would count the pod that left.
    own, placed = view.compiled(moved.signature), structs.replace(moved, node="")
    if view.is_undetermined(own):
        return ""
    with view.what_if() as tried:
        tried.take(moved)
        if not passes(pod, incoming.compiled, number, view):
            return ""
        filters = catalog.prepare_beside_fit(placed, own, view, IndexFrame())
        for target in targets:
            node = view.node(target)
            if node is None or node.name == moved.node or filters.reason(target) is not None:
                continue
            if not fits_without(placed, target, (), view):
                continue
            tried.place(placed, target)
            helps = passes(pod, incoming.compiled, number, view)
            tried.remove_placed()
            if helps and (target != number or fits_without(pod, number, (moved,), view)):
                return node.name
    return ""


def with_labelled_namespace(signature: PodSignature, namespace: str, old: Labels, new: Labels) -> PodSignature | None:
    """The signature as if the namespace, not its own, had the new labels: its terms name the namespace that they reach then.

    None where a term would no longer reach the namespace, which a name cannot express.
    """
    terms = [*signature.affinity.required, *signature.affinity.required_anti]
    if any(each.covers(namespace, old) and not each.covers(namespace, new) for each in terms):
        return None

    def reaching(term: AffinityTerm) -> AffinityTerm:
        if term.covers(namespace, old) or not term.covers(namespace, new):
            return term
        return structs.replace(term, namespaces=tuple(sorted({*term.namespaces, namespace})))

    affinity = signature.affinity
    return replace(
        signature,
        affinity=replace(
            affinity,
            required=tuple(map(reaching, affinity.required)),
            required_anti=tuple(map(reaching, affinity.required_anti)),
        ),
    )
