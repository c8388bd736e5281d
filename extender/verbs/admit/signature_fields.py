"""The scheduling fields of an existing pod: read from its signature, and made into its effective signature.

The elements of a policy are completed for the pod: `matchLabelKeys` depend on its labels, terms on its namespace. Example: the pod
and the policy have the same required term. The pod's element gets the key of the policy's element, so the policy finds its term in
the pod and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from extender.model.constraints.directed import DirectedTerm, Element, of_pod
from extender.model.constraints.node_affinity import NodeAffinity, NodeSelectorTerm, PreferredNodeTerm, node_selector
from extender.model.constraints.spread import SpreadConstraint, SpreadConstraints, revision_key
from extender.model.constraints.terms import PodAffinity
from extender.model.objects import PodSignature
from extender.model.policies import SCALARS, InjectedItem, NodeTerm, Policy, Size
from extender.settings.rules import Rules
from extender.verbs.admit.injected import InjectionRecord, nodes_without
from extender.verbs.admit.pod_fields import Bounds, PodFields
from extender.verbs.admit.spread_directives import of_revision
from extender.verbs.admit.term_product import AdmissionBudget
from extender.wire.objects.constraints import parsed_from, size_of_parts
from extender.wire.policies.node_terms import (
    POD_TERMS,
    PREFERRED_NODES,
    SPREAD,
    WEIGHTED_POD_TERMS,
    directed_constraint,
    pod_term,
    selector_term,
)

_TERM_LISTS: Final = (*POD_TERMS, *WEIGHTED_POD_TERMS)
_NO_SCALARS: Final = dict.fromkeys(SCALARS, "")


class SignatureFields(PodFields):
    """The fields of the pods of one signature that decide about nodes.

    ``injected``: the record of earlier injections. Its values do not count as the pod's own:

    - node selector and required node terms: they are taken out;
    - spread constraints: they stay in the pod, but policies do not see them in its list.
    """

    exists = True

    def __init__(
        self,
        signature: PodSignature,
        policies: Sequence[Policy],
        bounds: Bounds,
        injected: InjectionRecord | None = None,
    ) -> None:
        """``policies``: the policies that are to be applied. O(requirements)."""
        # Above a limit only the node selector is read.
        own = signature.node_affinity
        pairs = dict(own.node_selector)
        terms = None if signature.excess is not None or own.terms is None else list(map(pod_term, own.terms))
        self._signature = signature
        self._revision = revision_key(signature.owner_kind, signature.labels)
        self._policies = policies
        self._injected: list[SpreadConstraint] = []
        self._own_terms: Sequence[NodeTerm] | None = terms
        if injected is not None:
            pairs, self._own_terms = nodes_without(pairs, terms, injected)
            added = filter(None, map(directed_constraint, injected.items(SPREAD)))
            self._injected = [constraint.of(signature.labels) for constraint in added]
            self._injected += map(self._of_revision, self._injected[:])
        super().__init__(bounds, AdmissionBudget(), _NO_SCALARS, pairs)
        self.excess = "" if signature.excess is None else signature.excess.text

    def _read_terms(self) -> Iterable[NodeTerm]:
        """The required node terms."""
        return self._own_terms or ()

    def _read_items(self, path: str) -> Sequence[InjectedItem]:
        """The elements of a list. An element that a policy directs too has the key of the policy's element."""
        elements = [] if self._signature.excess is not None else self._elements(path)
        if not elements:
            return ()
        keys: dict[Element, str] = {}
        for item in (item for policy in self._policies for item in policy.directives.lists.get(path, ())):
            element = self._of_pod(item)
            if element is None:
                continue
            keys.setdefault(element, item.key)
            if isinstance(element, SpreadConstraint):  # as admission completes it in the pod
                keys.setdefault(self._of_revision(element), item.key)
        return [
            InjectedItem({}, keys.get(element, str(number)), Size(), element) for number, element in enumerate(elements)
        ]

    def _elements(self, path: str) -> Sequence[Element]:
        own = self._signature
        lists: dict[str, Sequence[Element]] = {
            PREFERRED_NODES: own.preferred_nodes,
            POD_TERMS[0]: own.affinity.required,
            POD_TERMS[1]: own.affinity.required_anti,
            WEIGHTED_POD_TERMS[0]: own.affinity.preferred,
            WEIGHTED_POD_TERMS[1]: own.affinity.preferred_anti,
        }
        if path == SPREAD:
            return [each for each in (*own.spread.hard, *own.spread.soft) if each not in self._injected]
        return lists.get(path, ())

    def _read_size(self) -> Size:
        """The size of the pod. O(terms + requirements)."""
        own = self._signature
        if own.excess is not None:
            return Size()
        size = size_of_parts(own.affinity, own.spread, own.node_affinity, own.preferred_nodes, own.tolerations)
        return size._replace(pod_bytes=parsed_from(own.size - len(own.injected)))

    def _of_pod(self, item: InjectedItem) -> Element | None:
        return None if item.element is None else of_pod(item.element, self._signature.namespace, self._signature.labels)

    def _of_revision(self, constraint: SpreadConstraint) -> SpreadConstraint:
        """The constraint of a policy as admission completes it in the pod: with the label key of the revision."""
        return of_revision(constraint, self._revision, self._signature.labels)

    # ---- the fields of the effective signature

    @property
    def nodes(self) -> NodeAffinity:
        """The node requirements of pod and policies together. O(requirements)."""
        return NodeAffinity(node_selector(self.node_selector), self._node_terms(), self.apart)

    def _node_terms(self) -> tuple[NodeSelectorTerm, ...] | None:
        if self._terms is None:
            own = self._own_terms
            return None if own is None else tuple(selector_term(term) for term in own)
        return tuple(selector_term(term.term, term.added) for term in self._terms) or None

    def preferred_nodes(self) -> tuple[PreferredNodeTerm, ...]:
        """The preferred node terms that the policies add."""
        return self._values(PREFERRED_NODES)[len(self._signature.preferred_nodes) :]

    def affinity(self, rules: Rules) -> PodAffinity:
        """The terms of pod and policies. Where the in-tree plugin scores, the pod's own preferences are left out: it scores them."""
        own = self._signature.affinity
        required, required_anti, preferred, preferred_anti = map(self._values, _TERM_LISTS)
        if not rules.inter_pod_affinity.enabled:
            preferred, preferred_anti = preferred[len(own.preferred) :], preferred_anti[len(own.preferred_anti) :]
        # Quotas charge pods for terms across namespaces.
        directed = (item.element for path in _TERM_LISTS for item in self.items(path))
        is_cross = own.cross_namespace or any(
            isinstance(element, DirectedTerm) and element.cross_namespace for element in directed
        )
        return PodAffinity(required, required_anti, preferred, preferred_anti, own.errors, is_cross)

    def spread(self, rules: Rules) -> SpreadConstraints:
        """The constraints of pod and policies. Where the in-tree plugin scores, the pod's own soft ones are left out."""
        own = self._signature.spread
        carried = [constraint for constraint in (*own.hard, *own.soft) if constraint in self._injected]
        constraints = tuple(dict.fromkeys((*carried, *self._values(SPREAD))))
        soft = (constraint for constraint in constraints if not constraint.hard)
        return SpreadConstraints(
            tuple(constraint for constraint in constraints if constraint.hard),
            tuple(constraint for constraint in soft if rules.topology_spread.enabled or constraint not in own.soft),
            own=own.own or bool(constraints),
            hard_error=own.hard_error,
            soft_error=own.soft_error,
        )

    def _values(self, path: str) -> tuple[Any, ...]:
        return tuple(element for item in self.items(path) if (element := self._of_pod(item)) is not None)
