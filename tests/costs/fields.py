"""Every public input by its path, from the types and schemas that decode it: a field that is added appears here by itself.

`[]` stands for the elements of a list, `{}` for the entries of a map; the path of a list or map itself means how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Raw

from deploy.policies.crds import Schema, policy_crds
from extender.features.quotas.schema import QuotaJson
from extender.server.v1.operations import OPERATIONS
from extender.wire import extender_v1, manifests
from extender.wire.objects import objects_json as wire
from extender.wire.objects.kinds import WATCHED_KINDS
from extender.wire.policies.group_placements import GroupPlacementJson

# What raw bytes are decoded as, where they are.
_MAP: Final = dict[str, str]
_RAW: Final[dict[str, Any]] = {
    "MetaJson.labels": _MAP,
    "MetaJson.owner_references": list[wire.OwnerJson],
    "MetaJson.annotations": _MAP,
    "PolicyMetaJson.labels": _MAP,
    "PolicyMetaJson.owner_references": list[wire.OwnerJson],
    "PolicyMetaJson.annotations": _MAP,
    "ResourcesJson.requests": _MAP,
    "ResourcesJson.limits": _MAP,
    "VolumeJson.persistent_volume_claim": str,
    "VolumeJson.ephemeral": str,
    "PodSpecJson.affinity": wire.AffinityJson,
    "PodSpecJson.topology_spread_constraints": list[wire.SpreadJson],
    "PodSpecJson.node_selector": _MAP,
    "PodSpecJson.tolerations": list[wire.TolerationJson],
    "PodSpecJson.scheduling_gates": list[str],
    "PodSpecJson.overhead": _MAP,
    "PodSpecJson.resource_claims": list[str],
    "PodStatusJson.conditions": list[wire.ConditionJson],
    "PodStatusJson.container_statuses": list[wire.ContainerStatusJson],
    "PodStatusJson.init_container_statuses": list[wire.ContainerStatusJson],
    "PodStatusJson.allocated_resources": _MAP,
    "ContainerStatusJson.allocated_resources": _MAP,
    "WorkloadSpecJson.selector": wire.LabelSelectorJson,
    "BudgetSpecJson.selector": wire.LabelSelectorJson,
    "_NodeListJson.items": list[str],  # whole nodes, whose fields are those of a node
    "_WhatIfJson.apply": list[str],
}
_STRUCTS: Final = {
    "pod": wire.PodJson,
    "node": wire.NodeJson,
    "namespace": wire.NamespaceJson,
    "workload": wire.WorkloadJson,
    "budget": wire.BudgetJson,
    "quota": QuotaJson,
    "placement": GroupPlacementJson,
    "topologyDomains": wire.TopologyDomainsJson,
    "request": extender_v1._ArgsJson,
    "preemption": extender_v1._PreemptionArgsJson,
    "binding": extender_v1._BindingArgsJson,
    "what-if": manifests._WhatIfJson,
}
_ELSEWHERE: Final = (wire.PodJson, wire.NodeJson)  # of a request: their fields are those of the objects
# A review is read field by field, see `verbs/admit/reviews.py`; the object's fields are those of a pod or a policy.
_REVIEW: Final = ("object", "oldObject", "object.templates[]", "object.annotation", "kind", "operation", "namespace")


def inputs() -> list[str]:
    """The path of every public input, each once."""
    found = [f"{each.api_kind}[]" for each in WATCHED_KINDS]
    for root, struct in _STRUCTS.items():
        found += _walk(root, struct, root)
    found += (path for path, _ in policy_fields())
    found += (f"review.{name}" for name in _REVIEW)
    for each in OPERATIONS:
        place = f"{each.method} {each.path}"
        found += (f"{place} ?{parameter.name}" for parameter in each.parameters)
        found += [f"{place} body"] if each.body is not None else []
    return list(dict.fromkeys(map(_short, found)))


def _short(path: str) -> str:
    return path.replace("DuringSchedulingIgnoredDuringExecution", "")


def policy_fields() -> Iterator[tuple[str, Schema]]:
    """The fields of both kinds of policies with their schemas."""
    spec = policy_crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return ((_short(path), schema) for path, schema in _of_schema("policy.spec", spec))


def _of_schema(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if "type" not in schema:  # a number or a text
        yield path, schema
    elif schema["type"] == "array":
        yield f"{path}[]", schema
        if schema["items"]["type"] != "string":
            yield from _of_schema(f"{path}[]", schema["items"])
    elif "additionalProperties" in schema:
        yield f"{path}{{}}", schema
    elif schema["type"] == "object":
        for name, below in schema["properties"].items():
            yield from _of_schema(f"{path}.{name}", below)
    else:
        yield path, schema


def _walk(path: str, kind: Any, root: str) -> Iterator[str]:
    origin, arguments = get_origin(kind), [each for each in get_args(kind) if each is not type(None)]
    if origin is Annotated or origin in (Union, UnionType):
        yield from _walk(path, arguments[0], root)
    elif origin is list:
        yield f"{path}[]"
        yield from (each for each in _walk(f"{path}[]", arguments[0], root) if each != f"{path}[]")
    elif origin is dict:
        yield f"{path}{{}}"
        if arguments[1] is not str:
            yield from (each for each in _walk(f"{path}{{}}", arguments[1], root) if each != f"{path}{{}}")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in _ELSEWHERE and path != root:
            return
        for field in msgspec.structs.fields(kind):
            name = f"{kind.__name__}.{field.name}"
            below = _RAW.get(name, field.type)
            if below in (Raw, list[Raw]):
                raise LookupError(f"{name}: what are these bytes decoded as? Add it to _RAW")
            yield from _walk(f"{path}.{field.encode_name}", below, root)
    elif kind not in (bool, type(None)):
        assert kind in (str, int, float, datetime) or isinstance(kind, type), (path, kind)
        yield path


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern names a path: `*` within one name, `**` over any number of names."""
    parts = re.split(r"(\*\*|\*)", pattern)
    kinds = {"**": ".*", "*": "[^.]*"}
    return re.fullmatch("".join(kinds.get(part) or re.escape(part) for part in parts), path) is not None
