"""The cluster as a decision finds it: nodes, namespaces, and the pods that count, each on its node.

Part of the oracle: plain objects, nothing of the index or the rules.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of
from extender.simulator.oracle.terms import ANTI_AFFINITY, Term, are_parsable, required_pod_terms


class Placed(NamedTuple):
    """A pod and the node that it counts on."""

    pod: JsonObject
    node: str


class ClusterState:
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
