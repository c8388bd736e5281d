"""What rows are made of: a dimension with its limit, and the objects that grow."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from extender.model.release import RELEASE_GATE
from extender.settings.configuration import Settings
from extender.simulator.json_objects import JsonObject
from extender.verbs.admit.reviews import review_of
from tests.costs.measuring import Play
from tests.simulator import plain
from tests.simulator.plain import HOSTNAME, ZONE

Most = Callable[[Settings], int]

TENANT: Final = "tenant"
API_VERSION: Final = "placement.extender.dev/v1alpha1"
OF_OBJECT: Final = "API server: 1.5 MiB an object"
OF_TEXT: Final = "API server: 253 characters"
OF_NUMBER: Final = "API server: 64 bits"
OF_NODES: Final = "Kubernetes: 5,000 nodes"
OF_SERVICES: Final = "Kubernetes: 5,000 Services of a namespace"
OF_EVENTS: Final = "none is needed: each costs its own event"
OF_PODS: Final = "Kubernetes: 150,000 pods"
LARGEST: Final = 1_500_000  # bytes
# Who makes the objects that grow, and so whom the limit is for.
POD, NAMESPACE, PLATFORM, SCHEDULER = "a pod", "a namespace", "the platform", "a scheduler"


@dataclass(frozen=True)
class Row:
    """``most``: the largest size by its limit; ``measured`` is what is measured of it where more takes minutes.

    ``nodes``: of the cluster. ``sections``: settings in place of the defaults.
    """

    name: str
    fields: tuple[str, ...]
    limit: str
    most: Most
    pays: str
    play: Callable[[int], Play]
    measured: int = 2**63
    nodes: int = 1000
    sections: dict[str, Any] = field(default_factory=dict)


def base(nodes: int) -> list[JsonObject]:
    """The cluster of each measurement: nodes in four zones, three namespaces, and a few pods with labels."""
    names = (TENANT, "other", "third")
    placed = [
        plain.pod(f"placed-{at}", "other", on=f"node-{at % nodes}", labels={"app": f"app-{at}"}) for at in range(64)
    ]
    return [
        *(a_node(at) for at in range(nodes)),
        *(plain.namespace(name, team="a", **{"kubernetes.io/metadata.name": name}) for name in names),
        *placed,
    ]


def a_node(at: int, **more: Any) -> JsonObject:
    return plain.node(f"node-{at}", f"zone-{at % 4}", labels={"rack": f"rack-{at % 50}", "pool": "a"}, **more)


def fixed(most: int) -> Most:
    return lambda _settings: most


def a_pod(name: str = "asking", **spec: Any) -> JsonObject:
    labels, namespace = spec.pop("labels", {"app": "app-0"}), spec.pop("namespace", TENANT)
    return plain.pod(name, namespace, labels=labels, **spec)


def with_request(make: Callable[[int], JsonObject]) -> Callable[[int], Play]:
    """A filter request for a pod, while a pod of the same template is on a node; and the pod was reviewed."""

    def play(n: int) -> Play:
        pod = make(n)
        placed = json.loads(json.dumps(pod))
        placed["metadata"]["name"] = "placed"
        placed["spec"]["nodeName"] = "node-0"
        return Play([placed, pod], requested=[pod], reviews=[review_of(pod, TENANT)])

    return play


def with_spec(**spec: Callable[[int], Any]) -> Callable[[int], Play]:
    return with_request(lambda n: a_pod(**{name: make(n) for name, make in spec.items()}))


def texts(n: int, prefix: str = "x") -> list[str]:
    return [f"{prefix}{at}" for at in range(n)]


# -- what a pod asks for

LISTS: Final = (
    ("podAffinity", "required"),
    ("podAffinity", "preferred"),
    ("podAntiAffinity", "required"),
    ("podAntiAffinity", "preferred"),
)
LONG: Final = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}


def terms_of(kind: str, when: str, terms: Sequence[JsonObject]) -> JsonObject:
    weighted = [{"weight": 1 + at % 100, "podAffinityTerm": each} for at, each in enumerate(terms)]
    return {kind: {LONG[when]: list(terms) if when == "required" else weighted}}


def a_term(selector: JsonObject | None = None, key: str = ZONE, **more: Any) -> JsonObject:
    return {"topologyKey": key, "labelSelector": selector or {"matchLabels": {"app": "none"}}, **more}


def apart(*terms: JsonObject) -> JsonObject:
    return terms_of("podAntiAffinity", "required", terms)


def expressions(n: int, operator: str = "NotIn") -> list[JsonObject]:
    return [{"key": f"key-{at}", "operator": operator, "values": ["v"]} for at in range(n)]


def node_terms(terms: Sequence[JsonObject]) -> JsonObject:
    return {"nodeAffinity": {LONG["required"]: {"nodeSelectorTerms": list(terms)}}}


def preferring(terms: Sequence[JsonObject]) -> JsonObject:
    return {"nodeAffinity": {LONG["preferred"]: [{"weight": 1, "preference": each} for each in terms]}}


def a_constraint(at: int, **more: Any) -> JsonObject:
    found = plain.spread((ZONE, HOSTNAME, "rack", "pool")[at % 4], skew=1000 + at, labels={"app": "app-0"})
    return found | {"labelSelector": {"matchLabels": {"app": f"app-{at % 64}"}}} | more


AFFINITY: Final = "pod.spec.affinity"
SPEC: Final = "pod.spec"
SELECTORS: Final = (f"{AFFINITY}.pod*.**", f"{SPEC}.topologySpreadConstraints[]")


def setting(name: str) -> tuple[str, Most]:
    """A limit of the settings by its name there."""
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    return f"limits.{name}", lambda settings: int(getattr(settings.limits, snake))


def of_pod_bytes(size: int) -> tuple[str, Most]:
    return "limits.podBytes", lambda settings: settings.limits.pod_bytes // size


def of_object(size: int) -> tuple[str, Most]:
    """As many as fit into an object."""
    return OF_OBJECT, fixed(LARGEST // size)


META_TEXTS: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def an_owner(at: int) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Service", "name": f"x{at}", "uid": f"u{at}", "controller": False}


def with_meta(obj: JsonObject, **more: Any) -> JsonObject:
    return {**obj, "metadata": obj["metadata"] | more}


def with_status(**status: Any) -> Play:
    pod = {**a_pod(), "status": status}
    return Play([pod], requested=[pod])


def an_object(kind: str, name: str, version: str = "v1", namespace: str = TENANT, **more: Any) -> JsonObject:
    return {"kind": kind, "apiVersion": version, "metadata": {"name": name, "namespace": namespace}, **more}


def a_budget(at: int, n: int = 1) -> JsonObject:
    selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}, *expressions(n - 1)]}
    status = {"disruptionsAllowed": 1}
    return an_object(
        "PodDisruptionBudget", f"budget-{at}", "policy/v1", "other", spec={"selector": selector}, status=status
    )


def a_preemptor() -> JsonObject:
    """A pod that only fits after victims of a lower priority are gone."""
    return a_pod("preemptor", priority=1000, nodeSelector={"pool": "a"}, affinity=apart(_EVERY_POD))


_EVERY_POD: Final = a_term(
    {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, key="pool", namespaceSelector={}
)


def a_quota(at: int, **spec: Any) -> JsonObject:
    whole = {"hard": {"pods": "100000"}, "scopes": ["CrossNamespacePodAffinity"], **spec}
    return an_object("ResourceQuota", f"quota-{at}", spec=whole)


def across() -> JsonObject:
    return a_pod("across", affinity=apart(a_term(namespaceSelector={})))


def beside(objects: Callable[[int], list[JsonObject]], pod: Callable[[], JsonObject] = a_pod) -> Callable[[int], Play]:
    """Objects come, and a filter request for a pod."""

    def play(n: int) -> Play:
        incoming = pod()
        return Play([*objects(n), incoming], requested=[incoming], reviews=[review_of(incoming, TENANT)])

    return play


def a_service(at: int, selector: JsonObject | None = None) -> JsonObject:
    return an_object("Service", f"service-{at}", spec={"selector": selector or {"app": "app-0", f"x{at}": "v"}})


def workloads(kind: str, version: str) -> Callable[[int], list[JsonObject]]:
    def made(n: int) -> list[JsonObject]:
        selector: JsonObject = {"app": "app-0"} if version == "v1" else {"matchLabels": {"app": "app-0"}}
        return [an_object(kind, f"x{at}", version, spec={"selector": selector}) for at in range(n)]

    return made


def a_placement(at: int, levels: int = 1) -> JsonObject:
    spec = {
        "policy": "gang",
        "group": f"group-{at}",
        "gate": RELEASE_GATE,
        "size": 2,
        "topology": [{"key": f"key-{level}", "value": "x"} for level in range(levels)],
    }
    status = {"conditions": [{"type": f"x{level}", "reason": "x"} for level in range(levels)]}
    return an_object("GroupPlacement", f"placement-{at}", API_VERSION, spec=spec, status=status)


def a_recording_placement(pods: int) -> JsonObject:
    """A GroupPlacement that records so many pods."""
    made = a_placement(0)
    made["spec"] |= {"decided": "2026-01-01T00:00:00Z", "pods": [f"{at:036}" for at in range(pods)]}
    return made


def topology_domains(at: int, domains: int = 1) -> JsonObject:
    """Of a key that each node has; so many are declared, and excluded."""
    names = [f"zone-{each}" for each in range(domains)]
    excluded = [{"domain": each, "reason": "x"} for each in names]
    spec = {"topologyKey": plain.ZONE, "domains": names, "excluded": excluded}
    return an_object("TopologyDomains", f"domains-{at}", API_VERSION, "", spec=spec)
