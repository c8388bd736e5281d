"""The patch that releases a gated pod: narrows it to the decided domain and removes the gate, in one request.

One request leaves the scheduler no moment in which the pod is free and not narrowed. It is a strategic merge patch, which
removes exactly one gate, whatever other gates the pod has by then. Only node selector keys are added, so it is legal for
every gated pod (KEP-3838), and required node terms stay as they are. It cannot be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from extender.model.policies import JsonObject
from extender.model.release import RELEASED_ANNOTATION, Decision, Level


@dataclass(frozen=True, slots=True)
class Inexpressible:
    """No patch can narrow the pod: its node selector has other values for these levels, and they cannot be changed."""

    levels: tuple[Level, ...]
    node_selector: Mapping[str, str]

    def __str__(self) -> str:
        """One text for events and logs."""
        parts = (f'{level} (the pod has "{self.node_selector[level.key]}")' for level in self.levels)
        return f"the node selector of the pod contradicts the decided domain: {', '.join(parts)}"


def contradicted(node_selector: Mapping[str, str], levels: Sequence[Level]) -> tuple[Level, ...]:
    """The levels for which a node selector has another value. O(levels)."""
    return tuple(level for level in levels if node_selector.get(level.key, level.value) != level.value)


def release_patch(pod: JsonObject, decision: Decision) -> JsonObject | Inexpressible | None:
    """The strategic merge patch for a pod as the API server has it; None if it does not have the gate any more.

    The patch names the UID and the version of the pod, so it fails with 409 if the pod has changed or is another one.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if all(gate["name"] != decision.gate for gate in spec.get("schedulingGates") or ()):
        return None
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    wrong = contradicted(selector, decision.levels)
    if wrong:
        return Inexpressible(wrong, selector)
    changed: JsonObject = {"schedulingGates": [{"$patch": "delete", "name": decision.gate}]}
    added = {level.key: level.value for level in decision.levels if level.key not in selector}
    if added:
        changed["nodeSelector"] = added
    identity = {name: metadata[name] for name in ("uid", "resourceVersion")}
    return {"metadata": {**identity, "annotations": {RELEASED_ANNOTATION: released_by(decision)}}, "spec": changed}


def released_by(decision: Decision) -> str:
    """What the annotation says: ``<group>@<time of the decision>``."""
    return f"{decision.group.value}@{decision.decided.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
