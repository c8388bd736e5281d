"""Pods, nodes and the rest, written with only the fields that matter to a case.

Every builder makes the API's own JSON (`pod_json`, `node_json`) and, under the short name, passes it through the real
decoding (`pod`, `node`), so that no test rests on an object that the service would read otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME, REGION, ZONE
from extender.model.objects import Namespace, Node, Object, Pod, Workload
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings, parse_settings
from extender.settings.rules import Rules
from extender.wire.extender_v1 import ExtenderArgs, PreemptionArgs, decode_args, decode_preemption_args
from extender.wire.objects.kinds import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
)

Json: TypeAlias = dict[str, Any]

P = ParamSpec("P")
T = TypeVar("T", Pod, Node, Namespace)

KEYS: Final = {"host": HOSTNAME, "zone": ZONE, "region": REGION}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
CONTAINER: Final = {"name": "main", "image": "registry.example/main:1"}
WORKLOADS: Final = {
    "Service": SERVICES,
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
}


def settings(**sections: Json | str) -> Settings:
    """Settings of a document with these sections; answers name every node that passes unless the sections say else."""
    given: Json = {"placement": "cooperative", "answers": {"shortlist": 0}} | sections
    return parse_settings({"apiVersion": "placement.extender.dev/v1alpha1", "kind": "ExtenderConfiguration"} | given)


def matching(*expressions: tuple[str, str, list[str]], **labels: str) -> Json:
    """A LabelSelector of (key, operator, values) and equal labels; `matching()` is the empty one."""
    made: Json = {"matchLabels": labels} if labels else {}
    if expressions:
        made["matchExpressions"] = [requirement(*each) for each in expressions]
    return made


def requirement(key: str, operator: str, values: list[str]) -> Json:
    """One clause of a label selector or node selector."""
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def term(
    key: str = "host",
    *,
    selector: Json | None = None,
    namespaces: list[str] | None = None,
    namespace_selector: Json | None = None,
    **labels: str,
) -> Json:
    """An affinity term over "host", "zone" or another key; without labels and selector its selector is null."""
    made: Json = {"topologyKey": KEYS.get(key, key), "labelSelector": _selector(selector, labels)}
    if namespaces is not None:
        made["namespaces"] = namespaces
    if namespace_selector is not None:
        made["namespaceSelector"] = namespace_selector
    return made


def _selector(given: Json | None, labels: Mapping[str, str]) -> Json | None:
    return {"matchLabels": dict(labels)} if labels else given


def weighted(weight: int, wanted: Json) -> Json:
    """A preferred affinity term."""
    return {"weight": weight, "podAffinityTerm": wanted}


def spread(
    key: str = "zone",
    max_skew: int = 1,
    *,
    hard: bool = True,
    selector: Json | None = None,
    min_domains: int | None = None,
    affinity_policy: str | None = None,
    taints_policy: str | None = None,
    match_label_keys: list[str] | None = None,
    **labels: str,
) -> Json:
    """A topology spread constraint; without labels and selector its selector is null."""
    optional = {
        "minDomains": min_domains,
        "nodeAffinityPolicy": affinity_policy,
        "nodeTaintsPolicy": taints_policy,
        "matchLabelKeys": match_label_keys,
    }
    return {
        "maxSkew": max_skew,
        "topologyKey": KEYS.get(key, key),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(selector, labels),
    } | _present(optional)


def pod_json(
    name: str = "asking",
    *,
    on: str = "",
    namespace: str = "default",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    near: Sequence[Json] = (),
    apart: Sequence[Json] = (),
    prefers: Sequence[Json] = (),
    avoids: Sequence[Json] = (),
    spreads: Sequence[Json] = (),
    node_selector: Mapping[str, str] | None = None,
    node_terms: Sequence[Json] | None = None,
    tolerations: Sequence[Json] = (),
    requests: Mapping[str, str] | None = None,
    priority: int | None = None,
    owner: tuple[str, str] | None = None,
    gates: Sequence[str] = (),
    terminating: bool = False,
    phase: str = "",
    **more_labels: str,
) -> Json:
    """A Pod. `near` and `apart` are required terms, `prefers` and `avoids` weighted ones; `owner` is (kind, name)."""
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    spec = {
        "nodeName": on,
        "affinity": _affinity(near, apart, prefers, avoids, node_terms),
        "topologySpreadConstraints": list(spreads),
        "nodeSelector": dict(node_selector or {}),
        "tolerations": list(tolerations),
        "priority": priority,
        "schedulingGates": [{"name": gate} for gate in gates],
        "containers": [CONTAINER | ({"resources": {"requests": dict(requests)}} if requests else {})],
    }
    optional = {
        "labels": {**(labels or {}), **more_labels},
        "ownerReferences": [_owner(*owner)] if owner else [],
        "deletionTimestamp": "2026-01-01T00:00:00Z" if terminating else "",
    }
    return {"metadata": meta | _present(optional), "spec": _present(spec), "status": {"phase": phase or "Running"}}


def resizing(body: Json, *, allocated: Mapping[str, str], actual: Mapping[str, str], pending: str = "") -> Json:
    """A pod that is resized in place: what its first container has, and why the resize is pending (Infeasible, Deferred)."""
    name = body["spec"]["containers"][0]["name"]
    shown = {"name": name, "allocatedResources": dict(allocated), "resources": {"requests": dict(actual)}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    more = _present({"containerStatuses": [shown], "conditions": conditions})
    return body | {"status": body["status"] | more}


def _affinity(
    near: Sequence[Json],
    apart: Sequence[Json],
    prefers: Sequence[Json],
    avoids: Sequence[Json],
    node_terms: Sequence[Json] | None,
) -> Json:
    sides = {
        "podAffinity": _present({REQUIRED: list(near), PREFERRED: list(prefers)}),
        "podAntiAffinity": _present({REQUIRED: list(apart), PREFERRED: list(avoids)}),
        "nodeAffinity": {} if node_terms is None else {REQUIRED: {"nodeSelectorTerms": list(node_terms)}},
    }
    return _present(sides)


def _owner(kind: str, name: str) -> Json:
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def _present(fields: Mapping[str, Any]) -> Json:
    """Without the fields that are absent or empty, as the API server writes objects."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def node_json(
    name: str = "node-a",
    *,
    zone: str = "",
    hostname: bool = True,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    unschedulable: bool = False,
    allocatable: Mapping[str, str] | None = None,
    **more_labels: str,
) -> Json:
    """A Node; its hostname label is its name unless `labels` has another or `hostname` is false."""
    made = {HOSTNAME: name} if hostname else {}
    made |= {ZONE: zone} if zone else {}
    made |= {**(labels or {}), **more_labels}
    spec = _present({"taints": list(taints), "unschedulable": unschedulable or None})
    status = _present({"allocatable": dict(allocatable or {})})
    return {"metadata": {"name": name, "labels": made}, "spec": spec, "status": status}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def namespace_json(name: str = "default", labels: Mapping[str, str] | None = None, **more_labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {**(labels or {}), **more_labels}}}


def workload(kind: str, name: str, selector: Json | None, namespace: str = "default") -> Workload:
    """A Service or ReplicationController (selector: a map), or a ReplicaSet or StatefulSet (a LabelSelector)."""
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
    return WORKLOADS[kind].decode_object(orjson.dumps(body))


def _decoded(build: Callable[P, Json], kind: Kind[T]) -> Callable[P, T]:
    """A builder of the object that the service makes of the JSON."""

    def make(*args: P.args, **fields: P.kwargs) -> T:
        return kind.decode_object(orjson.dumps(build(*args, **fields)))

    return make


def read_pod(body: Json) -> Pod:
    """The pod as the service reads it."""
    return PODS.decode_object(orjson.dumps(body))


def read_node(body: Json) -> Node:
    """The node as the service reads it."""
    return NODES.decode_object(orjson.dumps(body))


pod = _decoded(pod_json, PODS)
node = _decoded(node_json, NODES)
namespace = _decoded(namespace_json, NAMESPACES)


def index_of(*objects: Object, rules: Rules | None = None) -> ClusterIndex:
    """An index with these objects, which were added in this order."""
    index = ClusterIndex(rules or Rules(), counts_of_rules())
    for obj in objects:
        index.upsert(obj)
    return index


def extender_args(pod: Json, *names: str, nodes: Sequence[Json] | None = None) -> ExtenderArgs:
    """The scheduler's filter request for a pod, by names or with full nodes, read as the service reads it."""
    listed = None if nodes is None else {"metadata": {}, "items": list(nodes)}
    body = {"Pod": pod, "Nodes": listed, "NodeNames": names if nodes is None else None}
    return decode_args(orjson.dumps(body))


def preempting(pod: Json, victims: Mapping[str, Sequence[str]], violations: int = 0) -> PreemptionArgs:
    """The scheduler's preempt question by names: the UIDs of the victims on each candidate node."""
    brief = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations} for node, uids in victims.items()
    }
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": brief}
    return decode_preemption_args(orjson.dumps(body))
