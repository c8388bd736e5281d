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
    """One affinity or anti-affinity clause with its defaults filled in; equal terms have the same counts.

    ``namespaces`` holds the names listed, sorted, or the owner's own namespace where the manifest gives neither names
    nor a selector. Names and ``namespace_selector`` are a union; with a selector the owner's namespace is not implied.
    The hash is computed once, when it is first needed, as terms serve as keys and may be large.
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
    """A preferred term; ``weight`` is positive (1–100) also for anti-affinity, where it counts against a node."""

    weight: int
    term: AffinityTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The four lists of a pod, and what could not be parsed.

    A list that holds an unparsable term is dropped as a whole for an existing pod, while an incoming pod with
    ``errors`` fits nowhere; the scheduler does both. ``cross_namespace``: see `is_cross_namespace`; it is a part of its own
    because a term that names the owner's own namespace is equal to one that names none.
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
            tuple(each for each in self.required if each not in other.required),
            tuple(each for each in self.required_anti if each not in other.required_anti),
            tuple(each for each in self.preferred if each not in other.preferred),
            tuple(each for each in self.preferred_anti if each not in other.preferred_anti),
        )

    @property
    def has_preferences(self) -> bool:
        """Whether the pod itself carries a preferred term of either kind."""
        return bool(self.preferred or self.preferred_anti)


NO_AFFINITY = PodAffinity()


def by_names(affinity: PodAffinity) -> PodAffinity:
    """The affinity with its namespaceSelectors ignored: each term reaches the namespaces that it lists, be they none. O(terms).

    As kube-scheduler 1.21 to 1.23 does without the gate PodAffinityNamespaceSelector: the own namespace is not implied. The
    same object where no term has a selector.
    """
    if all(each.namespace_selector is None for each in terms_of(affinity)):
        return affinity

    def listed(term: AffinityTerm) -> AffinityTerm:
        return replaced(term, namespace_selector=None)

    def weighted(each: WeightedTerm) -> WeightedTerm:
        return replaced(each, term=listed(each.term))

    return replace(
        affinity,
        required=tuple(map(listed, affinity.required)),
        required_anti=tuple(map(listed, affinity.required_anti)),
        preferred=tuple(map(weighted, affinity.preferred)),
        preferred_anti=tuple(map(weighted, affinity.preferred_anti)),
    )


# -- the quota scope CrossNamespacePodAffinity --------------------------------------------------------------------------

# The scope is about how terms are written, not about what they select: see `is_cross_namespace`. What a term reaches now is
# another question, which the scope does not ask: see `reached`.
# https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope


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
