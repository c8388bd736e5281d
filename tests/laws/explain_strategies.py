"""Clusters with room, and pods that ask for it."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from tests.builders import CONTAINER, Json, pod_json, spread, term
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster
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
