"""The fields of Kubernetes objects that are decoded. All are optional; other fields are skipped.

Parts that few decisions read stay raw bytes. Equal bytes have equal meaning, so `trim` uses them as cache keys without
parsing. The type of an optional raw field must be ``Raw = Raw(b"")``, because msgspec would decode ``Raw | None``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from extender.model.objects import DELETION_COST, DELETION_COST_MARK
from extender.model.policies import INJECTED_ANNOTATION

NOTHING = Raw(b"")

Quantity = str | int | float
# The ranges of Go's types. The API server rejects other values. Checked here, they cannot break later arithmetic.
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Time = Annotated[datetime, Meta(tz=True)]


# gc=False: these structs never form cycles, and a list of 150,000 pods would otherwise trigger many collections.
class _Json(msgspec.Struct, rename="camel", gc=False):
    """A JSON object with fields in lower camel case; unknown fields are skipped."""


class MetaJson(_Json):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: Raw = NOTHING
    owner_references: Raw = NOTHING
    # Only its presence is read, so the time is not parsed.
    deletion_timestamp: str | None = None
    resource_version: str | None = None
    annotations: Raw = NOTHING
    # Compared as text: times in UTC with whole seconds, as the API server writes them, sort as texts do.
    creation_timestamp: str | None = None


class AnnotationsJson(_Json):
    """The annotation that records what policies injected, and the annotations about the deletion cost."""

    injected: str = msgspec.field(default="", name=INJECTED_ANNOTATION)
    deletion_cost: str = msgspec.field(default="", name=DELETION_COST)
    own_cost: str = msgspec.field(default="", name=DELETION_COST_MARK)


class PolicyMetaJson(MetaJson):
    """ObjectMeta of a policy."""

    generation: int = 0


class PolicyJson(_Json):
    """A scheduling policy; its spec is validated field by field (`policy_validation`)."""

    metadata: PolicyMetaJson | None = None
    # Any type, because a policy with a spec of a wrong type is kept as invalid and reported in its status.
    spec: Any = None
    status: Raw = NOTHING


class ResourcesJson(_Json):
    """ResourceRequirements. Only quotas read limits."""

    requests: Raw = NOTHING
    limits: Raw = NOTHING


class PortJson(_Json):
    host_port: Int32 | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class ContainerJson(_Json):
    """Container. ``restart_policy`` Always marks a sidecar among init containers (KEP-753)."""

    name: str | None = None
    resources: ResourcesJson | None = None
    restart_policy: str | None = None
    ports: list[PortJson] | None = None


class VolumeJson(_Json):
    """A volume: the two sources that decide on which nodes a pod can run."""

    persistent_volume_claim: Raw = NOTHING
    ephemeral: Raw = NOTHING


class PodSpecJson(_Json):
    node_name: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    service_account_name: str | None = None
    preemption_policy: str | None = None
    affinity: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    node_selector: Raw = NOTHING
    tolerations: Raw = NOTHING
    scheduling_gates: Raw = NOTHING
    containers: list[ContainerJson] | None = None
    init_containers: list[ContainerJson] | None = None
    overhead: Raw = NOTHING
    resources: ResourcesJson | None = None
    volumes: list[VolumeJson] | None = None
    resource_claims: Raw = NOTHING
    active_deadline_seconds: int | None = None
    scheduler_name: str | None = None


class ContainerStatusJson(_Json):
    """The resources that the kubelet has allocated for a container, and that the container has now (KEP-1287)."""

    name: str | None = None
    allocated_resources: Raw = NOTHING
    resources: ResourcesJson | None = None


class PodStatusJson(_Json):
    phase: str | None = None
    nominated_node_name: str | None = None
    start_time: Time | None = None
    qos_class: str | None = None
    conditions: Raw = NOTHING
    # Raw, because most statuses are not parsed at all: see `resizes.shown_resources`.
    container_statuses: Raw = NOTHING
    init_container_statuses: Raw = NOTHING
    allocated_resources: Raw = NOTHING
    resources: ResourcesJson | None = None


class ConditionJson(_Json):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodJson(_Json):
    metadata: MetaJson | None = None
    spec: PodSpecJson | None = None
    status: PodStatusJson | None = None


class TaintJson(_Json):
    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class NodeSpecJson(_Json):
    unschedulable: bool | None = None
    taints: list[TaintJson] | None = None


class NodeConditionJson(_Json):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeStatusJson(_Json):
    allocatable: dict[str, Quantity] | None = None
    conditions: list[NodeConditionJson] | None = None


class NodeJson(_Json):
    metadata: MetaJson | None = None
    spec: NodeSpecJson | None = None
    status: NodeStatusJson | None = None


class ExcludedDomainJson(_Json):
    domain: str = ""
    until: str | None = None
    since: str | None = None
    reason: str | None = None


class TopologyDomainsSpecJson(_Json):
    topology_key: str = ""
    domains: list[str] | None = None
    excluded: list[ExcludedDomainJson] | None = None


class TopologyDomainsJson(_Json):
    """The kind of deploy/policies/crds.yaml."""

    metadata: MetaJson | None = None
    spec: TopologyDomainsSpecJson | None = None


class NamespaceJson(_Json):
    """Namespace, or its PartialObjectMetadata."""

    metadata: MetaJson | None = None


class WorkloadSpecJson(_Json):
    """The selector of a Service or ReplicationController (a map) or of a ReplicaSet or StatefulSet (a LabelSelector)."""

    selector: Raw = NOTHING


class WorkloadJson(_Json):
    """Service, ReplicationController, ReplicaSet or StatefulSet."""

    metadata: MetaJson | None = None
    spec: WorkloadSpecJson | None = None


class BudgetSpecJson(_Json):
    selector: Raw = NOTHING


class BudgetStatusJson(_Json):
    """PodDisruptionBudgetStatus. ``disrupted_pods``: the time of each eviction, by the pod's name."""

    disruptions_allowed: Int32 | None = None
    disrupted_pods: dict[str, str | None] | None = None


class BudgetJson(_Json):
    metadata: MetaJson | None = None
    spec: BudgetSpecJson | None = None
    status: BudgetStatusJson | None = None


class RequirementJson(_Json):
    """LabelSelectorRequirement and NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelectorJson(_Json):
    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementJson] | None = None


class AffinityTermJson(_Json):
    """PodAffinityTerm. matchLabelKeys and mismatchLabelKeys are merged into the selector by the API server."""

    topology_key: str = ""
    label_selector: LabelSelectorJson | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelectorJson | None = None


class WeightedTermJson(_Json):
    weight: Int32 = 0
    pod_affinity_term: AffinityTermJson = msgspec.field(default_factory=AffinityTermJson)


class InterPodJson(msgspec.Struct, gc=False):
    """PodAffinity or PodAntiAffinity."""

    required: list[AffinityTermJson] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedTermJson] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class NodeTermJson(_Json):
    match_expressions: list[RequirementJson] | None = None
    match_fields: list[RequirementJson] | None = None


class NodeSelectorJson(_Json):
    node_selector_terms: list[NodeTermJson] | None = None


class PreferredNodeJson(_Json):
    weight: Int32 = 0
    preference: NodeTermJson = msgspec.field(default_factory=NodeTermJson)


class NodeAffinityJson(msgspec.Struct, gc=False):
    required: NodeSelectorJson | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredNodeJson] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class AffinityJson(_Json):
    node_affinity: NodeAffinityJson | None = None
    pod_affinity: InterPodJson | None = None
    pod_anti_affinity: InterPodJson | None = None


class SpreadJson(_Json):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelectorJson | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class TolerationJson(_Json):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class OwnerJson(_Json):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
