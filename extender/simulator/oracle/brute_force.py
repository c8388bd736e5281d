"""Inter-pod affinity and topology spread by brute force: the oracle that the rules are compared with.

Simple rather than fast, and written from the documentation. Must not import the index, the rules or the verbs: an oracle
with the code under test would have its bugs. Called by `oracle/violations.py` (placements of a run) and property tests.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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


Labels: TypeAlias = frozenset[tuple[str, str]]
_MOST_KNOWN = 10_000  # labels


class Selector(dict[Labels, bool]):
    """A label selector: by labels, whether it matches. Results are cached, because many pods have equal labels."""

    def __init__(self, raw: JsonObject | None) -> None:
        super().__init__()
        self.raw = raw

    def __missing__(self, labels: Labels) -> bool:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        is_selected = self[labels] = selects(self.raw, dict(labels))
        return is_selected


class RequiredTerm:
    """One required term, and the namespace of its pod."""

    def __init__(self, raw: JsonObject, owner_namespace: str) -> None:
        self.key: str = raw["topologyKey"]
        self.selector = Selector(raw.get("labelSelector"))
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
        return self.selector[label_set(other)] and self.covers(namespace, namespaces.get(namespace))

    def selects_for_existing(self, incoming: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """As a term of an existing pod: a namespace without an object has no labels."""
        namespace = namespace_of(incoming)
        return self.selector[label_set(incoming)] and self.covers(namespace, namespaces.get(namespace, {}))


def label_set(pod: JsonObject) -> Labels:
    """The labels of a pod in a form that can be compared and hashed."""
    return frozenset(labels_of(pod).items())


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
    # A toleration without an effect or without a key tolerates every effect or key.
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


class ExistingPod(NamedTuple):
    """An existing pod and its node."""

    pod: JsonObject
    node: str


class Alike:
    """Pods with equal labels, by key: a selector selects all of them or none. With their number on each node.

    ``living``: the number without terminating pods. Decisions read these numbers, because the pods themselves are too many.
    """

    __slots__ = ("living", "on", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, ExistingPod] = {}
        self.on: Counter[str] = Counter()
        self.living: Counter[str] = Counter()

    def put(self, key: str, placed: ExistingPod) -> None:
        """Adds a pod that was not there."""
        self.pods[key] = placed
        self.on[placed.node] += 1
        self.living[placed.node] += not is_terminating(placed.pod)

    def take(self, key: str) -> ExistingPod:
        """Takes away a pod that was there."""
        placed = self.pods.pop(key)
        self.living[placed.node] -= not is_terminating(placed.pod)
        self.on[placed.node] -= 1
        if not self.on[placed.node]:
            del self.on[placed.node], self.living[placed.node]
        return placed


class ClusterState:
    """Nodes, namespaces, and the existing pods with their nodes.

    Pods are kept by namespace and labels, so that a check evaluates a selector once for equal labels. Pods with required
    anti-affinity are kept by term too, so that a check evaluates each term once.
    """

    def __init__(self, nodes: Iterable[JsonObject] = (), namespaces: Iterable[JsonObject] = ()) -> None:
        self.changes = 0  # so far
        self._nodes: dict[str, JsonObject] = {}
        self._labels: dict[str, dict[str, str]] = {}
        for node in nodes:
            self.set_node(node)
        self._namespaces = {name_of(namespace): labels_of(namespace) for namespace in namespaces}
        self.repelling: dict[RequiredTerm, Alike] = {}
        self._alike: dict[str, dict[Labels, Alike]] = {}  # by namespace
        self._groups: dict[str, tuple[str, Labels, list[RequiredTerm]]] = {}  # by key, where it is counted
        self._on_nodes: dict[str, dict[str, ExistingPod]] = {}
        self._terms: dict[str, RequiredTerm] = {}
        self._selectors: dict[str, Selector] = {}

    @property
    def nodes(self) -> Mapping[str, JsonObject]:
        """The nodes by name; changed through `set_node` and `remove_node`."""
        return self._nodes

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of namespaces by name; changed through `set_namespace`."""
        return self._namespaces

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Sets the labels of a namespace; None removes it."""
        self.changes += 1
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    def set_node(self, node: JsonObject) -> None:
        """Adds or replaces a node."""
        self.changes += 1
        self._nodes[name_of(node)] = node
        self._labels[name_of(node)] = labels_of(node)

    def remove_node(self, name: str) -> None:
        """Removes a node. Its pods do not count until it is added again."""
        self.changes += 1
        self._nodes.pop(name, None)
        self._labels.pop(name, None)

    def place(self, key: str, pod: JsonObject, node: str) -> None:
        """Counts a pod on a node, in place of the pod that had this key."""
        self.remove(key)
        self.changes += 1
        placed, namespace, labels = ExistingPod(pod, node), namespace_of(pod), label_set(pod)
        self._alike.setdefault(namespace, {}).setdefault(labels, Alike()).put(key, placed)
        self._on_nodes.setdefault(node, {})[key] = placed
        terms = required_pod_terms(pod, ANTI_AFFINITY)
        # kube-scheduler ignores the anti-affinity of an existing pod whose terms it cannot parse.
        own = [self.term(raw, namespace) for raw in terms] if terms and _can_read(terms) else []
        for term in set(own):
            self.repelling.setdefault(term, Alike()).put(key, placed)
        self._groups[key] = namespace, labels, own

    def remove(self, key: str) -> None:
        """Stops counting a pod."""
        if key not in self._groups:
            return
        self.changes += 1
        namespace, labels, own = self._groups.pop(key)
        alike = self._alike[namespace][labels]
        del self._on_nodes[alike.take(key).node][key]
        if not alike.pods:
            del self._alike[namespace][labels]
        for term in set(own):
            self.repelling[term].take(key)
            if not self.repelling[term].pods:
                del self.repelling[term]

    def pods(self, namespace: str | None = None) -> Iterable[ExistingPod]:
        """The pods of one namespace or of all, without those on unknown nodes."""
        groups = self._alike.values() if namespace is None else [self._alike.get(namespace, {})]
        return (
            placed
            for group in groups
            for alike in group.values()
            for placed in alike.pods.values()
            if placed.node in self._nodes
        )

    def selected(self, selector: Selector, namespace: str) -> Iterable[ExistingPod]:
        """The pods of a namespace that a selector matches, without those on unknown nodes."""
        for alike in self.alike(selector, namespace):
            yield from (placed for placed in alike.pods.values() if placed.node in self._nodes)

    def alike(self, selector: Selector, namespace: str) -> Iterator[Alike]:
        """The pods that a selector matches, by labels, pods on unknown nodes included. O(different label sets)."""
        return (alike for labels, alike in self._alike.get(namespace, {}).items() if selector[labels])

    def covered(self, term: RequiredTerm) -> Iterable[str]:
        """The namespaces of pods that a term of an incoming pod covers."""
        return (name for name in self._alike if term.covers(name, self.namespaces.get(name)))

    def on_node(self, node: str) -> Iterable[ExistingPod]:
        """The pods on one node."""
        return self._on_nodes.get(node, {}).values()

    def domain(self, node: str, key: str) -> str | None:
        """The node's value of a topology key; None without the key."""
        return self._labels[node].get(key)

    def term(self, raw: JsonObject, namespace: str) -> RequiredTerm:
        """A term of a pod in a namespace: one object for equal ones."""
        key = f"{namespace} {raw}"
        return self._terms.get(key) or self._terms.setdefault(key, RequiredTerm(raw, namespace))

    def selector(self, raw: JsonObject | None) -> Selector:
        """A selector: one object for equal ones."""
        key = f"{raw}"
        known = self._selectors.get(key)
        return self._selectors.setdefault(key, Selector(raw)) if known is None else known


Domain: TypeAlias = tuple[str, str]


class PluginStatus(NamedTuple):
    """The result of a plugin for one node: a status code of the framework, and a reason unless it is Success."""

    code: str
    reason: str = ""


NO_DOMAIN: Domain = ("", "")
SUCCESS = PluginStatus("Success")
AFFINITY_REJECTED = PluginStatus("UnschedulableAndUnresolvable", "node(s) didn't match pod affinity rules")
ANTI_AFFINITY_REJECTED = PluginStatus("Unschedulable", "node(s) didn't match pod anti-affinity rules")
EXISTING_REJECTED = PluginStatus("Unschedulable", "node(s) didn't satisfy existing pods anti-affinity rules")
SPREAD_REJECTED = PluginStatus("Unschedulable", "node(s) didn't match pod topology spread constraints")
SPREAD_UNLABELLED = PluginStatus(
    "UnschedulableAndUnresolvable",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)
UNPARSABLE_TERM = PluginStatus("UnschedulableAndUnresolvable", "parsing pod: ")
UNPARSABLE_CONSTRAINT = PluginStatus(
    "Error", "get constraints from pod: obtaining pod's hard topology spread constraints: "
)


def feasible(
    pod: JsonObject, nodes: Iterable[JsonObject], namespaces: Iterable[JsonObject], pods: Iterable[JsonObject]
) -> dict[str, PluginStatus]:
    """The status of every node by both plugins. If both reject a node, the status of spread: kube-scheduler runs it first.

    `pods` may be all pods of the API server: pending and finished pods are ignored.
    """
    state = ClusterState(nodes, namespaces)
    for number, existing in enumerate(pods):
        node = existing.get("spec", {}).get("nodeName")
        if node and not is_finished(existing):
            state.place(f"{number}", existing, node)
    filters = Filters(pod, state)
    return {name: filters.check(name) for name in state.nodes}


def check(pod: JsonObject, node: str, state: ClusterState) -> PluginStatus:
    """The status of one node by both plugins."""
    return Filters(pod, state).check(node)


class Filters:
    """Both plugins for one pod, in the present state. With ``spreads`` a node has to pass one of these filters."""

    def __init__(
        self, pod: JsonObject, state: ClusterState, spreads: Sequence["OracleTopologySpread"] | None = None
    ) -> None:
        self.pod = pod
        self.at = state.changes
        self._spreads = spreads or [OracleTopologySpread(pod, state)]
        self._affinity = OracleInterPodAffinity(pod, state)

    def check(self, node: str) -> PluginStatus:
        """The status of one node."""
        statuses = [spread.check(node) for spread in self._spreads]
        return self._affinity.check(node) if SUCCESS in statuses else statuses[0]


class OracleInterPodAffinity:
    """The filter of InterPodAffinity for one pod: computes three sets of domains once, then looks them up."""

    def __init__(self, pod: JsonObject, state: ClusterState) -> None:
        self.state = state
        self.is_parsable = are_parsable(pod)
        if not self.is_parsable:
            return
        own = namespace_of(pod)
        self.affinity_terms = [state.term(raw, own) for raw in required_pod_terms(pod, AFFINITY)]
        self.anti_affinity_terms = [state.term(raw, own) for raw in required_pod_terms(pod, ANTI_AFFINITY)]
        self.selects_itself = all(term.selects_for_incoming(pod, state.namespaces) for term in self.affinity_terms)
        self.matched = self._matched()
        self.occupied = self._occupied()
        self.forbidden = self._forbidden(pod)

    def check(self, node: str) -> PluginStatus:
        """The first failure of: required affinity, required anti-affinity, required anti-affinity of existing pods."""
        if not self.is_parsable:
            return UNPARSABLE_TERM
        if not self._satisfies_affinity(node):
            return AFFINITY_REJECTED
        if any(self._domain(node, term) in self.occupied for term in self.anti_affinity_terms):
            return ANTI_AFFINITY_REJECTED
        if not self.forbidden.isdisjoint(labels_of(self.state.nodes[node]).items()):
            return EXISTING_REJECTED
        return SUCCESS

    def _satisfies_affinity(self, node: str) -> bool:
        if any(self.state.domain(node, term.key) is None for term in self.affinity_terms):
            return False
        if all(self._domain(node, term) in self.matched for term in self.affinity_terms):
            return True
        # The first pod with affinity to its own labels may run on any node with the key.
        return not self.matched and self.selects_itself

    def _domain(self, node: str, term: RequiredTerm) -> Domain:
        """The node's domain for a term; without the key a domain that has no pods."""
        value = self.state.domain(node, term.key)
        return NO_DOMAIN if value is None else (term.key, value)

    def _matched(self) -> set[Domain]:
        """The domains of pods that match every term of the required affinity at once."""
        if not self.affinity_terms:
            return set()
        first, *others = self.affinity_terms
        domains: set[Domain] = set()
        # A pod counts for affinity only if it matches all terms at once. Example: terms app=db and tier=gold need one pod with
        # both labels. For anti-affinity each term counts by itself, see `_occupied`.
        for alike in self._alike(first):
            sample = next(iter(alike.pods.values())).pod
            if all(term.selects_for_incoming(sample, self.state.namespaces) for term in others):
                domains |= {self._domain(node, term) for node in self._known(alike) for term in self.affinity_terms}
        return domains - {NO_DOMAIN}

    def _occupied(self) -> set[Domain]:
        """The domains of pods that match an anti-affinity term of the incoming pod, for each term."""
        return {
            self._domain(node, term)
            for term in self.anti_affinity_terms
            for alike in self._alike(term)
            for node in self._known(alike)
        } - {NO_DOMAIN}

    def _forbidden(self, pod: JsonObject) -> set[Domain]:
        """The domains of existing pods whose required anti-affinity selects the incoming pod."""
        labels, namespace = label_set(pod), namespace_of(pod)
        known = self.state.namespaces.get(namespace, {})  # one without an object has no labels
        return {
            self._domain(node, term)
            for term, carriers in self.state.repelling.items()
            if term.selector[labels] and term.covers(namespace, known)
            for node in self._known(carriers)
        } - {NO_DOMAIN}

    def _alike(self, term: RequiredTerm) -> Iterator[Alike]:
        return (alike for name in self.state.covered(term) for alike in self.state.alike(term.selector, name))

    def _known(self, alike: Alike) -> Iterator[str]:
        return (node for node in alike.on if node in self.state.nodes)

    def selected(self, term: RequiredTerm) -> Iterable[ExistingPod]:
        """The pods that a term of the incoming pod selects."""
        return (placed for name in self.state.covered(term) for placed in self.state.selected(term.selector, name))


class OracleTopologySpread:
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
        self._most = list(map(self._most_in_domain, self.constraints, self.counts))

    def check(self, node: str) -> PluginStatus:
        """The failure of the first constraint in the order of the pod's spec."""
        if not self.is_parsable:
            return UNPARSABLE_CONSTRAINT
        for constraint, counts, most in zip(self.constraints, self.counts, self._most, strict=True):
            domain = self.state.domain(node, constraint["topologyKey"])
            if domain is None:
                return SPREAD_UNLABELLED
            if counts.get(domain, 0) > most:
                return SPREAD_REJECTED
        return SUCCESS

    def _most_in_domain(self, constraint: JsonObject, counts: Mapping[str, int]) -> int:
        """The largest number of matching pods with which a domain may get one more."""
        # A node passes if count + self_match - least <= maxSkew. With fewer domains than minDomains `least` is 0 (KEP-3022).
        # `self_match` is 0 if the constraint does not select the pod: then placing it changes no count.
        least = min(counts.values(), default=0) if len(counts) >= (constraint.get("minDomains") or 1) else 0
        self_match = 1 if selects(effective_selector(constraint, self.pod), labels_of(self.pod)) else 0
        most: int = constraint["maxSkew"] + least - self_match
        return most

    def _count(self, constraint: JsonObject) -> Mapping[str, int]:
        """The matching pods of each domain with an eligible node, 0 included."""
        key = constraint["topologyKey"]
        eligible = set(filter(self._eligibility(constraint), self.state.nodes))
        counts = Counter({self.state.domain(name, key) or "": 0 for name in eligible})
        selector = effective_selector(constraint, self.pod)
        if is_empty(selector):  # kube-scheduler counts no pods for it, although it matches every pod
            return counts
        for alike in self.state.alike(self.state.selector(selector), namespace_of(self.pod)):
            for node, pods in alike.living.items():
                if node in eligible:
                    counts[self.state.domain(node, key) or ""] += pods
        return counts

    def _eligibility(self, constraint: JsonObject) -> Callable[[str], bool]:
        """A predicate for eligible nodes: they have all keys and pass the constraint's inclusion policies."""
        keys = {constraint["topologyKey"] for constraint in self.constraints}
        has_node_affinity = bool(self.pod["spec"].get("nodeSelector")) or required_terms(self.pod) is not None
        honors_affinity = has_node_affinity and (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
        honors_taints = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"

        def is_eligible(name: str) -> bool:
            node = self.state.nodes[name]
            # A node must have the keys of all constraints to count for any of them.
            if not keys <= labels_of(node).keys():
                return False
            if honors_affinity and not matches_node_affinity(self.pod, node):
                return False
            return not honors_taints or tolerates_taints(self.pod, node)

        return is_eligible
