"""The state of the cluster at a decision, for the oracle. Plain objects; must not import the index or the rules."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of
from extender.simulator.oracle.terms import ANTI_AFFINITY, Term, are_parsable, required_pod_terms


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
