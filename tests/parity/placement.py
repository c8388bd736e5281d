"""One placement case: builds an index from its objects, asks both rules, and names what differs from the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.taints import first_untolerated
from extender.model.objects import Node, Pod
from extender.model.rejections import Code
from extender.rules.catalog import counts_of_rules
from extender.rules.frames import Frame, IndexFrame, RequestFrame
from extender.rules.interpod_affinity import InterPodAffinity
from extender.rules.rule import PreparedFilter, PreparedScore
from extender.rules.topology_spread import TopologySpread
from extender.settings.configuration import Settings, parse_settings
from extender.wire.extender_v1 import ExtenderArgs
from extender.wire.objects.kinds import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
)
from tests.builders import read_pod
from tests.deciding import filter_nodes

Case = dict[str, Any]

KINDS: dict[str, Kind[Any]] = {
    "nodes": NODES,
    "namespaces": NAMESPACES,
    "pods": PODS,
    "services": SERVICES,
    "replicaSets": REPLICA_SETS,
    "statefulSets": STATEFUL_SETS,
    "replicationControllers": REPLICATION_CONTROLLERS,
}
_PARSE_ERRORS = ("parsing pod:", "failed to parse pod:", "get constraints from pod:", "calculating preScoreState:")


def settings_of(case: Case) -> Settings:
    """The case's plugin arguments as our settings, with whole answers instead of a shortlist."""
    config = case["config"]
    affinity = {k: config[k] for k in ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods")}
    return parse_settings(
        {
            "apiVersion": "placement.extender.dev/v1alpha1",
            "kind": "ExtenderConfiguration",
            "rules": {"interPodAffinity": affinity, "topologySpread": config["topologySpread"]},
            "placement": "cooperative",
            "answers": {"shortlist": 0},
        }
    )


def index_of(case: Case, settings: Settings) -> ClusterIndex:
    """An index holding every object of the case."""
    index = ClusterIndex(settings.rules, counts_of_rules())
    for field, kind in KINDS.items():
        for item in case.get(field) or ():
            index.upsert(kind.decode_object(orjson.dumps(item)))
    return index


def differences(case: Case) -> list[str]:
    """One line for each part of the answer that is not the scheduler's; empty when all are."""
    settings = settings_of(case)
    index = index_of(case, settings)
    pod = read_pod(case["pod"])
    expected = case.get("expectedIfFixed") or case["expected"]
    names = [node["metadata"]["name"] for node in case["nodes"]]
    nodes = [NODES.decode_object(orjson.dumps(node)) for node in case["nodes"]]
    numbers = [index.view.known[name] for name in names]
    question = index.view.compiled(pod.signature)
    by_name = _Answers(case, index, settings, pod, question, IndexFrame(), names, numbers)
    by_node = _Answers(case, index, settings, pod, question, RequestFrame(nodes), names, range(len(nodes)))
    return [
        *by_name.compare(expected),
        *(f"full nodes: {line}" for line in by_node.compare(expected)),
        *_inclusion(pod, nodes, expected),
        *_verb(case, index, settings, pod, names, expected),
    ]


class _Answers:
    """What both rules say in one frame."""

    def __init__(
        self,
        case: Case,
        index: ClusterIndex,
        settings: Settings,
        pod: Pod,
        question: CompiledConstraints,
        frame: Frame,
        names: list[str],
        positions: Sequence[int],
    ) -> None:
        self.names = dict(zip(names, positions, strict=True))
        self.filters: dict[str, PreparedFilter] = {
            "interPodAffinity": InterPodAffinity().prepare_filter(pod, question, index.view, frame),
            "podTopologySpread": TopologySpread().prepare_filter(pod, question, index.view, frame),
        }
        passing: Sequence[int] = [self.names[name] for name in _admitted(case)]
        for each in self.filters.values():
            passing = each.passing(passing)
        self.feasible = sorted(name for name, position in self.names.items() if position in passing)
        self.scored: list[str] = case.get("scoreNodes", self.feasible)
        nodes = [self.names[name] for name in self.scored]
        self.scores: dict[str, PreparedScore] = {
            "interPodAffinity": InterPodAffinity().prepare_score(question, index.view, frame, nodes, settings.rules),
            "podTopologySpread": TopologySpread().prepare_score(question, index.view, frame, nodes, settings.rules),
        }

    def compare(self, expected: Case) -> list[str]:
        """What differs from the expected answer."""
        lines = []
        if self.feasible != expected["feasible"]:
            lines.append(f"feasible: {self.feasible}, expected {expected['feasible']}")
        for plugin in self.filters:
            lines += self._compare_filter(plugin, expected[plugin])
            lines += self._compare_score(plugin, expected[plugin])
        return lines

    def _compare_filter(self, plugin: str, expected: Case) -> list[str]:
        prepared = self.filters[plugin]
        lines = _compare(f"{plugin}.preFilter", (prepared.status.code, prepared.status.reason), expected["preFilter"])
        passing = set(prepared.passing(list(self.names.values())))
        reported = {node: reason for reason, nodes in prepared.rejected(list(self.names.values())) for node in nodes}
        for name, position in self.names.items():
            if prepared.status.code in (Code.ERROR, Code.UNRESOLVABLE):
                got: tuple[str, str] = (prepared.status.code, prepared.status.reason)
            else:
                reason = prepared.reason(position)
                if reported.get(position) is not reason:
                    lines.append(f"{plugin}.filter[{name}]: rejected() and reason() disagree")
                got = (reason.code, reason.text) if reason else (Code.SUCCESS, "")
            if (position in passing) != (got[0] == Code.SUCCESS):
                lines.append(f"{plugin}.filter[{name}]: passing() and reason() disagree")
            lines += _compare(f"{plugin}.filter[{name}]", got, expected["filter"][name])
        return lines

    def _compare_score(self, plugin: str, expected: Case) -> list[str]:
        prepared = self.scores[plugin]
        if not self.scored:
            return [] if expected["preScore"]["code"] == "NotRun" else [f"{plugin}.preScore: no node to score"]
        lines = _compare(f"{plugin}.preScore", (prepared.status.code, prepared.status.reason), expected["preScore"])
        if prepared.status.code is Code.ERROR:
            return lines
        for field, values in (("rawScore", prepared.raw()), ("score", prepared.normalized())):
            got = dict(zip(self.scored, values, strict=True)) if prepared.status.code is Code.SUCCESS else {}
            want = {name: value for name, value in expected[field].items() if got or value}
            if got != want:
                lines.append(f"{plugin}.{field}: {got}, expected {want}")
        return lines


def _compare(what: str, got: tuple[str, str], expected: Case) -> list[str]:
    want = (expected["code"], expected["reason"])
    if want[1].startswith(_PARSE_ERRORS):  # the wording of a parse error is Go's; what counts is where it came from
        got, want = (got[0], got[1].split(": ")[1]), (want[0], want[1].split(": ")[1])
    return [] if got == want else [f"{what}: {got}, expected {want}"]


def _admitted(case: Case) -> list[str]:
    """The nodes that the scheduler's other plugins leave, where the case names them."""
    inclusion = case["expected"]["nodeInclusion"]
    also = case["config"].get("alsoFilter") or ()
    return [
        name
        for name, passes in inclusion.items()
        if ("NodeAffinity" not in also or passes["nodeAffinity"])
        and ("TaintToleration" not in also or passes["taints"])
    ]


def _inclusion(pod: Pod, nodes: list[Node], expected: Case) -> list[str]:
    affinity: NodeAffinity = pod.signature.node_affinity
    lines = []
    for node in nodes:
        got = {
            "nodeAffinity": affinity.matches(node.name, node.labels),
            "taints": first_untolerated(node.taints, pod.signature.tolerations) is None,
        }
        if got != expected["nodeInclusion"][node.name]:
            lines.append(f"nodeInclusion[{node.name}]: {got}, expected {expected['nodeInclusion'][node.name]}")
    return lines


def _verb(case: Case, index: ClusterIndex, settings: Settings, pod: Pod, names: list[str], expected: Case) -> list[str]:
    """The filter verb itself, asked with the nodes that the other plugins leave, by name and in full."""
    admitted = _admitted(case)
    requested = [name for name in names if name in admitted]
    whole = {node["metadata"]["name"]: node for node in case["nodes"]}
    raw = [msgspec.Raw(orjson.dumps(whole[name])) for name in requested]
    nodes = [NODES.decode_object(bytes(item)) for item in raw]
    lines = []
    for args in (ExtenderArgs(pod, requested), ExtenderArgs(pod, nodes=nodes, raw_nodes=raw)):
        result = filter_nodes(args, index.view, settings, seed=7)
        if sorted(result.passed) != expected["feasible"]:
            lines.append(f"filter verb: {sorted(result.passed)}, expected {expected['feasible']}")
        if requested and not result.passed and not result.error and set(result.unresolvable) != set(requested):
            lines.append(f"filter verb: refusals for {sorted(result.unresolvable)}, asked {requested}")
    return lines
