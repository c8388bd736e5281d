"""The field `execution` of a policy: which required constraints of running pods are watched, and which of their pods may be moved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.model.release import ReleaseSpec


class ExecutionMode(StrEnum):
    """Report shows broken constraints and planned moves. Evict also carries out the moves."""

    REPORT = "Report"
    EVICT = "Evict"


class WatchedConstraint(StrEnum):
    """A kind of required constraint, of the pod itself or directed by policies.

    Preferences are not watched, because a wish is no reason to end a pod.
    """

    NODE_AFFINITY = "NodeAffinity"
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"
    TOPOLOGY_SPREAD = "TopologySpread"


class VolumeChoice(StrEnum):
    """What is done with a pod that has volumes of a kind."""

    MOVE = "Move"
    KEEP = "Keep"


PAUSED_ANNOTATION: Final = "placement.extender.dev/moves-paused"
DEFAULT_AFTER: Final = "5m"
DEFAULT_MIN_AGE: Final = "10m"
EVERY_CONSTRAINT: Final = frozenset(WatchedConstraint)


@dataclass(frozen=True, slots=True)
class ExecutionSpec:
    """The field, with every default filled in. Durations are seconds.

    - ``after``: a constraint must have been broken for so long before a pod is moved for it.
    - ``min_age``: younger pods are not moved.
    - ``max_concurrent``: moves of the policy at a time. A controller has at most one move at a time.
    - ``paused``: no move begins while the policy has the annotation `PAUSED_ANNOTATION`.
    - ``local_storage``: pods with emptyDir volumes, whose content a move deletes.
    - ``persistent_volumes``: pods with PersistentVolumeClaims, which may bind them to nodes that the extender does not know.
    """

    mode: ExecutionMode = ExecutionMode.REPORT
    constraints: frozenset[WatchedConstraint] = EVERY_CONSTRAINT
    after: float = 300.0
    min_age: float = 600.0
    max_concurrent: int = 10
    max_per_minute: int = 10
    local_storage: VolumeChoice = VolumeChoice.MOVE
    persistent_volumes: VolumeChoice = VolumeChoice.KEEP
    paused: bool = False


DEFAULT_EXECUTION: Final = ExecutionSpec()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the index does not hold of a pod. It is read only of pods that are about to be moved.

    - ``controller``: the UID of its controller.
    - ``forbidden``: why the pod must stay, such as an annotation that forbids a move.
    """

    controller: str = ""
    is_ready: bool = True
    has_local_storage: bool = False
    forbidden: str = ""


_REPLACING: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")
_OWNERS: Final = {
    "": "no controller replaces the pod",
    "DaemonSet": "a DaemonSet runs it on this node",
    "Job": "its Job counts an eviction as a failure",
    "Node": "it is a static pod",
}


def objection_to_owner(kind: str) -> str:
    """Why pods with a controller of a kind are not moved; empty if it replaces them. O(1)."""
    return "" if kind in _REPLACING else _OWNERS.get(kind) or f"it is not known whether a {kind} replaces its pods"


def objection_to_gate(policy: str, release: ReleaseSpec) -> str:
    """Why pods that a policy releases with their group are not moved.

    The replacement arrives gated. Its gate is removed after a decision that no move can foresee: for the room of a move the release is another
    claim, limits of the namespace may delay it, and a group may get another domain.
    """
    decided = (
        f"{release.gate} is removed after a decision that may choose another node (laterPods: {release.later_pods})"
    )
    return f"its replacement would wait at the gate of {policy}: {decided}"
