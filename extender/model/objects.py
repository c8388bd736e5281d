"""The trimmed Kubernetes objects: only the fields that a decision reads, immutable, small.

Structs of msgspec instead of dataclasses: a tenth of the time to make, and without a garbage-collector header, which
is what keeps 150,000 pods from costing a pause. They are part of no reference cycle, so that is safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Self
from weakref import ReferenceType

import msgspec

from extender.model.constraints.labels import NO_LABELS, Labels
from extender.model.constraints.node_affinity import ANY_NODE, NodeAffinity, PreferredNodeTerm
from extender.model.constraints.selectors import NOTHING, LabelSelector
from extender.model.constraints.spread import NO_SPREAD, SpreadConstraints
from extender.model.constraints.taints import Taint, Toleration
from extender.model.constraints.terms import NO_AFFINITY, PodAffinity
from extender.model.group_placements import GroupPlacement
from extender.model.host_ports import HostPorts
from extender.model.policies import DEFAULT_SERVICE_ACCOUNT, Enforced, PolicyKey, PolicyObject, Subject
from extender.model.release import Gating
from extender.model.resources import Resources

NO_RESOURCES: Resources = {}
DOMAINS_KIND: Final = "TopologyDomains"
# https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
DELETION_COST_MARK: Final = "placement.extender.dev/deletion-cost"
DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Controller:
    """The controlling owner of a pod, where it is one whose selector default constraints read."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit of the configuration that a pod is above: the limit's name, and a text that is equal for equal pods.

    ``namespace`` is set where the pod is within its own limits, and its namespace would be above one of those for the whole
    namespace. Such an excess ends when pods of the namespace are deleted. ``hides_labels``: the labels and the owner have not
    been read either.
    """

    limit: str
    text: str
    namespace: str = ""
    hides_labels: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodSignature:
    """What constraints read of a pod, and what its template fixes: the replicas of a workload share one signature.

    Compared by identity: ``wire`` hands out one object for equal input, and a duplicate costs memory, never a count.
    ``excess`` is set if the pod is above a limit. Above the limit of bytes its constraints have not been read and are
    empty here; above any other limit they are complete. ``size`` is the memory of the signature in bytes, an estimate.
    ``owner_kind``, ``service_account`` and ``priority_class`` are read by scheduling policies. ``injected`` is the text of
    the annotation that records what they injected. ``enforced`` and ``shown``, the signature that the watch shows, are set
    in that of an effective pod only: see `verbs/effective_pod.py`.
    """

    namespace: str
    labels: Labels = field(default_factory=dict)
    affinity: PodAffinity = NO_AFFINITY
    spread: SpreadConstraints = NO_SPREAD
    node_affinity: NodeAffinity = ANY_NODE
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    controller: Controller | None = None
    excess: Excess | None = None
    size: int = 0
    owner_kind: str = ""
    service_account: str = DEFAULT_SERVICE_ACCOUNT
    priority_class: str = ""
    injected: str = ""
    enforced: Enforced | None = None
    shown: ReferenceType[PodSignature] | None = None

    def subject(self, namespace_labels: Labels | None) -> Subject:
        """What scheduling policies are asked about such pods."""
        owner, account, priority_class = self.owner_kind, self.service_account, self.priority_class
        return Subject(self.namespace, self.labels, namespace_labels, owner, account, priority_class)


class Effective(NamedTuple):
    """What the policies make of a signature. ``signature`` is None where they hold its pods to nothing that these lack.

    ``namespace_labels`` are those that the policies were selected by. ``missed``: the policies that should have been
    injected at admission. ``audited``: those in mode Audit that would have held the pod to something. ``gating``: the policy
    whose gate a pod is to wait at before it is scheduled; at most one.
    """

    namespace_labels: Labels | None
    signature: PodSignature | None = None
    missed: tuple[PolicyKey, ...] = ()
    audited: tuple[PolicyKey, ...] = ()
    gating: tuple[PolicyKey, ...] = ()


class QuotaFacts(msgspec.Struct, frozen=True, gc=False):
    """What quotas of the scope CrossNamespacePodAffinity read of a pod beside its signature and its requests.

    ``created``: its creation time as the API server writes it, which sorts. ``limits``: the effective limits of CPU and memory.
    ``has_deadline``: it has an activeDeadlineSeconds. ``best_effort``: its QoS class is BestEffort. ``requests``: what it is
    charged for where that is not what it counts with on its node.
    """

    created: str = ""
    limits: Resources = NO_RESOURCES
    has_deadline: bool = False
    best_effort: bool = False
    requests: Resources | None = None


NO_FACTS = QuotaFacts()


ON_ITS_WAY = "the pod may be on its way to the node of an earlier answer"
"""The error of a request that must not end an assumption. The scheduler reports it in the pod's condition: its attempt has failed."""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod. ``node`` is empty while it is not assigned; ``finished`` pods are no part of any count.

    ``preempted``: it is marked as the victim of a preemption, or evicted (condition DisruptionTarget, KEP-3329).
    ``rejection``: the scheduler's last reason why it is pending (PodScheduled=False), empty if there is none.
    ``binding_failed``: by that reason the last attempt failed when the pod was to be bound. ``on_its_way``: it got the error
    `ON_ITS_WAY`. Both are kept beside the text, which recordings without names leave out.
    ``has_unseen_needs``: it needs volumes or devices, which the index does not hold.
    ``gating`` is set for a gated pod and for one that we have released.
    ``created``: of a pod without a node, its creation time as the API server writes it, which sorts.
    ``quota``: only of a pod that carries terms which name namespaces, see `model/constraints/terms.py`.
    ``scheduler``: the name of the scheduler that is to place it. ``deletion_cost``: its annotation of that name as it stands;
    ``has_own_cost``: by the annotation beside it we have written it.
    ``requests``: what it counts with where it is. ``spec_requests``: what a copy of it would request, None where that is the same;
    it differs while the kubelet resizes the pod in place.
    """

    uid: str
    name: str
    signature: PodSignature
    node: str = ""
    terminating: bool = False
    finished: bool = False
    gated: bool = False
    priority: int = 0
    never_preempts: bool = False
    nominated_node: str = ""
    requests: Resources = NO_RESOURCES
    start_time: datetime | None = None
    preempted: bool = False
    has_unseen_needs: bool = False
    rejection: str = ""
    gating: Gating | None = None
    quota: QuotaFacts = NO_FACTS
    created: str = ""
    host_ports: HostPorts = ()
    scheduler: str = DEFAULT_SCHEDULER
    binding_failed: bool = False
    on_its_way: bool = False
    deletion_cost: str = ""
    has_own_cost: bool = False
    spec_requests: Resources | None = None

    def recreated(self) -> Self:
        """The pod as its controller would create it anew: on no node, and with the requests of its spec."""
        requests = self.requests if self.spec_requests is None else self.spec_requests
        return msgspec.structs.replace(self, node="", nominated_node="", requests=requests, spec_requests=None)

    @property
    def key(self) -> str:
        """The UID: a name may mean another pod by now, before the watch has shown the deletion of the first."""
        return self.uid

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.signature.namespace

    @property
    def full_name(self) -> str:
        """``namespace/name``, as in logs."""
        return f"{self.signature.namespace}/{self.name}"


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node; heartbeats are not kept, so they change nothing.

    ``unavailable_at``: since when it takes no pod by its conditions, taints or a cordon, in seconds of the Unix epoch; None
    where it takes pods, infinite where the object does not tell since when.
    """

    name: str
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Resources = NO_RESOURCES
    unavailable_at: float | None = None

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class ExcludedDomain(msgspec.Struct, frozen=True, gc=False):
    """A topology domain that an operator excludes. Times are seconds of the Unix epoch; without an end until it is taken back."""

    domain: str
    until: float | None = None
    since: float | None = None
    reason: str = ""


MOST_TOPOLOGY_DOMAINS: Final = 64
"""Of so many objects, the first by name, the domains are read: a change of one looks at all of them."""


class TopologyDomains(msgspec.Struct, frozen=True, gc=False):
    """The domains of a topology key that there are, or will be once they have a node, and those that are excluded now."""

    name: str
    topology_key: str = ""
    domains: tuple[str, ...] = ()
    excluded: tuple[ExcludedDomain, ...] = ()

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A namespace and the labels that namespaceSelectors read."""

    name: str
    labels: Labels = NO_LABELS

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A Service, ReplicationController, ReplicaSet or StatefulSet: what default spread constraints are deduced from.

    ``selector`` is None where the object has none (a Service without selector selects no pod).
    """

    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None

    @property
    def key(self) -> str:
        """``kind/namespace/name``, unique among all workloads."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget: which pods it protects, and how many may be disrupted now.

    ``disrupted`` are names of pods whose eviction the API server has already admitted: they are not counted twice.
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
    """

    namespace: str
    name: str
    selector: LabelSelector = NOTHING
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class QuotaScope(msgspec.Struct, frozen=True, gc=False):
    """One scope of a quota. A scope of ``spec.scopes`` has the operator Exists."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class PodQuota(msgspec.Struct, frozen=True, gc=False):
    """A ResourceQuota, as far as it is about pods with affinity across namespaces.

    ``scopes`` are joined by AND; they are empty for a quota without the scope CrossNamespacePodAffinity, which concerns no
    decision here. ``hard`` has the limits that pods use up, in the units of `Resources`; ``uncharged`` names the others.
    https://kubernetes.io/docs/concepts/policy/resource-quotas/
    """

    namespace: str
    name: str
    scopes: tuple[QuotaScope, ...] = ()
    hard: Resources = NO_RESOURCES
    uncharged: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


# Each has a ``key`` that is unique among the objects of its kind.
Object = (
    Pod | Node | Namespace | Workload | DisruptionBudget | PodQuota | PolicyObject | GroupPlacement | TopologyDomains
)
