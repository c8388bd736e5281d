"""Inter-pod affinity and topology spread by brute force: the oracle that the rules are compared with.

Simple rather than fast, and written from the documentation. Must not import the index, the rules or the verbs: an oracle
with the code under test would have its bugs. Called by `oracle/violations.py` (placements of a run) and property tests.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from extender.simulator.json_objects import JsonObject, is_finished, is_terminating, labels_of, namespace_of, selects
from extender.simulator.oracle.cluster_state import ClusterState, Placed
from extender.simulator.oracle.node_matching import matches_node_affinity, required_terms, tolerates_taints
from extender.simulator.oracle.terms import (
    AFFINITY,
    ANTI_AFFINITY,
    Term,
    are_parsable,
    effective_selector,
    is_empty,
    is_parsable,
    required_pod_terms,
)

Domain: TypeAlias = tuple[str, str]


class Status(NamedTuple):
    """The result of a plugin for one node: a status code of the framework, and a reason unless it is Success."""

    code: str
    reason: str = ""


NO_DOMAIN: Domain = ("", "")
SUCCESS = Status("Success")
AFFINITY_REJECTED = Status("UnschedulableAndUnresolvable", "node(s) didn't match pod affinity rules")
ANTI_AFFINITY_REJECTED = Status("Unschedulable", "node(s) didn't match pod anti-affinity rules")
EXISTING_REJECTED = Status("Unschedulable", "node(s) didn't satisfy existing pods anti-affinity rules")
SPREAD_REJECTED = Status("Unschedulable", "node(s) didn't match pod topology spread constraints")
SPREAD_UNLABELLED = Status(
    "UnschedulableAndUnresolvable",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)
UNPARSABLE_TERM = Status("UnschedulableAndUnresolvable", "parsing pod: ")
UNPARSABLE_CONSTRAINT = Status("Error", "get constraints from pod: obtaining pod's hard topology spread constraints: ")


def feasible(
    pod: JsonObject, nodes: Iterable[JsonObject], namespaces: Iterable[JsonObject], pods: Iterable[JsonObject]
) -> dict[str, Status]:
    """The status of every node by both plugins. If both reject it, that of spread, which kube-scheduler runs first.

    `pods` may be all pods of the API server: pending and finished ones are ignored.
    """
    state = ClusterState(nodes, namespaces)
    for number, existing in enumerate(pods):
        node = existing.get("spec", {}).get("nodeName")
        if node and not is_finished(existing):
            state.place(f"{number}", existing, node)
    spread, affinity = TopologySpread(pod, state), InterPodAffinity(pod, state)
    return {name: _first_rejection(spread.check(name), affinity, name) for name in state.nodes}


def check(pod: JsonObject, node: str, state: ClusterState) -> Status:
    """The status of one node by both plugins."""
    return _first_rejection(TopologySpread(pod, state).check(node), InterPodAffinity(pod, state), node)


def _first_rejection(spread: Status, affinity: "InterPodAffinity", node: str) -> Status:
    return spread if spread != SUCCESS else affinity.check(node)


class InterPodAffinity:
    """The filter of InterPodAffinity for one pod: computes three sets of domains once, then looks them up."""

    def __init__(self, pod: JsonObject, state: ClusterState) -> None:
        self.state = state
        self.is_parsable = are_parsable(pod)
        if not self.is_parsable:
            return
        self.affinity_terms = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, AFFINITY)]
        self.anti_affinity_terms = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, ANTI_AFFINITY)]
        self.selects_itself = all(term.selects_for_incoming(pod, state.namespaces) for term in self.affinity_terms)
        self.matched = self._matched()
        self.occupied = self._occupied()
        self.forbidden = self._forbidden(pod)

    def check(self, node: str) -> Status:
        """The first failure of: required affinity, required anti-affinity, required anti-affinity of existing pods."""
        if not self.is_parsable:
            return UNPARSABLE_TERM
        if not self._satisfies_affinity(node):
            return AFFINITY_REJECTED
        if any(self._domain(node, term) in self.occupied for term in self.anti_affinity_terms):
            return ANTI_AFFINITY_REJECTED
        if any(domain in self.forbidden for domain in labels_of(self.state.nodes[node]).items()):
            return EXISTING_REJECTED
        return SUCCESS

    def _satisfies_affinity(self, node: str) -> bool:
        if any(self.state.domain(node, term.key) is None for term in self.affinity_terms):
            return False
        if all(self._domain(node, term) in self.matched for term in self.affinity_terms):
            return True
        # The first pod with affinity to its own labels may run on any node with the key.
        return not self.matched and self.selects_itself

    def _domain(self, node: str, term: Term) -> Domain:
        """The node's domain for a term; without the key a domain that has no pods."""
        value = self.state.domain(node, term.key)
        return NO_DOMAIN if value is None else (term.key, value)

    def _domains(self, placed: Placed, terms: Iterable[Term]) -> set[Domain]:
        return {self._domain(placed.node, term) for term in terms} - {NO_DOMAIN}

    def _matched(self) -> set[Domain]:
        """The domains of pods that match every term of the required affinity at once."""
        if not self.affinity_terms:
            return set()
        first, *others = self.affinity_terms
        domains: set[Domain] = set()
        # A pod counts for affinity only if it matches all terms at once, unlike for anti-affinity.
        for placed in self._selected(first):
            if all(term.selects_for_incoming(placed.pod, self.state.namespaces) for term in others):
                domains |= self._domains(placed, self.affinity_terms)
        return domains

    def _occupied(self) -> set[Domain]:
        """The domains of pods that match an anti-affinity term of the incoming pod, for each term."""
        domains: set[Domain] = set()
        for term in self.anti_affinity_terms:
            for placed in self._selected(term):
                domains |= self._domains(placed, [term])
        return domains

    def _forbidden(self, pod: JsonObject) -> set[Domain]:
        """The domains of existing pods whose required anti-affinity selects the incoming pod."""
        domains: set[Domain] = set()
        does_select: dict[Term, bool] = {}
        for placed, terms in self.state.repelling.values():
            for term in terms:
                if term not in does_select:
                    does_select[term] = term.selects_for_existing(pod, self.state.namespaces)
                if does_select[term] and placed.node in self.state.nodes:
                    domains |= self._domains(placed, [term])
        return domains

    def _selected(self, term: Term) -> Iterable[Placed]:
        """The pods that a term of the incoming pod selects."""
        for namespace in self.state.by_namespace:
            if term.covers(namespace, self.state.namespaces.get(namespace)):
                for placed in self.state.pods(namespace):
                    if selects(term.selector, labels_of(placed.pod)):
                        yield placed


class TopologySpread:
    """The filter of PodTopologySpread for one pod: counts per domain over the eligible nodes once, then looks them up."""

    def __init__(self, pod: JsonObject, state: ClusterState, constraints: Sequence[JsonObject] | None = None) -> None:
        self.pod = pod
        self.state = state
        own = pod["spec"].get("topologySpreadConstraints") or []
        self.constraints = [
            constraint
            for constraint in (own if constraints is None else constraints)
            if constraint["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        self.is_parsable = all(is_parsable(constraint.get("labelSelector")) for constraint in self.constraints)
        self.counts = [self._count(constraint) for constraint in self.constraints] if self.is_parsable else []

    def check(self, node: str) -> Status:
        """The failure of the first constraint in the order of the pod's spec."""
        if not self.is_parsable:
            return UNPARSABLE_CONSTRAINT
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            domain = self.state.domain(node, constraint["topologyKey"])
            if domain is None:
                return SPREAD_UNLABELLED
            least = min(counts.values(), default=0)
            # With fewer domains than minDomains the global minimum is 0 (KEP-3022).
            if len(counts) < (constraint.get("minDomains") or 1):
                least = 0
            selector = effective_selector(constraint, self.pod)
            self_match = 1 if selects(selector, labels_of(self.pod)) else 0
            if counts.get(domain, 0) + self_match - least > constraint["maxSkew"]:
                return SPREAD_REJECTED
        return SUCCESS

    def _count(self, constraint: JsonObject) -> Mapping[str, int]:
        """The matching pods of each domain with an eligible node, 0 included."""
        key = constraint["topologyKey"]
        eligible = set(filter(self._eligibility(constraint), self.state.nodes))
        counts = Counter({self.state.domain(name, key) or "": 0 for name in eligible})
        selector = effective_selector(constraint, self.pod)
        if is_empty(selector):  # kube-scheduler counts no pods for it, although it matches every pod
            return counts
        for placed in self.state.pods(namespace_of(self.pod)):
            if placed.node in eligible and not is_terminating(placed.pod) and selects(selector, labels_of(placed.pod)):
                counts[self.state.domain(placed.node, key) or ""] += 1
        return counts

    def _eligibility(self, constraint: JsonObject) -> Callable[[str], bool]:
        """A predicate for eligible nodes: they have all keys and pass the constraint's inclusion policies."""
        keys = [each["topologyKey"] for each in self.constraints]
        has_node_affinity = bool(self.pod["spec"].get("nodeSelector")) or required_terms(self.pod) is not None
        honors_affinity = has_node_affinity and (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
        honors_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"

        def is_eligible(name: str) -> bool:
            node = self.state.nodes[name]
            # A node must have the keys of all constraints to count for any of them.
            if any(self.state.domain(name, key) is None for key in keys):
                return False
            if honors_affinity and not matches_node_affinity(self.pod, node):
                return False
            return not honors_taints or tolerates_taints(self.pod, node)

        return is_eligible
