"""The patch that releases a gated pod: legal for every gated pod, and exactly what was decided."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION, Decision, GroupKey, Level
from extender.simulator.apiserver.patching import STRATEGIC, apply_patch
from extender.simulator.apiserver.pod_updates import allowed
from extender.verbs.release.progress import Inexpressible, release_patch

Pod = dict[str, Any]

RACK, ZONE = "example.com/rack", "topology.kubernetes.io/zone"
GATE = {"name": RELEASE_GATE}
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def decision(*levels: tuple[str, str]) -> Decision:
    """A decision for the group `ring` of a team."""
    group = GroupKey("team-a", "PodSchedulingPolicy/team-a/rings", "ring")
    return Decision(group, RELEASE_GATE, 3, tuple(Level(*level) for level in levels), AT)


def pod(**spec: Any) -> Pod:
    """A gated pod as the API server has it."""
    metadata = {"name": "r-0", "namespace": "team-a", "uid": "u1", "resourceVersion": "41"}
    whole = {"containers": [{"name": "app", "image": "r:1"}], "schedulingGates": [GATE], **spec}
    return {"metadata": metadata, "spec": whole}


def test_one_patch_narrows_and_removes_the_gate_of_exactly_this_pod() -> None:
    assert release_patch(pod(), decision((ZONE, "a"), (RACK, "a-1"))) == {
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
    patch = release_patch(pod(nodeSelector={ZONE: "a"}), decision((ZONE, "a"), (RACK, "a-1")))
    assert isinstance(patch, dict)
    assert patch["spec"]["nodeSelector"] == {RACK: "a-1"}


def test_another_value_is_told_instead_of_a_patch_that_the_api_server_refuses() -> None:
    found = release_patch(pod(nodeSelector={ZONE: "b", "disk": "ssd"}), decision((ZONE, "a"), (RACK, "a-1")))
    assert isinstance(found, Inexpressible)
    assert found.levels == (Level(ZONE, "a"),)
    assert str(found).endswith('topology.kubernetes.io/zone=a (the pod has "b")')


def test_a_group_that_was_decided_without_a_domain_only_loses_its_gate() -> None:
    patch = release_patch(pod(), decision())
    assert isinstance(patch, dict)
    assert patch["spec"] == {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}]}


def test_a_pod_without_the_gate_needs_no_patch() -> None:
    assert release_patch(pod(schedulingGates=[{"name": "example.com/other"}]), decision((ZONE, "a"))) is None
    assert release_patch(pod(schedulingGates=None), decision((ZONE, "a"))) is None


KEYS = st.sampled_from([ZONE, RACK, "disk", "arch"])
VALUES = st.sampled_from(["a", "b", ""])
CLAUSES = st.fixed_dictionaries(
    {"key": KEYS, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(VALUES, min_size=1, max_size=2)}
)
TERMS = st.dictionaries(st.sampled_from(["matchExpressions"]), st.lists(CLAUSES, max_size=2), max_size=1)
NODE_AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(TERMS, min_size=1, max_size=3)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERMS}), max_size=2
        ),
    },
)
POD_TERMS = st.just([{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}])
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": NODE_AFFINITY,
        "podAntiAffinity": st.fixed_dictionaries({"requiredDuringSchedulingIgnoredDuringExecution": POD_TERMS}),
    },
)
GATES = st.lists(
    st.sampled_from([RELEASE_GATE, "example.com/a", "example.com/b", "quota"]).map(lambda name: {"name": name}),
    unique_by=lambda gate: gate["name"],
    min_size=1,
)
PODS = st.fixed_dictionaries(
    {"schedulingGates": GATES},
    optional={
        "nodeSelector": st.none() | st.dictionaries(KEYS, VALUES),
        "affinity": AFFINITY,
        "tolerations": st.just([{"operator": "Exists"}]),
    },
).map(lambda spec: pod(**spec))
LEVELS = st.lists(
    st.tuples(st.sampled_from([ZONE, RACK]), st.sampled_from(["a", "b"])), unique_by=lambda level: level[0]
)


@given(PODS, LEVELS)
def test_every_patch_is_accepted_and_a_second_run_makes_none(before: Pod, levels: list[tuple[str, str]]) -> None:
    taken = decision(*levels)
    patch = release_patch(before, taken)
    selector = before["spec"].get("nodeSelector") or {}
    if patch is None:
        assert GATE not in before["spec"]["schedulingGates"]
        return
    if isinstance(patch, Inexpressible):
        assert any(selector.get(key, value) != value for key, value in levels)
        return
    after = apply_patch(before, patch, STRATEGIC)
    assert allowed(before, after).errors == ()
    assert after["spec"]["schedulingGates"] == [gate for gate in before["spec"]["schedulingGates"] if gate != GATE]
    assert (after["spec"].get("nodeSelector") or {}) == {**selector, **dict(levels)}
    assert after["spec"].get("affinity") == before["spec"].get("affinity")
    assert release_patch(after, taken) is None
