"""Changes of gated pods and their groups, and a recount of the groups from the pods alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from hypothesis import strategies as st
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.index.gated import GatedPodState
from extender.model.constraints.labels import ZONE
from extender.model.group_placements import GroupPlacement, placement_name
from extender.model.objects import Object, Pod
from extender.model.release import RELEASE_GATE, GroupKey, Level
from tests.builders import Json
from tests.contenders import contender
from tests.gangs import FOREIGN_GATE, gated

PODS = ("a", "b", "c", "d")
GATES = ((RELEASE_GATE,), (FOREIGN_GATE, RELEASE_GATE), (FOREIGN_GATE,))
waiting = st.builds(
    lambda name, gang, gates, size, terminating: gated(
        name, gang, gates=gates, labels={"n": size}, terminating=terminating
    ),
    st.sampled_from(PODS),
    st.sampled_from(["", "x", "y"]),
    st.sampled_from(GATES),
    st.sampled_from(["1", "2", "two"]),
    st.booleans(),
)
released = st.builds(
    lambda name, gang, node, phase: gated(name, gang, released=gang, on=node, phase=phase),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(["", "", "Failed"]),
)


def _in(*terms: Sequence[str]) -> Json:
    """Required node affinity for these zones, term by term."""
    made = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(each)}]} for each in terms]
    return {"node_terms": made}


WHERE: Final[dict[str, Json]] = {
    "anywhere": {},
    "one": {"node_selector": {ZONE: "a"}},
    "other": {"node_selector": {ZONE: "d"}},
    "set": _in("ab", "b"),
    "two domains": _in("bc"),
}
narrowed = st.builds(
    lambda name, gang, node, where, cpu, terminating: gated(
        name, gang, released=gang, on=node, cpu=cpu, terminating=terminating, **WHERE[where]
    ),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(sorted(WHERE)),
    st.sampled_from([500, 1000]),
    st.booleans(),
)
LEVELS = st.sampled_from([(), (Level(ZONE, "a"),), (Level(ZONE, "b", ("b", "c")),)])


def placed(
    gang: str, by: str, uids: tuple[str, ...] | None, level: tuple[Level, ...], *, is_decided: bool
) -> GroupPlacement:
    """The object of a group."""
    key, decided = GroupKey("default", f"ClusterPodSchedulingPolicy/{by}", gang), datetime(2026, 1, 1, tzinfo=UTC)
    found = GroupPlacement(placement_name(key), f"uid-{gang}-{by}", key, pods=uids)
    return replace(found, levels=level, decided=decided) if is_decided else found


recorded = st.builds(
    lambda gang, by, uids, level, is_decided: placed(gang, by, uids, level, is_decided=is_decided),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["p1", "p2"]),
    st.sampled_from([None, (), ("uid-a", "uid-b"), ("uid-a", "uid-b", "uid-c", "uid-d"), ("uid-c",)]),
    LEVELS,
    st.sampled_from([True, True, True, False]),
)
stripped = st.builds(
    lambda name, gang, node, where: contender(name, on=node, labels={"gang": gang}, **WHERE[where]),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(sorted(WHERE)),
)


def take(index: ClusterIndex, step: tuple[Object, bool]) -> None:
    found, is_deletion = step
    if is_deletion:
        index.delete(found)
    else:
        index.upsert(found)


def waiting_pods(index: ClusterIndex) -> object:
    roles = (GatedPodState.READY, GatedPodState.BLOCKED)
    found = [(group.key, uid, role) for group in index.gated for uid, role in group.roles.items() if role in roles]
    return sorted(found)


def is_charged(pod: Pod, policy: str, values: Sequence[str], index: ClusterIndex) -> bool:
    """By its record, else by what it says of a group that was decided before pods were recorded."""
    record, groups = index.gated.records.get(pod.uid), [each.key for each in index.gated if pod.uid in each.roles]
    if (pod.gating is not None and pod.gating.gates) or [key.policy for key in groups] != [policy]:
        return False
    placement, nodes = index.placements.of(groups[0]), pod.signature.node_affinity
    if record is None and (placement is None or placement.decided is None or placement.pods is not None):
        return False
    narrowest = nodes.values_of(ZONE)
    if narrowest is None and record is not None and record.level is not None:
        narrowest = record.level.admitted
    return narrowest is None or not narrowest.isdisjoint(values)
