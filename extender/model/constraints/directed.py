"""Elements of policies before the pod is known: terms without the namespace of the pod, and label keys without its labels.

`of` completes an element for a pod, as the API server completes the element in the pod's own spec.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace as replaced

from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.node_affinity import PreferredNodeTerm
from extender.model.constraints.selectors import Requirement, selector
from extender.model.constraints.spread import SpreadConstraint
from extender.model.constraints.terms import AffinityTerm, WeightedTerm


class DirectedTerm(NamedTuple):
    """A term about other pods, as a policy directs it.

    - ``weight``: of a preferred term; 0 for a required term.
    - ``match_keys``, ``mismatch_keys``: the label keys that become requirements with the values of the pod (KEP-3633).
    - ``cross_namespace``: the term puts the pod into the quota scope CrossNamespacePodAffinity. A term that does not covers the
      namespace of the pod.
    """

    term: AffinityTerm
    weight: int = 0
    match_keys: tuple[str, ...] = ()
    mismatch_keys: tuple[str, ...] = ()
    cross_namespace: bool = False

    def of(self, namespace: str, labels: Labels) -> AffinityTerm | WeightedTerm:
        """The term of a pod in this namespace and with these labels. O(1); O(requirements) where label keys are added."""
        term = self.term if self.cross_namespace else replaced(self.term, namespaces=(namespace,))
        if (self.match_keys or self.mismatch_keys) and not term.selector.nothing:
            clauses = (*term.selector.requirements, *self._clauses(labels))
            term = replaced(term, selector=selector(clauses))
        return WeightedTerm(self.weight, term) if self.weight else term

    def _clauses(self, labels: Labels) -> Iterator[Requirement]:
        for operator, keys in ((Operator.IN, self.match_keys), (Operator.NOT_IN, self.mismatch_keys)):
            yield from (Requirement(key, operator, (labels[key],)) for key in keys if key in labels)


class DirectedConstraint(NamedTuple):
    """A spread constraint, as a policy directs it. ``match_keys``: its matchLabelKeys (KEP-3243)."""

    constraint: SpreadConstraint
    match_keys: tuple[str, ...] = ()

    def of(self, labels: Labels) -> SpreadConstraint:
        """The constraint of a pod with these labels. The API ignores keys that the pod lacks."""
        pairs = {key: labels[key] for key in self.match_keys if key in labels}
        if not pairs:
            return self.constraint
        return replace(self.constraint, selector=self.constraint.selector.and_in(pairs))


Directed: TypeAlias = DirectedTerm | DirectedConstraint | PreferredNodeTerm
"""An element of a policy."""
Element: TypeAlias = AffinityTerm | WeightedTerm | SpreadConstraint | PreferredNodeTerm
"""An element of a pod."""


def of_pod(element: Directed | Element, namespace: str, labels: Labels) -> Element:
    """The element of a policy as it stands in a pod with this namespace and these labels. An element of a pod stays as it is."""
    match element:
        case DirectedTerm():
            return element.of(namespace, labels)
        case DirectedConstraint():
            return element.of(labels)
        case _:
            return element
