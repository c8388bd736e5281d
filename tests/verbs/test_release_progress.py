"""What a group waits for, as a sentence about 0, 1 or 2 pods, and the patch that releases a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.constraints.labels import ZONE
from extender.model.release import (
    RELEASE_GATE,
    RELEASED_ANNOTATION,
    BroughtToleration,
    LaterPods,
    Level,
    Proposal,
    RejectedDomain,
    ReleaseSpec,
    Slot,
)
from extender.simulator.apiserver.patching import STRATEGIC, apply_patch
from extender.simulator.apiserver.pod_updates import allowed
from extender.verbs.release.progress import (
    GroupState,
    Inexpressible,
    coarser_levels,
    message_of,
    next_step,
    release_patch,
)
from tests.builders import PREFERRED, REQUIRED
from tests.verbs.gated_pods import (
    AFFINITY,
    GATE,
    KEY,
    KEYS,
    NODES,
    PODS,
    RACK,
    SPEC,
    VALUES,
    Pod,
    admitted,
    affinity_of,
    blocked,
    decided,
    decision,
    gated_pod,
)

CLOSED = ReleaseSpec((ZONE,), later_pods=LaterPods.REPLACE)
COLLECTING = {
    "1 of 2 pods exists": GroupState(KEY, SPEC, 2, waiting=PODS[:1]),
    "2 of 3 pods exist": GroupState(KEY, SPEC, 3, waiting=PODS[:2]),
    "1 of 2 pods exists, without a gate": GroupState(KEY, SPEC, 2, released=PODS[:1]),
    "0 of 2 pods exist, without a gate": GroupState(KEY, SPEC, 2),
    "1 of 1 pod has gates of others: x-0 (a/b)": blocked(1, 1),
    "2 of 2 pods have gates of others: x-0 (a/b), x-1 (a/b)": blocked(2, 2),
}
DECIDED = {
    "0 of 1 pod is released": GroupState(KEY, SPEC, 1, waiting=PODS[:1]),
    "1 of 2 pods is released": GroupState(KEY, SPEC, 2, waiting=PODS[:1], released=PODS[1:2]),
    "0 of 1 released pod has a node": GroupState(KEY, SPEC, 1, released=PODS[:1]),
    "1 of 2 released pods has a node": GroupState(KEY, SPEC, 2, released=PODS[:1], bound=PODS[1:2]),
    "1 of 1 pod has a node": GroupState(KEY, SPEC, 1, bound=PODS[:1]),
    "1 of 1 pod has a node; 1 more than the size waits: laterPods is Replace": GroupState(
        KEY, CLOSED, 1, waiting=PODS[:1], bound=PODS[1:2]
    ),
    "1 of 1 pod is released; 2 more than the size wait": GroupState(KEY, SPEC, 1, waiting=PODS[:2], bound=PODS[2:3]),
    "2 of 2 pods have a node": GroupState(KEY, SPEC, 1, bound=PODS[:2]),
    "1 of 2 pods has a node; 1 of 2 pods does not exist": GroupState(KEY, SPEC, 2, bound=PODS[:1]),
    "2 of 4 pods have a node; 2 of 4 pods do not exist": GroupState(KEY, SPEC, 4, bound=PODS[:2]),
}


@pytest.mark.parametrize(("text", "group"), COLLECTING.items(), ids=COLLECTING)
def test_an_incomplete_group_says_how_many_pods_there_are(text: str, group: GroupState) -> None:
    assert next_step(group, None, ()).message == text


@pytest.mark.parametrize(("text", "group"), DECIDED.items(), ids=DECIDED)
def test_a_decided_group_says_how_far_it_is(text: str, group: GroupState) -> None:
    assert next_step(group, decided(group.size), ()).message == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "x-0 cannot be released: why"), (2, "2 pods cannot be released, such as x-0: why")]
)
def test_refused_pods_are_named(count: int, text: str) -> None:
    group = GroupState(KEY, SPEC, count, waiting=PODS[:count])
    refused = {each.uid: "why" for each in PODS[:count]}
    assert next_step(group, decided(count), (), refused).message == text


def test_domains_that_do_not_hold_a_group_are_counted() -> None:
    rejected = tuple(RejectedDomain(Level(ZONE, f"z{at}"), 9, at, (("no room", 1 + at),)) for at in range(4))
    assert message_of(Proposal((), (), rejected)) == (
        f"{ZONE}=z3 holds 3 of 9 (4 nodes: no room), {ZONE}=z2 holds 2 of 9 (3 nodes: no room), "
        f"{ZONE}=z1 holds 1 of 9 (2 nodes: no room), and 1 more domain"
    )
    assert message_of(Proposal((), (), rejected[:1])) == f"{ZONE}=z0 holds 0 of 9 (1 node: no room)"


def test_pods_of_a_group_that_come_later_stay_in_what_was_proposed_or_in_what_holds_most() -> None:
    rejected = tuple(RejectedDomain(Level(ZONE, f"z{at}"), 9, at, (("no room", 1),)) for at in range(3))
    levels = (Level(ZONE, "a"), Level("rack", "r1"))
    assert coarser_levels(Proposal(levels, (Slot("u", "n"),), rejected)) == levels[:1]
    assert coarser_levels(Proposal((), (), rejected)) == (Level(ZONE, "z2"),)
    assert coarser_levels(Proposal((), ())) == ()


# -- The patch that releases a gated pod: legal for every gated pod, and exactly what was decided ------------------------


def test_one_patch_narrows_and_removes_the_gate_of_exactly_this_pod() -> None:
    assert release_patch(gated_pod(), decision((ZONE, "a"), (RACK, "a-1"))) == {
        "metadata": {
            "uid": "u1",
            "resourceVersion": "41",
            "annotations": {RELEASED_ANNOTATION: "ring@2026-03-01T12:00:00Z"},
        },
        "spec": {
            "nodeSelector": {ZONE: "a", RACK: "a-1"},
            "schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}],
        },
    }


def test_a_key_that_the_pod_has_with_the_same_value_is_left_out() -> None:
    patch = release_patch(gated_pod(nodeSelector={ZONE: "a"}), decision((ZONE, "a"), (RACK, "a-1")))
    assert isinstance(patch, dict)
    assert patch["spec"]["nodeSelector"] == {RACK: "a-1"}


def test_another_value_is_reported_instead_of_a_patch_that_the_api_server_refuses() -> None:
    found = release_patch(gated_pod(nodeSelector={ZONE: "b", "disk": "ssd"}), decision((ZONE, "a"), (RACK, "a-1")))
    assert isinstance(found, Inexpressible)
    assert found.levels == (Level(ZONE, "a"),)
    assert str(found).endswith('topology.kubernetes.io/zone=a (the pod has "b")')


def test_several_values_are_a_clause_of_each_required_term_and_an_empty_one_stays_empty() -> None:
    """As the API server wants it of a gated pod: terms in their places, clauses at the end (KEP-3838)."""
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}, {}]
    pod = gated_pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    patch = release_patch(pod, decision((ZONE, "a", ("a", "b"), ("b",))))
    zone = {"key": ZONE, "operator": "In"}
    assert isinstance(patch, dict)
    assert patch["spec"] == {
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [*terms[0]["matchExpressions"], zone | {"values": ["a", "b"]}]},
                        {},
                    ]
                },
                PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [zone | {"values": ["b"]}]}}],
            }
        },
        "schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}],
    }


def test_a_domain_is_reported_with_the_first_few_of_its_values() -> None:
    assert str(Level(ZONE, "a", ("a", "b"))) == f"{ZONE} in (a, b)"
    assert str(Level(ZONE, "a", tuple("abcde"))) == f"{ZONE} in (a, b, c, 2 more)"


SPOT = BroughtToleration("spot", "Exists", "", "NoSchedule")
SPOT_JSON = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
EVICTED = BroughtToleration("spot", "", "yes", "NoExecute", 60)


def test_a_pod_gets_the_tolerations_of_its_domain_beside_its_own() -> None:
    """The list is replaced as a whole, and the API server accepts additions only."""
    own = [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "value": "yes", "effect": "NoExecute"}]
    pod, there = gated_pod(tolerations=own), decision((ZONE, "a", (), (), (SPOT, EVICTED)))
    patch = release_patch(pod, there)
    assert isinstance(patch, dict)
    assert patch["spec"]["tolerations"] == [*own, SPOT_JSON], "how long it tolerates the other taint stays"
    assert allowed(pod, apply_patch(pod, patch, STRATEGIC)).is_allowed
    fresh = release_patch(gated_pod(), there)
    assert isinstance(fresh, dict)
    assert fresh["spec"]["tolerations"][1] == {
        "key": "spot",
        "value": "yes",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    }
    same = release_patch(gated_pod(tolerations=[SPOT_JSON]), decision((ZONE, "a", (), (), (SPOT,))))
    assert isinstance(same, dict)
    assert "tolerations" not in same["spec"]


def test_a_group_that_was_decided_without_a_domain_only_loses_its_gate() -> None:
    patch = release_patch(gated_pod(), decision())
    assert isinstance(patch, dict)
    assert patch["spec"] == {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}]}


def test_a_pod_without_the_gate_needs_no_patch() -> None:
    assert release_patch(gated_pod(schedulingGates=[{"name": "example.com/other"}]), decision((ZONE, "a"))) is None
    assert release_patch(gated_pod(schedulingGates=None), decision((ZONE, "a"))) is None


GATES = st.lists(
    st.sampled_from([RELEASE_GATE, "example.com/a", "example.com/b", "quota"]).map(lambda name: {"name": name}),
    unique_by=lambda gate: gate["name"],
    min_size=1,
)
GATED_PODS = st.fixed_dictionaries(
    {"schedulingGates": GATES},
    optional={
        "nodeSelector": st.none() | st.dictionaries(KEYS, VALUES),
        "affinity": AFFINITY,
        "tolerations": st.just([{"operator": "Exists"}]),
    },
).map(lambda spec: gated_pod(**spec))
LEVELS = st.lists(
    st.tuples(
        st.sampled_from([ZONE, RACK]),
        st.just("a"),
        st.sampled_from([(), ("a", "b"), ("a", "b", "c")]),
        st.sampled_from([(), ("a",)]),
    ),
    unique_by=lambda level: level[0],
)


@given(GATED_PODS, LEVELS)
def test_every_patch_is_accepted_and_a_second_run_makes_none(
    before: Pod, levels: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]
) -> None:
    """A pod may be on exactly those of its nodes that are in the domain, and keeps the preferences that it has."""
    taken = decision(*levels)
    patch = release_patch(before, taken)
    selector = before["spec"].get("nodeSelector") or {}
    if patch is None:
        assert GATE not in before["spec"]["schedulingGates"]
        return
    if isinstance(patch, Inexpressible):
        assert any(selector.get(key, value) not in (values or (value,)) for key, value, values, _ in levels)
        return
    after = apply_patch(before, patch, STRATEGIC)
    assert allowed(before, after).errors == ()
    assert after["spec"]["schedulingGates"] == [gate for gate in before["spec"]["schedulingGates"] if gate != GATE]
    pinned = {key: value for key, value, values, _ in levels if not values}
    assert (after["spec"].get("nodeSelector") or {}) == {**pinned, **selector}
    within = [
        n
        for n, labels in enumerate(NODES)
        if all(labels[key] in (values or (value,)) for key, value, values, _ in levels)
    ]
    assert admitted(after) == [number for number in admitted(before) if number in within]
    had, has = affinity_of(before, PREFERRED) or [], affinity_of(after, PREFERRED) or []
    clauses = [
        {"key": key, "operator": "In", "values": list(preferred)}
        for key, _, _, preferred in levels
        if preferred and key not in selector
    ]
    assert has == had + ([{"weight": 100, "preference": {"matchExpressions": clauses}}] if clauses else [])
    assert release_patch(after, taken) is None
