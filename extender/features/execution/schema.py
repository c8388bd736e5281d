"""The field `execution` of a policy's spec, declared once: the CRD, the checks and the reading follow from it.

Beside it: what is read of a pod that is about to be moved, and whether it may be moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from extender.features.execution.directive import (
    DEFAULT_AFTER,
    DEFAULT_EXECUTION,
    DEFAULT_MIN_AGE,
    PAUSED_ANNOTATION,
    ExecutionMode,
    ExecutionSpec,
    PodFacts,
    VolumeChoice,
    WatchedConstraint,
    objection_to_owner,
)
from extender.model.objects import Pod
from extender.model.policies import JsonObject, Moment
from extender.wire.policies.field_errors import Problems
from extender.wire.policies.schema import (
    Field,
    FieldRule,
    Many,
    Record,
    Text,
    WholeNumber,
    choice,
    duration,
    predicate,
    reader_of,
)

_LONGEST_AFTER: Final = 24 * 3600.0
_LONGEST_AGE: Final = 7 * 24 * 3600.0
_AFTER_LIMITS: Final = "must be at most 24h"
_AGE_LIMITS: Final = "must be at most 168h"
_MOST_CONCURRENT: Final = 1000
_MOST_PER_MINUTE: Final = 6000

EXECUTION: Final = Record(
    (
        Field(
            "mode",
            choice(ExecutionMode),
            "Report shows broken constraints and the moves that would mend them. Evict also moves pods.",
        ),
        Field(
            "constraints",
            Many(
                Text(choices=tuple(map(str, WatchedConstraint)), reads=WatchedConstraint),
                len(WatchedConstraint),
                least=1,
                is_set=True,
                needs="must name at least one constraint",
                reads=frozenset,
                default=tuple(map(str, WatchedConstraint)),
            ),
            "The required constraints that are watched.",
        ),
        Field(
            "after",
            duration(lambda seconds: 0 <= seconds <= _LONGEST_AFTER, _AFTER_LIMITS, DEFAULT_AFTER),
            "For how long a constraint must have been broken before a pod is moved for it.",
        ),
        Field(
            "minAge",
            duration(lambda seconds: 0 <= seconds <= _LONGEST_AGE, _AGE_LIMITS, DEFAULT_MIN_AGE),
            "Younger pods are not moved.",
        ),
        Field(
            "maxConcurrent",
            WholeNumber(1, _MOST_CONCURRENT, default=DEFAULT_EXECUTION.max_concurrent),
            "How many pods of the policy are moved at a time. Each controller loses one pod at a time.",
        ),
        Field(
            "maxPerMinute",
            WholeNumber(1, _MOST_PER_MINUTE, default=DEFAULT_EXECUTION.max_per_minute),
            "How many moves of the policy begin within a minute.",
        ),
        Field("localStorage", choice(VolumeChoice), "Keep: a pod with an emptyDir volume is not moved."),
        Field(
            "persistentVolumes",
            replace(choice([VolumeChoice.KEEP, VolumeChoice.MOVE]), reads=VolumeChoice),
            "Keep: a pod with a PersistentVolumeClaim is not moved, because its volume may bind it to its node.",
        ),
    ),
    (
        predicate(
            None,
            *[
                FieldRule(f"!has(self.{name}) || duration(self.{name}) <= duration('{most}')", text, f".{name}")
                for name, most, text in (("after", "24h", _AFTER_LIMITS), ("minAge", "168h", _AGE_LIMITS))
            ],
        ),
    ),
)


def _acts_at_execution(found: Problems, spec: JsonObject, path: str) -> None:
    when = spec.get("when")
    if spec.get("execution") is not None and not (isinstance(when, list) and Moment.EXECUTION in when):
        found.invalid(f"{path}.execution", spec["execution"], _ACTS)


_ACTS: Final = "acts while pods run only, so `when` must contain Execution"
ACTS_AT_EXECUTION: Final = predicate(
    _acts_at_execution,
    FieldRule("!has(self.execution) || (has(self.when) && 'Execution' in self.when)", _ACTS, ".execution"),
)
EXECUTION_FIELD: Final = Field(
    "execution", EXECUTION, "Watches required constraints while pods run, and moves pods whose constraints are broken."
)


def read_execution(spec: JsonObject, annotations: Mapping[str, Any]) -> ExecutionSpec | None:
    """What a valid policy says about the moment Execution; None if the policy does not act at it."""
    if Moment.EXECUTION not in (spec.get("when") or ()):
        return None
    return ExecutionSpec(**_read(spec.get("execution") or {}), paused=PAUSED_ANNOTATION in annotations)


_read: Final = reader_of(ExecutionSpec, EXECUTION)


# -- what the status says about moves

MOST_STORED: Final = 64
"""Moves of a policy that the status has. No further move of the policy begins before one of their replacements has a node."""


def moves_of_status(status: bytes) -> tuple[JsonObject, ...]:
    """The first `MOST_STORED` moves in the JSON of a policy's status, unchecked. O(its size), if it has any."""
    if b'"moves"' not in status:
        return ()
    execution = _object(_object(orjson.loads(status)).get("execution"))
    return tuple(_objects(execution.get("moves"))[:MOST_STORED])


# -- whether a pod may be moved

_FORBIDDING: Final = {
    # Each annotation, and the value with which it allows a move.
    "placement.extender.dev/do-not-move": "false",
    "karpenter.sh/do-not-disrupt": "false",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}
_MIRROR: Final = "kubernetes.io/config.mirror"


def pod_facts(pod: JsonObject) -> PodFacts:
    """What moves read of the JSON of a pod, beside what the index holds. O(size of the pod)."""
    metadata, spec, status = _object(pod.get("metadata")), _object(pod.get("spec")), _object(pod.get("status"))
    annotations = _object(metadata.get("annotations"))
    forbidding = [key for key, allows in _FORBIDDING.items() if annotations.get(key, allows) != allows]
    owners = [owner for owner in _objects(metadata.get("ownerReferences")) if owner.get("controller")]
    conditions = {condition.get("type"): condition.get("status") for condition in _objects(status.get("conditions"))}
    return PodFacts(
        controller=str(owners[0].get("uid") or "") if owners else "",
        is_ready=conditions.get("Ready") == "True",
        has_local_storage=any("emptyDir" in volume for volume in _objects(spec.get("volumes"))),
        forbidden="it is a mirror pod"
        if _MIRROR in annotations
        else f"annotation {forbidding[0]} forbids it"
        if forbidding
        else "",
    )


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return list(map(_object, value)) if isinstance(value, list) else []


_WAS_RELEASED: Final = (
    "it was released with a group, and no policy would release its replacement: "
    "the release has narrowed the pod to a domain, and not its template"
)


@dataclass(frozen=True, slots=True)
class Movable:
    """Decides which pods may be moved at all. ``facts``: by UID, of the pods that were read. ``now``: None ignores ages."""

    facts: Mapping[str, PodFacts] = field(default_factory=dict)
    now: datetime | None = None

    def objection(self, pod: Pod, spec: ExecutionSpec, gate: str = "") -> str:
        """Why a pod is not moved; empty if it may. ``gate``: `objection_to_gate` if a policy releases its replacement. O(1)."""
        facts = self.facts.get(pod.uid)
        if objection := objection_to_owner(pod.signature.owner_kind) or gate:
            return objection
        if pod.gating is not None:
            return _WAS_RELEASED
        if pod.has_unseen_needs and spec.persistent_volumes is VolumeChoice.KEEP:
            return "it has a volume or a device that may bind it to its node"
        if self._is_young(pod, spec):
            return "it is younger than minAge"
        if facts is not None and facts.forbidden:
            return facts.forbidden
        if facts is not None and facts.has_local_storage and spec.local_storage is VolumeChoice.KEEP:
            return "it has local storage"
        return ""

    def _is_young(self, pod: Pod, spec: ExecutionSpec) -> bool:
        if self.now is None or not spec.min_age:
            return False
        return pod.start_time is None or self.now - pod.start_time < timedelta(seconds=spec.min_age)

    def order(self, pod: Pod) -> tuple[Any, ...]:
        """Sorts pods: first a pod that is not ready, of low priority, of low deletion cost, and young; then by name."""
        facts = self.facts.get(pod.uid)
        started = pod.start_time.timestamp() if pod.start_time is not None else float("inf")
        return facts is None or facts.is_ready, pod.priority, _as_int(pod.deletion_cost), -started, pod.full_name


def _as_int(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0
