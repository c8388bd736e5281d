"""Clusters with room, and pods that ask for it."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import TriedChange as Help
from extender.rules.catalog import counts_of_rules
from tests.builders import CONTAINER, Json, extender_args, node_json, pod_json, read_pod, spread, term
from tests.deciding import filter_nodes
from tests.explaining import apply, changed, fits
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.laws.observing import apply as take
from tests.strategies import Change, Step, histories, mostly_linked, one_of, pods

# Four in five pods fit; the others make nodes full.
_REQUESTS: Final = one_of([{"cpu": "1"}, {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "3"}, {}])
_ALLOCATABLE: Final = one_of(
    [{"cpu": "4", "memory": "2Gi", "pods": "5"}, {"cpu": "2", "pods": "3"}, {"cpu": "8", "pods": "9"}]
)
_PRIORITIES: Final = one_of([0, 5, 10, 100])
_REACHING: Final[st.SearchStrategy[dict[str, Any]]] = one_of(
    [
        {"near": [term("zone", app="web", namespace_selector={"matchLabels": {"team": "q"}})]},
        {
            "near": [
                term("host", app="db", namespace_selector={"matchExpressions": [{"key": "new", "operator": "Exists"}]})
            ]
        },
        {"apart": [term("zone", app="web")]},
        {"apart": [term("host", app="db", namespace_selector={})]},
        {"spreads": [spread("zone", app="web")]},
        {"spreads": [spread("zone", app="web", min_domains=3)]},
        {},
    ]
)


@st.composite
def roomy_clusters(draw: st.DrawFn) -> tuple[ClusterIndex, Cluster]:
    """An index after a history, in which nodes offer resources and pods request them, and the table of its objects."""
    index, cluster = ClusterIndex(SYSTEM_DEFAULTS.rules, counts_of_rules()), Cluster()
    for step in draw(histories()):
        take(index, cluster, with_room(step, draw))
    return index, cluster


def with_room(step: Step, draw: st.DrawFn) -> Step:
    """The same step, whose node offers resources or whose pod requests them."""
    if not isinstance(step, Change) or step.body is None:
        return step
    if step.kind == "nodes":
        return Change(step.kind, step.key, step.body | {"status": {"allocatable": draw(_ALLOCATABLE)}, "spec": {}})
    if step.kind == "pods":
        return Change(step.kind, step.key, _requesting(step.body, draw))
    return step


def _requesting(body: Json, draw: st.DrawFn) -> Json:
    wishes: dict[str, Any] = {"containers": [CONTAINER | {"resources": {"requests": draw(_REQUESTS)}}]}
    return body | {"spec": body["spec"] | wishes | {"priority": draw(_PRIORITIES)}}


@st.composite
def requesting_pods(draw: st.DrawFn) -> Json:
    """A pod to be explained: of any shape, in the way of others, or with a constraint that a change can satisfy."""
    body = draw(st.one_of(pods(), mostly_linked("asking"), pods()))
    if draw(st.booleans()):
        made = pod_json(**draw(_REACHING))
        body = body | {"spec": {**body["spec"], "affinity": {}, "topologySpreadConstraints": []} | made["spec"]}
    return _requesting(body, draw)


_KEEPING_AWAY: Final[list[dict[str, Any]]] = [
    {"apart": [term("host", app="web")]},
    {"apart": [term("zone", app="web")]},
    {"spreads": [spread("zone", app="web")]},
    {"spreads": [spread("host", app="web"), spread("zone", app="web")]},
]


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Cluster, Json]:
    """Nodes in two racks and two zones with web pods on both nodes of one rack, and a web pod that may go to no other."""
    cluster, offered = Cluster(), {"cpu": "8", "memory": "4Gi", "pods": "9"}
    for name, zone, rack in (
        ("n1", "z1", "r1"),
        ("n2", "z1", "r2"),
        ("n3", "z2", "r1"),
        ("n4", "z2", "r2"),
        ("n5", "z3", "r2"),
    ):
        cluster.objects["nodes", name] = node_json(name, zone=zone, rack=rack, allocatable=offered)
    for number, on in enumerate(["n1", "n3", *draw(st.lists(one_of(["n1", "n2", "n3", "n4"]), max_size=2))]):
        fields = draw(one_of([{}, {}, *_KEEPING_AWAY]))
        cluster.objects["pods", f"p{number}"] = _requesting(pod_json(f"p{number}", on=on, app="web", **fields), draw)
    body = pod_json(app="web", node_selector={"rack": "r1"}, **draw(one_of(_KEEPING_AWAY)))
    return cluster, _requesting(body, draw)


def named(body: Json, name: str) -> Json:
    return body | {"metadata": body["metadata"] | {"name": name, "uid": name}}


def check_helps(change: Help, cluster: Cluster, body: Json) -> None:
    """Fails unless the pod passes and fits on the node after the change."""
    copy = fresh(cluster, SYSTEM_DEFAULTS)
    if change.kind == "changeConstraint":
        body = changed(body, change)
    else:
        apply(change, copy)
    passed = filter_nodes(extender_args(body, change.node), copy.view, SYSTEM_DEFAULTS, seed=1).passed
    assert passed == [change.node], change
    assert fits(copy, read_pod(body), change.node), change
