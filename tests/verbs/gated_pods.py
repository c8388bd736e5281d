"""Random gated pods with their decisions, and the affinity that a release gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from extender.model.constraints.labels import ZONE
from extender.model.release import RELEASE_GATE, GroupDecision, GroupKey, Level, ReleaseSpec
from extender.verbs.release.progress import GroupState
from tests.builders import REQUIRED, pod

KEY = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
SPEC = ReleaseSpec((ZONE,))
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PODS = tuple(pod(f"x-{at}") for at in range(4))


def decided(size: int) -> GroupDecision:
    return GroupDecision(KEY, SPEC.gate, size, (), NOON)


def blocked(size: int, count: int) -> GroupState:
    return GroupState(KEY, SPEC, size, blocked=tuple((each, ("a/b",)) for each in PODS[:count]))


Pod = dict[str, Any]
RACK = "example.com/rack"
GATE = {"name": RELEASE_GATE}
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def decision(*levels: tuple[Any, ...]) -> GroupDecision:
    """A decision for the group `ring` of a team."""
    group = GroupKey("team-a", "PodSchedulingPolicy/team-a/rings", "ring")
    return GroupDecision(group, RELEASE_GATE, 3, tuple(Level(*level) for level in levels), AT)


def gated_pod(**spec: Any) -> Pod:
    """A gated pod as the API server has it."""
    metadata = {"name": "r-0", "namespace": "team-a", "uid": "u1", "resourceVersion": "41"}
    whole = {"containers": [{"name": "app", "image": "r:1"}], "schedulingGates": [GATE], **spec}
    return {"metadata": metadata, "spec": whole}


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
NODES = [{ZONE: zone, RACK: rack, "disk": "a"} for zone in "abcd" for rack in "abcd"]


def affinity_of(pod: Pod, list_name: str) -> Any:
    """One of the lists of a pod's node affinity."""
    return ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(list_name)


def admitted(pod: Pod) -> list[int]:
    """The nodes that a pod may be on, by the rules of Kubernetes."""
    selector = pod["spec"].get("nodeSelector") or {}
    terms = (affinity_of(pod, REQUIRED) or {"nodeSelectorTerms": None})["nodeSelectorTerms"]

    def fits(labels: dict[str, str]) -> bool:
        def holds(clause: Any) -> bool:
            return (labels.get(clause["key"]) in clause["values"]) is (clause["operator"] == "In")

        def matches(term: Any) -> bool:
            return bool(term.get("matchExpressions")) and all(map(holds, term["matchExpressions"]))

        return all(labels.get(key) == value for key, value in selector.items()) and (
            terms is None or any(map(matches, terms))
        )

    return [number for number, labels in enumerate(NODES) if fits(labels)]
