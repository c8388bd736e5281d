"""Measures what scheduling policies add to the answers for pods, next to answers without any. Called by `in_process.py`."""

from collections.abc import Sequence
from typing import Any, Final

import orjson
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.policies import CLUSTER_KIND, GROUP, VERSION, PolicyObject
from extender.simulator.bench.measurement.in_process_player import Player
from extender.simulator.bench.measurement.subject import Subject
from extender.simulator.bench.reporting.figures import Figures
from extender.simulator.bench.workload.scenario import Point
from extender.wire.policies.policies_v1 import decode_policy

_POLICIES: Final = 200
_ROUNDS: Final = 3
_ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def measure_policies(subject: Subject, player: Player, point: Point) -> Figures:
    """The processor time of answers with policies, as a multiple of the time without any, medians of the best round.

    `policies.unmatched`: 200 policies that select no pod; `policies.selected`: one of them selects every pod, and
    requires what every node has, so that the answers are the same. The kinds take turns. No policy is left at the end.
    """
    decisions = subject.decisions(replace(point.settings, policies=replace(point.settings.policies, enabled=True)))
    others = [_policy(f"other-{number}", {"app": f"other-{number}"}) for number in range(_POLICIES)]
    kinds = {"none": [], "unmatched": others, "selected": [*others[1:], _policy("every", {})]}
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(_ROUNDS):
        for name, policies in kinds.items():
            _put(subject.index, policies)
            best[name] = min(best[name], player.play(decisions, point)["cpu.p50"])
    _put(subject.index, [])
    return {f"policies.{name}": best[name] / best["none"] for name in ("unmatched", "selected")}


def _put(index: ClusterIndex, policies: Sequence[PolicyObject]) -> None:
    """Makes the index hold exactly these policies."""
    for old in list(index.policies):
        index.delete(PolicyObject(old))
    for each in policies:
        index.upsert(each)


def _policy(name: str, labels: dict[str, str]) -> PolicyObject:
    terms = [{"matchExpressions": [{"key": _ZONE, "operator": "Exists"}]}]
    body: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": CLUSTER_KIND,
        "metadata": {"name": name, "generation": 1},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "namespaceSelector": {},
            "affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}},
        },
    }
    return PolicyObject(decode_policy(orjson.dumps(body)))
