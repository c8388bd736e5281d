"""Policies that release pods, and gated pods of groups, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from extender.model.constraints.labels import ZONE
from extender.model.objects import Pod
from extender.model.policies import Moment, Policy
from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION, ReleaseSpec
from extender.wire.policies.release_options import translated
from tests.builders import Json, read_pod
from tests.contenders import contender_json
from tests.policies import policy

GROUP_LABEL: Final = "gang"
FOREIGN_GATE: Final = "example.com/other"
OLDER: Final = ("mode", "when_no_room", "on_timeout", "decision_timeout", "replacement", "growth")


def with_options(release: Json) -> Json:
    """Fields of a `ReleaseSpec`, some by the names of the older options: what is done without room, and with later pods."""
    older = {name: release[name] for name in OLDER if name in release}
    if not older:
        return release
    options: Json = translated(**older)._asdict()
    return {name: value for name, value in release.items() if name not in OLDER} | options


def release_policy(
    name: str = "gangs", namespace: str = "", *, selector: Json | None = None, priority: int = 0, **release: Any
) -> Policy:
    """A policy that releases the pods that it selects, all of them unless `selector` says which, by the label "gang"."""
    fields: Json = {"topology": (ZONE,), "group_label": GROUP_LABEL}
    spec = ReleaseSpec(**(fields | with_options(release)))
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
