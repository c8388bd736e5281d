"""Decodes the scheduler's requests and encodes answers. Fields have Go's casing, as the Go types have no JSON tags.

API: https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1 . An absent list is ``null``. An answer of filter always has
the list of the request's form, ``NodeNames`` or ``Nodes``: without both it would mean that no node passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import orjson
from msgspec import Raw

from extender.model.objects import Node, Pod
from extender.model.preemption import Candidate, Victim
from extender.model.rejections import Reason
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.constraints import DEFAULT_LIMITS, decode
from extender.wire.objects.objects_json import Count, NodeJson, PodJson, PodSpecJson, PodStatusJson, ResourcesJson
from extender.wire.objects.resizes import amounts_shown
from extender.wire.objects.trim import trim_node, trim_pod


class ExtenderArgs(msgspec.Struct, frozen=True, gc=False):
    """A filter or prioritize request: the incoming pod, and the nodes either by name or as objects.

    ``raw_nodes`` are the bytes of the objects, in the order of ``nodes``. Passing nodes are returned with unchanged
    bytes. ``body`` is the request's body, empty if the names do not come from a request.
    """

    pod: Pod
    node_names: list[str] | None = None
    nodes: list[Node] | None = None
    raw_nodes: Sequence[Raw] = ()
    body: bytes = b""

    def raw_names(self) -> bytes:
        """The bytes of the list of names, with which caches compare lists; empty without a body. O(body)."""
        return bytes(_RAW_NAMES.decode(self.body).node_names) if self.body else b""

    def by_names(self) -> ExtenderArgs:
        """The same request with names in place of whole nodes. O(1) for names, else O(nodes)."""
        if self.nodes is None:
            return self
        names = [node.name for node in self.nodes]
        return ExtenderArgs(self.pod, names, body=msgspec.json.encode({"NodeNames": names}))


class FilterResult(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The names of nodes that passed, best first, and the rejection texts of the others.

    ``unresolvable`` are rejections that removing pods cannot change; both maps are empty unless no node passed.
    ``reasons``: why nodes were rejected, over all nodes. ``encoded``: the whole answer as bytes, set in a brief result.
    """

    passed: Sequence[str]
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""
    encoded: bytes = b""
    reasons: frozenset[Reason] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FilterResult) and self._answer == other._answer

    __hash__ = None  # type: ignore[assignment]  # the maps have none either

    def brief(self) -> tuple[FilterResult, int]:
        """The result as a cache keeps it, with its size in bytes: the encoded answer and the reasons, without the maps.

        O(size of the answer).
        """
        encoded = encode_filter(self)
        return FilterResult((), encoded=encoded, reasons=self.reasons), len(encoded)

    @property
    def _answer(self) -> tuple[object, ...]:
        # Without `reasons`: they are not sent to kube-scheduler.
        return self.passed, self.failed, self.unresolvable, self.error, self.encoded


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """A bind request: the pod and its node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """A preempt request: the preemptor and the candidate nodes with their victims, most important first."""

    pod: Pod
    candidates: list[Candidate]


class _NodeListJson(msgspec.Struct):
    items: list[Raw] | None = None


# The Go types of this API have no JSON tags, so their fields are written as in Go: `NodeNames`, `Host`. Names that
# msgspec would spell differently, such as UID, are given below. The pods and nodes inside have tags.
class _ArgsJson(msgspec.Struct, rename="pascal"):
    pod: PodJson | None = None
    nodes: _NodeListJson | None = None
    node_names: list[str] | None = None


class _RawNamesJson(msgspec.Struct, rename="pascal"):
    node_names: Raw = Raw(b"")


class _MetaPodJson(msgspec.Struct):
    uid: str = msgspec.field(name="UID", default="")


class _MetaVictimsJson(msgspec.Struct):
    pods: list[_MetaPodJson] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: Count = msgspec.field(name="NumPDBViolations", default=0)


class _VictimsJson(msgspec.Struct):
    pods: list[PodJson] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: Count = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptionArgsJson(msgspec.Struct, rename="pascal"):
    pod: PodJson | None = None
    node_name_to_victims: dict[str, _VictimsJson | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictimsJson | None] | None = None


class _BindingArgsJson(msgspec.Struct, rename="pascal"):
    pod_namespace: str
    pod_name: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID")


MOST_NODES: Final = 20_000  # four times the limit that Kubernetes documents for a cluster
_MOST_WHOLE_NODES: Final = 5000  # 1.6 KB each in a body of 8 MiB, a third of a usual one; trimming takes 2 µs each
_MOST_NAME_BYTES: Final = 256 * MOST_NODES  # with the quotes and the comma of each
_MOST_VICTIMS: Final = 50_000
_MOST_WHOLE_VICTIMS: Final = 5000  # 1.6 KB each in a body of 8 MiB; trimming takes 6 µs each
_MOST_REQUESTS: Final = 20_000  # containers and resource requests of all pods of a call; trimming takes 2 µs each
_SMALL_POD: Final = 3 * _MOST_REQUESTS  # bytes of a body, too few for more containers or requests
_MOST_RECASED_FIELDS: Final = 20_000  # of all levels, as they are counted without decoding
_FREE_VALUES: Final = 100_000  # allowed in a body of any length, as node names are short
_BYTES_OF_A_VALUE: Final = 24  # a node object has one comma in about 40 bytes
_SMALL_BODY: Final = 2 * _FREE_VALUES  # bytes; too few for more than _FREE_VALUES
_ARGS = msgspec.json.Decoder(_ArgsJson)
_BINDING_ARGS = msgspec.json.Decoder(_BindingArgsJson)
_PREEMPTION_ARGS = msgspec.json.Decoder(_PreemptionArgsJson)
_NODE = msgspec.json.Decoder(NodeJson)
_RAW_NAMES = msgspec.json.Decoder(_RawNamesJson)
_NAMES = msgspec.json.Decoder(list[str] | None)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_GO_NAMES = {name.lower(): name for name in ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")}


def decode_args(body: bytes, limits: ConstraintLimits = DEFAULT_LIMITS) -> ExtenderArgs:
    """Decodes a filter or prioritize body; skips unknown fields, as Go does. Raises ``WireError`` naming the field."""
    _check_density(body)
    try:
        parsed = _ARGS.decode(body)
        # Fields in another case look like missing fields. Only then the body is decoded again with Go's names.
        if parsed.pod is None or (parsed.nodes is None and parsed.node_names is None):
            body = _with_go_names(body)
            parsed = _ARGS.decode(body)
    except UNREADABLE as error:
        raise _unreadable(error, body) from None
    # kube-scheduler sets one of both lists: NodeNames if the extender is nodeCacheCapable, else Nodes.
    pod, names = _incoming_pod(parsed.pod, limits, len(body)), parsed.node_names
    if names is None and parsed.nodes is not None:
        raw = parsed.nodes.items or []
        if len(raw) > _MOST_WHOLE_NODES:
            raise WireError("Nodes.items", f"holds more than {_MOST_WHOLE_NODES} nodes")
        return ExtenderArgs(pod, nodes=[_node(item, i) for i, item in enumerate(raw)], raw_nodes=raw)
    names = names or []
    # Two bounds: the number of names, and for a large body their bytes, each with two quotes and a comma.
    if len(names) > MOST_NODES or (
        len(body) > _MOST_NAME_BYTES and sum(len(name) + 3 for name in names) > _MOST_NAME_BYTES
    ):
        raise WireError("NodeNames", f"holds more than {MOST_NODES} names")
    return ExtenderArgs(pod, names, body=body)


def decode_names(raw: bytes) -> list[str]:
    """The names in the bytes that `ExtenderArgs.raw_names` returned. O(bytes)."""
    return _NAMES.decode(raw) or []


def _unreadable(error: Exception, body: bytes) -> WireError:
    """Converts the error.

    For bytes that are not UTF-8 msgspec reports no field, so the names are tried.
    """
    if isinstance(error, UnicodeDecodeError):
        try:
            decode(_NAMES, bytes(_RAW_NAMES.decode(body).node_names), "NodeNames")
        except WireError as found:
            return found
        except UNREADABLE:
            pass
    return from_msgspec(error)


def _check_density(body: bytes) -> None:
    """Rejects bodies with far more values than Kubernetes objects of that size have. O(bytes), creates no objects.

    Decoding a body with a value in every two bytes would take seconds, and fifty times its memory.
    """
    if len(body) > _SMALL_BODY and body.count(b",") > _FREE_VALUES + len(body) // _BYTES_OF_A_VALUE:
        raise WireError("", "has too many values for its length")


def _incoming_pod(parsed: PodJson | None, limits: ConstraintLimits, size: int) -> Pod:
    if parsed is None:
        raise WireError("Pod", "is missing")
    if size > _SMALL_POD:
        _check_requests([parsed], "Pod.spec")
    try:
        return trim_pod(parsed, limits)
    except WireError as error:
        raise WireError(f"Pod.{error.path}", error.problem) from None


def _node(raw: Raw, position: int) -> Node:
    prefix = f"Nodes.items[{position}]"
    try:
        return trim_node(_NODE.decode(raw))
    except UNREADABLE as error:
        raise from_msgspec(error, prefix) from None
    except WireError as error:
        raise WireError(f"{prefix}.{error.path}", error.problem) from None


def _with_go_names(body: bytes) -> bytes:
    """The body with its top-level fields in Go's casing: Go accepts any case, and some clients rely on that.

    Costs a microsecond per field, so a body with more fields than any client sends is not changed.
    """
    if body.count(b'":') > _MOST_RECASED_FIELDS:
        return body
    # The values stay raw bytes, so only the names of the top level change.
    fields = _FIELDS.decode(body)
    return msgspec.json.encode({_GO_NAMES.get(name.lower(), name): value for name, value in fields.items()})


def encode_filter(result: FilterResult) -> bytes:
    """The answer to a request with node names."""
    return result.encoded or orjson.dumps(
        {
            "Nodes": None,
            "NodeNames": result.passed,
            "FailedNodes": result.failed,
            "FailedAndUnresolvableNodes": result.unresolvable,
            "Error": result.error,
        }
    )


def encode_filter_nodes(result: FilterResult, args: ExtenderArgs) -> bytes:
    """The answer to a request with whole nodes: the nodes that passed, with unchanged bytes."""
    if result.encoded:
        # Only a rejection of every node is kept as bytes, so there is no node to return.
        return orjson.dumps(orjson.loads(result.encoded) | {"Nodes": {"metadata": {}, "items": []}, "NodeNames": None})
    raw = {node.name: item for node, item in zip(args.nodes or (), args.raw_nodes, strict=True)}
    return orjson.dumps(
        {
            "Nodes": {"metadata": {}, "items": [orjson.Fragment(bytes(raw[name])) for name in result.passed]},
            "NodeNames": None,
            "FailedNodes": result.failed,
            "FailedAndUnresolvableNodes": result.unresolvable,
            "Error": result.error,
        }
    )


def encode_filter_error(text: str) -> bytes:
    """A filter result with an error, which the scheduler shows in the condition of the pod."""
    return encode_filter(FilterResult((), error=text))


def encode_priorities(scores: Mapping[str, int]) -> bytes:
    """The scores by node. An empty list is valid and means that no node is preferred."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in scores.items()])


def decode_preemption_args(body: bytes, limits: ConstraintLimits = DEFAULT_LIMITS) -> PreemptionArgs:
    """Decodes a preempt body, with UIDs or with whole pods. Raises ``WireError`` naming the field."""
    _check_density(body)
    try:
        parsed = _PREEMPTION_ARGS.decode(body)
        # Fields in another case look like missing fields. Only then the body is decoded again with Go's names.
        if parsed.pod is None or not (parsed.node_name_to_victims or parsed.node_name_to_meta_victims):
            parsed = _PREEMPTION_ARGS.decode(_with_go_names(body))
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    pod = _incoming_pod(parsed.pod, limits, len(body))
    _check_counts(parsed)
    # Go writes a nil pointer as null: such a node is a candidate without victims.
    full = {name: v or _VictimsJson() for name, v in (parsed.node_name_to_victims or {}).items()}
    pods = {name: [_victim_pod(p, name, limits) for p in v.pods or ()] for name, v in full.items()}
    candidates = [
        Candidate(n, tuple([Victim(pod.uid, pod.priority, pod.start_time) for pod in pods[n]]), v.pdb_violations)
        for n, v in full.items()
    ]
    # kube-scheduler sends UIDs if the extender is nodeCacheCapable, else whole pods.
    # Whole victims take precedence over UIDs for the same node.
    for name, brief in (parsed.node_name_to_meta_victims or {}).items():
        if name not in full:
            victims = tuple([Victim(p.uid) for p in (brief.pods if brief else None) or ()])
            candidates.append(Candidate(name, victims, brief.pdb_violations if brief else 0))
    return PreemptionArgs(pod, candidates)


def _check_counts(parsed: _PreemptionArgsJson) -> None:
    """Rejects more candidates than a cluster has nodes, and more victims than a preemption can have."""
    whole, brief = parsed.node_name_to_victims or {}, parsed.node_name_to_meta_victims or {}
    for field_name, nodes in (("NodeNameToVictims", len(whole)), ("NodeNameToMetaVictims", len(brief))):
        if nodes > MOST_NODES:
            raise WireError(field_name, f"holds more than {MOST_NODES} nodes")
    if sum(len(victims.pods or ()) for victims in brief.values() if victims is not None) > _MOST_VICTIMS:
        raise WireError("NodeNameToMetaVictims", f"holds more than {_MOST_VICTIMS} pods")
    pods = [pod for victims in whole.values() if victims is not None for pod in victims.pods or ()]
    if len(pods) > _MOST_WHOLE_VICTIMS:
        raise WireError("NodeNameToVictims", f"holds more than {_MOST_WHOLE_VICTIMS} pods")
    _check_requests(pods, "NodeNameToVictims")


def _check_requests(pods: Iterable[PodJson], path: str) -> None:
    """Rejects pods with many times the containers of any usual pod. The watch has no such limit: its pods count."""
    if sum(_requests_of(pod.spec, pod.status) for pod in pods if pod.spec is not None) > _MOST_REQUESTS:
        raise WireError(path, f"holds more than {_MOST_REQUESTS} containers and resource requests")


def _requests_of(spec: PodSpecJson, status: PodStatusJson | None) -> int:
    """How many containers a pod has, and resource requests in all of them. O(bytes of requests): a colon for each."""
    total = bytes(spec.overhead).count(b":")
    if status is not None:
        # Names and quantities contain no colon, so each colon stands for one amount.
        total += sum(raw.count(b":") for raw in amounts_shown(spec, status))
    for containers in (spec.containers or (), spec.init_containers or ()):
        total += len(containers)
        # Above the limit the pod is rejected anyway, so counting stops.
        if total <= _MOST_REQUESTS:
            total += sum(_amounts_of(container.resources) for container in containers)
    return total + _amounts_of(spec.resources)


def _amounts_of(resources: ResourcesJson | None) -> int:
    return bytes(resources.requests).count(b":") if resources is not None else 0


def _victim_pod(parsed: PodJson, node: str, limits: ConstraintLimits) -> Pod:
    try:
        return trim_pod(parsed, limits)
    except WireError as error:
        raise WireError(f"NodeNameToVictims.{node}.Pods.{error.path}", error.problem) from None


def encode_preemption(candidates: Sequence[Candidate]) -> bytes:
    """The remaining candidates with the UIDs of their victims, the only form that the scheduler accepts."""
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                candidate.node: {
                    "Pods": [{"UID": victim.uid} for victim in candidate.victims],
                    "NumPDBViolations": candidate.pdb_violations,
                }
                for candidate in candidates
            }
        }
    )


def decode_binding_args(body: bytes) -> BindingArgs:
    """Decodes a bind body. Raises ``WireError`` naming the field."""
    try:
        parsed = _BINDING_ARGS.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return BindingArgs(parsed.pod_namespace, parsed.pod_name, parsed.pod_uid, parsed.node)


def encode_binding(error: str) -> bytes:
    """The answer to a bind request. An empty error means that the pod was bound."""
    return orjson.dumps({"Error": error})
