"""Reads objects that users give: manifests of pods, and what-ifs. Objects are decoded as objects of a watch are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
import orjson
from msgspec import Meta, Raw, Struct

from extender.model.answers.what_if import (
    MOST_PLACED,
    PLACE_LIMIT,
    Displaced,
    Given,
    GivenWorkload,
    NodeChange,
    Removal,
    WhatIf,
)
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.taints import CORDON, NO_EXECUTE, NO_SCHEDULE, Taint
from extender.model.group_placements import PLACEMENT_KIND
from extender.model.objects import Node, Object, Pod, Workload
from extender.model.policies import InvalidPolicy, JsonObject, PolicyObject
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import Kind, watched_kinds
from extender.wire.objects.objects_json import NodeJson, PodJson
from extender.wire.objects.simplify import decode_twice
from extender.wire.objects.trim import trim_pod
from extender.wire.pods.new_pod import NO_NAMESPACE, checked_pod
from extender.wire.pods.workloads import GROUPS, has_template, read_workload
from extender.wire.snapshots import Kinds, kinds_by_name

_POD_KIND: Final = "Pod"

# -- manifests of pods


class _TypeJson(Struct):
    kind: str = "Pod"


_TYPE = msgspec.json.Decoder(_TypeJson)
_POD = msgspec.json.Decoder(PodJson)
_MOST_VALUES = 10_000  # of a pod; trimming takes up to 2 µs each, and large pods have a tenth of them


def decode_manifest(body: bytes, limits: ConstraintLimits = DEFAULT_LIMITS) -> Pod:
    """The pod of a manifest, without its node, and in the namespace "default" unless it names another.

    It is completed and checked as in the API server (`wire/pods/new_pod.py`). Raises ``WireError`` naming the field.
    """
    if body.count(b":") + body.count(b"{") > _MOST_VALUES:
        raise WireError("", f"holds more than {_MOST_VALUES} values")
    try:
        kind, raw = _TYPE.decode(body).kind, _POD.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    if kind != _POD_KIND:
        raise WireError("kind", f'expected "Pod", got "{kind[:64]}"')
    if raw.metadata is None or not raw.metadata.name:
        raise WireError("metadata.name", "is missing")
    if raw.spec is None:
        raise WireError("spec", "is missing")
    # The first decoding has found values of wrong types. This one reads the pod with the API server's defaults.
    raw = _POD.decode(checked_pod(_loaded(body, ""), ""))
    if raw.metadata is not None:
        # A manifest from `kubectl get` has the UID of a pod that exists. The new pod must not be taken for that pod.
        raw.metadata.uid = None
    return msgspec.structs.replace(trim_pod(raw, limits).recreated(), terminating=False)


def _loaded(body: bytes, path: str) -> JsonObject:
    """A JSON object that msgspec has read before.

    Raises ``WireError`` for JSON that only msgspec reads, such as very deep JSON.
    """
    try:
        manifest: JsonObject = orjson.loads(body)
    except ValueError as error:
        raise WireError(path, str(error)) from None
    return manifest


# -- what-ifs

_WITHOUT_NAMESPACE: Final = frozenset({"Node", "Namespace"})
_LONGEST_KIND: Final = 64

# kube-scheduler reads no budgets for pods that are only placed. Group placements are written by the extender alone.
_NOT_GIVEN: Final = frozenset({"PodDisruptionBudget", PLACEMENT_KIND})


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base. An unknown field is an error, because a misspelt field would change the answer."""


class _RemovalJson(_Part, frozen=True):
    kind: str
    name: str
    namespace: str = ""


class _PlaceJson(_Part, frozen=True):
    pending: bool = True
    limit: Annotated[int, Meta(ge=0, le=MOST_PLACED)] = PLACE_LIMIT


class _WhatIfJson(_Part, frozen=True):
    apply: list[Raw] | None = None
    delete: list[_RemovalJson] | None = None
    cordon: list[str] | None = None
    drain: list[str] | None = None
    displaced: Displaced = Displaced.PLACE
    place: _PlaceJson = _PlaceJson()
    moves: bool = False


class _MetaJson(Struct):
    name: str = ""
    namespace: str | None = None


class _HeadJson(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _MetaJson = msgspec.field(default_factory=_MetaJson)


_BODY = msgspec.json.Decoder(_WhatIfJson)
_HEAD = msgspec.json.Decoder(_HeadJson)


def decode_what_if(body: bytes, settings: Settings) -> WhatIf:
    """The what-if in a body; an empty body changes nothing. Raises WireError. About 20 µs for each object.

    A manifest written by hand may mean something else than the same object in a cluster. Then it is completed as in a
    cluster (a pod, a namespace, a node's host name and taints), or refused (a node that offers nothing, a pod that the
    API server refuses). The pods of a workload are made when the what-if is computed.
    """
    try:
        read = _BODY.decode(body.strip() or b"{}")
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    # The kinds that decisions read under these settings.
    # Other kinds would be accepted and change nothing, which looks like an answer.
    kinds = kinds_by_name((w for w in watched_kinds(settings) if w.api_kind not in _NOT_GIVEN), settings.limits)
    given, remaining = list[Given | GivenWorkload](), MOST_PLACED
    for at, item in enumerate(read.apply or ()):
        given.append(_given(bytes(item), f"apply[{at}]", kinds, remaining))
        # The bound is for all workloads together.
        remaining -= given[-1].count if isinstance(given[-1], GivenWorkload) else 0
    removals = tuple(_removal(removal, f"delete[{at}]", kinds) for at, removal in enumerate(read.delete or ()))
    nodes = [NodeChange(name, f"cordon[{at}]") for at, name in enumerate(read.cordon or ())]
    nodes += (NodeChange(name, f"drain[{at}]", is_drain=True) for at, name in enumerate(read.drain or ()))
    place = read.place
    return WhatIf(
        tuple(given),
        removals,
        tuple(nodes),
        read.displaced,
        place.pending,
        place.limit,
        tuple(_notes(given)),
        read.moves,
    )


def _check_kind(kind: str, group: str, path: str, kinds: Kinds) -> Kind[Any]:
    known = kinds.get((kind, group))
    if known is None:
        expected = ", ".join(dict.fromkeys([*(name for name, _ in kinds), *GROUPS]))
        raise WireError(
            f"{path}.kind", f'expected a kind that decisions read ({expected}), got "{kind[:_LONGEST_KIND]}"'
        )
    return known


def _given(item: bytes, path: str, kinds: Kinds, most: int) -> Given | GivenWorkload:
    """``most``: how many more pods of workloads may be made."""
    try:
        head = decode_twice(_HEAD, item)
    except UNREADABLE as error:
        raise from_msgspec(error, path) from None
    # "apps/v1" has the group "apps"; "v1" and a missing apiVersion have the group "".
    group = head.api_version.rpartition("/")[0]
    # Workloads become pods. A workload without a template is only read for default constraints.
    is_workload = head.kind in GROUPS and group in ("", GROUPS[head.kind])
    kind = None if is_workload else _check_kind(head.kind, group, path, kinds)
    if not head.metadata.name:
        raise WireError(f"{path}.metadata.name", "is missing")
    # Completed before decoding, because decoding keeps only what decisions read.
    if head.kind == _POD_KIND:
        item = checked_pod(_loaded(item, path), path)
    elif is_in_namespace(head.kind) and not head.metadata.namespace:
        item = _with_namespace(item, path)
    if kind is None:
        workload = _loaded(item, path)
        if has_template(workload) or (head.kind, group) not in kinds:
            return read_workload(workload, path, kinds, most)
        kind = kinds[head.kind, group]
    try:
        obj: Object = kind.decode_object(item)
    except WireError as error:
        raise WireError(f"{path}.{error.path}" if error.path else path, error.problem) from None
    if isinstance(obj, Node):
        return Given(_completed_node(obj, item, path), path)
    # A watched policy with errors is kept and reported in its status. Here the author of the policy waits for the
    # answer.
    if isinstance(obj, PolicyObject) and isinstance(obj.policy, InvalidPolicy):
        raise WireError(f"{path}.spec", "; ".join(obj.policy.errors))
    return Given(obj, path)


def is_in_namespace(kind: str) -> bool:
    """Whether objects of this kind of a what-if have a namespace."""
    return kind not in _WITHOUT_NAMESPACE and not kind.startswith("Cluster")


def _with_namespace(item: bytes, path: str) -> bytes:
    """The manifest with the namespace "default", as kubectl would create it."""
    manifest = _loaded(item, path)
    manifest["metadata"]["namespace"] = NO_NAMESPACE
    return orjson.dumps(manifest)


# The taints of conditions by the node lifecycle controller:
# https://kubernetes.io/docs/reference/labels-annotations-taints/
_CONDITION_TAINTS: Final = {
    ("Ready", "False"): ("node.kubernetes.io/not-ready", (NO_SCHEDULE, NO_EXECUTE)),
    ("Ready", "Unknown"): ("node.kubernetes.io/unreachable", (NO_SCHEDULE, NO_EXECUTE)),
    ("MemoryPressure", "True"): ("node.kubernetes.io/memory-pressure", (NO_SCHEDULE,)),
    ("DiskPressure", "True"): ("node.kubernetes.io/disk-pressure", (NO_SCHEDULE,)),
    ("PIDPressure", "True"): ("node.kubernetes.io/pid-pressure", (NO_SCHEDULE,)),
    ("NetworkUnavailable", "True"): ("node.kubernetes.io/network-unavailable", (NO_SCHEDULE,)),
}
_NODE = msgspec.json.Decoder(NodeJson)


def _completed_node(node: Node, item: bytes, path: str) -> Node:
    """The node as in a cluster, with its host name, and with taints for cordon and conditions."""
    if not node.allocatable:
        raise WireError(f"{path}.status.allocatable", "is missing, and without it no pod would fit on the node")
    labels = {HOSTNAME: node.name, **node.labels}  # read by anti-affinity by host
    status = decode_twice(_NODE, item).status
    taints = [CORDON] if node.unschedulable else []
    for condition in (status.conditions if status is not None else None) or ():
        key, effects = _CONDITION_TAINTS.get((condition.type, condition.status), ("", ()))
        taints += (Taint(key, "", effect) for effect in effects)
    # The taint of the cordon follows spec.unschedulable in both directions, as in the node lifecycle controller.
    stays = [taint for taint in node.taints if node.unschedulable or not taint.is_like(CORDON)]
    added = (taint for taint in taints if not any(map(taint.is_like, stays)))
    return msgspec.structs.replace(node, labels=labels, taints=(*stays, *dict.fromkeys(added)))


def _notes(given: Iterable[Given | GivenWorkload]) -> Iterator[str]:
    """In what given workloads differ from workloads of a cluster."""
    for item in given:
        if isinstance(item, GivenWorkload) and item.note:
            yield f"{item} {item.note}"
        elif isinstance(item, Given) and isinstance(item.obj, Workload) and item.obj.kind in GROUPS:
            name = f"{item.obj.kind} {item.obj.namespace}/{item.obj.name}"
            yield f"{name} has no spec.template: only its selector is read, and no pods are made"


def _removal(removal: _RemovalJson, path: str, kinds: Kinds) -> Removal:
    if removal.kind not in GROUPS:
        # A removal names no group. For a kind of two groups, such as a policy, the first row of the kind counts.
        _check_kind(removal.kind, "", path, kinds)
    if not removal.name:
        raise WireError(f"{path}.name", "is missing")
    if not is_in_namespace(removal.kind):
        if removal.namespace:
            raise WireError(f"{path}.namespace", f"{removal.kind} has none")
        return Removal(removal.kind, removal.name, "", path)
    return Removal(removal.kind, removal.name, removal.namespace or NO_NAMESPACE, path)
