"""Labels of a namespace that would let a pod pass, because a term selects the namespace then, or does not select it any more.

The term may be the pod's own, or an existing pod's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Final, NamedTuple

from msgspec import structs

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import GroupView
from extender.index.counts.term_counts import TermRole
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import TriedChange
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import PodSignature
from extender.model.policies import NAMESPACE_NAME_LABEL
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.verbs.explain.node_changes import labelling
from extender.verbs.explain.trials import Incoming, fits_without, passes

# Bounds of the searches, each some milliseconds in all.
_NAMESPACES: Final = 4
_TRIALS: Final = 16  # labels
_DOMAINS: Final = 3  # with counted pods, for each group
_NODES: Final = 40  # of a domain
_MOST_NAMES: Final = 200  # that a selector is replaced by
_A_STEP: Final = 120


class _Candidate(NamedTuple):
    """Other labels for a namespace, and nodes on which the pod may pass then."""

    namespace: str
    labels: Labels
    nodes: tuple[NodeNumber, ...] = ()


def label_a_namespace(incoming: Incoming) -> Steps[list[TriedChange]]:
    """The first change of labels of one namespace that lets the pod pass."""
    view, tried = incoming.view, 0
    if not incoming.settings.rules.inter_pod_affinity.namespace_selector:
        return []
    for search in (_to_be_reached, _to_be_left, _to_leave_others):
        candidates = yield from search(incoming)
        for candidate in candidates:
            yield
            old = view.namespace_labels(candidate.namespace)
            if old is None or tried >= _TRIALS:
                continue
            tried += 1
            node = _passing_with(candidate, old, incoming)
            if node:
                return [_change(candidate, old, node)]
    return []


def _change(candidate: _Candidate, old: Labels, node: str) -> TriedChange:
    wanted = {key: value for key, value in candidate.labels.items() if old.get(key) != value}
    lost = tuple(sorted(old.keys() - candidate.labels.keys()))
    text = labelling(wanted, lost, f"namespace {candidate.namespace}")
    kind, namespace = "labelNamespace", candidate.namespace
    return TriedChange(kind=kind, text=text, node=node, namespace=namespace, labels=wanted, removed_labels=lost)


# -- candidates -------------------------------------------------------------------------------------------------------


def _to_be_reached(incoming: Incoming) -> Steps[list[_Candidate]]:
    """Labels that bring a namespace into the pod's required affinity: it has pods that the term's pod selector selects.

    O(signatures).
    """
    own, signature = own_terms(incoming.compiled), incoming.pod.signature
    terms = [term for term in signature.affinity.required if term.namespace_selector is not None]
    if not own.affinity or own.matches_itself or not terms:
        return []
    view, looked, wanted_labels = incoming.view, set[tuple[int, str]](), dict[str, dict[str, str]]()
    for at, placed in enumerate(view.placed()):
        if at % _A_STEP == _A_STEP - 1:
            yield
        if placed is None:
            continue
        labels, namespace = placed.signature.labels, placed.signature.namespace
        for term in () if placed.terminating else terms:
            if (id(term), namespace) in looked or not term.selector.matches(labels):
                continue
            looked.add((id(term), namespace))
            known = view.namespace_labels(namespace)
            if known is None or term.covers(namespace, known) or term.namespace_selector is None:
                continue
            wanted = _selected_by(term.namespace_selector, wanted_labels.get(namespace, dict(known)))
            if wanted is not None:
                wanted_labels[namespace] = wanted
        if len(wanted_labels) >= _NAMESPACES:
            break
    return [_Candidate(namespace, labels) for namespace, labels in wanted_labels.items()]


def _to_be_left(incoming: Incoming) -> Steps[list[_Candidate]]:
    """Labels that take a namespace out of the pod's anti-affinity: pods of the namespace reject the pod now. O(signatures)."""
    own, view, relabelled = own_terms(incoming.compiled), incoming.view, list[_Candidate]()
    for term, group in zip(own.anti_terms, own.anti, strict=True):
        if term.namespace_selector is None or term.covers_all:
            continue
        nodes: dict[str, list[NodeNumber]] = {}
        for at, placed in enumerate(view.placed(group)):
            if at % _A_STEP == _A_STEP - 1:
                yield
            namespace = "" if placed is None else placed.signature.namespace
            if placed is None or namespace in term.namespaces or len(nodes.get(namespace, ())) >= _NODES:
                continue
            there = nodes.setdefault(namespace, [])
            domains = dict.fromkeys(group.domain_of[number] for number in islice(placed.nodes, _NODES))
            there += _nodes_in(group, domains, incoming)
            if len(nodes) >= _NAMESPACES:
                break
        for namespace, candidates in nodes.items():
            known = view.namespace_labels(namespace)
            for labels in () if known is None else _not_selected_by(term.namespace_selector, known):
                relabelled.append(_Candidate(namespace, labels, tuple(candidates)))
    return relabelled


def _to_leave_others(incoming: Incoming) -> Steps[list[_Candidate]]:
    """Labels that take the pod's own namespace out of the anti-affinity of existing pods. O(terms)."""
    view, namespace, candidates = incoming.view, incoming.pod.signature.namespace, list[_Candidate]()
    known = view.namespace_labels(namespace)
    if known is None or not incoming.settings.rules.inter_pod_affinity.enabled:
        return []
    for group in islice(terms_of_others(incoming.compiled).anti, _TRIALS):
        yield
        term = group.term
        if group.counts and not (term.covers_all or term.namespace_selector is None or namespace in term.namespaces):
            nodes = tuple(_nodes_in(group, group.counts, incoming))
            candidates += (
                _Candidate(namespace, labels, nodes) for labels in _not_selected_by(term.namespace_selector, known)
            )
    return candidates


def _nodes_in(group: GroupView, domains: Iterable[int], incoming: Incoming) -> Iterator[NodeNumber]:
    """Some nodes of these domains that have room for the pod, as far as node fit tells."""
    every = chain.from_iterable(group.key.nodes_in.get(domain, ()) for domain in islice(domains, _NODES))
    return islice(filter(incoming.may_fit, every), _NODES)


def _selected_by(selector: LabelSelector, labels: Labels) -> dict[str, str] | None:
    """The labels, changed so that the selector selects them. None where that is impossible. O(requirements)."""
    changed = dict(labels)
    for clause in selector.requirements:
        if clause.matches(changed):
            continue
        # The API server itself sets this label to the name of the namespace.
        if clause.key == NAMESPACE_NAME_LABEL:
            return None
        if clause.operator is Operator.IN:
            changed[clause.key] = clause.values[0]
        elif clause.operator is Operator.EXISTS:
            changed[clause.key] = "true"
        else:
            changed.pop(clause.key)
    return changed if selector.matches(changed) else None


def _not_selected_by(selector: LabelSelector, labels: Labels) -> Iterator[dict[str, str]]:
    """Labels with one change each, so that the selector does not select them any more. O(requirements)."""
    for clause in selector.requirements:
        if clause.key == NAMESPACE_NAME_LABEL:
            continue
        if clause.operator is Operator.NOT_IN:
            yield {**labels, clause.key: clause.values[0]}
        elif clause.operator is Operator.DOES_NOT_EXIST:
            yield {**labels, clause.key: "true"}
        elif clause.key in labels:
            yield {key: value for key, value in labels.items() if key != clause.key}


# -- the trial --------------------------------------------------------------------------------------------------------


def _passing_with(candidate: _Candidate, old: Labels, incoming: Incoming) -> str:
    """The first node on which the pod passes and fits if the namespace has these labels; "" without one. O(tried nodes)."""
    view, signature, namespace = incoming.view, incoming.pod.signature, candidate.namespace
    # The pod would get other directives then, and the trial does not compute them.
    if _is_asked_by_policies(candidate, old, view):
        return ""
    trial = with_labelled_namespace(signature, namespace, old, candidate.labels, view)
    if trial is None:
        return ""
    pod = structs.replace(incoming.pod, signature=trial)
    try:
        compiled = view.compiled(trial)
        if namespace == signature.namespace and incoming.settings.rules.inter_pod_affinity.enabled:
            others = view.terms_selecting(trial, candidate.labels)
            anti = tuple(other for other in others if other.role is TermRole.REQUIRED_ANTI)
            compiled = compiled.put(replace(terms_of_others(compiled), anti=anti))
        for number in candidate.nodes or _with_affinity(compiled):
            if incoming.may_fit(number) and fits_without(pod, number, (), view) and passes(pod, compiled, number, view):
                return view.node_names[number]
    finally:
        # The signature of the trial is used once: its constraints must not push others out of the cache.
        if trial is not signature:
            view.release_compiled(trial)
    return ""


def _is_asked_by_policies(candidate: _Candidate, old: Labels, view: ClusterView) -> bool:
    """Whether a policy would select other pods of the namespace after the change. Such a change is not tried. O(policies)."""
    scopes = [policy.scope for policy in (*view.policies, *view.policies.invalid()) if policy.scope is not None]
    return any(
        scope.namespace_selector.matches(old) != scope.namespace_selector.matches(candidate.labels)
        for scope in scopes
        if scope.namespace in ("", candidate.namespace)
    )


def _with_affinity(compiled: CompiledConstraints) -> Iterator[NodeNumber]:
    """Nodes in a domain with a pod that required affinity selects."""
    for group in own_terms(compiled).affinity:
        for domain in list(group.counts)[:_DOMAINS]:
            yield from islice(group.key.nodes_in.get(domain, ()), _NODES)


def with_labelled_namespace(
    signature: PodSignature, namespace: str, old: Labels, new: Labels, view: ClusterView
) -> PodSignature | None:
    """The signature as if a namespace had the new labels: affected terms name namespaces.

    - a term that selects the namespace then gets its name;
    - a term that does not select it any more names all other namespaces that it selects.

    The same object where no term is affected. None where a term would have to name too many namespaces. O(terms), and O(namespaces)
    for each term of the second kind.
    """

    def reaching(term: AffinityTerm) -> AffinityTerm | None:
        before, after = term.covers(namespace, old), term.covers(namespace, new)
        if before == after:
            return term
        if after:
            return structs.replace(term, namespaces=tuple(sorted({*term.namespaces, namespace})))
        selector = term.namespace_selector
        reached = {
            name for name, other in view.namespaces.items() if selector is not None and selector.matches(other.labels)
        }
        reached = {*term.namespaces, *reached} - {namespace}
        if len(reached) > _MOST_NAMES:
            return None
        return structs.replace(term, namespaces=tuple(sorted(reached)), namespace_selector=None)

    affinity = signature.affinity
    required, required_anti = list(map(reaching, affinity.required)), list(map(reaching, affinity.required_anti))
    if None in required or None in required_anti:
        return None
    terms = (
        tuple(term for term in required if term is not None),
        tuple(term for term in required_anti if term is not None),
    )
    if terms == (affinity.required, affinity.required_anti):
        return signature
    return replace(signature, affinity=replace(affinity, required=terms[0], required_anti=terms[1]))
