"""Reads and writes GroupPlacements: the object as it is watched, and the bodies of its writes.

Fields as in deploy/policies/crds.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from extender.model.group_placements import PLACEMENT_KIND, GroupPlacement, PlacementStatus, placement_name
from extender.model.policies import GROUP, VERSION, JsonObject
from extender.model.release import BroughtToleration, GroupDecision, GroupKey, GroupPhase, Level, toleration_body
from extender.model.units import read_time, rfc3339
from extender.wire.errors import UNREADABLE, WireError, from_msgspec

_LONGEST_MESSAGE = 1024
CONDITION = "Placed"


class _MetaJson(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str | None = None
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")


class _TolerationJson(msgspec.Struct, omit_defaults=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = msgspec.field(default=None, name="tolerationSeconds")


class _LevelJson(msgspec.Struct):
    key: str = ""
    value: str = ""
    values: list[str] | None = None
    preferred: list[str] | None = None
    tolerations: list[_TolerationJson] | None = None


class _SpecJson(msgspec.Struct):
    policy: str = ""
    group: str = ""
    gate: str = ""
    size: int = 1
    topology: list[_LevelJson] | None = None
    decided: str | None = None
    pods: list[str] | None = None


class _ConditionJson(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _StatusJson(msgspec.Struct):
    phase: str | None = None
    ready: int | None = None
    released: int | None = None
    bound: int | None = None
    message: str | None = None
    conditions: list[_ConditionJson] | None = None


class GroupPlacementJson(msgspec.Struct):
    """A GroupPlacement as the API server sends it."""

    metadata: _MetaJson = msgspec.field(default_factory=_MetaJson)
    spec: _SpecJson | None = None
    status: _StatusJson | None = None


_PLACEMENT: Final = msgspec.json.Decoder(GroupPlacementJson)


def read_placement(body: bytes) -> tuple[GroupPlacement, str]:
    """The object of an answer, and its resourceVersion. Raises ``WireError``."""
    try:
        raw = _PLACEMENT.decode(body)
        placement = trim_placement(raw)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    if not raw.metadata.name:
        raise WireError("metadata.name", "is missing")  # for example the answer of a proxy
    return placement, raw.metadata.resource_version or ""


def trim_placement(raw: GroupPlacementJson) -> GroupPlacement:
    """The object without its version: what another client adds to it changes nothing."""
    meta, spec = raw.metadata, raw.spec or _SpecJson()
    return GroupPlacement(
        name=meta.name,
        uid=meta.uid or "",
        group=GroupKey(meta.namespace, spec.policy, spec.group),
        gate=spec.gate,
        size=spec.size,
        levels=tuple(
            Level(
                each.key,
                each.value,
                tuple(each.values or ()),
                tuple(each.preferred or ()),
                tuple(BroughtToleration(*msgspec.structs.astuple(item)) for item in each.tolerations or ()),
            )
            for each in spec.topology or ()
        ),
        decided=read_time(spec.decided),
        pods=None if spec.pods is None else tuple(spec.pods),
        status=_status(raw.status or _StatusJson()),
    )


def _status(raw: _StatusJson) -> PlacementStatus:
    reason = next((each.reason for each in raw.conditions or () if each.type == CONDITION), "")
    # A phase of a later version counts as the first phase, from which the leader finds the real one again.
    phase = GroupPhase(raw.phase) if raw.phase in set(GroupPhase) else GroupPhase.COLLECTING
    return PlacementStatus(phase, raw.ready or 0, raw.released or 0, raw.bound or 0, reason, raw.message or "")


def decision_body(
    decision: GroupDecision,
    version: str = "",
    owner: Mapping[str, str] | None = None,
    pods: Iterable[str] | None = None,
) -> JsonObject:
    """The object with a decision, to create it or, with its ``version``, to replace it. ``owner``: an owner reference.

    ``pods``: the UIDs of the pods that are released with it.
    """
    body = undecided_body(decision.group, decision.gate, decision.size, owner)
    if version:
        # With a version the write is refused if another leader has written since (409).
        body["metadata"]["resourceVersion"] = version
    body["spec"]["topology"] = [_level_body(each) for each in decision.levels]
    body["spec"]["decided"] = rfc3339(decision.decided)
    if pods is not None:
        body["spec"]["pods"] = list(pods)
    return body


def _level_body(level: Level) -> JsonObject:
    """A domain of several values names the first of them as its value too: an older extender pins the rest of a group to it."""
    tolerations = [toleration_body(each) for each in level.tolerations]
    lists = {"values": list(level.values), "preferred": list(level.preferred), "tolerations": tolerations}
    return {"key": level.key, "value": level.value, **{name: each for name, each in lists.items() if each}}


def undecided_body(group: GroupKey, gate: str, size: int, owner: Mapping[str, str] | None = None) -> JsonObject:
    """The object of a group for which nothing is decided yet."""
    metadata: JsonObject = {"name": placement_name(group), "namespace": group.namespace}
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": PLACEMENT_KIND,
        "metadata": metadata,
        "spec": {"policy": group.policy, "group": group.value, "gate": gate, "size": size},
    }


def status_body(status: PlacementStatus, since: datetime) -> JsonObject:
    """The status. ``since``: when the condition became what it is."""
    placed = status.phase is GroupPhase.BOUND
    condition = {
        "type": CONDITION,
        "status": "True" if placed else "False",
        "lastTransitionTime": rfc3339(since),
        "reason": status.reason or str(status.phase),
        "message": status.message[:_LONGEST_MESSAGE],
    }
    return {
        "phase": str(status.phase),
        "ready": status.ready,
        "released": status.released,
        "bound": status.bound,
        "message": status.message[:_LONGEST_MESSAGE],
        "conditions": [condition],
    }
