"""Policies, pods that the webhook missed, and the pods that the webhook would have made of them."""

from __future__ import annotations

import orjson
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Node, Pod
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.wire.objects import kinds
from tests.builders import REQUIRED, Json, node_json
from tests.laws.injecting import NODES

HOSTS: list[Node] = [
    kinds.NODES.decode_object(orjson.dumps(node_json(f"n{number}", labels=labels | {"pool": pool})))
    for number, (labels, pool) in enumerate((labels, pool) for labels in NODES for pool in ("x", "y"))
]


def matched(one: Pod) -> set[str]:
    """The nodes that the in-tree plugin NodeAffinity lets pass."""
    return {each.name for each in HOSTS if one.signature.node_affinity.matches(each.name, each.labels)}


WEB: Json = {"matchLabels": {"app": "web"}}
DB: Json = {"matchLabels": {"app": "db"}}
ZONES = ("a", "b")
SMALL: list[Node] = [
    kinds.NODES.decode_object(orjson.dumps(node_json(f"m{number}", zone=ZONES[number % 2], disk=str(number))))
    for number in range(4)
]
NEAR = st.lists(
    st.builds(
        lambda key, selector, keys: {"topologyKey": key, "labelSelector": selector} | keys,
        st.sampled_from([ZONE, HOSTNAME]),
        st.sampled_from([WEB, DB]),
        st.sampled_from([{}, {"matchLabelKeys": ["version"]}, {"mismatchLabelKeys": ["version"]}]),
    ),
    max_size=2,
    unique_by=str,
)
SPREADS = st.lists(
    st.builds(
        lambda key, selector, skew, action: {
            "topologyKey": key,
            "labelSelector": selector,
            "maxSkew": skew,
            "whenUnsatisfiable": action,
        },
        st.sampled_from([ZONE, HOSTNAME]),
        st.sampled_from([WEB, DB]),
        st.sampled_from([1, 2]),
        st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
    ),
    max_size=2,
    unique_by=lambda each: (each["topologyKey"], each["whenUnsatisfiable"]),
)


def stored_spec(directives: Json) -> Json:
    """A pod spec as the API server stores it: with the label keys of its terms merged into their selectors."""
    return {"containers": [{"name": "c"}]} | directives


def merged(body: Json) -> Json:
    """The pod as the API server stores it (KEP-3633)."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in body["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, ()):
            clauses = [
                {"key": key, "operator": operator, "values": [body["metadata"]["labels"][key]]}
                for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
                for key in term.get(name, ())
            ]
            if clauses:
                term["labelSelector"] = term["labelSelector"] | {"matchExpressions": clauses}
    return body


def passing_nodes(one: Pod, index: ClusterIndex) -> set[str]:
    """The nodes that pass all rules, and the in-tree plugin NodeAffinity for the pod itself."""
    filters = catalog.prepare_filters(one, index.view.compiled(one.signature), index.view, IndexFrame())
    passed = {index.view.node_names[each] for each in filters.passing(list(index.view.known.values()))}
    if filters.rejects_every_node:
        passed = set()
    return {each.name for each in SMALL if each.name in passed and admits(one, each)}


def admits(one: Pod, host: Node) -> bool:
    return one.signature.node_affinity.matches(host.name, host.labels)
