"""A policy and the members of a group."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from tests.policies import policy_json
from tests.simulator.plain import ZONE, pod

Json = dict[str, Any]
POLICY = policy_json(
    "rings", when=["Release"], release={"topology": [ZONE], "group": {"label": "ring"}, "size": {"count": 3}}
)


def member(
    name: str, ring: str = "a", *, minutes: int = 2, gates: tuple[str, ...] = (RELEASE_GATE,), on: str = ""
) -> Json:
    """A pod of a ring; without gates it was released."""
    made = pod(name, "shop", on=on, labels={"ring": ring}, schedulingGates=[{"name": each} for each in gates])
    created = datetime.now(UTC) - timedelta(minutes=minutes)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
    if not gates:
        made["metadata"]["annotations"] = {RELEASED_ANNOTATION: f"{ring}@2026-01-01T00:00:00Z"}
    return made
