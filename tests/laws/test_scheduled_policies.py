"""A pod that the webhook missed may be placed exactly where the pod may be placed that the webhook would have made."""

from __future__ import annotations

import copy
from typing import Any

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Node, Pod
from extender.model.policies import Policy, PolicyObject
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.effective_pod import effective_pod
from extender.wire.objects import kinds
from tests.builders import Json, index_of, node_json, pod_json, settings
from tests.laws.cases import times
from tests.laws.injecting import ALIKE, KEEPING, NODES, POLICIES, SPECS, agree
from tests.policies import REQUIRED, policy
from tests.verbs.admit.reviewing import ask, pod, verb

ENABLED = settings(policies={"enabled": True})
HOSTS: list[Node] = [
    kinds.NODES.decode_object(orjson.dumps(node_json(f"n{number}", labels=labels | {"pool": pool})))
    for number, (labels, pool) in enumerate((labels, pool) for labels in NODES for pool in ("x", "y"))
]


def _decoded(body: Json) -> Pod:
    return kinds.PODS.decode_object(orjson.dumps(body))


def _matched(one: Pod) -> set[str]:
    """The nodes that the in-tree plugin NodeAffinity lets pass."""
    return {each.name for each in HOSTS if one.signature.node_affinity.matches(each.name, each.labels)}


@given(spec=SPECS, policies=POLICIES)
def test_filter_passes_the_nodes_that_the_injected_pod_matches(spec: dict[str, Any], policies: list[Policy]) -> None:
    escaped = pod(spec)
    injected = _decoded(ask(verb(*policies), escaped).obj)
    own = _decoded(escaped)
    index = index_of(*HOSTS, *map(PolicyObject, policies))
    held = effective_pod(own, index.view, ENABLED)
    compiled = index.view.compiled(held.signature)
    parts = [(rule, part) for rule, part in catalog.active(compiled, index.view) if rule.name == "SchedulingPolicy"]
    filters = catalog.prepare(parts, held, index.view, IndexFrame())
    passed = {index.view.node_names[each] for each in filters.passing(list(index.view.known.values()))}
    assert passed & _matched(own) == _matched(injected) & _matched(own)
    if held is not own:
        assert passed == _matched(injected)


@given(spec=SPECS, policies=ALIKE)
def test_an_injected_pod_is_held_to_what_it_has(spec: dict[str, Any], policies: list[Policy]) -> None:
    assume(agree(policies))
    injected = _decoded(ask(verb(*policies), pod(spec)).obj)
    index = index_of(*map(PolicyObject, policies))
    enforced = effective_pod(injected, index.view, ENABLED).signature.enforced
    assert enforced is None or {
        each.name for each in HOSTS if enforced.nodes.matches(each.name, each.labels)
    } == _matched(injected)


@times(4)
@given(spec=SPECS, earlier=KEEPING, policies=POLICIES)
def test_what_earlier_policies_injected_does_not_count_as_the_pods_own(
    spec: dict[str, Any], earlier: list[Policy], policies: list[Policy]
) -> None:
    """Of the nodes that the pod can have, it may have those that it could if it were made anew."""
    escaped = pod(spec)
    old = _decoded(ask(verb(*earlier), copy.deepcopy(escaped)).obj)
    anew = _decoded(ask(verb(*policies), copy.deepcopy(escaped)).obj)
    index = index_of(*HOSTS, *map(PolicyObject, policies))
    enforced = effective_pod(old, index.view, ENABLED).signature.enforced
    passed = {each.name for each in HOSTS if enforced is None or enforced.nodes.matches(each.name, each.labels)}
    assert passed & _matched(old) == _matched(anew) & _matched(old)


# -- directives about other pods and about spread

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
PLACING = st.builds(
    lambda near, apart, spreads, selector: {
        "affinity": {
            **({"podAffinity": {REQUIRED: near}} if near else {}),
            **({"podAntiAffinity": {REQUIRED: apart}} if apart else {}),
        },
        "topologySpreadConstraints": spreads,
        "nodeSelector": selector,
    },
    NEAR,
    NEAR,
    SPREADS,
    st.sampled_from([{}, {}, {ZONE: "a"}, {ZONE: "b"}, {"disk": "1"}]),
)
PLACED = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["web", "db"]), st.sampled_from(["1", "2"])), max_size=6)
DIRECTED = st.builds(
    lambda placing, spread: placing | ({"spread": spread} if spread else {}),
    PLACING,
    st.sampled_from([[], [], [{"topologyKey": ZONE, "matchLabelKeys": "IfMissing"}]]),
)
SCHEDULED = st.lists(st.tuples(DIRECTED, st.sampled_from(["KeepPod", "Override", "Reject"])), max_size=3)
REVISED = ("version", "pod-template-hash")
OWNED: Json = {
    "labels": {"app": "web", "version": "1", "pod-template-hash": "1"},
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": True}],
}


def _spec(directives: Json) -> Json:
    """A pod spec as the API server stores it: with the label keys of its terms merged into their selectors."""
    return {"containers": [{"name": "c"}]} | directives


def _merged(body: Json) -> Json:
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


def _passed(one: Pod, index: ClusterIndex) -> set[str]:
    """The nodes that pass all rules, and the in-tree plugin NodeAffinity for the pod itself."""
    filters = catalog.prepare_filters(one, index.view.compiled(one.signature), index.view, IndexFrame())
    passed = {index.view.node_names[each] for each in filters.passing(list(index.view.known.values()))}
    if filters.rejects_every_node:
        passed = set()
    return {each.name for each in SMALL if each.name in passed and _admits(one, each)}


def _admits(one: Pod, host: Node) -> bool:
    return one.signature.node_affinity.matches(host.name, host.labels)


@times(5)
@given(own=PLACING, directives=SCHEDULED, placed=PLACED)
def test_filter_of_a_pod_that_admission_missed_equals_that_of_the_injected_pod(
    own: Json, directives: list[tuple[Json, str]], placed: list[tuple[int, str, str]]
) -> None:
    policies = [policy(f"p{n}", conflictPolicy=way, **each) for n, (each, way) in enumerate(directives)]
    escaped = pod(_spec(own), **OWNED)
    answer = ask(verb(*policies), copy.deepcopy(escaped))
    others = [
        _decoded(
            pod_json(f"o{n}", on=f"m{host}", namespace="shop", labels={"app": app} | dict.fromkeys(REVISED, version))
        )
        for n, (host, app, version) in enumerate(placed)
    ]
    index = index_of(*SMALL, *others, *map(PolicyObject, policies))
    missed, injected = _decoded(_merged(escaped)), _decoded(_merged(answer.obj))
    held = effective_pod(missed, index.view, ENABLED)
    expected = _passed(injected, index) if answer.response["allowed"] else set()
    its_own = {each.name for each in SMALL if _admits(missed, each)}
    assert _passed(held, index) & its_own == expected & its_own
    if answer.response["allowed"]:  # the injected pod itself is held to nothing more
        assert _passed(effective_pod(injected, index.view, ENABLED), index) == expected
