"""A synthetic cluster of a given size: its pods and their nodes. Equal scenarios give equal clusters.

Pods of one selector are on different nodes as long as there are enough, evenly over the zones, so that required
anti-affinity and hard spread are satisfied from the start. Watch lines are created one at a time and not kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from random import Random
from typing import Any, Final, NamedTuple

import orjson

from extender.simulator.json_objects import JsonObject
from tests.tools.bench.scenario import Load, PodTemplate

_SPREAD_OF_SELECTORS = 1000  # the pods of a single selector are in all namespaces, those of one of 1,000 in one


class SyntheticCluster:
    """The objects of one load, and the incoming pods."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.part = load.scenario.cluster
        self.nodes = [node_name(number) for number in range(self.part.nodes)]
        self.writer = PodWriter(load.scenario.template)
        self._plain = PodWriter(PLAIN)
        # Coprime to the number of nodes, so that a selector's pods reach every node before one gets a second.
        self._step = next(n for n in range(7, 7 + self.part.nodes + 1) if math.gcd(n, self.part.nodes) == 1)
        self._reach = min(self.part.namespaces, max(1, _SPREAD_OF_SELECTORS // load.selectors))

    def zone(self, node: int) -> str:
        return zone_of(node, self.part.zones)

    def zone_named(self, node: str) -> str:
        return self.zone(int(node.rpartition("-")[2]))

    def node_lines(self) -> Iterator[bytes]:
        """The watch lines of all nodes."""
        return (node_line(number, self.part.zones, self.part.node_labels) for number in range(self.part.nodes))

    def namespace_lines(self) -> Iterator[bytes]:
        return (namespace_line(f"ns-{i}", self.part.namespace_labels) for i in range(self.part.namespaces))

    def replica_set_lines(self) -> Iterator[bytes]:
        """The watch lines of the pods' owners, if the scenario has them."""
        if not self.part.replica_sets:
            return
        for selector in range(self.load.selectors):
            for namespace in sorted({self.namespace(selector, rank) for rank in range(self._reach)}):
                yield self.writer.owner_line(selector, namespace)

    def pod_lines(self) -> Iterator[bytes]:
        """The watch lines of all existing pods, in alternating selectors."""
        return (watch_line("ADDED", self.running(pod, node)) for pod, node in self.existing())

    def running(self, pod: PodId, node: int) -> bytes:
        """The body of an existing pod."""
        writer = self._plain if pod.is_plain else self.writer
        return writer.write("running", pod, self.nodes[node], self.zone(node))

    def existing(self) -> Iterator[tuple[PodId, int]]:
        """Every existing pod with the number of its node."""
        return map(self.existing_pod, range(self.load.pods))

    def existing_pod(self, number: int) -> tuple[PodId, int]:
        rank, selector = divmod(number, self.load.selectors)
        if rank < self.part.most_per_selector:
            return PodId(number, selector, self.namespace(selector, rank)), self.node_of(selector, rank)
        return PodId(number, 0, f"ns-{number % self.part.namespaces}", is_plain=True), number % self.part.nodes

    def node_of(self, selector: int, rank: int) -> int:
        """The node of the pod with this number among those of its selector."""
        start = selector * self.part.nodes // self.load.selectors
        return (start + rank * self._step) % self.part.nodes

    def namespace(self, selector: int, rank: int) -> str:
        return "ns-0" if self.part.one_namespace else f"ns-{(selector + rank % self._reach) % self.part.namespaces}"

    def incoming_pod(self, number: int) -> PodId:
        """The incoming pod with this number. Selectors alternate in a scattered order."""
        selectors = self.load.selectors
        selector = number * 7919 % selectors if math.gcd(7919, selectors) == 1 else number % selectors
        draw = (selector if selectors > 1 else number) * 37 % 100
        wants_ssd = draw < self.load.scenario.requests.node_selector_share * 100
        # `{t}` follows the number, so with many selectors each keeps its value, as the replicas of a workload do.
        own = selector + selectors * (1_000_000 + number)
        return PodId(own, selector, self.namespace(selector, 0), wants_ssd=wants_ssd)

    def ssd_nodes(self) -> list[int]:
        """The nodes that match the node selector."""
        return [number for number in range(self.part.nodes) if has_ssd(number, self.part.zones)]


ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
SSD: Final = {"disktype": "ssd"}
PLAIN: Final = PodTemplate(labels={"app": "plain"})

_MADE: Final = "2026-01-01T00:00:00Z"
_ON_A_NODE: Final = ("bound", "running", "terminating")


@dataclass(frozen=True, slots=True)
class PodId:
    """A pod: its number, selector, namespace, and whether it has a node selector for an SSD."""

    number: int
    selector: int
    namespace: str
    wants_ssd: bool = False
    is_plain: bool = False

    @property
    def name(self) -> str:
        """A name like those of a Deployment's pods."""
        return f"{'plain' if self.is_plain else 'pod'}-{self.selector}-{self.number}"

    @property
    def uid(self) -> str:
        """A UID of the usual length."""
        return f"{self.number:08x}-0000-4000-8000-{self.selector:012x}"


class PodWriter:
    """Encodes the pods of one template."""

    def __init__(self, template: PodTemplate) -> None:
        self._template = template
        self._written = lru_cache(maxsize=None)(self._write)

    def incoming(self, pod: PodId) -> bytes:
        """The pod in the form of kube-scheduler's requests: pending, without managed fields and kind."""
        return self.write("incoming", pod)

    def line(self, event: str, state: str, pod: PodId, node: str = "", zone: str = "") -> bytes:
        return watch_line(event, self.write(state, pod, node, zone))

    def write(self, state: str, pod: PodId, node: str = "", zone: str = "") -> bytes:
        """The pod in one of the states, in the form of a list item (without kind).

        `pending`, `bound` with its node and the zone label that binding adds, `running`, `terminating`; `incoming` in
        the scheduler's form.
        """
        turn = pod.number % self._template.turns + 1
        values = {b"name": pod.name, b"namespace": pod.namespace, b"uid": pod.uid, b"node": node, b"zone": zone}
        pieces = self._written(state, pod.selector, turn, pod.wants_ssd)
        return b"".join(values[piece].encode() if i % 2 else piece for i, piece in enumerate(pieces))

    def owner_line(self, selector: int, namespace: str) -> bytes:
        """The watch line of the ReplicaSet that owns the pods of a selector."""
        labels = _filled(self._template.labels, selector, 1)
        metadata = {"name": f"pod-{selector}", "namespace": namespace, "resourceVersion": "1"}
        body = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": metadata}
        return orjson.dumps({"type": "ADDED", "object": body | {"spec": {"selector": {"matchLabels": labels}}}})

    def _write(self, state: str, selector: int, turn: int, wants_ssd: bool) -> list[bytes]:  # noqa: FBT001 (part of the key)
        """The pod in pieces: text, the name of a value, text, and so on."""
        own = _filled({"labels": self._template.labels, "spec": self._template.spec}, selector, turn)
        has_node = state in _ON_A_NODE
        metadata: JsonObject = {
            "name": "\0name\0",
            "generateName": "pod-",
            "namespace": "\0namespace\0",
            "uid": "\0uid\0",
            "resourceVersion": "1000",
            "generation": 1,
            "creationTimestamp": _MADE,
            "labels": own["labels"] | ({ZONE: "\0zone\0"} if has_node else {}),
            "ownerReferences": [_owner(selector)],
        }
        if state == "terminating":
            metadata |= {"deletionTimestamp": _MADE, "deletionGracePeriodSeconds": 30}
        if state != "incoming":
            metadata["managedFields"] = _managed_fields(is_bound=has_node)
        spec = _spec(own["spec"], wants_ssd=wants_ssd, has_node=has_node)
        return orjson.dumps({"metadata": metadata, "spec": spec, "status": _STATUS[state]}).split(rb"\u0000")


def watch_line(event: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":{"kind":"Pod","apiVersion":"v1",%s}' % (event.encode(), body[1:])


def _filled(value: Any, selector: int, turn: int) -> Any:
    """A copy of a part of a template, with `{v}` and `{t}` filled in."""
    if isinstance(value, dict):
        return {name: _filled(item, selector, turn) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, selector, turn) for item in value]
    if value == "{t}":
        return turn
    return value.replace("{v}", str(selector)) if isinstance(value, str) else value


def _owner(selector: int) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"pod-{selector}",
        "uid": f"{selector:08x}-1111-4000-8000-000000000000",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _spec(own: JsonObject, *, wants_ssd: bool, has_node: bool) -> JsonObject:
    """The spec with fields in the API's order; those not in the template have the API's defaults."""
    spec: JsonObject = {
        "volumes": [{"name": "kube-api-access-x", "projected": {"sources": _TOKEN_SOURCES, "defaultMode": 420}}],
        "containers": [_CONTAINER],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
    }
    if wants_ssd:
        spec["nodeSelector"] = SSD
    if has_node:
        spec["nodeName"] = "\0node\0"
    spec["securityContext"] = {}
    if "affinity" in own:
        spec["affinity"] = own["affinity"]
    spec |= {"schedulerName": "default-scheduler", "tolerations": _TOLERATIONS, "priority": 0}
    spec |= {"enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"}
    return spec | {name: value for name, value in own.items() if name != "affinity"}


def node_label(number: int) -> str:
    """The key of a further label of all nodes."""
    return f"example.com/label-{number}"


def node_line(number: int, zones: int, further: int = 0) -> bytes:
    """The watch line of a node. Zones alternate, and half of the nodes of each zone have an SSD.

    ``further``: labels of eight values each, as detectors of features write them.
    """
    name = node_name(number)
    labels = {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux"}
    labels |= SSD if has_ssd(number, zones) else {"disktype": "hdd"}
    labels |= {"kubernetes.io/arch": "amd64", HOSTNAME: name, "kubernetes.io/os": "linux"}
    labels |= {node_label(label): str((number + label) % 8) for label in range(further)}
    labels |= {"node.kubernetes.io/instance-type": "large", "topology.kubernetes.io/region": "here"}
    offered = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    body = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "labels": labels | {ZONE: zone_of(number, zones)},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": offered, "allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return orjson.dumps({"type": "ADDED", "object": body})


def namespace_line(name: str, labels: dict[str, str], event: str = "ADDED") -> bytes:
    metadata = {"name": name, "resourceVersion": "1", "labels": {"kubernetes.io/metadata.name": name} | labels}
    return orjson.dumps({"type": event, "object": {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}})


def node_name(number: int) -> str:
    return f"node-{number}"


def zone_of(number: int, zones: int) -> str:
    return f"zone-{number % zones}"


def has_ssd(number: int, zones: int) -> bool:
    return number // zones % 2 == 0


_TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
]
_TOKEN_SOURCES: Final = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
_AMOUNTS: Final = {"cpu": "100m", "memory": "500Mi"}
_CONTAINER: Final[JsonObject] = {
    "name": "main",
    "image": "registry.example/team/service:1.0.0",
    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
    "env": [{"name": "MODE", "value": "production"}],
    "resources": {"limits": _AMOUNTS, "requests": _AMOUNTS},
    "volumeMounts": [
        {"name": "kube-api-access-x", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ],
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_CONDITIONS: Final = [
    {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _MADE}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
]
_PENDING: Final[JsonObject] = {"phase": "Pending", "qosClass": "Guaranteed"}
_RUNNING: Final[JsonObject] = {
    "phase": "Running",
    "conditions": _CONDITIONS,
    "hostIP": "10.1.2.3",
    "podIP": "10.0.0.7",
    "podIPs": [{"ip": "10.0.0.7"}],
    "startTime": _MADE,
    "containerStatuses": [
        {
            "name": "main",
            "state": {"running": {"startedAt": _MADE}},
            "ready": True,
            "restartCount": 0,
            "image": "registry.example/team/service:1.0.0",
            "started": True,
        }
    ],
    "qosClass": "Guaranteed",
}
_STATUS: Final[dict[str, JsonObject]] = {
    "incoming": _PENDING,
    "pending": _PENDING,
    "bound": {"phase": "Pending", "conditions": _CONDITIONS[-1:], "qosClass": "Guaranteed"},
    "running": _RUNNING,
    "terminating": _RUNNING,
}


def _managed_fields(*, is_bound: bool) -> list[JsonObject]:
    """The managed fields of every watch line, which a decoder has to parse although it skips them."""
    container: JsonObject = {f"f:{name}": {} for name in _CONTAINER}
    spec = {"f:containers": {'k:{"name":"main"}': {".": {}, **container}}}
    spec |= {f"f:{name}": {} for name in ("affinity", "dnsPolicy", "restartPolicy", "schedulerName", "securityContext")}
    entries = [{"manager": "kube-controller-manager", "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": spec}}]
    if is_bound:
        status: JsonObject = {f"f:{name}": {} for name in _RUNNING}
        entries.append({"manager": "kubelet", "fieldsV1": {"f:status": status}})
    base = {"operation": "Update", "apiVersion": "v1", "time": _MADE, "fieldsType": "FieldsV1"}
    return [base | entry for entry in entries]


_MOST_SKIPPED = 4


class RequestMaker:
    """Creates the bodies of one point. Names are encoded once, so that a body is a join."""

    def __init__(self, cluster: SyntheticCluster, names: int, seed: int) -> None:
        self._cluster = cluster
        self._names = names
        self._rng = Random(seed)
        self._encoded = [f'"{name}"'.encode() for name in cluster.nodes]
        self._ssd = cluster.ssd_nodes()
        self._next = 0

    def filter_body(self, pod: PodId) -> bytes:
        """A filter request with the next window of names."""
        return _body(self._cluster.writer.incoming(pod), b",".join(self._window(pod)))

    def prioritize_body(self, pod: PodId, names: Sequence[str]) -> bytes:
        """A prioritize request with the nodes that passed filter."""
        return _body(self._cluster.writer.incoming(pod), b",".join(f'"{name}"'.encode() for name in names))

    def _window(self, pod: PodId) -> list[bytes]:
        """The next names: of all nodes, or of those that match the pod's node selector."""
        of = [self._encoded[node] for node in self._ssd] if pod.wants_ssd else self._encoded
        count = min(self._names, len(of))
        start = self._next % len(of)
        self._next = (self._next + self._names + self._rng.randint(0, _MOST_SKIPPED)) % len(self._encoded)
        window = of[start : start + count]
        return window + of[: count - len(window)]


def _body(pod: bytes, names: bytes) -> bytes:
    return b'{"Pod":%s,"Nodes":null,"NodeNames":[%s]}\n' % (pod, names)


_ALIVE: Final = 50
_STEPS: Final = (
    ("ADDED", "pending"),
    ("MODIFIED", "bound"),
    ("MODIFIED", "running"),
    ("MODIFIED", "terminating"),
    ("DELETED", "terminating"),
)


class PodEvent(NamedTuple):
    """One event of one pod, with the pod's body after it."""

    event: str
    pod: PodId
    node: str
    body: bytes

    @property
    def line(self) -> bytes:
        return watch_line(self.event, self.body)


def pod_events(cluster: SyntheticCluster, first: int) -> Iterator[PodEvent]:
    """An endless stream of events, of the incoming pods from number `first` on."""
    numbers = count(first)
    while True:
        places = [
            (cluster.incoming_pod(number), number * 7919 % len(cluster.nodes)) for number in islice(numbers, _ALIVE)
        ]
        for event, state in _STEPS:
            for pod, node in places:
                name = cluster.nodes[node] if state != "pending" else ""
                yield PodEvent(event, pod, name, cluster.writer.write(state, pod, name, cluster.zone(node)))
