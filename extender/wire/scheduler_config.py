"""A KubeSchedulerConfiguration, read as strictly as kube-scheduler reads it: each field by its name and its type.

A null is a missing field, as for Go. Arguments of plugins that kube-scheduler does not have are kept unread. Allowed
values beyond the type are checked by `doctor.scheduler_validation`.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from extender.model.documents import DocumentError, Section, read_document
from extender.model.units import Duration

GROUP: Final = "kubescheduler.config.k8s.io"
# kube-scheduler 1.29 removed the last beta version.
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class ClientConnection(Section, frozen=True):
    """How kube-scheduler reaches the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: Int32 = 0


class SchedulerLeaderElection(Section, frozen=True):
    """The Lease. A duration of 0 means the default."""

    leader_elect: bool = True
    lease_duration: Duration = Duration(0)
    renew_deadline: Duration = Duration(0)
    retry_period: Duration = Duration(0)
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""

    @property
    def lease(self) -> tuple[str, str]:
        """The namespace and the name of the Lease."""
        return self.resource_namespace or "kube-system", self.resource_name or "kube-scheduler"


class Plugin(Section, frozen=True):
    """A plugin by its name."""

    name: str = ""
    weight: Int32 | None = None


class PluginSet(Section, frozen=True):
    """What is enabled in addition to the defaults of an extension point, and which defaults are disabled."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()

    @property
    def enabled_names(self) -> list[str]:
        """The names of enabled plugins."""
        return [plugin.name for plugin in self.enabled]

    def disables(self, name: str) -> bool:
        """Whether it disables a default, by its name or with all defaults."""
        return any(plugin.name in (name, "*") for plugin in self.disabled)


class Plugins(Section, frozen=True):
    """The plugins of each extension point, and `multiPoint` for all points that a plugin has."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def sets(self) -> Iterator[tuple[str, PluginSet]]:
        """Each extension point by its name in the file."""
        return ((field.encode_name, getattr(self, field.name)) for field in msgspec.structs.fields(self))

    def is_active(self, name: str, point: str) -> bool:
        """Whether a plugin is called at one of its default extension points.

        Of several entries, one that enables it wins.
        """
        # An entry at the extension point wins over multiPoint.
        at_point = next(plugin_set for its_point, plugin_set in self.sets() if its_point == point)
        everywhere = name in self.multi_point.enabled_names or not self.multi_point.disables(name)
        return name in at_point.enabled_names or (everywhere and not at_point.disables(name))


class PluginConfig(Section, frozen=True):
    """The arguments of one plugin. `read_arguments` reads them if kube-scheduler has the plugin."""

    name: str = ""
    args: Any = None


class Profile(Section, frozen=True):
    """A profile. ``scheduler_name`` may be missing if there is only one."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @property
    def name(self) -> str:
        """The name that pods have as their schedulerName."""
        return "default-scheduler" if self.scheduler_name is None else self.scheduler_name

    def has_arguments(self, plugin: str) -> bool:
        """Whether pluginConfig has an entry for the plugin."""
        return any(config.name == plugin for config in self.plugin_config)

    def arguments(self, kind: type[ArgumentsT]) -> ArgumentsT | None:
        """The arguments of the plugin of this kind; None without arguments."""
        # NodeAffinityArgs are the arguments of the plugin NodeAffinity.
        name = kind.__name__.removesuffix("Args")
        entry = next((config for config in self.plugin_config if config.name == name), None)
        return None if entry is None else read_document(entry.args or {}, kind)


class TlsConfig(Section, frozen=True):
    """The files, or content in base64, with which kube-scheduler calls an extender."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""

    @property
    def has_ca(self) -> bool:
        """Whether it names an authority."""
        return bool(self.ca_file or self.ca_data)

    @property
    def has_certificate(self) -> bool:
        """Whether it names a client certificate."""
        return bool(self.cert_file or self.cert_data)


class ManagedResource(Section, frozen=True):
    """A resource that an extender manages."""

    name: str = ""
    ignored_by_scheduler: bool = False


class Extender(Section, frozen=True):
    """An entry of `extenders`."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    # With prioritizeVerb it has to be positive.
    weight: Int64 = 0
    bind_verb: str = ""
    # Named by hand: the rule for names would give enableHttps.
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: TlsConfig = TlsConfig()
    # 0: kube-scheduler waits 5 seconds.
    http_timeout: Duration = Duration(0)
    node_cache_capable: bool = False
    # If it is set, kube-scheduler calls the extender only for pods that request one of these resources.
    managed_resources: tuple[ManagedResource, ...] = ()
    # If it is not set, a pod stays pending while the extender does not answer.
    ignorable: bool = False


class KubeSchedulerConfiguration(Section, frozen=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    parallelism: Int32 | None = None
    leader_election: SchedulerLeaderElection = SchedulerLeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    # None and 0: kube-scheduler chooses by the number of nodes, from 50 % down to 5 %.
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False

    @property
    def all_profiles(self) -> tuple[Profile, ...]:
        """The profiles; if the list is empty, kube-scheduler's default profile."""
        return self.profiles or (Profile(),)


# -- arguments of plugins


class Arguments(Section, frozen=True):
    """The fields that all plugins' arguments may have."""

    api_version: str = ""
    kind: str = ""


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


class ResourceSpec(Section, frozen=True):
    """A resource and its weight; 0 means 1."""

    name: str = ""
    weight: Int64 = 0


class ShapePoint(Section, frozen=True):
    """A point of a scoring function."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatio(Section, frozen=True):
    """The scoring function of that strategy."""

    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Section, frozen=True):
    """How NodeResourcesFit scores."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class SchedulerDefaultConstraint(Section, frozen=True):
    """A spread constraint for pods without one."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: Any = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class AddedAffinityRequirement(Section, frozen=True):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class AddedAffinityTerm(Section, frozen=True):
    """A node selector term."""

    match_expressions: tuple[AddedAffinityRequirement, ...] = ()
    match_fields: tuple[AddedAffinityRequirement, ...] = ()


class PreferredTerm(Section, frozen=True):
    """A preferred term of node affinity."""

    weight: Int32 = 0
    preference: AddedAffinityTerm = AddedAffinityTerm()


class RequiredTerms(Section, frozen=True):
    """The required terms of node affinity."""

    node_selector_terms: tuple[AddedAffinityTerm, ...] = ()


class AddedAffinity(Section, frozen=True):
    """Node affinity that is added to all pods."""

    required: RequiredTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class DefaultPreemptionArgs(Arguments, frozen=True):
    """Of DefaultPreemption."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class DynamicResourcesArgs(Arguments, frozen=True):
    """Of DynamicResources."""

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


class InterPodAffinityArgs(Arguments, frozen=True):
    """Of InterPodAffinity."""

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(Arguments, frozen=True):
    """Of NodeAffinity."""

    added_affinity: AddedAffinity | None = None


class NodeResourcesBalancedAllocationArgs(Arguments, frozen=True):
    """Of NodeResourcesBalancedAllocation."""

    resources: tuple[ResourceSpec, ...] = ()


class NodeResourcesFitArgs(Arguments, frozen=True):
    """Of NodeResourcesFit."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy | None = None


class PodTopologySpreadArgs(Arguments, frozen=True):
    """Of PodTopologySpread."""

    default_constraints: tuple[SchedulerDefaultConstraint, ...] = ()
    defaulting_type: str = ""


class VolumeBindingArgs(Arguments, frozen=True):
    """Of VolumeBinding."""

    bind_timeout_seconds: Int64 = 600
    shape: tuple[ShapePoint, ...] = ()


_ARGUMENTS: Final[Mapping[str, type[Arguments]]] = {
    kind.__name__.removesuffix("Args"): kind
    for kind in (
        DefaultPreemptionArgs,
        DynamicResourcesArgs,
        InterPodAffinityArgs,
        NodeAffinityArgs,
        NodeResourcesBalancedAllocationArgs,
        NodeResourcesFitArgs,
        PodTopologySpreadArgs,
        VolumeBindingArgs,
    )
}

_NEVER_NULL: Final = frozenset({"leaseDuration", "renewDeadline", "retryPeriod", "httpTimeout"})


def read_scheduler_config(document: object) -> KubeSchedulerConfiguration:
    """The configuration of a parsed file.

    Raises DocumentError with a line "path: problem" for each field that kube-scheduler refuses to read.
    """
    head = document if isinstance(document, Mapping) else {}
    if head.get("kind") != KIND:
        raise DocumentError([f"kind is {head.get('kind')}, not {KIND}"])
    if head.get("apiVersion") != API_VERSION:
        raise DocumentError([f"apiVersion is {head.get('apiVersion')}, and kube-scheduler reads {API_VERSION} alone"])
    configuration = read_document(_as_go_reads(document), KubeSchedulerConfiguration)
    problems = [
        f"profiles[{number}].pluginConfig[{place}].args{problem}"
        for number, profile in enumerate(configuration.profiles)
        for place, config in enumerate(profile.plugin_config)
        for problem in _argument_problems(config)
    ]
    if problems:
        raise DocumentError(problems)
    return configuration


def _argument_problems(config: PluginConfig) -> Iterator[str]:
    """The problems of the arguments, with the path below them."""
    kind = _ARGUMENTS.get(config.name)
    if kind is None or config.args is None:
        return
    if not isinstance(config.args, dict):
        yield f": expected object, got {type(config.args).__name__}"
        return
    try:
        read = read_document(config.args, kind)
    except DocumentError as error:
        yield from (f".{problem}" for problem in error.problems)
        return
    for field, got, expected in (
        ("kind", read.kind, kind.__name__),
        ("apiVersion", read.api_version, API_VERSION),
    ):
        if got not in ("", expected):
            yield f".{field}: expected {expected}, got {got}"


def _as_go_reads(value: object) -> object:
    """A deep copy without nulls, and with integers in place of numbers such as 5.0, as Go encodes them again."""
    if isinstance(value, dict):
        # For Go a missing duration is 0, but it cannot parse null as one.
        return {
            str(name): _as_go_reads(field) for name, field in value.items() if field is not None or name in _NEVER_NULL
        }
    if isinstance(value, list):
        return [_as_go_reads(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
