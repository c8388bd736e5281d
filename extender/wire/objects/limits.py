"""Compares a pod's constraints with the configured limits. Called by `trim` once per template.

The size in bytes is compared before anything is parsed, the other numbers afterwards, so that a pod above the limits
costs linear time. A text has only the limit and the pod's own number, so that equal pods get equal messages: a changed
message would be a status update, which makes kube-scheduler try the pod again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from extender.model.constraints.node_affinity import NodeAffinity, NodeSelectorTerm, PreferredNodeTerm
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.spread import SpreadConstraints
from extender.model.constraints.taints import Toleration
from extender.model.constraints.terms import AffinityTerm, PodAffinity
from extender.model.objects import Excess
from extender.settings.limits import Limits

DEFAULT_LIMITS: Final = Limits()
BYTES_LIMIT: Final = "podBytes"


def excess_bytes(size: int, limits: Limits) -> Excess:
    """The excess of a pod whose labels and constraints have more bytes than ``limits.podBytes``."""
    return Excess(BYTES_LIMIT, f"labels and constraints: {size} bytes, limits.podBytes is {limits.pod_bytes}")


def excess_parts(
    affinity: PodAffinity,
    spread: SpreadConstraints,
    node_affinity: NodeAffinity,
    preferred_nodes: Sequence[PreferredNodeTerm],
    tolerations: Sequence[Toleration],
    limits: Limits,
) -> Excess | None:
    """The first limit that a pod exceeds, or None. O(terms + requirements)."""
    # Counted after parsing: the parsed form has no duplicates of namespaces, and its size is what the index has to keep.
    terms = list(_terms(affinity))
    constraints = (*spread.hard, *spread.soft)
    selectors = [*_selectors(terms), *(each.selector for each in constraints)]
    node_terms = [*(node_affinity.terms or ()), *(each.term for each in preferred_nodes)]
    keys = {each.topology_key for each in terms} | {each.topology_key for each in constraints}
    for limit, most, count, what in (
        ("affinityTerms", limits.affinity_terms, len(terms), "spec.affinity: {} terms of pods"),
        (
            "topologySpreadConstraints",
            limits.topology_spread_constraints,
            len(constraints),
            "spec.topologySpreadConstraints: {} constraints",
        ),
        ("topologyKeys", limits.topology_keys, len(keys), "spec.affinity and constraints: {} topology keys"),
        ("namespaces", limits.namespaces, sum(len(each.namespaces) for each in terms), "spec.affinity: {} namespaces"),
        (
            "labelRequirements",
            limits.label_requirements,
            sum(len(each.requirements) for each in selectors),
            "spec.affinity and constraints: {} requirements of label selectors",
        ),
        ("nodeSelectorTerms", limits.node_selector_terms, len(node_terms), "spec.affinity.nodeAffinity: {} terms"),
        (
            "nodeRequirements",
            limits.node_requirements,
            len(node_affinity.node_selector) + sum(len(each.expressions) + len(each.fields) for each in node_terms),
            "spec.nodeSelector and nodeAffinity: {} requirements",
        ),
        ("selectorValues", limits.selector_values, _values(selectors, node_terms), "spec: {} values in selectors"),
        ("tolerations", limits.tolerations, len(tolerations), "spec.tolerations: {} tolerations"),
    ):
        if count > most:
            return Excess(limit, f"{what.format(count)}, limits.{limit} is {most}")
    return None


def _terms(affinity: PodAffinity) -> Iterator[AffinityTerm]:
    yield from affinity.required
    yield from affinity.required_anti
    for weighted in (*affinity.preferred, *affinity.preferred_anti):
        yield weighted.term


def _selectors(terms: Sequence[AffinityTerm]) -> Iterator[LabelSelector]:
    for term in terms:
        yield term.selector
        if term.namespace_selector is not None:
            yield term.namespace_selector


def _values(selectors: Sequence[LabelSelector], node_terms: Sequence[NodeSelectorTerm]) -> int:
    of_labels = sum(len(clause.values) for each in selectors for clause in each.requirements)
    of_nodes = sum(len(clause.values) for each in node_terms for clause in (*each.expressions, *each.fields))
    return of_labels + of_nodes
