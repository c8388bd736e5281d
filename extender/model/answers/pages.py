"""Pages of what the cluster holds, in the form in which the API encodes them, and the questions for them.

Every page is bounded. ``more`` says how many rows are left out after the last one. ``next`` is the value of ``after``
for the next page; it is empty on the last page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from extender.model.answers.explanations import ConstraintState, Value
from extender.model.answers.shadow import ShadowPage
from extender.model.constraints.selectors import LabelSelector

MOST_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class PageOf:
    """Which rows are wanted: of one namespace (empty: of all), after a position, at most ``limit``."""

    namespace: str = ""
    after: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class PendingQuestion(PageOf):
    """Which pods without a node: of one ``reason`` (empty: of all), and ``is_grouped``: one row for pods that are alike."""

    reason: str = ""
    is_grouped: bool = False


@dataclass(frozen=True, slots=True)
class TopologyQuestion:
    """The domains of a key; with ``domain`` the nodes of that domain.

    ``selector``: which pods of the namespace count.
    """

    key: str
    page: PageOf
    selector: LabelSelector | None = None
    domain: str | None = None


class DomainRow(Value, frozen=True):
    """The nodes of a domain together. CPU is in milli-CPU, memory in bytes; free is what no pod on the nodes requests.

    - ``unschedulable``: how many of its nodes are cordoned
    - ``pods``: the pods on the nodes, assumed pods included
    - ``matching``: how many of these pods the selector of the question matches
    """

    domain: str
    nodes: int
    unschedulable: int
    pods: int
    matching: int
    allocatable_milli_cpu: int
    free_milli_cpu: int
    allocatable_memory: int
    free_memory: int


class NodeRow(Value, frozen=True):
    """One node of a domain, in the units of `DomainRow`. ``pod_names`` are the first few of the ``matching`` pods."""

    node: str
    unschedulable: bool
    pods: int
    matching: int
    allocatable_milli_cpu: int
    free_milli_cpu: int
    allocatable_memory: int
    free_memory: int
    pod_names: tuple[str, ...] = ()


class TopologyPage(Value, frozen=True):
    """The domains of a topology key in the order of their names, or the ``nodes`` of ``domain``.

    - ``lacking``: how many nodes do not have the key
    - ``matching``: the pods that the selector of the question matches, also on nodes without the key
    """

    key: str
    lacking: int
    matching: int
    domain: str | None = None
    domains: tuple[DomainRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    more: int = 0
    next: str = ""


class WorkloadRow(Value, frozen=True):
    """Pods of one namespace with equal labels. Labels that tell revisions or single pods apart are ignored.

    - ``selector``: selects these pods, in kubectl's notation; it may select pods with more labels too
    - ``pending``: how many of the ``pods`` have no node
    - ``constraints``: how many constraints of each kind such a pod has itself, at most
    - ``example_pod``: a pending pod if there is one; empty where no pod remains
    """

    namespace: str
    labels: Mapping[str, str]
    selector: str
    pods: int
    pending: int
    constraints: Mapping[str, int] = {}
    example_pod: str = ""


class WorkloadPage(Value, frozen=True):
    """The workloads that a form can offer, by namespace and labels."""

    workloads: tuple[WorkloadRow, ...]
    more: int = 0
    next: str = ""


class ConstraintsPage(Value, frozen=True):
    """What the hard constraints of a pod count for a further pod like it.

    - ``node``: empty while the pod has none
    - ``policies``: the policies that constrain such a pod
    - ``is_changed``: the cluster changed while this was computed, so parts may not agree
    """

    pod: str
    node: str
    constraints: tuple[ConstraintState, ...]
    policies: tuple[str, ...] = ()
    is_changed: bool = False


class PendingRow(Value, frozen=True):
    """A pod without a node.

    - ``state``: pending, gated, assumed, preempting (pods are deleted for it), or terminating
    - ``since``: its creation time, as the API server writes it
    - ``rejection``: the last message of kube-scheduler
    - ``reasons``: the reasons in our last answer, as labels; ``error``: the error in it
    - ``answered``: the time of our last answer (RFC 3339); empty where no answer is kept
    - ``scheduler``: the schedulerName of the pod
    - ``unasked``: other schedulers send requests, and no scheduler of this name does
    - ``reason``: the state, and for a pending pod the reason for most nodes in the last message of kube-scheduler
    - ``alike``: how many pods of its workload have this reason, where they have one row; this pod is the oldest
    """

    namespace: str
    pod: str
    uid: str
    state: str
    since: str
    priority: int
    rejection: str = ""
    reasons: tuple[str, ...] = ()
    error: str = ""
    nominated_node: str = ""
    scheduler: str = ""
    answered: str = ""
    unasked: str = ""
    reason: str = ""
    alike: int = 1


class PendingPage(Value, frozen=True):
    """The pods without a node; the pod that has waited longest is first. ``reasons``: how many pods there are of each reason."""

    pods: tuple[PendingRow, ...]
    reasons: Mapping[str, int] = {}
    more: int = 0
    next: str = ""


class VictimRow(Value, frozen=True):
    """A pod that is deleted in a preemption. ``state``: running, terminating or gone."""

    pod: str
    state: str


class PreemptionRow(Value, frozen=True):
    """A preemptor that is not bound yet, the node that it gets, and the pods that are deleted for it.

    - ``state``: executing, victims terminating, or preemptor unbound
    - ``since``: when the plan was accepted (RFC 3339)
    - ``more_victims``: how many victims the list leaves out
    """

    pod: str
    node: str
    state: str
    since: str
    priority: int
    victims: tuple[VictimRow, ...]
    more_victims: int = 0
    pdb_violations: int = 0


class PreemptionPage(Value, frozen=True):
    """Preemptions in flight; the one that has lasted longest is first. Only the leader has any."""

    preemptions: tuple[PreemptionRow, ...]
    more: int = 0
    next: str = ""


class GroupRow(Value, frozen=True):
    """A group of gated pods that are released together.

    - ``key``: the value that its pods share
    - ``needed``: how many pods the group is to have; 0 where its pods do not say
    - ``gated``: how many of its ``pods`` wait at our gate
    - ``released``: how many of its ``pods`` no longer have our gate; ``bound`` of the released pods have a node
    - ``domain``: where the group goes; empty while nothing is decided
    - ``reason``, ``text``: why the group waits
    - ``since``: when its oldest pod was created (RFC 3339); empty where that is unknown
    """

    policy: str
    namespace: str
    key: str
    state: str
    pods: int
    needed: int
    gated: int
    released: int
    bound: int
    domain: str = ""
    reason: str = ""
    text: str = ""
    since: str = ""


class GroupPage(Value, frozen=True):
    """Groups with a pod that has no node yet, by namespace, policy and value."""

    groups: tuple[GroupRow, ...]
    more: int = 0
    next: str = ""


class AmountRow(Value, frozen=True):
    """How much of a resource is ``used``, and how much may be: ``quota``, empty where nothing limits it."""

    resource: str
    used: str
    quota: str = ""


class PolicyDomainRow(Value, frozen=True):
    """A domain of a policy that releases groups, and how much its pods have there."""

    name: str
    amounts: tuple[AmountRow, ...]
    may_grow: bool = False


class PolicyRow(Value, frozen=True):
    """A scheduling policy, when it acts, what it directs, and how many pods it selects now.

    - ``problem``: why an invalid policy is not applied; it selects nothing
    - ``examples``: some of the ``matched`` pods
    - ``domains``: in the order of the policy; ``more_domains`` further ones are left out
    """

    kind: str
    namespace: str
    name: str
    valid: bool
    matched: int
    mode: str = ""
    moments: tuple[str, ...] = ()
    priority: int = 0
    problem: str = ""
    directives: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    domains: tuple[PolicyDomainRow, ...] = ()
    more_domains: int = 0


class PolicyPage(Value, frozen=True):
    """Scheduling policies by kind, namespace and name."""

    policies: tuple[PolicyRow, ...]
    more: int = 0
    next: str = ""


# -- the extender, and the cluster as a whole --------------------------------------------------------------------------


class KeySummary(Value, frozen=True):
    """A label key of nodes: how many ``nodes`` have it, and how many values it has there (``domains``)."""

    key: str
    domains: int
    nodes: int


class ClusterFigures(Value, frozen=True):
    """How many objects the index holds, and how many pods are in which state.

    - ``pending``: pods that wait for a node and are not gated
    - ``assumed``: pods that have passed filter and are not seen bound
    - ``preemptions_in_flight``: preemptors that are not bound yet
    - ``groups_in_flight``: groups with a pod that is not bound
    - ``invalid_policies``: not counted in ``policies``
    - ``rebuilds``: how often the counts of the index had to be built again; only a bug causes that
    - ``topology_keys``: first the usual keys, then the keys that most nodes have; ``more_keys`` are left out
    """

    nodes: int
    pods: int
    namespaces: int
    pending: int
    gated: int
    assumed: int
    preemptions_in_flight: int
    groups_in_flight: int
    policies: int
    invalid_policies: int
    rebuilds: int
    topology_keys: tuple[KeySummary, ...]
    more_keys: int


class VerbRate(Value, frozen=True):
    """The answers of one verb in the last minute. Percentiles are upper bounds, at most a fifth above the true ones."""

    verb: str
    answers: int
    errors: int
    per_second: float
    p50_milliseconds: float
    p99_milliseconds: float


class HealthCheck(Value, frozen=True):
    """One check of the extender, with its result in words."""

    check: str
    status: Literal["ok", "warning", "failing"]
    text: str


class Features(Value, frozen=True):
    """What is switched on. ``preemption``: off, advise or execute."""

    whatif: bool
    policies: bool
    preemption: str
    quotas: bool


class Overview(ClusterFigures, frozen=True):
    """The extender and the cluster at a glance.

    - ``leader``: no other replica answers now
    - ``ready``: requests of the scheduler are answered
    - ``freshness_seconds``: age of the oldest kind: seconds since its last watch event or bookmark, which comes once a
      minute without changes; absent in a service that follows no cluster
    - ``shadow``: present where decisions are compared with the scheduler's own plugins; has a few of the last
      differences
    - ``resident_bytes``: the memory of the process; 0 where the system does not say
    - ``cluster_name``: server.clusterName
    """

    version: str
    mode: str
    placement: str
    uptime_seconds: float
    leader: bool
    ready: bool
    health: tuple[HealthCheck, ...]
    verbs: tuple[VerbRate, ...]
    features: Features
    resident_bytes: int
    cluster_name: str = ""
    freshness_seconds: float | None = None
    shadow: ShadowPage | None = None
