"""Clusters in which explain offers changes, and each kind of change as the document of a what-if."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import orjson
from hypothesis import strategies as st

from extender.model.answers.explanations import TriedChange
from extender.tasks.what_if.computing import answer_body
from tests.builders import Json, matching, namespace_json, node_json, pod_json, requirement, spread, taint, term
from tests.explaining import finished
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.strategies import one_of

_ROOM: Final = {"cpu": "4", "pods": "9"}
_CORDON: Final = taint("node.kubernetes.io/unschedulable")
_LABELS: Final = {"disk": ["ssd", "hdd", "true"], "rack": ["r1", "r2"], "size": ["4", "6"]}
_TEAMS: Final = {"team": ["a", "b"], "new": ["true"]}


@st.composite
def clusters(draw: st.DrawFn, kind: str) -> Cluster:
    """Two to four nodes in two zones, some with the cause that a change of this kind removes, and pods of three namespaces."""
    cluster = Cluster()
    for name in ("default", "shop", "data"):
        labels = {key: value for key, values in _TEAMS.items() if (value := draw(one_of(["", *values])))}
        cluster.objects["namespaces", name] = namespace_json(name, labels)
    names = [f"n{number}" for number in range(draw(st.integers(2, 4)))]
    for name in names:
        labels = {"disk": "ssd", "size": "6", "rack": draw(one_of(["r1", "r2"]))}
        if kind == "labelNode":
            labels = {key: value for key, values in _LABELS.items() if (value := draw(one_of(["", "", *values])))}
        is_cordoned = kind == "uncordonNode"
        taints = draw(st.sets(st.sampled_from(range(3)), max_size=2)) | {0} if kind == "removeTaints" else set()
        cluster.objects["nodes", name] = node_json(
            name,
            zone=draw(one_of(["z1", "z2"])),
            labels=labels,
            unschedulable=is_cordoned,
            taints=[*(_TAINTS[each] for each in taints), *([_CORDON] if is_cordoned and draw(st.booleans()) else [])],
            allocatable=_ROOM,
        )
    for number in range(draw(st.integers(0, 3)) + 3 * (kind in _ABOUT_PODS)):
        cluster.objects["pods", f"p{number}"] = pod_json(
            f"p{number}",
            on=draw(one_of(names)),
            namespace=draw(one_of(["default", "shop", "data"])),
            app=draw(one_of(["web", "db"])),
            # Explain counts on no pod that is about to go where a term is to reach its namespace.
            terminating=kind != "labelNamespace" and draw(one_of([False, False, True])),
            apart=draw(one_of([[], [], *([each] for each in _APART[: 2 if kind == "labelNamespace" else None])])),
        )
    return cluster


_TAINTS: Final = [
    taint("reserved", "yes"),
    taint("drained", effect="NoExecute"),
    taint("slow", effect="PreferNoSchedule"),
]
_APART: Final = [
    term("zone", namespace_selector=matching(team="a"), app="web"),
    term("host", namespace_selector=matching(("team", "NotIn", ["b"])), app="web"),
    term("rack", app="web"),
]
_ABOUT_PODS: Final = ("labelNamespace", "addNode")
_NODES: Final[list[dict[str, Any]]] = [
    {"node_selector": {"disk": "ssd"}},
    {"node_terms": [{"matchExpressions": [requirement("disk", "NotIn", ["ssd", "hdd"])]}]},
    {
        "node_terms": [
            {"matchExpressions": [requirement("rack", "DoesNotExist", []), requirement("disk", "Exists", [])]}
        ]
    },
    {
        "node_terms": [
            {"matchExpressions": [requirement("size", "Gt", ["5"])]},
            {"matchExpressions": [requirement("rack", "In", ["r2"])]},
        ]
    },
    {},
]
_PODS: Final[list[dict[str, Any]]] = [
    {"near": [term("zone", namespace_selector=matching(team="a"), app="db")]},
    {"near": [term("rack", namespace_selector=matching(("new", "DoesNotExist", [])), app="db")]},
    {"apart": [term("zone", namespace_selector=matching(team="a"), app="db")]},
    {"apart": [term("host", namespace_selector=matching(("team", "NotIn", ["b"]), ("new", "Exists", [])), app="web")]},
    {"apart": [term("rack", app="web")]},
    {"spreads": [spread("rack", app="web")]},
    {"spreads": [spread("zone", app="web", taints_policy="Honor")]},
    {"spreads": [spread("zone", app="web", min_domains=2)]},
    {"spreads": [spread("rack", app="web", min_domains=2)]},
    {"spreads": [spread("rack", app="web"), spread("zone", app="web")]},
    {},
]


@st.composite
def unbound_pods(draw: st.DrawFn, kind: str) -> Json:
    """A pod without a node, with requirements for nodes and a constraint on other pods."""
    pods = _PODS[:-1] if kind in _ABOUT_PODS else [*_PODS, {}, {}, {}]
    fields = {**(draw(one_of(_NODES)) if kind == "labelNode" else {}), **draw(one_of(pods))}
    if kind == "labelNamespace":
        fields = draw(one_of(_PODS[:4]))
    namespace = draw(one_of(["default", "shop"]))
    return pod_json("asking", namespace=namespace, app="web", phase="Pending", **fields)


def node_of(cluster: Cluster, body: Json, apply: list[Json], delete: list[Json] | None = None) -> str:
    """The node that the pod gets in a what-if with these changes, empty where it is rejected."""
    request = {"apply": [*apply, {"kind": "Pod", **body}], "delete": delete or [], "place": {"pending": False}}
    answer = finished(answer_body(orjson.dumps(request), fresh(cluster, SYSTEM_DEFAULTS), SYSTEM_DEFAULTS))
    (found,) = (each for each in answer.placements if each.pod.endswith("/asking"))
    return found.node


def documents(change: TriedChange, cluster: Cluster) -> tuple[list[Json], list[Json]]:
    """What a what-if is given for a change that explain offers: objects to apply, and to delete."""
    objects = cluster.objects
    match change.kind:
        case "addNode":
            made = uncordoned(objects["nodes", change.like])
            made["metadata"] = {"name": change.node, "labels": dict(change.labels)}
            return [made], []
        case "uncordonNode":
            return [uncordoned(objects["nodes", change.node])], []
        case "removeTaints":
            made = a_node(objects["nodes", change.node])
            made["spec"]["taints"] = [each for each in made["spec"]["taints"] if taint_text(each) not in change.taints]
            return [made], []
        case "labelNode":
            return [relabelled(a_node(objects["nodes", change.node]), change)], []
        case "labelNamespace":
            return [relabelled({"kind": "Namespace", **deepcopy(objects["namespaces", change.namespace])}, change)], []
        case "movePod":
            moved = {"kind": "Pod", **deepcopy(pod_named(change.pods[0], cluster))}
            moved["spec"]["nodeName"] = change.to
            return [moved], []
        case "deletePods":
            named = (each.split("/") for each in change.pods)
            return [], [{"kind": "Pod", "namespace": namespace, "name": name} for namespace, name in named]
        case _:
            raise AssertionError(change)


def a_node(body: Json) -> Json:
    return {"kind": "Node", **deepcopy(body)}


def uncordoned(body: Json) -> Json:
    made = a_node(body)
    if made["spec"].pop("unschedulable", False):
        made["spec"]["taints"] = [each for each in made["spec"].get("taints", []) if each != _CORDON]
    return made


def relabelled(body: Json, change: TriedChange) -> Json:
    labels = {**body["metadata"].get("labels", {}), **change.labels}
    body["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in change.removed_labels}
    return body


def taint_text(each: Json) -> str:
    return f"{each['key']}={each.get('value', '')}:{each['effect']}"


def pod_named(full_name: str, cluster: Cluster) -> Json:
    return next(
        each
        for each in cluster.of("pods")
        if full_name == f"{each['metadata']['namespace']}/{each['metadata']['name']}"
    )


def _uncordonings(cluster: Cluster) -> Iterator[Json]:
    yield from (uncordoned(each) for each in cluster.of("nodes") if each["spec"].get("unschedulable"))


def _untaintings(cluster: Cluster) -> Iterator[Json]:
    for each in cluster.of("nodes"):
        if not each["spec"].get("unschedulable"):
            made = a_node(each)
            made["spec"]["taints"] = []
            yield made


def _labellings(body: Json, labels: dict[str, list[str]]) -> Iterator[Json]:
    """The object with one label set, changed or removed."""
    for key, values in labels.items():
        for value in (None, *values):
            made = deepcopy(body)
            old = made["metadata"].get("labels", {})
            made["metadata"]["labels"] = {**old, key: value} if value else {k: v for k, v in old.items() if k != key}
            yield made


def _node_labels(cluster: Cluster) -> Iterator[Json]:
    for each in cluster.of("nodes"):
        yield from _labellings(a_node(each), _LABELS)


def _namespace_labels(cluster: Cluster) -> Iterator[Json]:
    for each in cluster.of("namespaces"):
        yield from _labellings({"kind": "Namespace", **each}, _TEAMS)


def _new_nodes(cluster: Cluster) -> Iterator[Json]:
    """A node like each, in the domains of each."""
    for like in cluster.of("nodes"):
        for example in cluster.of("nodes"):
            made = uncordoned(like)
            labels = {**made["metadata"]["labels"], "kubernetes.io/hostname": "new-node"}
            there = {
                key: value for key, value in example["metadata"]["labels"].items() if key.endswith(("zone", "rack"))
            }
            made["metadata"] = {"name": "new-node", "labels": {**labels, **there}}
            yield made


KINDS: Final[dict[str, Callable[[Cluster], Iterator[Json]]]] = {
    "uncordonNode": _uncordonings,
    "removeTaints": _untaintings,
    "labelNode": _node_labels,
    "labelNamespace": _namespace_labels,
    "addNode": _new_nodes,
}
