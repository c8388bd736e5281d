"""A pod that the webhook missed may be placed exactly where the pod may be placed that the webhook would have made."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from extender.model.constraints.labels import ZONE
from extender.model.policies import Policy, PolicyObject
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.effective_pod import effective_pod
from tests.builders import REQUIRED, Json, index_of, pod_json, read_pod, settings
from tests.laws.cases import times
from tests.laws.injecting import ALIKE, KEEPING, POLICIES, SPECS, agree
from tests.laws.scheduled_policies import (
    HOSTS,
    NEAR,
    SMALL,
    SPREADS,
    admits,
    matched,
    merged,
    passing_nodes,
    stored_spec,
)
from tests.policies import policy
from tests.verbs.admit.reviewing import pod, reviewed, verb

ENABLED = settings(policies={"enabled": True})


@given(spec=SPECS, policies=POLICIES)
def test_filter_passes_the_nodes_that_the_injected_pod_matches(spec: dict[str, Any], policies: list[Policy]) -> None:
    escaped = pod(spec)
    injected = read_pod(reviewed(verb(*policies), escaped).obj)
    own = read_pod(escaped)
    index = index_of(*HOSTS, *map(PolicyObject, policies))
    held = effective_pod(own, index.view, ENABLED)
    compiled = index.view.compiled(held.signature)
    parts = [(rule, part) for rule, part in catalog.active(compiled, index.view) if rule.name == "SchedulingPolicy"]
    filters = catalog.prepare(parts, held, index.view, IndexFrame())
    passed = {index.view.node_names[each] for each in filters.passing(list(index.view.known.values()))}
    assert passed & matched(own) == matched(injected) & matched(own)
    if held is not own:
        assert passed == matched(injected)


@given(spec=SPECS, policies=ALIKE)
def test_an_injected_pod_is_held_to_what_it_has(spec: dict[str, Any], policies: list[Policy]) -> None:
    assume(agree(policies))
    injected = read_pod(reviewed(verb(*policies), pod(spec)).obj)
    index = index_of(*map(PolicyObject, policies))
    enforced = effective_pod(injected, index.view, ENABLED).signature.enforced
    assert enforced is None or {
        each.name for each in HOSTS if enforced.nodes.matches(each.name, each.labels)
    } == matched(injected)


@times(4)
@given(spec=SPECS, earlier=KEEPING, policies=POLICIES)
def test_what_earlier_policies_injected_does_not_count_as_the_pods_own(
    spec: dict[str, Any], earlier: list[Policy], policies: list[Policy]
) -> None:
    """Of the nodes that the pod can have, it may have those that it could if it were made anew."""
    escaped = pod(spec)
    old = read_pod(reviewed(verb(*earlier), copy.deepcopy(escaped)).obj)
    anew = read_pod(reviewed(verb(*policies), copy.deepcopy(escaped)).obj)
    index = index_of(*HOSTS, *map(PolicyObject, policies))
    enforced = effective_pod(old, index.view, ENABLED).signature.enforced
    passed = {each.name for each in HOSTS if enforced is None or enforced.nodes.matches(each.name, each.labels)}
    assert passed & matched(old) == matched(anew) & matched(old)


# -- directives about other pods and about spread

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


@times(5)
@given(own=PLACING, directives=SCHEDULED, placed=PLACED)
def test_filter_of_a_pod_that_admission_missed_equals_that_of_the_injected_pod(
    own: Json, directives: list[tuple[Json, str]], placed: list[tuple[int, str, str]]
) -> None:
    policies = [policy(f"p{n}", conflictPolicy=way, **each) for n, (each, way) in enumerate(directives)]
    escaped = pod(stored_spec(own), **OWNED)
    answer = reviewed(verb(*policies), copy.deepcopy(escaped))
    others = [
        read_pod(
            pod_json(f"o{n}", on=f"m{host}", namespace="shop", labels={"app": app} | dict.fromkeys(REVISED, version))
        )
        for n, (host, app, version) in enumerate(placed)
    ]
    index = index_of(*SMALL, *others, *map(PolicyObject, policies))
    missed, injected = read_pod(merged(escaped)), read_pod(merged(answer.obj))
    held = effective_pod(missed, index.view, ENABLED)
    expected = passing_nodes(injected, index) if answer.response["allowed"] else set()
    its_own = {each.name for each in SMALL if admits(missed, each)}
    assert passing_nodes(held, index) & its_own == expected & its_own
    if answer.response["allowed"]:  # the injected pod itself is held to nothing more
        assert passing_nodes(effective_pod(injected, index.view, ENABLED), index) == expected
