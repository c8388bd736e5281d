"""One case of the quota scope CrossNamespacePodAffinity: a pod, and whether the quota evaluator of Kubernetes has it in the scope.

The pod is read twice: as it is, and above the limit of bytes, where its affinity is not parsed.
"""

from __future__ import annotations

from typing import Any

import orjson

from extender.model.units import ByteSize
from extender.settings.limits import ConstraintLimits
from extender.wire.objects.kinds import Kind, pods_within

Case = dict[str, Any]


def differences(case: Case) -> list[str]:
    """A line for each way of reading in which the answer is another one; empty when none is."""
    body, want = orjson.dumps(case["pod"]), case["crossNamespace"]
    got = {limits: _is_cross(body, limits) for limits in (ConstraintLimits(), ConstraintLimits(pod_bytes=ByteSize(1)))}
    return [
        f"podBytes {each.pod_bytes}: {is_cross}, expected {want}" for each, is_cross in got.items() if is_cross != want
    ]


def _is_cross(body: bytes, limits: ConstraintLimits) -> bool:
    kind: Kind[Any] = pods_within(limits)
    return bool(kind.decode_object(body).signature.affinity.cross_namespace)
