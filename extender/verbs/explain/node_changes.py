"""Changes of nodes that would let a pod pass: one more node, no cordon, no taints, other labels.

Labels and taints that the kubelet, the cloud provider or a controller of Kubernetes maintains are not changed: taints such as
``node.kubernetes.io/not-ready``, the host name, and well-known labels that the node has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

from msgspec import structs

from extender.model.answers.explanations import TriedChange, shown_domain
from extender.model.bounded import Steps
from extender.model.constraints.labels import HOSTNAME, Labels, Operator
from extender.model.constraints.node_affinity import NodeAffinity, NodeRequirement, as_int64
from extender.model.constraints.taints import CORDON, Taint, first_untolerated
from extender.model.objects import Node
from extender.model.rejections import Reason, Rejection
from extender.rules.free_resources import static_rejection
from extender.rules.interpod_affinity import own_terms
from extender.verbs.explain.trials import Incoming, empty, passes_on_changed_node, passes_on_new_node

_Changes = Iterator[tuple[TriedChange, Node]]

_NEW_NODE: Final = "new-node"
_NEW_DOMAIN: Final = "new"

# Bounds of the searches, each some milliseconds in all.
_TEMPLATES: Final = 8
_EXAMPLES: Final = 16  # nodes into whose domains other nodes are put
_NEW_NODES: Final = 100  # labels that a new node is tried with
_TRIALS: Final = 40  # nodes, for each kind of change
_TERMS: Final = 4  # of required node affinity
_A_STEP: Final = 100
_CLAUSES_A_STEP: Final = 2000


def one_more_node(incoming: Incoming) -> Steps[list[TriedChange]]:
    """One more node like an existing one: first in the same domains, then in another node's domains, then in new domains."""
    pod, compiled, view = incoming.pod, incoming.compiled, incoming.view
    keys = sorted({group.key.key for group in compiled.filter_groups()} - {HOSTNAME})
    name = next(name for name in (_NEW_NODE, *(f"{_NEW_NODE}-{n}" for n in range(1000))) if name not in view.known)
    templates = yield from _templates(incoming, keys)
    examples = (yield from _examples(incoming, keys)) if templates else []
    for template, moved in islice(_variants(templates, examples, keys), _NEW_NODES):
        yield
        labels = {**template.labels, **({HOSTNAME: name} if HOSTNAME in template.labels else {}), **moved}
        node = Node(name, labels, template.taints, allocatable=template.allocatable)
        if passes_on_new_node(pod, compiled, node, view):
            text = f"one more node like {template.name}{_where(moved)}"
            return [TriedChange(kind="addNode", text=text, node=name, like=template.name, labels=labels)]
    return []


def _variants(
    templates: Sequence[Node], examples: Sequence[Node], keys: Sequence[str]
) -> Iterator[tuple[Node, Mapping[str, str]]]:
    """The template of a new node, and the labels of the domains into which it is put."""
    yield from ((template, {}) for template in templates)
    for example in examples:
        there = {key: example.labels[key] for key in keys if key in example.labels}
        for template in templates:
            moved = {key: value for key, value in there.items() if template.labels.get(key) != value}
            if moved:
                yield template, moved
    for template in templates:
        # A new domain has no pods: it helps against anti-affinity and skew.
        yield from ((template, {key: _NEW_DOMAIN}) for key in keys)
        if len(keys) > 1:
            yield template, dict.fromkeys(keys, _NEW_DOMAIN)


def _where(moved: Mapping[str, str]) -> str:
    """The text for domains of a new node that differ from its template's."""
    if not moved:
        return ""
    if set(moved.values()) == {_NEW_DOMAIN}:
        return f", in a new {' and '.join(moved)}"
    return f", in {' and '.join(f'{key}={shown_domain(value)}' for key, value in moved.items())}"


def _templates(incoming: Incoming, keys: Sequence[str]) -> Steps[list[Node]]:
    """Nodes of different domains that would take the pod if they were empty and not cordoned."""
    view, nodes = incoming.view, dict[tuple[str | None, ...], Node]()
    for at, (number, rejection) in enumerate(incoming.rejections.items()):
        if at % _A_STEP == _A_STEP - 1:
            yield
        node = view.node(number)
        # A new node gets the taints and most labels of its template, so it would mostly be rejected too.
        if node is None or (rejection is not None and rejection.reason in (Reason.TAINT, Reason.NODE_AFFINITY)):
            continue
        node = uncordoned(node)
        if static_rejection(incoming.pod, node) is not None or empty(node).shortage(incoming.pod.requests):
            continue
        nodes.setdefault(tuple(node.labels.get(key) for key in keys), node)
        if len(nodes) >= _TEMPLATES:
            break
    return list(nodes.values())


def _examples(incoming: Incoming, keys: Sequence[str]) -> Steps[list[Node]]:
    """Nodes of different domains of these keys. Other nodes may pass if they were in these domains.

    Nodes that pass the rules come first, then nodes near pods that required affinity selects.
    """
    nodes: dict[tuple[str | None, ...], Node] = {}
    near = (
        next(iter(group.key.nodes_in.get(domain, ())), None)
        for group in own_terms(incoming.compiled).affinity
        for domain in islice(list(group.counts), _EXAMPLES)
    )
    order = chain(incoming.passing, (number for number in near if number is not None), incoming.numbers) if keys else ()
    for at, number in enumerate(order):
        if at % _A_STEP == _A_STEP - 1:
            yield
        node = incoming.view.node(number)
        if node is not None:
            nodes.setdefault(tuple(node.labels.get(key) for key in keys), node)
        if len(nodes) >= _EXAMPLES:
            break
    return list(nodes.values())


def change_a_node(incoming: Incoming) -> Steps[list[TriedChange]]:
    """At most one change of each kind: uncordon a node, remove its taints, change its labels. Nodes that pass the rules come first."""
    affinities = _required(incoming)
    clauses = sum(
        len(affinity.node_selector) + sum(len(t.expressions) for t in affinity.terms or ()) for affinity in affinities
    )
    keys = sorted({group.key.key for group in incoming.compiled.filter_groups()} - {HOSTNAME})
    examples = yield from _examples(incoming, keys)
    # Fewer nodes a step for a pod with many clauses, so that a step takes the same time.
    in_step = max(min(_A_STEP, _CLAUSES_A_STEP // (1 + clauses + len(examples))), 1)
    labellings = partial(_labellings, affinities=affinities, examples=examples, keys=keys)
    changes: dict[str, TriedChange] = {}
    tried: Counter[str] = Counter()
    order = dict.fromkeys(incoming.passing, True) | dict.fromkeys(
        set(incoming.numbers).difference(incoming.passing), False
    )
    for at, (number, passes) in enumerate(order.items()):
        if at % in_step == in_step - 1:
            yield
        node = incoming.view.node(number)
        if node is None or number in incoming.kept:
            continue
        for change, changed in _changes_of(node, incoming.rejections.get(number), incoming, labellings, passes=passes):
            if change.kind in changes or tried[change.kind] >= _TRIALS or static_rejection(incoming.pod, changed):
                continue
            tried[change.kind] += 1
            if passes_on_changed_node(incoming, number, changed):
                changes[change.kind] = change
            yield
            # The node has changed in the pause, so its other changes are about a node that no longer exists.
            if incoming.view.node(number) is not node:
                break
    return list(changes.values())


def _changes_of(
    node: Node, rejection: Rejection | None, incoming: Incoming, labellings: Callable[[Node], _Changes], *, passes: bool
) -> _Changes:
    """The changes of one node that are worth a trial, each with the changed node. ``passes``: the node passes the rules now."""
    reason = None if rejection is None else rejection.reason
    if reason is Reason.CORDONED:
        change = TriedChange(kind="uncordonNode", text=f"uncordon {node.name}", node=node.name)
        return iter([(change, uncordoned(node))])
    if reason is Reason.TAINT:
        return _without_taints(node, incoming)
    return labellings(node) if reason is Reason.NODE_AFFINITY or not passes else iter(())


def uncordoned(node: Node) -> Node:
    """The node without its cordon, and without the taint that the node lifecycle controller gives to a cordoned node."""
    if not node.unschedulable:
        return node
    taints = tuple(taint for taint in node.taints if taint != CORDON)
    return structs.replace(node, unschedulable=False, taints=taints)


def _without_taints(node: Node, incoming: Incoming) -> _Changes:
    tolerations = incoming.pod.signature.tolerations
    untolerated = [taint for taint in node.taints if first_untolerated((taint,), tolerations) is not None]
    # The node lifecycle controller would put the taint back.
    if any(_is_kept_by_kubernetes(taint.key) for taint in untolerated):
        return
    names = tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in untolerated)
    text = f"remove the taint{'s' * (len(names) > 1)} {' and '.join(names)} from {node.name}"
    rest: tuple[Taint, ...] = tuple(taint for taint in node.taints if taint not in untolerated)
    yield TriedChange(kind="removeTaints", text=text, node=node.name, taints=names), structs.replace(node, taints=rest)


# -- labels -----------------------------------------------------------------------------------------------------------


def _required(incoming: Incoming) -> list[NodeAffinity]:
    """The node requirements of the pod and of the policies that hold it."""
    signature = incoming.pod.signature
    enforced = () if signature.enforced is None else (signature.enforced.nodes,)
    return [affinity for affinity in (signature.node_affinity, *enforced) if not affinity.admits_all]


def _labellings(
    node: Node, affinities: Sequence[NodeAffinity], examples: Sequence[Node], keys: Sequence[str]
) -> _Changes:
    """Changed labels with which the node meets the requirements: in its own domains, then in other domains."""
    free = [key for key in keys if key not in node.labels or not _is_kept_by_kubernetes(key)]
    for labels in _meeting(dict(node.labels), affinities):
        if labels != node.labels:
            yield _labelling(node, labels)
        for example in examples:
            there = {key: example.labels[key] for key in free if key in example.labels}
            if there.items() - labels.items():
                yield _labelling(node, {**labels, **there})
        for key in free:
            yield _labelling(node, {**labels, key: _NEW_DOMAIN})
            if key in labels:
                yield _labelling(node, {name: value for name, value in labels.items() if name != key})
        if len(free) > 1:
            yield _labelling(node, {**labels, **dict.fromkeys(free, _NEW_DOMAIN)})


def _meeting(labels: dict[str, str], affinities: Sequence[NodeAffinity]) -> Iterator[dict[str, str]]:
    """Changed labels for each combination of alternatives: one term of each affinity. Each with as few changes as possible."""
    if not affinities:
        yield labels
        return
    first, rest = affinities[0], affinities[1:]
    selected = [NodeRequirement(key, Operator.IN, (value,)) for key, value in first.node_selector]
    for term in islice(first.terms, _TERMS) if first.terms is not None else (None,):
        clauses = [*selected, *(() if term is None else term.expressions)]
        changed = with_clauses_met(labels, clauses)
        if changed is not None:
            yield from _meeting(changed, rest)


def with_clauses_met(labels: Labels, clauses: Iterable[NodeRequirement]) -> dict[str, str] | None:
    """The labels, changed so that each clause is met. None where users should not change these labels. O(clauses)."""
    changed, clauses = dict(labels), list(clauses)
    for clause in clauses:
        if clause.matches(changed):
            continue
        is_set = clause.operator in (Operator.IN, Operator.EXISTS, Operator.GT, Operator.LT)
        if clause.key == HOSTNAME or (clause.key in labels and _is_kept_by_kubernetes(clause.key)):
            return None
        if is_set:
            changed[clause.key] = _value(clause)
        else:
            changed.pop(clause.key)
    return changed if all(clause.matches(changed) for clause in clauses) else None


def _value(clause: NodeRequirement) -> str:
    if clause.operator is Operator.IN:
        return clause.values[0]
    if clause.operator is Operator.EXISTS:
        return "true"
    # Gt and Lt compare label values as integers, and both bounds are excluded.
    bound = as_int64(clause.values[0]) or 0
    return str(max(bound + (1 if clause.operator is Operator.GT else -1), 0))


def _labelling(node: Node, labels: Labels) -> tuple[TriedChange, Node]:
    wanted = {key: value for key, value in labels.items() if node.labels.get(key) != value}
    lost = tuple(sorted(node.labels.keys() - labels.keys()))
    text = labelling(wanted, lost, f"node {node.name}")
    change = TriedChange(kind="labelNode", text=text, node=node.name, labels=wanted, removed_labels=lost)
    return change, structs.replace(node, labels=labels)


def labelling(wanted: Mapping[str, str], lost: Sequence[str], of: str) -> str:
    """The text about labels that are set and removed."""
    pairs = ",".join(f"{key}={value}" for key, value in wanted.items())
    if not lost:
        return f"label {pairs} on {of}"
    removed = f"remove the label{'s' * (len(lost) > 1)} {' and '.join(lost)}"
    return f"{removed} from {of}" if not wanted else f"{removed} from {of} and set {pairs}"


def _is_kept_by_kubernetes(key: str) -> bool:
    prefix = key.rpartition("/")[0]
    return (
        prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io")
    ) and prefix != "node-restriction.kubernetes.io"
