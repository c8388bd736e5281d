"""The facts about an installation, the RBAC permissions that its settings need, and the form of a finding.

A fact that could not be read is None. The permissions follow from the rows of `wire.objects.kinds` and `wire.api_calls`: `doctor`
reviews each permission, and the manifests in deploy/ grant them.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from extender.model.group_placements import PLACEMENTS
from extender.model.objects import PodQuota
from extender.model.policies import InvalidPolicy, Policy, PolicyKey
from extender.model.release import DomainUse
from extender.settings.configuration import Settings
from extender.verbs.release.progress import GroupOverview, StrayPod
from extender.wire.api_calls import API_CALLS
from extender.wire.api_server import ApiServer
from extender.wire.objects.kinds import TOPOLOGY_DOMAINS, watched_kinds
from extender.wire.webhook_configurations import MUTATING, POLICY_RESOURCES, VALIDATING


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource. `why`: for the administrator, what needs it. An empty namespace means all namespaces."""

    group: str
    resource: str
    subresource: str
    verb: str
    why: str
    namespace: str = ""
    name: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether the service fails without it. Without the permission for events only information is lost."""
        return self.resource != "events"

    @property
    def what(self) -> str:
        """The resource with its subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def review_arguments(self) -> tuple[str, str, str, str, str, str]:
        """The arguments of an access review: verb, group, resource, subresource, namespace, name."""
        return self.verb, self.group, self.resource, self.subresource, self.namespace, self.name

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.what}{'.' + self.group if self.group else ''}{where}"


_MANIFESTS: Final[Mapping[str, str]] = {
    "leases": "base/lease.yaml",
    "secrets": "policies/role.yaml",
    "endpointslices": "overlays/service/leader.yaml",
    **dict.fromkeys((MUTATING, VALIDATING, *POLICY_RESOURCES, PLACEMENTS), "policies/role.yaml"),
    "pods/binding": "bind/kustomization.yaml",
}


APPLY_OVERLAY: Final = "`kubectl apply -k deploy/overlays/${OVERLAY:?}`"
APPLY_KINDS: Final = "`kubectl apply -f deploy/policies/crds.yaml`"
RENEW: Final = "renew it (`extender certs --out certs --authority certs/authority`, or cert-manager)"
_COMPONENTS: Final = ("policies", "bind")  # folders in deploy/ that an overlay may include


def granting(resource: str, verb: str, settings: Settings) -> str:
    """How to grant a verb on a resource: a sentence without its full stop.

    It names the overlay, because a file of a role is not complete without it: the overlay adds the namespace and the account.
    """
    manifest = manifest_of(resource, verb, settings)
    component = manifest.split("/")[1]
    # Example: deploy/policies/role.yaml is in the component `policies`, which an overlay has to include.
    need = f" with `components: [../../{component}]` in its kustomization.yaml" if component in _COMPONENTS else ""
    return f"apply your overlay{need}, where {manifest} grants it: {APPLY_OVERLAY}"


def manifest_of(resource: str, verb: str, settings: Settings) -> str:
    """The file that grants a verb on a resource, such as ``pods/status``, to a service with these settings."""
    # Reads are granted cluster-wide by one role; writes by the manifest of the part that writes.
    if verb in {"list", "watch"}:
        is_policy = resource in {*POLICY_RESOURCES, PLACEMENTS, TOPOLOGY_DOMAINS.resource}
        return f"deploy/{'policies/kustomization' if is_policy else 'base/reader'}.yaml"
    if resource == "endpointslices" and settings.policies.enabled and not settings.policies.webhook.url:
        return "deploy/policies/role.yaml"  # permissions of the webhook; the leader's are in the same file
    name = resource if resource in _MANIFESTS else resource.partition("/")[0]
    return f"deploy/{_MANIFESTS.get(name, 'base/writer.yaml')}"


def needed_permissions(settings: Settings) -> list[Permission]:
    """All permissions that the settings need, each once. Permissions for the Lease only if its namespace is known."""
    return [*_reads(settings), *_calls(settings)]


def _reads(settings: Settings) -> Iterator[Permission]:
    for watched in watched_kinds(settings):
        for verb in ("list", "watch"):
            yield Permission(watched.kind.group, watched.kind.resource, "", verb, watched.why)


def _calls(settings: Settings) -> Iterator[Permission]:
    """The permissions of the rows that these settings need; rows can share one."""
    permissions: dict[tuple[str, str, str, str], Permission] = {}
    for call in API_CALLS:
        what = (call.group, call.resource, call.subresource, call.verb)
        # Several calls may share a permission: the first reason is shown.
        if what in permissions or not call.is_needed(settings):
            continue
        place = call.place(settings)
        if place is not None:
            permissions[what] = Permission(*what, call.why, *place)
    yield from permissions.values()


Severity = Literal["error", "warning", "info"]
Labels = Mapping[str, str]

LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})  # hosts
_MOST_OF_A_SORT: Final = 10  # findings
LEADERSHIP: Final = "leadership"  # the readiness check that a standby fails
_HEALTHY_STANDBY: Final = "standby, the leader is "


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem and its remedy. `check` is a stable name for scripts."""

    severity: Severity
    check: str
    problem: str
    remedy: str


def bounded(findings: list[Finding], what: str, remedy: str) -> Iterator[Finding]:
    """The first findings of one sort; the others are only counted."""
    yield from findings[:_MOST_OF_A_SORT]
    if more := findings[_MOST_OF_A_SORT:]:
        yield Finding(more[0].severity, more[0].check, f"{len(more)} more {what}", remedy)


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of the metrics page."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class SchedulerCalls:
    """Whether kube-scheduler calls the extender, by the pods of the cluster.

    - ``scheduled``: how many pods were bound since the service started.
    - ``rejected``: messages of pods that no node takes; ``failed``: messages of pods whose scheduler had an error.
    - ``untried``: how many pods no scheduler has tried; ``untried_since``: the oldest of them.
    - ``tried_at``: when a scheduler last requested a decision, or placed a pod.
    - ``lost_kubeconfig``: the scheduler's kubeconfig, if this machine does not have it.
    - ``unasked``: by schedulerName how many pods no scheduler has tried; only names without any request of a scheduler.
    """

    scheduled: int = 0
    rejected: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    untried: int = 0
    untried_since: float = 0.0
    tried_at: float = 0.0
    lost_kubeconfig: str = ""
    unasked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyInUse:
    """A policy of the cluster. ``matched``: the number of pods in its status, None without a status."""

    policy: Policy | InvalidPolicy
    matched: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """Facts about policies from the API server. A fact that could not be read is absent, and gives no finding.

    - ``not_served``: kinds that are not served, as "resource.group".
    - ``dropped``: by kind the fields that the code reads and that the CRD's schema does not have.
    - ``no_configuration``: webhook configurations that do not exist; ``untrusted``: whose caBundle does not verify the certificate.
    - ``services``: by "namespace/name" of the webhook's Service the number of ready endpoints, None if it does not exist.
    - ``lost_urls``: by URL that the API server calls, why it does not lead to the webhook; ``unproven``: URLs that may be unreachable
      from this machine only.
    - ``call_fault``: the API server's error when it called the webhook in a dry run; empty without an error, None without a call.
    - ``selects_nothing``: selectors of the mutating webhook that select nothing, and what they should select.
    """

    not_served: tuple[str, ...] = ()
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    no_configuration: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    services: Mapping[str, int | None] = field(default_factory=dict)
    lost_urls: Mapping[str, str] = field(default_factory=dict)
    unproven: Mapping[str, str] = field(default_factory=dict)
    call_fault: str | None = None
    selects_nothing: Mapping[str, str] = field(default_factory=dict)
    policies: tuple[PolicyInUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    """The pod groups of a cluster, and the pods that have a gate of ours and are in no group (``strays``).

    ``domains``: by policy, how much of each domain its pods use, in order.
    """

    groups: Sequence[GroupOverview] = ()
    strays: Sequence[StrayPod] = ()
    domains: Sequence[tuple[PolicyKey, Sequence[DomainUse]]] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """The deployment, as far as it can be read.

    - ``replicas``: pods of the extender behind a Service.
    - ``schedulers``: pods in which kube-scheduler runs beside its own extender.
    - ``first_schedulers``: pods of the control plane's kube-scheduler.
    - ``guard``: the missing part of the admission policy that limits the extender's account. Empty if nothing is missing, or if it
      cannot be read.
    - ``scheduler_tags``: by tag of kube-scheduler's image the pods with it, "namespace/name", also pods that do not run.
    """

    replicas: int = 0
    schedulers: int = 0
    first_schedulers: int = 0
    guard: str = ""
    scheduler_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts. Times are Unix seconds.

    - ``knows_settings``: whether ``settings`` come from the service or its file. Else they are defaults, and nothing is compared
      with them.
    - ``clocks``: by how many seconds each other clock is ahead of the local one.
    - ``denied``: needed permissions that the API server denies, None if they could not be reviewed. ``account``: the reviewed account,
      if it may not be the service's own, or if it could not be reviewed.
    - ``unread_pods``: why this command may not read pods, or empty.
    - ``policies``, ``quotas``, ``groups``: None also if they are disabled. Of groups only the pods without a node are known.
    - ``api_server``: None if it could not be read. ``dropped_fields``: fields of a new pod that it drops, as a dry run shows.
    - ``url``: where the service answers. ``leads``: whether this replica is known to be the one that a scheduler calls. ``unserved``: by URL of another extender of the scheduler, why it does not answer.
    """

    settings: Settings
    now: float
    readiness: Mapping[str, str] | None = None
    samples: Sequence[Sample] | None = None
    denied: Sequence[Permission] | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)
    lease_holder: str | None = None
    lease_age: float = 0.0
    queue: SchedulerCalls | None = None
    unread_pods: str = ""
    account: str = ""
    policies: PolicyFacts | None = None
    quotas: Sequence[PodQuota] | None = None
    groups: Groups | None = None
    knows_settings: bool = True
    url: str = ""
    leads: bool = False
    deployment: Deployment = Deployment()
    unserved: Mapping[str, str] = field(default_factory=dict)
    api_server: ApiServer | None = None
    dropped_fields: Sequence[str] = ()

    def series(self, name: str) -> Iterator[Sample]:
        """The series of a metric."""
        return (sample for sample in self.samples or () if sample.name == name)

    def total(self, name: str, /, **labels: str) -> float:
        """The sum of a metric over the series with these labels."""
        return sum(sample.value for sample in self.series(name) if labels.items() <= sample.labels.items())

    def latest(self, name: str, /, **labels: str) -> float:
        """The greatest value of a metric over the series with these labels; 0 where there is none."""
        return max(
            (sample.value for sample in self.series(name) if labels.items() <= sample.labels.items()), default=0.0
        )

    @property
    def leader(self) -> str:
        """The leader, if the service is a healthy standby; else empty."""
        # A healthy standby fails exactly this check. Any other failing check is a problem of a standby too.
        failing = {name: problem for name, problem in (self.readiness or {}).items() if problem}
        problem = failing.pop(LEADERSHIP, "")
        if failing or not problem.startswith(_HEALTHY_STANDBY) or ";" in problem:
            return ""
        return problem.removeprefix(_HEALTHY_STANDBY)
