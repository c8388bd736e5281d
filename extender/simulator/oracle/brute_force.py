"""Inter-pod affinity and topology spread by brute force: the oracle that the rules are compared with.

Simple rather than fast, and written from the documentation. Must not import the index, the rules or the verbs: an oracle
with the code under test would have its bugs. Called by `oracle/violations.py` (placements of a run) and property tests.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from extender.simulator.json_objects import (
    JsonObject,
    holds,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    selects,
)

AFFINITY, ANTI_AFFINITY = "podAffinity", "podAntiAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253


def required_pod_terms(pod: JsonObject, side: str) -> list[JsonObject]:
    """The required terms of one side, `podAffinity` or `podAntiAffinity`."""
    rules = (pod["spec"].get("affinity") or {}).get(side) or {}
    return rules.get(_REQUIRED) or []


def preferred_pod_terms(pod: JsonObject, side: str) -> list[JsonObject]:
    """The preferred terms of one side, without their weights."""
    rules = (pod["spec"].get("affinity") or {}).get(side) or {}
    return [weighted["podAffinityTerm"] for weighted in rules.get(_PREFERRED) or []]


class Term:
    """One required term, and the namespace of its pod."""

    def __init__(self, raw: JsonObject, owner_namespace: str) -> None:
        self.key: str = raw["topologyKey"]
        self.selector: JsonObject | None = raw.get("labelSelector")
        self.names: list[str] = raw.get("namespaces") or []
        self.namespaces: JsonObject | None = raw.get("namespaceSelector")
        self.owner_namespace = owner_namespace

    def covers(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Whether the term covers a namespace. `labels` is None if there is no Namespace object (KEP-2249)."""
        if not self.names and self.namespaces is None:
            return namespace == self.owner_namespace
        if namespace in self.names:
            return True
        if self.namespaces is None:
            return False
        return is_empty(self.namespaces) or (labels is not None and selects(self.namespaces, labels))

    def selects_for_incoming(self, other: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """As a term of the incoming pod: a namespace without an object is covered by name or by `{}` only."""
        namespace = namespace_of(other)
        return selects(self.selector, labels_of(other)) and self.covers(namespace, namespaces.get(namespace))

    def selects_for_existing(self, incoming: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """As a term of an existing pod: a namespace without an object has no labels."""
        namespace = namespace_of(incoming)
        return selects(self.selector, labels_of(incoming)) and self.covers(namespace, namespaces.get(namespace, {}))


def effective_selector(constraint: JsonObject, pod: JsonObject) -> JsonObject | None:
    """The constraint's selector, with the pod's value of each matchLabelKeys key that it has (KEP-3243)."""
    selector = constraint.get("labelSelector")
    if selector is None:
        return None
    labels = labels_of(pod)
    own = [key for key in constraint.get("matchLabelKeys") or [] if key in labels]
    added = [{"key": key, "operator": "In", "values": [labels[key]]} for key in own]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *added]}


def is_empty(selector: JsonObject | None) -> bool:
    """Whether a selector is present and has no requirements."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def are_parsable(pod: JsonObject, required_of: str = "") -> bool:
    """Whether all terms of the pod are valid; with `required_of`, only the required ones of that side."""
    if required_of:
        return _can_read(required_pod_terms(pod, required_of))
    sides = (AFFINITY, ANTI_AFFINITY)
    return all(_can_read(required_pod_terms(pod, side) + preferred_pod_terms(pod, side)) for side in sides)


def _can_read(terms: Iterable[JsonObject]) -> bool:
    return all(is_parsable(term.get("labelSelector")) and is_parsable(term.get("namespaceSelector")) for term in terms)


def is_parsable(selector: JsonObject | None) -> bool:
    """Whether a label selector has valid syntax; an absent one has."""
    if selector is None:
        return True
    pairs = (selector.get("matchLabels") or {}).items()
    return all(_is_key(key) and _is_value(value) for key, value in pairs) and all(
        _is_requirement(requirement) for requirement in selector.get("matchExpressions") or []
    )


def _is_requirement(requirement: JsonObject) -> bool:
    values = requirement.get("values") or []
    if not _is_key(requirement["key"]) or not all(map(_is_value, values)):
        return False
    match requirement["operator"]:
        case "In" | "NotIn":
            return bool(values)
        case "Exists" | "DoesNotExist":
            return not values
        case _:
            return False


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _LONGEST_PREFIX):
        return False
    return _NAME.fullmatch(name) is not None


def _is_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None


_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def required_terms(pod: JsonObject) -> list[JsonObject] | None:
    """The pod's required node affinity terms; None without required node affinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def matches_node_affinity(pod: JsonObject, node: JsonObject) -> bool:
    """Whether the node matches nodeSelector and required node affinity."""
    labels = labels_of(node)
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    terms = required_terms(pod)
    return terms is None or any(matches_term(term, node) for term in terms)


def matches_term(term: JsonObject, node: JsonObject) -> bool:
    """Whether a node selector term matches; an empty one does not."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels, names = labels_of(node), {"metadata.name": name_of(node)}
    return all(holds(requirement, labels) for requirement in expressions) and all(
        holds(requirement, names) for requirement in fields
    )


def tolerates_taints(pod: JsonObject, node: JsonObject, effects: Collection[str] = _HARD_EFFECTS) -> bool:
    """Whether the pod tolerates all taints of the node with these effects."""
    return untolerated(pod, node, effects) is None


def untolerated(pod: JsonObject, node: JsonObject, effects: Collection[str] = _HARD_EFFECTS) -> JsonObject | None:
    """The first taint with these effects that the pod does not tolerate; None if it tolerates all."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint.get("effect") in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            tainted: JsonObject = taint
            return tainted
    return None


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Whether a toleration matches a taint. Operators Lt and Gt are alpha and off by default."""
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


class Placed(NamedTuple):
    """An existing pod and its node."""

    pod: JsonObject
    node: str


class ClusterState:
    """Nodes, namespaces, and the existing pods with their nodes.

    Pods are kept by namespace, and those with required anti-affinity also in `repelling`, so that a check need not read
    all of them. Equal terms share one object, so that a check evaluates each term once.
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
        self._on_nodes: dict[str, dict[str, Placed]] = {}
        self._terms: dict[str, Term] = {}

    @property
    def nodes(self) -> Mapping[str, JsonObject]:
        """The nodes by name; changed through `set_node` and `remove_node`."""
        return self._nodes

    def set_node(self, node: JsonObject) -> None:
        """Adds or replaces a node."""
        self._nodes[name_of(node)] = node
        self._labels[name_of(node)] = labels_of(node)

    def remove_node(self, name: str) -> None:
        """Removes a node. Its pods do not count until it is added again."""
        self._nodes.pop(name, None)
        self._labels.pop(name, None)

    def place(self, key: str, pod: JsonObject, node: str) -> None:
        """Counts a pod on a node, in place of the pod that had this key."""
        self.remove(key)
        placed = Placed(pod, node)
        namespace = self._namespace_by_key[key] = namespace_of(pod)
        self.by_namespace.setdefault(namespace, {})[key] = placed
        self._on_nodes.setdefault(node, {})[key] = placed
        terms = required_pod_terms(pod, ANTI_AFFINITY)
        # kube-scheduler ignores the anti-affinity of an existing pod whose terms it cannot parse.
        if terms and are_parsable(pod, required_of=ANTI_AFFINITY):
            self.repelling[key] = placed, [self._term(raw, namespace) for raw in terms]

    def remove(self, key: str) -> None:
        """Stops counting a pod."""
        namespace = self._namespace_by_key.pop(key, None)
        if namespace is not None:
            placed = self.by_namespace[namespace].pop(key)
            del self._on_nodes[placed.node][key]
            self.repelling.pop(key, None)

    def pods(self, namespace: str | None = None) -> Iterable[Placed]:
        """The pods of one namespace or of all, without those on unknown nodes."""
        groups = self.by_namespace.values() if namespace is None else [self.by_namespace.get(namespace, {})]
        return (placed for group in groups for placed in group.values() if placed.node in self.nodes)

    def on_node(self, node: str) -> Iterable[Placed]:
        """The pods on one node."""
        return self._on_nodes.get(node, {}).values()

    def domain(self, node: str, key: str) -> str | None:
        """The node's value of a topology key; None without the key."""
        return self._labels[node].get(key)

    def _term(self, raw: JsonObject, namespace: str) -> Term:
        return self._terms.setdefault(f"{namespace} {raw}", Term(raw, namespace))


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
