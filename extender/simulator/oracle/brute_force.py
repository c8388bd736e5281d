"""Inter-pod affinity and topology spread by brute force: the oracle that the real code is compared with.

Obviously right rather than fast, written from the documented behaviour alone over plain objects. Nothing of the
index, the rules or the verbs may enter here: an oracle that shares code with what it judges proves nothing.
Called by `oracle/violations.py` (placements of a run) and by property tests.
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
    """What a plugin says of one node: a code of the scheduler, and a reason unless the code is Success."""

    code: str
    reason: str = ""


NOWHERE: Domain = ("", "")
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
    """What both plugins together say of every node; of two rejections, the spread's, as the scheduler asks it first.

    `pods` may hold anything that the API server does: pending, finished and terminating pods are sorted out here.
    """
    state = ClusterState(nodes, namespaces)
    for number, existing in enumerate(pods):
        node = existing.get("spec", {}).get("nodeName")
        if node and not is_finished(existing):
            state.place(f"{number}", existing, node)
    spread, near = TopologySpread(pod, state), InterPodAffinity(pod, state)
    return {name: _first_rejection(spread.check(name), near, name) for name in state.nodes}


def check(pod: JsonObject, node: str, state: ClusterState) -> Status:
    """What both plugins say of one node."""
    return _first_rejection(TopologySpread(pod, state).check(node), InterPodAffinity(pod, state), node)


def _first_rejection(spread: Status, near: "InterPodAffinity", node: str) -> Status:
    return spread if spread != SUCCESS else near.check(node)


class InterPodAffinity:
    """The filter of InterPodAffinity for one pod: three sets of domains, then look-ups."""

    def __init__(self, pod: JsonObject, state: ClusterState) -> None:
        self.state = state
        self.is_parsable = are_parsable(pod)
        if not self.is_parsable:
            return
        self.wanted = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, AFFINITY)]
        self.repelled = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, ANTI_AFFINITY)]
        self.selects_itself = all(term.selects_for_incoming(pod, state.namespaces) for term in self.wanted)
        self.matched = self._matched()
        self.occupied = self._occupied()
        self.forbidden = self._forbidden(pod)

    def check(self, node: str) -> Status:
        """The first failure of: required affinity, own anti-affinity, existing pods' anti-affinity."""
        if not self.is_parsable:
            return UNPARSABLE_TERM
        if not self._is_attracted(node):
            return AFFINITY_REJECTED
        if any(self._domain(node, term) in self.occupied for term in self.repelled):
            return ANTI_AFFINITY_REJECTED
        if any(domain in self.forbidden for domain in labels_of(self.state.nodes[node]).items()):
            return EXISTING_REJECTED
        return SUCCESS

    def _is_attracted(self, node: str) -> bool:
        if any(self.state.domain(node, term.key) is None for term in self.wanted):
            return False
        if all(self._domain(node, term) in self.matched for term in self.wanted):
            return True
        # The first pod of a group with affinity to itself may go anywhere.
        return not self.matched and self.selects_itself

    def _domain(self, node: str, term: Term) -> Domain:
        """The node's domain for a term, or one that no pod is ever in when the node lacks the key."""
        value = self.state.domain(node, term.key)
        return NOWHERE if value is None else (term.key, value)

    def _domains(self, placed: Placed, terms: Iterable[Term]) -> set[Domain]:
        return {self._domain(placed.node, term) for term in terms} - {NOWHERE}

    def _matched(self) -> set[Domain]:
        """The domains of pods that match every term of the required affinity at once."""
        if not self.wanted:
            return set()
        first, *others = self.wanted
        domains: set[Domain] = set()
        for placed in self._selected(first):
            if all(term.selects_for_incoming(placed.pod, self.state.namespaces) for term in others):
                domains |= self._domains(placed, self.wanted)
        return domains

    def _occupied(self) -> set[Domain]:
        """The domains of pods that match a term of the own anti-affinity, term by term."""
        domains: set[Domain] = set()
        for term in self.repelled:
            for placed in self._selected(term):
                domains |= self._domains(placed, [term])
        return domains

    def _forbidden(self, pod: JsonObject) -> set[Domain]:
        """The domains of pods that do not want this pod near."""
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
    """The hard constraints of one pod: counts per domain over the nodes that take part, then look-ups."""

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
        """The first constraint that fails, in the order of the pod's spec."""
        if not self.is_parsable:
            return UNPARSABLE_CONSTRAINT
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            domain = self.state.domain(node, constraint["topologyKey"])
            if domain is None:
                return SPREAD_UNLABELLED
            least = min(counts.values(), default=0)
            if len(counts) < (constraint.get("minDomains") or 1):
                least = 0
            selector = effective_selector(constraint, self.pod)
            itself = 1 if selects(selector, labels_of(self.pod)) else 0
            if counts.get(domain, 0) + itself - least > constraint["maxSkew"]:
                return SPREAD_REJECTED
        return SUCCESS

    def _count(self, constraint: JsonObject) -> Mapping[str, int]:
        """Matching pods per domain; a domain without any counts 0 as soon as one node of it takes part."""
        key = constraint["topologyKey"]
        part = set(filter(self._participation(constraint), self.state.nodes))
        counts = Counter({self.state.domain(name, key) or "": 0 for name in part})
        selector = effective_selector(constraint, self.pod)
        if is_empty(selector):  # counts no pod, although such a selector matches every pod
            return counts
        for placed in self.state.pods(namespace_of(self.pod)):
            if placed.node in part and not is_terminating(placed.pod) and selects(selector, labels_of(placed.pod)):
                counts[self.state.domain(placed.node, key) or ""] += 1
        return counts

    def _participation(self, constraint: JsonObject) -> Callable[[str], bool]:
        """Whether a node takes part in the counting: by its keys, and by the constraint's inclusion policies."""
        keys = [each["topologyKey"] for each in self.constraints]
        has_wishes = bool(self.pod["spec"].get("nodeSelector")) or required_terms(self.pod) is not None
        asks_affinity = has_wishes and (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
        asks_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"

        def takes_part(name: str) -> bool:
            node = self.state.nodes[name]
            if any(self.state.domain(name, key) is None for key in keys):
                return False
            if asks_affinity and not matches_node_affinity(self.pod, node):
                return False
            return not asks_taints or tolerates_taints(self.pod, node)

        return takes_part
