"""Which pods the quota scope CrossNamespacePodAffinity concerns, and which terms reach into other namespaces.

KEP-2249; https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope
The scope is about how terms are written, not about what they select: see `is_cross_namespace`. What a term reaches now is
another question, which the scope does not ask: see `reached`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from extender.model.constraints.labels import Labels
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm, PodAffinity


def is_cross_namespace(terms: Iterable[tuple[object, object]]) -> bool:
    """Whether a pod with these terms, as (``namespaces``, ``namespaceSelector``) of each, is in the quota scope.

    As the quota evaluator of pods decides (``pkg/quota/v1/evaluator/core``): a pod is in the scope if a term of any of its
    four lists, preferred terms included, names a namespace, be it the pod's own, or has a selector, be it empty or one
    that selects nothing. An empty list names none, and a selector of null is none. O(terms).
    """
    return any(namespaces or selector is not None for namespaces, selector in terms)


def is_cross_namespace_term(value: Mapping[str, Any]) -> bool:
    """The same of one term as JSON, be it required or weighted."""
    term = value.get("podAffinityTerm") or value
    return is_cross_namespace([(term.get("namespaces"), term.get("namespaceSelector"))])


def terms_of(affinity: PodAffinity) -> Iterator[AffinityTerm]:
    """The terms of all four lists, the required ones first."""
    yield from affinity.required
    yield from affinity.required_anti
    for weighted in (*affinity.preferred, *affinity.preferred_anti):
        yield weighted.term


def may_reach_out(term: AffinityTerm, own: str) -> bool:
    """Whether a term of a pod in the namespace ``own`` can reach any other, whatever namespaces there are. O(names)."""
    return term.namespace_selector is not None or any(name != own for name in term.namespaces)


def reached(term: AffinityTerm, own: str, namespaces: Mapping[str, Labels]) -> AbstractSet[str]:
    """The namespaces other than ``own`` that a term reaches now. ``namespaces``: the labels of those that exist.

    A name that is listed is reached without a Namespace object too, as in kube-scheduler. O(names + namespaces).
    """
    found = set(term.namespaces)
    selector: LabelSelector | None = term.namespace_selector
    if selector is not None:
        found.update(name for name, labels in namespaces.items() if selector.matches(labels))
    found.discard(own)
    return found
