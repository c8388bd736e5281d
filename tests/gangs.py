"""Policies that release pods, and gated pods of groups, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from extender.model.constraints.labels import ZONE
from extender.model.objects import Pod
from extender.model.policies import Moment, Policy
from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION, NoRoom, NoRoomAction, ReleaseSpec, default_after
from tests.builders import Json, read_pod
from tests.contenders import contender_json
from tests.policies import policy

GROUP_LABEL: Final = "gang"
FOREIGN_GATE: Final = "example.com/other"


def actions(*steps: NoRoom | NoRoomAction) -> tuple[NoRoomAction, ...]:
    """What is done without room, each step at its own time, or at its usual one."""
    return tuple(step if isinstance(step, NoRoomAction) else NoRoomAction(step, default_after(step)) for step in steps)


def release_policy(
    name: str = "gangs", namespace: str = "", *, selector: Json | None = None, priority: int = 0, **release: Any
) -> Policy:
    """A policy that releases the pods that it selects, all of them unless `selector` says which, by the label "gang"."""
    fields: Json = {"topology": (ZONE,), "group_label": GROUP_LABEL}
    spec = ReleaseSpec(**(fields | release))
    scope: Json = {} if selector is None else {"podSelector": selector}
    made = policy(name, namespace, priority=priority, **scope)
    return replace(made, when=frozenset({Moment.RELEASE}), release=spec)


def gated_json(
    name: str,
    gang: str = "",
    *,
    gates: Sequence[str] = (RELEASE_GATE,),
    annotations: Mapping[str, str] | None = None,
    released: str = "",
    **fields: Any,
) -> Json:
    """A pod of a group as the API writes it; with ``released`` one that was released with that group."""
    labels = {**fields.pop("labels", {}), **({GROUP_LABEL: gang} if gang else {})}
    body = contender_json(name, gates=() if released else gates, labels=labels, **fields)
    marks = {RELEASED_ANNOTATION: f"{released}@2026-01-01T00:00:00Z"} if released else {}
    body["metadata"]["annotations"] = {**(annotations or {}), **marks}
    body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return body


def gated(name: str, gang: str = "", **fields: Any) -> Pod:
    """The same, as the service reads it."""
    return read_pod(gated_json(name, gang, **fields))
