"""The scheduler's requests and the extender's answers, in Go's field casing (those types carry no JSON tags).

Contract: https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1 . An absent list arrives as ``null``. A filter answer
with neither ``NodeNames`` nor ``Nodes`` would mean that no node passed, so the side that was asked is always present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import orjson
from msgspec import Raw

from extender.model.objects import Node, Pod
from extender.model.rejections import Reason
from extender.model.victims import Candidate, Victim
from extender.settings import Limits
from extender.wire.constraints import decode
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.limits import USUAL_LIMITS
from extender.wire.objects_json import Count, NodeJson, PodJson
from extender.wire.trim import trim_node, trim_pod


class ExtenderArgs(msgspec.Struct, frozen=True, gc=False):
    """A filter or prioritize question: the asking pod, and the nodes either by name or as objects.

    ``raw_nodes`` are the objects as they came, in the order of ``nodes``: those that pass are sent back unchanged.
    ``body`` is the request that the names were read from, empty where the names are not those of a request.
    """

    pod: Pod
    node_names: list[str] | None = None
    nodes: list[Node] | None = None
    raw_nodes: Sequence[Raw] = ()
    body: bytes = b""

    def raw_names(self) -> bytes:
        """The bytes of the names as they came, empty where they did not: equal bytes are the same question. O(body)."""
        return bytes(_RAW_NAMES.decode(self.body).node_names) if self.body else b""


class FilterResult(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Names that passed, in the order in which they should be tried, and texts for those that did not.

    ``unresolvable`` are rejections that removing pods cannot cure; both maps are empty unless no node passed.
    ``reasons`` are those of all rejected nodes. ``encoded`` is the answer as it was given before, where it is given
    again; then the maps are empty and the reasons are not.
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

    @property
    def _answer(self) -> tuple[object, ...]:
        """What the scheduler gets."""
        return self.passed, self.failed, self.unresolvable, self.error, self.encoded


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """A bind question: which pod goes to which node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """A preempt question: the preemptor and the candidate nodes with their victims, most important first.

    ``victim_pods`` holds the victims as objects where the scheduler sent them in full, by UID.
    """

    pod: Pod
    candidates: list[Candidate]
    victim_pods: Mapping[str, Pod] = field(default_factory=dict)


class _NodeListJson(msgspec.Struct):
    items: list[Raw] | None = None


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


MOST_NODES: Final = 20_000  # four times what Kubernetes is tested with
_MOST_NAME_BYTES: Final = 256 * MOST_NODES  # with the quotes and the comma of each
_MOST_VICTIMS: Final = 50_000
_MOST_LOOSE_FIELDS: Final = 20_000  # at every depth, which is what can be counted without reading
_FREE_VALUES: Final = 100_000  # of any length: names are short
_BYTES_OF_A_VALUE: Final = 24  # a node has one comma in about 40 bytes
_SMALL_BODY: Final = 2 * _FREE_VALUES  # bytes, too few for more values than are free of any length
_ARGS = msgspec.json.Decoder(_ArgsJson)
_BINDING_ARGS = msgspec.json.Decoder(_BindingArgsJson)
_PREEMPTION_ARGS = msgspec.json.Decoder(_PreemptionArgsJson)
_NODE = msgspec.json.Decoder(NodeJson)
_RAW_NAMES = msgspec.json.Decoder(_RawNamesJson)
_NAMES = msgspec.json.Decoder(list[str] | None)
_LOOSE = msgspec.json.Decoder(dict[str, Raw])
_GO_NAMES = {name.lower(): name for name in ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")}


def decode_args(body: bytes, limits: Limits = USUAL_LIMITS) -> ExtenderArgs:
    """A filter or prioritize body. Unknown fields are skipped, as Go does; raises ``WireError`` naming the field."""
    _check_density(body)
    try:
        parsed = _ARGS.decode(body)
        if parsed.pod is None or (parsed.nodes is None and parsed.node_names is None):
            body = _with_go_names(body)
            parsed = _ARGS.decode(body)
    except UNREADABLE as error:
        raise _unreadable(error, body) from None
    pod, names = _asking_pod(parsed.pod, limits), parsed.node_names
    if names is None and parsed.nodes is not None:
        raw = parsed.nodes.items or []
        if len(raw) > MOST_NODES:
            raise WireError("Nodes.items", f"holds more than {MOST_NODES} nodes")
        return ExtenderArgs(pod, nodes=[_node(item, i) for i, item in enumerate(raw)], raw_nodes=raw)
    names = names or []
    if len(names) > MOST_NODES or (
        len(body) > _MOST_NAME_BYTES and sum(len(name) + 3 for name in names) > _MOST_NAME_BYTES
    ):
        raise WireError("NodeNames", f"holds more than {MOST_NODES} names")
    return ExtenderArgs(pod, names, body=body)


def _unreadable(error: Exception, body: bytes) -> WireError:
    """The error with its field, also where names are not UTF-8: of that the decoder does not say where it is."""
    if isinstance(error, UnicodeDecodeError):
        try:
            decode(_NAMES, bytes(_RAW_NAMES.decode(body).node_names), "NodeNames")
        except WireError as found:
            return found
        except UNREADABLE:
            pass
    return from_msgspec(error)


def _check_density(body: bytes) -> None:
    """Refuse bodies with far more values than a Kubernetes object has in as many bytes. O(bytes), without an object.

    A decoder that makes an object of every two bytes holds everything up for seconds, and takes fifty times the memory.
    """
    if len(body) > _SMALL_BODY and body.count(b",") > _FREE_VALUES + len(body) // _BYTES_OF_A_VALUE:
        raise WireError("", "holds too many values for its length")


def _asking_pod(parsed: PodJson | None, limits: Limits) -> Pod:
    if parsed is None:
        raise WireError("Pod", "is missing")
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
    """The body with its top-level fields in Go's casing: Go reads them in any case, and other callers use that.

    Takes a microsecond for each field, so a body that holds more of them than any caller sends stays as it is.
    """
    if body.count(b'":') > _MOST_LOOSE_FIELDS:
        return body
    fields = _LOOSE.decode(body)
    return msgspec.json.encode({_GO_NAMES.get(name.lower(), name): value for name, value in fields.items()})


def encode_filter(result: FilterResult) -> bytes:
    """The answer to a question by names."""
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
    """The answer to a question with full nodes: those that passed, byte for byte as they came."""
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
    """Scores by node; the empty list is a legal answer and means that no node is preferred."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in scores.items()])


def decode_preemption_args(body: bytes, limits: Limits = USUAL_LIMITS) -> PreemptionArgs:
    """A preempt body, names-only or full; raises ``WireError`` naming the field."""
    _check_density(body)
    try:
        parsed = _PREEMPTION_ARGS.decode(body)
        if parsed.pod is None or not (parsed.node_name_to_victims or parsed.node_name_to_meta_victims):
            parsed = _PREEMPTION_ARGS.decode(_with_go_names(body))
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    pod = _asking_pod(parsed.pod, limits)
    _check_counts(parsed)
    full = {name: v or _VictimsJson() for name, v in (parsed.node_name_to_victims or {}).items()}
    pods = {name: [_victim_pod(p, name, limits) for p in v.pods or ()] for name, v in full.items()}
    candidates = [Candidate(n, tuple(map(_victim, pods[n])), v.pdb_violations) for n, v in full.items()]
    for name, brief in (parsed.node_name_to_meta_victims or {}).items():
        if name not in full:
            victims = tuple(Victim(p.uid) for p in (brief.pods if brief else None) or ())
            candidates.append(Candidate(name, victims, brief.pdb_violations if brief else 0))
    return PreemptionArgs(pod, candidates, {pod.uid: pod for each in pods.values() for pod in each})


def _check_counts(parsed: _PreemptionArgsJson) -> None:
    """Refuse more candidates than there are nodes in any cluster, and more victims than a preemption could have."""
    for field_name, found in (
        ("NodeNameToVictims", parsed.node_name_to_victims or {}),
        ("NodeNameToMetaVictims", parsed.node_name_to_meta_victims or {}),
    ):
        if len(found) > MOST_NODES:
            raise WireError(field_name, f"holds more than {MOST_NODES} nodes")
        if sum(len(each.pods or ()) for each in found.values() if each is not None) > _MOST_VICTIMS:
            raise WireError(field_name, f"holds more than {_MOST_VICTIMS} pods")


def _victim_pod(parsed: PodJson, node: str, limits: Limits) -> Pod:
    try:
        return trim_pod(parsed, limits)
    except WireError as error:
        raise WireError(f"NodeNameToVictims.{node}.Pods.{error.path}", error.problem) from None


def _victim(pod: Pod) -> Victim:
    return Victim(pod.uid, pod.priority, pod.start_time)


def encode_preemption(candidates: Sequence[Candidate]) -> bytes:
    """The candidates that remain, always as UIDs: the scheduler takes no other form back."""
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
    """A bind body; raises ``WireError`` naming the field."""
    try:
        parsed = _BINDING_ARGS.decode(body)
    except UNREADABLE as error:
        raise from_msgspec(error) from None
    return BindingArgs(parsed.pod_namespace, parsed.pod_name, parsed.pod_uid, parsed.node)


def encode_binding(error: str) -> bytes:
    """The answer to a bind question: empty where the pod was bound."""
    return orjson.dumps({"Error": error})
