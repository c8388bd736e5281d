"""The trimmed Kubernetes objects: only the fields that a decision reads, immutable, small.

Structs of msgspec instead of dataclasses, because they take a tenth of the time to make and have no garbage-collector
header: 150,000 pods then cost no pause. That is safe because they are part of no reference cycle.
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
DAEMON_SET: Final = "DaemonSet"  # each pod of one belongs to its node


@dataclass(frozen=True, slots=True)
class Controller:
    """The controlling owner of a pod, where it is of a kind whose selector default constraints read."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit of the configuration that a pod exceeds: the limit's name, and a text that is equal for equal pods.

    ``namespace`` is set where the pod keeps its own limits, but its namespace would exceed a limit of the whole
    namespace. Such an excess ends when pods of the namespace are deleted. ``hides_labels``: labels and owner have not
    been read either.
    """

    limit: str
    text: str
    namespace: str = ""
    hides_labels: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodSignature:
    """What constraints read of a pod, and what its template fixes: the replicas of a workload share one signature.

    Compared by identity: ``wire`` makes one object for equal input. A duplicate costs memory, never a wrong count.
    """

    namespace: str
    labels: Labels = field(default_factory=dict)
    # Constraints. Empty if the pod exceeds the limit of bytes, because then they have not been read.
    affinity: PodAffinity = NO_AFFINITY
    spread: SpreadConstraints = NO_SPREAD
    node_affinity: NodeAffinity = ANY_NODE
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    controller: Controller | None = None
    # Set if the pod exceeds a limit. Constraints are complete above any limit but the limit of bytes.
    excess: Excess | None = None
    # Estimated bytes of memory.
    size: int = 0
    # Read by scheduling policies.
    owner_kind: str = ""
    service_account: str = DEFAULT_SERVICE_ACCOUNT
    priority_class: str = ""
    # The annotation that records what policies injected.
    injected: str = ""
    # Only in the signature of an effective pod, see `verbs/effective_pod.py`: what policies add, and the signature that
    # the watch shows.
    enforced: Enforced | None = None
    shown: ReferenceType[PodSignature] | None = None

    def subject(self, namespace_labels: Labels | None) -> Subject:
        """The facts about such pods by which scheduling policies select."""
        owner, account, priority_class = self.owner_kind, self.service_account, self.priority_class
        return Subject(self.namespace, self.labels, namespace_labels, owner, account, priority_class)


class Effective(NamedTuple):
    """What the policies make of a signature.

    ``signature`` is None where its pods already have all that policies require.
    """

    # The labels by which the policies were selected.
    namespace_labels: Labels | None
    signature: PodSignature | None = None
    # The policies that should have been injected at admission.
    missed: tuple[PolicyKey, ...] = ()
    # The policies in mode Audit that would add something.
    audited: tuple[PolicyKey, ...] = ()
    # The policy at whose gate a pod has to wait before it is scheduled; at most one.
    gating: tuple[PolicyKey, ...] = ()


class QuotaFacts(msgspec.Struct, frozen=True, gc=False):
    """What quotas of the scope CrossNamespacePodAffinity read of a pod, beside its signature and its requests."""

    # Creation time as the API server writes it, which sorts.
    created: str = ""
    # Effective limits of CPU and memory.
    limits: Resources = NO_RESOURCES
    # It has an activeDeadlineSeconds.
    has_deadline: bool = False
    # Its QoS class is BestEffort.
    best_effort: bool = False
    # The requests that the quota charges, where they differ from the requests that count on the node.
    requests: Resources | None = None


NO_FACTS = QuotaFacts()


ON_ITS_WAY = "the pod may be on its way to the node of an earlier answer"
"""The error of a request that must not end an assumption.

The scheduler reports the failed attempt in the pod's condition.
"""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod. ``node`` is empty while it is not assigned; ``finished`` pods are part of no count."""

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
    # What the pod counts with on its node.
    requests: Resources = NO_RESOURCES
    start_time: datetime | None = None
    # Marked as the victim of a preemption, or evicted (condition DisruptionTarget, KEP-3329).
    preempted: bool = False
    # It needs volumes or devices, which the index does not hold.
    has_unseen_needs: bool = False
    # Why it is pending, by the scheduler (PodScheduled=False); empty if there is no reason.
    rejection: str = ""
    # Only for a gated pod, and for a pod that we have released.
    gating: Gating | None = None
    # Only for a pod with terms that name namespaces, see `model/constraints/terms.py`.
    quota: QuotaFacts = NO_FACTS
    # Only for a pod without a node: creation time as the API server writes it, which sorts.
    created: str = ""
    host_ports: HostPorts = ()
    # The schedulerName of the pod.
    scheduler: str = DEFAULT_SCHEDULER
    # Read from the text of the reason: the last attempt failed at binding; the pod got the error `ON_ITS_WAY`. Kept
    # beside the text, because recordings without names leave the text out.
    binding_failed: bool = False
    on_its_way: bool = False
    # The annotation of that name, unparsed. A second annotation shows that we have written it.
    deletion_cost: str = ""
    has_own_cost: bool = False
    # What a copy of the pod would request; None if equal to ``requests``. They differ while the kubelet resizes the
    # pod.
    spec_requests: Resources | None = None

    def recreated(self) -> Self:
        """The pod as its controller would create it anew: on no node, and with the requests of its spec."""
        requests = self.requests if self.spec_requests is None else self.spec_requests
        return msgspec.structs.replace(self, node="", nominated_node="", requests=requests, spec_requests=None)

    @property
    def key(self) -> str:
        """The UID: the name may belong to a new pod before the watch has shown that the old one is deleted."""
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
    """A node. Heartbeats are not kept, so they change nothing."""

    name: str
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Resources = NO_RESOURCES
    # Since when it takes no pod, by its conditions, taints or a cordon, in seconds of the Unix epoch. None: it takes
    # pods. Infinite: the object does not say since when.
    unavailable_at: float | None = None

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class ExcludedDomain(msgspec.Struct, frozen=True, gc=False):
    """A topology domain that an operator excludes.

    Times are seconds of the Unix epoch; no ``until``: until it is revoked.
    """

    domain: str
    until: float | None = None
    since: float | None = None
    reason: str = ""


MOST_TOPOLOGY_DOMAINS: Final = 64
"""So many objects are read at most, the first by name, because a change of one object visits all of them."""


class TopologyDomains(msgspec.Struct, frozen=True, gc=False):
    """The declared domains of a topology key, which may have no node yet, and the domains that are excluded now."""

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
    """A ResourceQuota, as far as it concerns pods with affinity across namespaces.

    ``scopes`` are joined by AND. They are empty for a quota without the scope CrossNamespacePodAffinity: such a quota
    matters to no decision here. ``hard``: the limits that pods use up, in the units of `Resources`. ``uncharged``: the
    names of the other limits.
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
