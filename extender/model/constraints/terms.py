"""Inter-pod affinity terms: which pods a term selects, where it counts, and which namespaces it covers.

KEP-2249 (namespaceSelector): https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/2249-pod-affinity-namespace-selector
A term is matched with a namespace and labels, so that this module does not import Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from extender.model.constraints.labels import NO_LABELS, Labels, contains
from extender.model.constraints.selectors import LabelSelector


class AffinityTerm(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One affinity or anti-affinity term with its defaults filled in; equal terms have equal counts.

    ``namespaces``: the names listed, sorted. Where the manifest gives neither names nor a selector, the owner's
    namespace. Names and ``namespace_selector`` are a union. With a selector the owner's namespace is not implied. The
    hash is computed once, when first needed, because terms are keys and may be large.
    """

    topology_key: str
    selector: LabelSelector
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None

    @property
    def covers_all(self) -> bool:
        """Whether the term reaches every namespace, with or without a Namespace object (``namespaceSelector: {}``)."""
        return self.namespace_selector is not None and self.namespace_selector.is_empty

    def covers(self, namespace: str, namespace_labels: Labels | None) -> bool:
        """Whether an *existing* pod's term reaches this namespace; a missing Namespace object counts as unlabelled."""
        if contains(self.namespaces, namespace) or self.covers_all:
            return True
        if self.namespace_selector is None:
            return False
        return self.namespace_selector.matches(NO_LABELS if namespace_labels is None else namespace_labels)

    def selects(self, namespace: str, labels: Labels, namespace_labels: Labels | None) -> bool:
        """Whether an existing pod's term selects an incoming pod of this namespace and with these labels."""
        return self.selector.matches(labels) and self.covers(namespace, namespace_labels)


class WeightedTerm(msgspec.Struct, frozen=True, gc=False):
    """A preferred term. ``weight`` is positive (1–100) for anti-affinity too, where it lowers a node's score."""

    weight: int
    term: AffinityTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The four lists of a pod, and what could not be parsed.

    A list with an unparsable term: the scheduler drops the whole list of an existing pod, and rejects an incoming pod
    (``errors``) on every node. ``cross_namespace``: see `is_cross_namespace`; it cannot be derived from the terms,
    because a term that names the owner's own namespace equals a term without names.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    preferred_anti: tuple[WeightedTerm, ...] = ()
    errors: tuple[str, ...] = ()
    cross_namespace: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the pod has no term at all."""
        return not (self.required or self.required_anti or self.preferred or self.preferred_anti or self.errors)

    def beyond(self, other: PodAffinity) -> PodAffinity:
        """The terms that another affinity does not have. O(terms of both)."""
        return PodAffinity(
            tuple(term for term in self.required if term not in other.required),
            tuple(term for term in self.required_anti if term not in other.required_anti),
            tuple(term for term in self.preferred if term not in other.preferred),
            tuple(term for term in self.preferred_anti if term not in other.preferred_anti),
        )

    @property
    def has_preferences(self) -> bool:
        """Whether the pod itself carries a preferred term of either kind."""
        return bool(self.preferred or self.preferred_anti)


NO_AFFINITY = PodAffinity()


def by_names(affinity: PodAffinity) -> PodAffinity:
    """The affinity with its namespaceSelectors ignored: each term reaches the namespaces that it lists, even if none.

    O(terms).

    kube-scheduler 1.21 to 1.23 does this without the gate PodAffinityNamespaceSelector: the own namespace is not
    implied. Without any selector the result is the same object.
    """
    if all(term.namespace_selector is None for term in terms_of(affinity)):
        return affinity

    def listed(term: AffinityTerm) -> AffinityTerm:
        return replaced(term, namespace_selector=None)

    def weighted(preference: WeightedTerm) -> WeightedTerm:
        return replaced(preference, term=listed(preference.term))

    return replace(
        affinity,
        required=tuple(map(listed, affinity.required)),
        required_anti=tuple(map(listed, affinity.required_anti)),
        preferred=tuple(map(weighted, affinity.preferred)),
        preferred_anti=tuple(map(weighted, affinity.preferred_anti)),
    )


# -- the quota scope CrossNamespacePodAffinity -------------------------------------------------------------------------

# The scope is about how terms are written (`is_cross_namespace`), not about the namespaces that they reach (`reached`).
# https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope


def is_cross_namespace(terms: Iterable[tuple[object, object]]) -> bool:
    """Whether a pod with these terms is in the quota scope. A term is (``namespaces``, ``namespaceSelector``).

    O(terms).

    The quota evaluator of pods (``pkg/quota/v1/evaluator/core``) looks at all four lists, preferred terms included. One
    term is enough if it has a namespace name, even the pod's own, or a selector, even an empty one or one that selects
    nothing. An empty list of names and a null selector do not count.
    """
    return any(namespaces or selector is not None for namespaces, selector in terms)


def is_cross_namespace_term(value: Mapping[str, Any]) -> bool:
    """Whether one term as JSON, required or weighted, puts its pod in the scope."""
    # A weighted term contains the term.
    term = value.get("podAffinityTerm") or value
    return is_cross_namespace([(term.get("namespaces"), term.get("namespaceSelector"))])


def terms_of(affinity: PodAffinity) -> Iterator[AffinityTerm]:
    """The terms of all four lists, the required ones first."""
    yield from affinity.required
    yield from affinity.required_anti
    for weighted in (*affinity.preferred, *affinity.preferred_anti):
        yield weighted.term


def may_reach_out(term: AffinityTerm, own: str) -> bool:
    """Whether a term of a pod in the namespace ``own`` can reach another namespace, existing or not. O(names)."""
    return term.namespace_selector is not None or any(name != own for name in term.namespaces)


def reached(term: AffinityTerm, own: str, namespaces: Mapping[str, Labels]) -> AbstractSet[str]:
    """The namespaces other than ``own`` that a term reaches now. ``namespaces``: labels of the existing namespaces.

    A name that is listed is reached without a Namespace object too, as in kube-scheduler. O(names + namespaces).
    """
    names = set(term.namespaces)
    selector: LabelSelector | None = term.namespace_selector
    if selector is not None:
        names.update(name for name, labels in namespaces.items() if selector.matches(labels))
    names.discard(own)
    return names
