"""The field `execution` of a policy's spec, declared once: the CRD, the checks and the reading follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

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
)
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


# -- what a pod says about moves

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
