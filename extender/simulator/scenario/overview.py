"""A summary of a simulated cluster for display: pods with their nodes, the skew of each workload, rejections, policies.

Called by the demo.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from extender.model.policies import GROUP, INJECTED_ANNOTATION, Moment
from extender.model.release import RELEASED_ANNOTATION
from extender.simulator.apiserver.kinds import NAMESPACES, NODES
from extender.simulator.json_objects import JsonObject, is_finished, is_terminating, labels_of, name_of, namespace_of
from extender.simulator.oracle.policies import PolicyOracle
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.simulator.scenario.synthetic import chosen
from extender.verbs.admit.injected import InjectionRecord, PolicyRecord, read_records

MOMENTS: Final = (Moment.ADMISSION, Moment.SCHEDULING, Moment.RELEASE)
_HELD: Final = "missed by admission, held by filter"


class Act(NamedTuple):
    """What a policy did to one pod. ``policy`` is `namespace/name`, or the name of a cluster-wide policy."""

    policy: str
    moment: Moment
    fields: tuple[str, ...]
    text: str


class PolicyTimeline(NamedTuple):
    """A policy: the fields that it has injected, and at each moment the number of pods that it acted on."""

    policy: str
    fields: tuple[str, ...]
    pods: dict[Moment, int]

    def __str__(self) -> str:
        """The line of a report."""
        admitted, held, released = (self.pods[moment] for moment in MOMENTS)
        into = f"injected {', '.join(self.fields) or 'nothing'} into {admitted} pods at admission"
        acts = [f"{into}, held {held} that admission missed"] if admitted or held else []
        acts += [f"released {released} pods from their gate"] if released else []
        return f"policy {self.policy}: {', '.join(acts)}"


class PolicyMoments:
    """What policies did. Create a new one for each look: it holds the present labels of the namespaces."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        policies = simulated.loop.journal.policies
        self._missed = simulated.api.admission.missed_pods
        self._oracle = PolicyOracle(policies, self._missed)
        stored = simulated.api.store.table(NAMESPACES).latest() if policies else ()
        self._namespaces: Mapping[str, Mapping[str, str]] = {
            namespace.key: labels_of(namespace.read()) for namespace in stored
        }

    def acts(self, pod: JsonObject) -> list[Act]:
        """What policies did to this pod. O(its annotation); O(policies) for a pod that admission missed."""
        record = read_records((pod["metadata"].get("annotations") or {}).get(INJECTED_ANNOTATION)).get("")
        acts = (
            [_injected(policy) for policy in record.policies if not _only_gates(policy)] if record is not None else []
        )
        if record is not None:
            acts += _released(record, pod)
        if f"{namespace_of(pod)}/{name_of(pod)}" in self._missed:
            judging = self._oracle.judging(pod, self._namespaces)
            acts += [Act(_title(policy), Moment.SCHEDULING, (), f"{_title(policy)}: {_HELD}") for policy in judging]
        return acts

    def rows(self, pods: Iterable[JsonObject]) -> list[PolicyTimeline]:
        """The policies that acted on any of the pods, by name."""
        rows: dict[str, PolicyTimeline] = {}
        for act in (act for pod in pods for act in self.acts(pod)):
            row = rows.get(act.policy) or PolicyTimeline(act.policy, (), dict.fromkeys(MOMENTS, 0))
            row.pods[act.moment] += 1
            rows[act.policy] = row._replace(fields=tuple(dict.fromkeys((*row.fields, *act.fields))))
        return [rows[policy] for policy in sorted(rows)]


def _title(policy: JsonObject) -> str:
    namespace = namespace_of(policy)
    return f"{namespace}/{name_of(policy)}" if namespace else name_of(policy)


def _gates(record: PolicyRecord) -> bool:
    """Whether the policy lets the pod wait at a gate of the extender's."""
    return any(str(gate.get("name")).startswith(f"{GROUP}/") for gate in record.lists.get("schedulingGates", ()))


def _only_gates(record: PolicyRecord) -> bool:
    """Whether it does nothing else: then it acts at the release, and not at admission."""
    return _gates(record) and not record.fields and not record.node_selector and len(record.lists) == 1


def _released(record: InjectionRecord, pod: JsonObject) -> list[Act]:
    """The release of a pod, by the policy that gave it its gate."""
    group, _, _ = (pod["metadata"].get("annotations") or {}).get(RELEASED_ANNOTATION, "").rpartition("@")
    policies = [policy.policy.partition("/")[2] for policy in record.policies if _gates(policy)]
    return [
        Act(policy, Moment.RELEASE, (), f"{policy}: released with group {group}") for policy in policies[:1] if group
    ]


def _injected(record: PolicyRecord) -> Act:
    """From the annotation; a list is named by the field of the pod's spec that it is, such as `podAffinity`."""
    values = dict(record.fields)
    if record.node_selector:
        values["nodeSelector"] = ",".join(f"{key}={value}" for key, value in record.node_selector.items())
    values |= dict.fromkeys((path.removeprefix("affinity.").split(".")[0] for path in record.lists), "")
    values |= {"topologySpreadConstraints": ""} if record.spread else {}
    policy = record.policy.partition("/")[2]
    text = ", ".join(f"{name} {value}".strip() for name, value in values.items())
    # Required node terms are recorded for all policies together.
    return Act(
        policy, Moment.ADMISSION, tuple(values) or ("nodeAffinity",), f"{policy}: injected {text or 'nodeAffinity'}"
    )


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


class ScenarioSummary(NamedTuple):
    """The summary: pods, workloads, rejections by reason, most frequent first, and policies that acted on pods."""

    pods: list[PodRow]
    spreads: list[SpreadRow]
    reasons: list[tuple[str, int]]
    policies: list[PolicyTimeline]


def look(simulated: SimulatedCluster) -> ScenarioSummary:
    """Summarizes the cluster as it is now. O(pods)."""
    zones = _zones(simulated)
    pods = [pod for pod in (stored.read() for stored in simulated.pods()) if not is_finished(pod)]
    moments = PolicyMoments(simulated)
    rows = [_row(simulated, pod, zones, moments) for pod in pods]
    return ScenarioSummary(
        rows, _spreads(rows, zones.values()), simulated.loop.reasons.most_common(), moments.rows(pods)
    )


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
        policies="; ".join(act.text for act in moments.acts(pod)),
    )


def _spreads(rows: list[PodRow], zones: Iterable[str]) -> list[SpreadRow]:
    known = sorted(set(zones))
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row.app and row.zone:
            counts.setdefault(row.app, Counter())[row.zone] += 1
    return [SpreadRow(app, {zone: counts[app][zone] for zone in known}) for app in sorted(counts)]


def largest_skew(simulated: SimulatedCluster, namespaces: str) -> int:
    """The largest skew of any workload of one of these namespaces; pods that are being deleted do not count. O(pods)."""
    pods = [stored.read() for stored in simulated.pods()]
    zones, moments = _zones(simulated), PolicyMoments(simulated)
    skews = [0]
    for namespace in chosen(namespaces, sorted({namespace_of(pod) for pod in pods})):
        kept = [
            pod for pod in pods if namespace_of(pod) == namespace and not is_terminating(pod) and not is_finished(pod)
        ]
        rows = [_row(simulated, pod, zones, moments) for pod in kept]
        skews += [spread.skew for spread in _spreads(rows, zones.values())]
    return max(skews)
