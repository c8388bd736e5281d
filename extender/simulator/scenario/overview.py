"""A summary of a simulated cluster for display: pods with their nodes, the skew of each workload, rejections, policies.

Called by the demo.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from extender.simulator.apiserver.kinds import NODES
from extender.simulator.json_objects import JsonObject, is_finished, is_terminating, labels_of
from extender.simulator.scenario.policy_moments import PolicyMoments, PolicyRow
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

ZONE = "topology.kubernetes.io/zone"
TERMINATING = "terminating"  # the message of a pod that is being deleted


class PodRow(NamedTuple):
    """A pod: "namespace/name", workload, node and zone (empty while pending), and the scheduler's message.

    ``policies``: what scheduling policies did to it.
    """

    name: str
    app: str
    node: str
    zone: str
    message: str
    policies: str = ""


class SpreadRow(NamedTuple):
    """The pods of a workload in each zone, ordered by the zone's name."""

    app: str
    counts: dict[str, int]

    @property
    def skew(self) -> int:
        """The difference between the largest and the smallest count."""
        return max(self.counts.values(), default=0) - min(self.counts.values(), default=0)


class Overview(NamedTuple):
    """The summary: pods, workloads, rejections by reason, most frequent first, and policies that acted on pods."""

    pods: list[PodRow]
    spreads: list[SpreadRow]
    reasons: list[tuple[str, int]]
    policies: list[PolicyRow]


def look(simulated: SimulatedCluster) -> Overview:
    """Summarizes the cluster as it is now. O(pods)."""
    zones = _zones(simulated)
    pods = [pod for pod in (stored.read() for stored in simulated.pods()) if not is_finished(pod)]
    moments = PolicyMoments(simulated)
    rows = [_row(simulated, pod, zones, moments) for pod in pods]
    return Overview(rows, _spreads(rows, zones.values()), simulated.loop.reasons.most_common(), moments.rows(pods))


def _zones(simulated: SimulatedCluster) -> dict[str, str]:
    nodes = (stored.read() for stored in simulated.api.store.table(NODES).latest())
    return {node["metadata"]["name"]: labels_of(node).get(ZONE, "") for node in nodes}


def _row(simulated: SimulatedCluster, pod: JsonObject, zones: dict[str, str], moments: PolicyMoments) -> PodRow:
    metadata = pod["metadata"]
    node = pod["spec"].get("nodeName") or ""
    message = "" if node else simulated.message(pod)
    return PodRow(
        name=f"{metadata['namespace']}/{metadata['name']}",
        app=labels_of(pod).get("app", ""),
        node=node,
        zone=zones.get(node, ""),
        message=TERMINATING if is_terminating(pod) else message,
        policies="; ".join(each.text for each in moments.acts(pod)),
    )


def _spreads(rows: list[PodRow], zones: Iterable[str]) -> list[SpreadRow]:
    known = sorted(set(zones))
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row.app and row.zone:
            counts.setdefault(row.app, Counter())[row.zone] += 1
    return [SpreadRow(app, {zone: counts[app][zone] for zone in known}) for app in sorted(counts)]
