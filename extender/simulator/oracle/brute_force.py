"""Inter-pod affinity and topology spread by brute force: the oracle that the real code is compared with.

Obviously right rather than fast, written from the documented behaviour alone over plain objects. Nothing of the
index, the rules or the verbs may enter here: an oracle that shares code with what it judges proves nothing.
Called by `oracle/violations.py` (placements of a run) and by property tests.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from extender.simulator.json_objects import JsonObject, is_finished, is_terminating, labels_of, name_of, namespace_of
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
from extender.simulator.selectors import selects

Domain: TypeAlias = tuple[str, str]


class Finding(NamedTuple):
    """What a plugin says of one node: a code of the scheduler, and a reason unless the code is Success."""

    code: str
    reason: str = ""


NOWHERE: Domain = ("", "")
SUCCESS = Finding("Success")
AFFINITY_REFUSED = Finding("UnschedulableAndUnresolvable", "node(s) didn't match pod affinity rules")
ANTI_AFFINITY_REFUSED = Finding("Unschedulable", "node(s) didn't match pod anti-affinity rules")
EXISTING_REFUSED = Finding("Unschedulable", "node(s) didn't satisfy existing pods anti-affinity rules")
SPREAD_REFUSED = Finding("Unschedulable", "node(s) didn't match pod topology spread constraints")
SPREAD_UNLABELLED = Finding(
    "UnschedulableAndUnresolvable",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)
UNPARSABLE_TERM = Finding("UnschedulableAndUnresolvable", "parsing pod: ")
UNPARSABLE_CONSTRAINT = Finding("Error", "get constraints from pod: obtaining pod's hard topology spread constraints: ")


class Placed(NamedTuple):
    """A pod and the node that it counts on."""

    pod: JsonObject
    node: str


class World:
    """The cluster as a decision finds it: nodes, namespaces, and the pods that count, each on its node.

    Pods are kept by namespace, and those with required anti-affinity apart, so that a question need not look at all.
    Equal terms are kept once, so that a question tries each of them once however many pods carry it.
    """

    def __init__(self, nodes: Iterable[JsonObject] = (), namespaces: Iterable[JsonObject] = ()) -> None:
        self._nodes: dict[str, JsonObject] = {}
        self._labels: dict[str, dict[str, str]] = {}
        for node in nodes:
            self.set_node(node)
        self.namespaces = {name_of(namespace): labels_of(namespace) for namespace in namespaces}
        self.by_namespace: dict[str, dict[str, Placed]] = {}
        self.repelling: dict[str, tuple[Placed, list[Term]]] = {}
        self._namespace_by_key: dict[str, str] = {}
        self._terms: dict[str, Term] = {}

    @property
    def nodes(self) -> Mapping[str, JsonObject]:
        """The nodes by name; changed through `set_node` and `remove_node`."""
        return self._nodes

    def set_node(self, node: JsonObject) -> None:
        """A node is there, or is otherwise than before."""
        self._nodes[name_of(node)] = node
        self._labels[name_of(node)] = labels_of(node)

    def remove_node(self, name: str) -> None:
        """A node is gone; its pods are no part of anything until it is back."""
        self._nodes.pop(name, None)
        self._labels.pop(name, None)

    def place(self, key: str, pod: JsonObject, node: str) -> None:
        """Count a pod on a node, in place of what was counted under that key."""
        self.remove(key)
        placed = Placed(pod, node)
        namespace = self._namespace_by_key[key] = namespace_of(pod)
        self.by_namespace.setdefault(namespace, {})[key] = placed
        terms = required_pod_terms(pod, ANTI_AFFINITY)
        if terms and are_parsable(pod, required_of=ANTI_AFFINITY):
            self.repelling[key] = placed, [self._term(raw, namespace) for raw in terms]

    def remove(self, key: str) -> None:
        """Count a pod no longer."""
        namespace = self._namespace_by_key.pop(key, None)
        if namespace is not None:
            del self.by_namespace[namespace][key]
            self.repelling.pop(key, None)

    def pods(self, namespace: str | None = None) -> Iterable[Placed]:
        """The pods that count, of one namespace or of all; those on unknown nodes are no part of anything."""
        groups = self.by_namespace.values() if namespace is None else [self.by_namespace.get(namespace, {})]
        return (placed for group in groups for placed in group.values() if placed.node in self.nodes)

    def domain(self, node: str, key: str) -> str | None:
        """The node's value of a topology key; None without it."""
        return self._labels[node].get(key)

    def _term(self, raw: JsonObject, namespace: str) -> Term:
        return self._terms.setdefault(f"{namespace} {raw}", Term(raw, namespace))


def feasible(
    pod: JsonObject, nodes: Iterable[JsonObject], namespaces: Iterable[JsonObject], pods: Iterable[JsonObject]
) -> dict[str, Finding]:
    """What both plugins together say of every node; of two refusals, the spread's, as the scheduler asks it first.

    `pods` may hold anything that the API server does: pending, finished and terminating pods are sorted out here.
    """
    world = World(nodes, namespaces)
    for number, existing in enumerate(pods):
        node = existing.get("spec", {}).get("nodeName")
        if node and not is_finished(existing):
            world.place(f"{number}", existing, node)
    spread, near = TopologySpread(pod, world), InterPodAffinity(pod, world)
    return {name: _first_refusal(spread.check(name), near, name) for name in world.nodes}


def check(pod: JsonObject, node: str, world: World) -> Finding:
    """What both plugins say of one node."""
    return _first_refusal(TopologySpread(pod, world).check(node), InterPodAffinity(pod, world), node)


def _first_refusal(spread: Finding, near: "InterPodAffinity", node: str) -> Finding:
    return spread if spread != SUCCESS else near.check(node)


class InterPodAffinity:
    """The filter of InterPodAffinity for one pod: three sets of domains, then look-ups."""

    def __init__(self, pod: JsonObject, world: World) -> None:
        self.world = world
        self.is_parsable = are_parsable(pod)
        if not self.is_parsable:
            return
        self.wanted = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, AFFINITY)]
        self.repelled = [Term(raw, namespace_of(pod)) for raw in required_pod_terms(pod, ANTI_AFFINITY)]
        self.selects_itself = all(term.selects_for_incoming(pod, world.namespaces) for term in self.wanted)
        self.matched = self._matched()
        self.occupied = self._occupied()
        self.forbidden = self._forbidden(pod)

    def check(self, node: str) -> Finding:
        """The first failure of: required affinity, own anti-affinity, existing pods' anti-affinity."""
        if not self.is_parsable:
            return UNPARSABLE_TERM
        if not self._is_attracted(node):
            return AFFINITY_REFUSED
        if any(self._domain(node, term) in self.occupied for term in self.repelled):
            return ANTI_AFFINITY_REFUSED
        if any(domain in self.forbidden for domain in labels_of(self.world.nodes[node]).items()):
            return EXISTING_REFUSED
        return SUCCESS

    def _is_attracted(self, node: str) -> bool:
        if any(self.world.domain(node, term.key) is None for term in self.wanted):
            return False
        if all(self._domain(node, term) in self.matched for term in self.wanted):
            return True
        # The first pod of a group that wants to be near itself may go anywhere.
        return not self.matched and self.selects_itself

    def _domain(self, node: str, term: Term) -> Domain:
        """The node's domain for a term, or one that no pod is ever in when the node lacks the key."""
        value = self.world.domain(node, term.key)
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
            if all(term.selects_for_incoming(placed.pod, self.world.namespaces) for term in others):
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
        for placed, terms in self.world.repelling.values():
            for term in terms:
                if term not in does_select:
                    does_select[term] = term.selects_for_existing(pod, self.world.namespaces)
                if does_select[term] and placed.node in self.world.nodes:
                    domains |= self._domains(placed, [term])
        return domains

    def _selected(self, term: Term) -> Iterable[Placed]:
        """The pods that a term of the incoming pod selects."""
        for namespace in self.world.by_namespace:
            if term.covers(namespace, self.world.namespaces.get(namespace)):
                for placed in self.world.pods(namespace):
                    if selects(term.selector, labels_of(placed.pod)):
                        yield placed


class TopologySpread:
    """The hard constraints of one pod: counts per domain over the nodes that take part, then look-ups."""

    def __init__(self, pod: JsonObject, world: World, constraints: Sequence[JsonObject] | None = None) -> None:
        self.pod = pod
        self.world = world
        own = pod["spec"].get("topologySpreadConstraints") or []
        self.constraints = [
            constraint
            for constraint in (own if constraints is None else constraints)
            if constraint["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        self.is_parsable = all(is_parsable(constraint.get("labelSelector")) for constraint in self.constraints)
        self.counts = [self._count(constraint) for constraint in self.constraints] if self.is_parsable else []

    def check(self, node: str) -> Finding:
        """The first constraint that fails, in the order of the pod's spec."""
        if not self.is_parsable:
            return UNPARSABLE_CONSTRAINT
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            domain = self.world.domain(node, constraint["topologyKey"])
            if domain is None:
                return SPREAD_UNLABELLED
            least = min(counts.values(), default=0)
            if len(counts) < (constraint.get("minDomains") or 1):
                least = 0
            selector = effective_selector(constraint, self.pod)
            itself = 1 if selects(selector, labels_of(self.pod)) else 0
            if counts.get(domain, 0) + itself - least > constraint["maxSkew"]:
                return SPREAD_REFUSED
        return SUCCESS

    def _count(self, constraint: JsonObject) -> Mapping[str, int]:
        """Matching pods per domain; a domain without any counts 0 as soon as one node of it takes part."""
        key = constraint["topologyKey"]
        part = set(filter(self._participation(constraint), self.world.nodes))
        counts = Counter({self.world.domain(name, key) or "": 0 for name in part})
        selector = effective_selector(constraint, self.pod)
        if is_empty(selector):  # counts nobody, although it would select everybody
            return counts
        for placed in self.world.pods(namespace_of(self.pod)):
            if placed.node in part and not is_terminating(placed.pod) and selects(selector, labels_of(placed.pod)):
                counts[self.world.domain(placed.node, key) or ""] += 1
        return counts

    def _participation(self, constraint: JsonObject) -> Callable[[str], bool]:
        """Whether a node takes part in the counting: by its keys, and by the constraint's inclusion policies."""
        keys = [each["topologyKey"] for each in self.constraints]
        has_wishes = bool(self.pod["spec"].get("nodeSelector")) or required_terms(self.pod) is not None
        asks_affinity = has_wishes and (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
        asks_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"

        def takes_part(name: str) -> bool:
            node = self.world.nodes[name]
            if any(self.world.domain(name, key) is None for key in keys):
                return False
            if asks_affinity and not matches_node_affinity(self.pod, node):
                return False
            return not asks_taints or tolerates_taints(self.pod, node)

        return takes_part
